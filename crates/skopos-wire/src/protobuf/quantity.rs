//! Canonical form of quantities, as `resource.Quantity` of k8s.io/apimachinery writes it: `0.5` is `500m`, `1024Ki` is `1Mi`.

/// The suffixes of powers of 1000, and their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// The suffixes of the powers of 1024, from the first on.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The smallest power of ten: quantities are rounded up to it.
const NANO: i32 = -9;

/// The digits of a 64-bit number, up to which Go's parser keeps the text.
const MAX_FAST_DIGITS: i32 = 18;

/// A number: `mantissa` times ten to the power of `scale`.
#[derive(Clone, Copy)]
struct Number {
    mantissa: i128,
    scale: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// Returns the canonical form of a quantity; `None` for a text that is not a quantity, or has too many digits to tell.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let Parsed { number, format, keeps_text } = parse(text)?;
    if keeps_text {
        return Some(text.to_owned());
    }
    if number.mantissa == 0 {
        return Some("0".to_owned());
    }
    match format {
        Format::Binary => {
            let whole = number.rescaled(0)?.mantissa;
            if number.rescaled(NANO)?.mantissa.abs() < 1024 * 10i128.pow(9) {
                return number.decimal(Format::Decimal);
            }
            Some(binary(whole))
        }
        format => number.decimal(format),
    }
}

/// Returns whether this is certainly the canonical form, as nearly all quantities are that servers send.
pub(crate) fn is_short_canonical(text: &str) -> bool {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    // Up to six digits, no number is too large for its suffix.
    let Some(number @ 1..) = number.parse::<u32>().ok().filter(|_| digits <= 6 && !text.starts_with('0'))
    else {
        return false;
    };
    match suffix {
        "" | "m" | "k" | "M" => number % 1000 != 0,
        "Ki" | "Mi" | "Gi" | "Ti" => number % 1024 != 0,
        _ => false,
    }
}

struct Parsed {
    number: Number,
    format: Format,
    /// True for a text that Go's parser keeps because it takes it for canonical, such as `+5` or `1E3`.
    keeps_text: bool,
}

fn parse(text: &str) -> Option<Parsed> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let mantissa = if text.starts_with('-') { -mantissa } else { mantissa };
    // The power of ten of the last digit.
    let scale = -i32::try_from(fraction.len()).ok()?;
    let significant = whole.trim_start_matches('0');
    let whole_len = i32::try_from(significant.len().max(1)).ok()?;
    let is_kept = |power: i32| {
        whole_len - scale <= MAX_FAST_DIGITS
            && scale + power >= NANO
            && (scale + power) % 3 == 0
            && !format!("{significant}{fraction}").ends_with("000")
            && !significant.is_empty()
    };
    let (number, format, keeps_text) =
        if let Some((_, power)) = DECIMAL.iter().find(|(own, _)| *own == suffix) {
            (Number { mantissa, scale: scale + power }, Format::Decimal, is_kept(*power))
        } else if let Some(at) = BINARY.iter().position(|own| *own == suffix) {
            let exponent = 10 * (i32::try_from(at).ok()? + 1);
            let product = mantissa.checked_mul(1i128 << exponent)?;
            let is_fast = fraction.is_empty() && 14 - whole_len - exponent * 3 / 10 >= 0;
            // Go caps these, and only these.
            let most = i128::from(i64::MAX);
            let product = if scale == 0 { product.clamp(-most, most) } else { product };
            (Number { mantissa: product, scale }, Format::Binary, is_fast && mantissa & 7 != 0)
        } else {
            let power: i16 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = i32::from(power);
            (Number { mantissa, scale: scale + power }, Format::Exponent, is_kept(power))
        };
    let number = if number.scale < NANO { number.rescaled(NANO)? } else { number };
    Some(Parsed { number, format, keeps_text })
}

impl Number {
    /// Returns the number with another power of ten, rounded away from zero.
    fn rescaled(self, scale: i32) -> Option<Self> {
        let power = |difference: i32| 10i128.checked_pow(difference.unsigned_abs());
        let mantissa = match scale - self.scale {
            up @ 1.. => match power(up) {
                Some(divisor) => {
                    let rest = i128::from(self.mantissa % divisor != 0) * self.mantissa.signum();
                    self.mantissa / divisor + rest
                }
                None => self.mantissa.signum(),
            },
            down => self.mantissa.checked_mul(power(down)?)?,
        };
        Some(Self { mantissa, scale })
    }

    /// Formats the number with the largest suffix that leaves it whole.
    fn decimal(mut self, format: Format) -> Option<String> {
        while self.mantissa % 10 == 0 {
            self = Self { mantissa: self.mantissa / 10, scale: self.scale + 1 };
        }
        let scale = self.scale - self.scale.rem_euclid(3);
        let scale = if format == Format::Decimal { scale.min(18) } else { scale };
        let Self { mantissa, .. } = self.rescaled(scale)?;
        if format == Format::Exponent {
            return Some(if scale == 0 { mantissa.to_string() } else { format!("{mantissa}e{scale}") });
        }
        let (suffix, _) = DECIMAL.iter().find(|(_, power)| *power == scale)?;
        Some(format!("{mantissa}{suffix}"))
    }
}

fn binary(mut number: i128) -> String {
    let mut suffix = "";
    for larger in BINARY {
        if number % 1024 != 0 {
            break;
        }
        (number, suffix) = (number / 1024, larger);
    }
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_canonical_form_is_canonical() {
        let suffixes =
            ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3"];
        let numbers =
            (0..2100).chain([4096, 10_000, 65_536, 99_999, 131_072, 999_000, 999_424, 999_999, 1_000_001]);
        let mut short = 0;
        for number in numbers {
            for suffix in suffixes {
                for text in
                    [format!("{number}{suffix}"), format!("0{number}{suffix}"), format!("-{number}{suffix}")]
                {
                    if is_short_canonical(&text) {
                        assert_eq!(canonical(&text).as_deref(), Some(text.as_str()));
                        short += 1;
                    }
                }
            }
        }
        assert!(short > 16_000, "{short}");
        assert!(!is_short_canonical("") && !is_short_canonical("m") && !is_short_canonical("1.5"));
    }

    #[test]
    fn writes_canonical_form() {
        let cases = [
            ("0", "0"),
            ("0Gi", "0"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("12e6", "12e6"),
            ("1200000", "1200k"),
            ("-1000", "-1k"),
            ("0.0000000001", "1n"),
            ("+5Gi", "+5Gi"),
            ("8Gi", "8Gi"),
            ("010", "010"),
            ("5.", "5."),
            ("16Ei", "9223372036854775807"),
            ("0.1Ki", "102400m"),
            ("1e3", "1e3"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "x", ".", "1x", "1.2.3", "99999999999999999999999999999999999999999999"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}

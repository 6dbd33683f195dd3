//! Types whose JSON is not that of their fields: times, durations, quantities, numbers or texts.
//!
//! The formats are those of k8s.io/apimachinery (`metav1.Time`, `resource.Quantity`, ...) and of Go's `time.Duration`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::reader::{BadEncoding, Reader, WRONG_WIRE_TYPE, WireValue};

/// An `IntOrString`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IntOrString<'a> {
    Integer(i32),
    Text(Cow<'a, str>),
}

/// The Unix time of Go's zero time: the first second of the year 1.
pub(crate) const ZERO_TIME: i64 = -62_135_596_800;

/// Returns a text with U+FFFD in the place of each byte that is not UTF-8, as the JSON of Go has it; `from_utf8_lossy` has one for
/// several of them.
pub(crate) fn lossy(text: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(text) {
        return text.into();
    }
    let mut own = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        own.push_str(chunk.valid());
        own.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    own.into()
}

/// Returns bytes as JSON has them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Formats a `Time` in RFC 3339 with seconds; `None` for the zero time.
pub(crate) fn time(message: &[u8]) -> Result<Option<String>, BadEncoding> {
    let (seconds, _) = numbers(message)?;
    Ok((!message.is_empty() && seconds != ZERO_TIME).then(|| date_and_time(seconds) + "Z"))
}

/// Formats a `MicroTime` in RFC 3339 with microseconds; `None` for the zero time.
pub(crate) fn micro_time(message: &[u8]) -> Result<Option<String>, BadEncoding> {
    let (seconds, nanos) = numbers(message)?;
    let total = i128::from(seconds) * 1_000_000 + i128::from(nanos / 1000);
    let seconds = i64::try_from(total.div_euclid(1_000_000)).unwrap_or_default();
    let micros = total.rem_euclid(1_000_000);
    let is_zero = message.is_empty() || (seconds == ZERO_TIME && micros == 0);
    Ok((!is_zero).then(|| format!("{}.{micros:06}Z", date_and_time(seconds))))
}

/// Formats a `Duration` as Go does: `1h2m3.5s`.
pub(crate) fn duration(message: &[u8]) -> Result<String, BadEncoding> {
    let (nanos, _) = numbers(message)?;
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    if nanos < 1_000_000_000 {
        let (unit, size) = match nanos {
            0 => return Ok("0s".to_owned()),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return Ok(format!("{sign}{}{unit}", with_fraction(nanos, size)));
    }
    let minutes = nanos / 60_000_000_000;
    let seconds = with_fraction(nanos % 60_000_000_000, 1_000_000_000);
    Ok(match minutes {
        0 => format!("{sign}{seconds}s"),
        1..60 => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{}h{}m{seconds}s", minutes / 60, minutes % 60),
    })
}

/// Returns the text of a `Quantity`.
pub(crate) fn quantity(message: &[u8]) -> Result<Cow<'_, str>, BadEncoding> {
    match first_bytes(message)? {
        None | Some([]) => Ok("0".into()),
        Some(text) => {
            let text = lossy(text);
            if super::quantity::is_short_canonical(&text) {
                return Ok(text);
            }
            Ok(match super::quantity::canonical(&text) {
                Some(canonical) if canonical != text => canonical.into(),
                _ => text,
            })
        }
    }
}

/// Reads an `IntOrString`.
pub(crate) fn int_or_string(message: &[u8]) -> Result<IntOrString<'_>, BadEncoding> {
    let (mut is_text, mut number, mut text) = (false, 0, &[][..]);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next()? {
        match field {
            (1, WireValue::Varint(r#type)) => is_text = r#type != 0,
            (2, WireValue::Varint(value)) => number = value.cast_signed() as i32,
            (3, WireValue::Bytes(bytes)) => text = bytes,
            (1..=3, _) => return Err(WRONG_WIRE_TYPE),
            _ => {}
        }
    }
    Ok(if is_text { IntOrString::Text(lossy(text)) } else { IntOrString::Integer(number) })
}

/// Returns the bytes of field 1; the last ones win.
pub(crate) fn first_bytes(message: &[u8]) -> Result<Option<&[u8]>, BadEncoding> {
    let mut first = None;
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next()? {
        match field {
            (1, WireValue::Bytes(bytes)) => first = Some(bytes),
            (1, _) => return Err(WRONG_WIRE_TYPE),
            _ => {}
        }
    }
    Ok(first)
}

/// Returns the numbers in the fields 1 and 2, or 0.
fn numbers(message: &[u8]) -> Result<(i64, i32), BadEncoding> {
    let (mut first, mut second) = (0, 0);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next()? {
        match field {
            (1, WireValue::Varint(number)) => first = number.cast_signed(),
            (2, WireValue::Varint(number)) => second = number.cast_signed() as i32,
            (1 | 2, _) => return Err(WRONG_WIRE_TYPE),
            _ => {}
        }
    }
    Ok((first, second))
}

/// Formats a Unix time as `2026-11-28T09:00:00`, in UTC, with room for what follows.
fn date_and_time(unix: i64) -> String {
    let (year, month, day) = date(unix.div_euclid(86_400));
    let second = unix.rem_euclid(86_400);
    let mut text = String::with_capacity("2026-11-28T09:00:00.000000Z".len());
    match u8::try_from(year.div_euclid(100)) {
        Ok(century @ ..100) => {
            push_digits(century.into(), &mut text);
            push_digits(year % 100, &mut text);
        }
        _ => text.push_str(&format!("{year:04}")),
    }
    for (mark, number) in
        [('-', month), ('-', day), ('T', second / 3600), (':', second / 60 % 60), (':', second % 60)]
    {
        text.push(mark);
        push_digits(number, &mut text);
    }
    text
}

/// Writes a number below 100 with two digits; formatting it as text takes ten times as long.
fn push_digits(number: i64, text: &mut String) {
    let digit = |number: i64| char::from(b'0' + (number % 10) as u8);
    text.push(digit(number / 10));
    text.push(digit(number));
}

/// Returns the date of a day after 1970-01-01 in the Gregorian calendar.
fn date(day: i64) -> (i64, i64, i64) {
    // Counted from a 1 March, so that leap days come last, in eras of 400 years.
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

/// Formats a number of units with the digits after the point that it needs.
fn with_fraction(nanos: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", nanos / unit, nanos % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(first: i64, second: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, value) in [(1u8, first), (2, second)] {
            bytes.push(number << 3);
            let mut rest = value.cast_unsigned();
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        bytes
    }

    #[test]
    fn formats_times() {
        let format = |seconds| time(&message(seconds, 5)).unwrap();
        assert_eq!(format(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(format(1_709_164_800).as_deref(), Some("2024-02-29T00:00:00Z"));
        assert_eq!(format(-1).as_deref(), Some("1969-12-31T23:59:59Z"));
        assert_eq!(format(253_402_300_799).as_deref(), Some("9999-12-31T23:59:59Z"));
        assert_eq!(format(253_402_300_800).as_deref(), Some("10000-01-01T00:00:00Z"));
        assert_eq!(format(ZERO_TIME + 1).as_deref(), Some("0001-01-01T00:00:01Z"));
        assert_eq!(format(ZERO_TIME - 31_622_401).as_deref(), Some("-001-12-31T23:59:59Z"));
        assert_eq!((format(ZERO_TIME), time(&[]).unwrap()), (None, None));
        assert_eq!(micro_time(&message(1, 1_500)).unwrap().as_deref(), Some("1970-01-01T00:00:01.000001Z"));
    }

    #[test]
    fn replaces_each_byte_that_is_no_text() {
        assert_eq!(lossy(b"a\xe2\x80b\xff"), "a\u{fffd}\u{fffd}b\u{fffd}");
        assert!(matches!(lossy("aé".as_bytes()), Cow::Borrowed("aé")));
    }

    #[test]
    fn formats_durations_as_go() {
        let format = |nanos| duration(&message(nanos, 0)).unwrap();
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (1_500_000_000, "1.5s"),
            (3_600_000_000_001, "1h0m0.000000001s"),
            (-60_000_000_000, "-1m0s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(format(nanos), text);
        }
    }
}

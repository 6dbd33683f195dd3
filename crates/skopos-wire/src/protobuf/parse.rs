//! Readers of times and durations in JSON.

/// Reads a time in RFC 3339: seconds since 1970, and nanoseconds.
pub(crate) fn time(text: &str) -> Option<(i64, u32)> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = bytes.get(range)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        let digits = fraction.get(..end.min(9))?;
        nanos = format!("{digits:0<9}").parse().ok().filter(|_| end > 0)?;
        rest = fraction.get(end..)?;
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = if rest.starts_with('-') { -1 } else { 1 };
            let (hours, minutes) = rest.strip_prefix(['+', '-'])?.split_once(':')?;
            sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60)
        }
    };
    Some((day_number(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset, nanos))
}

/// Reads a duration as Go writes it: nanoseconds.
pub(crate) fn duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Some(0);
    }
    let (mut rest, mut total) = (unsigned, 0i128);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        if !number.contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let size = *size as i128;
        let mut value = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(size)? };
        if !fraction.is_empty() {
            let digits = fraction.get(..fraction.len().min(18))?;
            value += digits.parse::<i128>().ok()? * size / 10i128.pow(u32::try_from(digits.len()).ok()?);
        }
        total = total.checked_add(value)?;
        rest = tail;
    }
    let total = if text.starts_with('-') { -total } else { total };
    i64::try_from(total).ok().filter(|_| !unsigned.is_empty())
}

/// Returns the day of a date, counted from 1970-01-01.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    // Counted from a 1 March, so that leap days come last, in eras of 400 years.
    let year = if month > 2 { year } else { year - 1 };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let day = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        assert_eq!(time("1970-01-01T00:00:01Z"), Some((1, 0)));
        assert_eq!(time("2024-02-29T01:00:00.5+01:00"), Some((1_709_164_800, 500_000_000)));
        assert_eq!(time("0001-01-01T00:00:00Z"), Some((super::super::special::ZERO_TIME, 0)));
        for text in [
            "",
            "2024",
            "2024-13-01T00:00:00Z",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00",
            "é".repeat(20).as_str(),
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn reads_durations() {
        for (text, nanos) in [
            ("0s", 0),
            ("1.5s", 1_500_000_000),
            ("1h0m0.000000001s", 3_600_000_000_001),
            ("-1m0s", -60_000_000_000),
            ("1.1µs", 1100),
            ("-2562047h47m16.854775808s", i64::MIN),
        ] {
            assert_eq!(duration(text), Some(nanos), "{text}");
        }
        for text in ["", "5", "s", "1x", "99999999h", "-"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}

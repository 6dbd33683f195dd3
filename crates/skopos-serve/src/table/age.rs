//! Ages as kubectl prints them: exact while young, coarser with time.

use jiff::Timestamp;

/// Returns a duration as kubectl prints it: `90s`, `5m3s`, `3h`, `2d4h`, `400d`, `3y20d`.
pub fn human_duration(seconds: i64) -> String {
    // kubectl tolerates a clock skew of up to two seconds.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", (hours / 24) % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// Returns the age of a time at `now`; `None` for a text that Go does not parse as an RFC 3339 time.
pub(super) fn age_of(time: &str, now: Timestamp) -> Option<String> {
    const ZERO: &str = "0001-01-01T00:00:00Z";
    if time == ZERO {
        return Some("<unknown>".to_owned());
    }
    Some(human_duration(seconds_between(parse_time(time)?, now)))
}

/// Parses an RFC 3339 time as Go does: `2026-01-02T03:04:05Z`, with fractions of a second or an offset. Like Go it accepts a
/// comma before the fraction and an hour of one digit.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    if let Some((date, time)) = text.split_once('T').filter(|(_, time)| time.as_bytes().get(1) == Some(&b':'))
    {
        return parse_exact(&format!("{date}T0{time}"));
    }
    if text.contains(',') { parse_exact(&text.replacen(',', ".", 1)) } else { parse_exact(text) }
}

fn parse_exact(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let is_shaped = bytes.len() >= "2006-01-02T15:04:05Z".len()
        && bytes[10] == b'T'
        && bytes[19..].iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'+' | b'-' | b':' | b'Z'));
    if is_shaped { text.parse().ok() } else { None }
}

/// Returns the whole seconds from one time to another, as Go's `int(duration.Seconds())`.
pub(super) fn seconds_between(earlier: Timestamp, later: Timestamp) -> i64 {
    later.duration_since(earlier).as_secs()
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_grow_coarser() {
        const HOUR: i64 = 3600;
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (303, "5m3s"),
            (179 * 60, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 120, "3h2m"),
            (47 * HOUR, "47h"),
            (52 * HOUR, "2d4h"),
            (24 * HOUR * 400, "400d"),
            (24 * HOUR * (3 * 365 + 20), "3y20d"),
            (24 * HOUR * 365 * 9, "9y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}

//! Formatting of durations, counts and times for people.
use std::time::Duration;

/// Formats a duration as kubectl does: `8s`, `2m5s`, `3h12m`, `5d3h`, `2y11d`.
///
/// The steps are those of `k8s.io/apimachinery/pkg/util/duration.HumanDuration`, so that an AGE here reads as in kubectl.
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// Formats a short duration with the precision that matters: `40ms`, `1.3s`, `12s`, `2m5s`.
pub fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "0ms".into(),
        millis @ 1..1000 => format!("{millis}ms"),
        1000..9950 => format!("{:.1}s", duration.as_secs_f64()),
        _ => age(Duration::from_secs(duration.as_secs_f64().round() as u64)),
    }
}

/// Formats the time since an RFC 3339 timestamp as kubectl does; an invalid timestamp is `<unknown>`, as there.
pub fn age_since(timestamp: Option<&str>, now: jiff::Timestamp) -> String {
    let then = timestamp.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    match then {
        Some(then) => age(Duration::try_from(now.duration_since(then)).unwrap_or_default()),
        None => "<unknown>".into(),
    }
}

/// Formats a count with its noun: `1 object`, `2 objects`.
pub fn count(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ => format!("{n} {noun}s"),
    }
}

/// Returns whether a character acts on a terminal instead of being shown: control characters, and those that change the
/// direction of the text, so that it reads as another one.
pub fn acts_on_terminals(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text in one line of at most `max` characters, without what acts on terminals; `…` marks a cut.
pub fn one_line(text: &str, max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max));
    let mut length = 0;
    for c in text.chars() {
        let c = if acts_on_terminals(c) { ' ' } else { c };
        if c == ' ' && line.ends_with(' ') {
            continue;
        }
        if length == max {
            line.pop();
            line.push('…');
            break;
        }
        line.push(c);
        length += 1;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_in_kubectl() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (51 * 3600, "2d3h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (731 * 86400, "2y1d"),
            (10 * 365 * 86400, "10y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(age(Duration::from_secs(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn short_durations_keep_their_precision() {
        let cases =
            [(0, "0ms"), (42, "42ms"), (1300, "1.3s"), (9940, "9.9s"), (9960, "10s"), (125_000, "2m5s")];
        for (millis, text) in cases {
            assert_eq!(seconds(Duration::from_millis(millis)), text, "{millis}");
        }
    }

    #[test]
    fn future_timestamp_is_zero_and_invalid_is_unknown() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(age_since(Some("2026-01-01T00:00:00Z"), now), "10m");
        assert_eq!(age_since(Some("2026-01-01T00:20:00Z"), now), "0s");
        assert_eq!(age_since(Some("yesterday"), now), "<unknown>");
        assert_eq!(age_since(None, now), "<unknown>");
    }

    #[test]
    fn lines_are_bounded_and_cannot_steer_a_terminal() {
        assert_eq!(one_line("a\u{1b}[31m\nb", 20), "a [31m b");
        assert_eq!(one_line("abcdef", 6), "abcdef");
        assert_eq!(one_line("abcdefg", 6), "abcde…");
    }
}

//! Ages as kubectl prints them: exact while young, coarser with time.

/// `90s`, `5m3s`, `3h`, `2d4h`, `400d`, `3y20d`.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    // kubectl forgives clocks that are up to two seconds apart.
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

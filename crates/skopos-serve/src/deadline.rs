//! Request timeout (L12): the server's limit, or less if the client requests less.

use std::time::Duration;

use skopos_wire::Status;

use crate::request::Query;

/// Longest wait or lifetime of anything, whatever a client requests: 30 years, because clocks overflow at some point.
pub const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns the timeout of a request that is not a watch: the parameter `timeout` in Go's notation (`1m30s`), at most `allowed`.
///
/// # Errors
/// 400 if the parameter is not a duration.
pub fn from_query(query: &Query, allowed: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(allowed) };
    match parse_go_duration(text) {
        Some(Duration::ZERO) => Ok(allowed),
        Some(wanted) => Ok(wanted.min(allowed)),
        None => Err(Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {text:?}"
        ))),
    }
}

/// Parses numbers with units, one after the other.
fn parse_go_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (value, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += value.parse::<f64>().ok()? * factor;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_go() {
        assert_eq!(parse_go_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_go_duration("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_go_duration("250ms"), Some(Duration::from_millis(250)));
        for wrong in ["x", "5", "s", "1x", "1s2"] {
            assert_eq!(parse_go_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn requested_timeout_is_capped_at_maximum() {
        let minute = Duration::from_secs(60);
        let of = |query: &str| from_query(&Query::parse(query), minute);
        assert_eq!(of("timeout=5s"), Ok(Duration::from_secs(5)));
        assert_eq!((of("timeout=1h"), of(""), of("timeout=0s")), (Ok(minute), Ok(minute), Ok(minute)));
        assert_eq!(of("timeout=x").unwrap_err().code, 400);
    }
}

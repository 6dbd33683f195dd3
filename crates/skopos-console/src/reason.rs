//! Reasons without the parts that change with time, such as countdowns and attempt counts.
use skopos::StaleReason;

/// Returns the reason for which content is stale.
pub fn describe_stale(reason: &StaleReason) -> String {
    match reason {
        StaleReason::Reflector(state) => match &state.reason {
            Some(reason) => format!("{}: {}", state.condition, plain(reason)),
            None => state.condition.to_string(),
        },
        other => plain(&other.to_string()),
    }
}

/// Returns a reason without the parts that change between attempts or are for programmers only.
///
/// `not connected, next attempt in 886 ms; last: refused (os error 111)` becomes `refused`.
pub fn plain(reason: &str) -> String {
    let reason = reason.rsplit_once("; last: ").map_or(reason, |(_, last)| last);
    let reason = match (reason.find(" (os error "), reason.ends_with(')')) {
        (Some(at), true) => &reason[..at],
        _ => reason,
    };
    match reason.rsplit_once(": ") {
        Some((head, tail)) if repeats(head, tail) => head.to_owned(),
        _ => reason.to_owned(),
    }
}

/// Returns whether the tail repeats the head, as in `connection reset: Connection reset by peer`.
fn repeats(head: &str, tail: &str) -> bool {
    let (head, tail) = (head.to_lowercase(), tail.to_lowercase());
    head.starts_with(&tail) || tail.starts_with(&head)
}

/// Returns the reason's first clause, which clusters with the same trouble have in common.
pub fn brief(reason: &str) -> &str {
    match reason.split_once(": ") {
        Some((first, _)) if !first.is_empty() => first,
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countdowns_and_codes_are_left_out() {
        assert_eq!(
            plain(
                "not connected, next attempt in 886 ms; last: connection refused by [::1]:1: no (os error 111)"
            ),
            "connection refused by [::1]:1: no"
        );
        assert_eq!(plain("no answer (yet)"), "no answer (yet)");
        assert_eq!(plain("connection reset: Connection reset by peer (os error 104)"), "connection reset");
        assert_eq!(
            plain("connection refused by [::1]:1: Connection refused"),
            "connection refused by [::1]:1"
        );
    }

    #[test]
    fn brief_reason_is_first_clause() {
        assert_eq!(brief("the stream is stalled: it never brought 484"), "the stream is stalled");
        assert_eq!(brief("connection refused by [::1]:1: no"), "connection refused by [::1]:1");
        assert_eq!(brief("closed"), "closed");
    }
}

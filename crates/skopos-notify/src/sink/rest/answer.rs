//! Meaning of an inventory's answers.

use http::StatusCode;

use crate::http::{HttpAnswer, HttpError};
use crate::sink::{SinkError, StepOutcome};

/// Reads the answer to a PUT or a DELETE.
///
/// A 5xx may come from a proxy although the inventory did it, so the item is read before anything else is done to it. A 429 or a
/// 503 with `Retry-After` is deliberate: nothing was done, and a later attempt will succeed.
pub(super) fn write_outcome(answer: &HttpAnswer, is_delete: bool) -> StepOutcome {
    let text = || format!("the inventory answered {}", answer.describe());
    match answer.status {
        status if status.is_success() => StepOutcome::Done,
        StatusCode::NOT_FOUND | StatusCode::GONE if is_delete => StepOutcome::Done,
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => StepOutcome::Conflict(text()),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE if answer.retry_after.is_some() => {
            StepOutcome::Unreachable(text())
        }
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => StepOutcome::Refused(text()),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => StepOutcome::Unknown(text()),
        status if status.is_server_error() => StepOutcome::Unknown(text()),
        status => StepOutcome::Refused(format!("{}{}", text(), advice(status))),
    }
}

/// Reads a PUT or a DELETE without an answer.
pub(super) fn failed_write_outcome(error: HttpError) -> StepOutcome {
    match error {
        HttpError::NotSent(problem) => StepOutcome::Unreachable(problem),
        HttpError::Unknown(problem) | HttpError::Cut(problem) => StepOutcome::Unknown(problem),
        HttpError::Answer(problem) => StepOutcome::Refused(problem),
    }
}

/// Reads the answer to the GET of a page. Only 200 is complete.
pub(super) fn check_page(path: &str, answer: &HttpAnswer) -> Result<(), SinkError> {
    let text = format!("the inventory answered {} to GET {path}", answer.describe());
    match answer.status {
        StatusCode::OK => Ok(()),
        status if status.is_success() => Err(SinkError::Incomplete(format!("{text}: that is no list"))),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Err(SinkError::Unreachable(text)),
        status if status.is_server_error() => Err(SinkError::Unreachable(text)),
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            Err(SinkError::Refused(format!("{text}: there is no list; set the URL where it is")))
        }
        status => Err(SinkError::Refused(format!("{text}{}", advice(status)))),
    }
}

/// Reads the GET of a page without an answer.
pub(super) fn page_error(error: HttpError) -> SinkError {
    match error {
        HttpError::NotSent(problem) | HttpError::Unknown(problem) => SinkError::Unreachable(problem),
        HttpError::Answer(problem) => SinkError::Refused(problem),
        HttpError::Cut(problem) => SinkError::Incomplete(problem),
    }
}

/// Returns advice about a status.
fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => ": the token is missing, wrong or expired",
        StatusCode::FORBIDDEN => ": the token has no right to this",
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            ": what the item belongs to is not there; create it first"
        }
        StatusCode::METHOD_NOT_ALLOWED => ": the URL takes no such request; look at the template",
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => ": look at the fields of the body",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;

    use super::*;

    fn answer(status: u16, retry_after: Option<Duration>) -> HttpAnswer {
        let status = StatusCode::from_u16(status).expect("a status");
        HttpAnswer { status, retry_after, headers: HeaderMap::new(), body: "no\nway".into() }
    }

    #[test]
    fn write_status_maps_to_outcome() {
        let word = |outcome: &StepOutcome| match outcome {
            StepOutcome::Done => "done",
            StepOutcome::Unknown(_) => "unknown",
            StepOutcome::Conflict(_) => "conflict",
            StepOutcome::Refused(_) => "refused",
            StepOutcome::Unreachable(_) => "unreachable",
            StepOutcome::Fenced(_) => "fenced",
        };
        let cases = [
            (200, "done", "done"),
            (201, "done", "done"),
            (202, "done", "done"),
            (204, "done", "done"),
            (304, "refused", "refused"),
            (400, "refused", "refused"),
            (401, "refused", "refused"),
            (403, "refused", "refused"),
            (404, "refused", "done"),
            (405, "refused", "refused"),
            (408, "unknown", "unknown"),
            (409, "conflict", "conflict"),
            (410, "refused", "done"),
            (412, "conflict", "conflict"),
            (413, "refused", "refused"),
            (422, "refused", "refused"),
            (429, "unknown", "unknown"),
            (500, "unknown", "unknown"),
            (501, "refused", "refused"),
            (502, "unknown", "unknown"),
            (503, "unknown", "unknown"),
            (504, "unknown", "unknown"),
        ];
        for (status, put, delete) in cases {
            let answer = answer(status, None);
            assert_eq!(word(&write_outcome(&answer, false)), put, "PUT {status}");
            assert_eq!(word(&write_outcome(&answer, true)), delete, "DELETE {status}");
        }
        for status in [429, 503] {
            let outcome = write_outcome(&answer(status, Some(Duration::from_secs(7))), false);
            assert_eq!(word(&outcome), "unreachable", "{status}");
        }
        let expected = "the inventory answered 403 Forbidden: no way: the token has no right to this";
        assert_eq!(write_outcome(&answer(403, None), false), StepOutcome::Refused(expected.to_owned()));
    }

    #[test]
    fn nothing_but_200_is_a_list() {
        for (status, word) in [
            (204, "incomplete"),
            (206, "incomplete"),
            (304, "refused"),
            (401, "refused"),
            (403, "refused"),
            (404, "refused"),
            (429, "unreachable"),
            (500, "unreachable"),
            (503, "unreachable"),
        ] {
            let found = match check_page("/hosts", &answer(status, None)).unwrap_err() {
                SinkError::Unreachable(_) => "unreachable",
                SinkError::Refused(_) => "refused",
                SinkError::Incomplete(_) => "incomplete",
            };
            assert_eq!(found, word, "{status}");
        }
        assert_eq!(check_page("/hosts", &answer(200, None)), Ok(()));
    }
}

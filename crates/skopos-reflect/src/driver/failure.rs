//! What the transport says, in the words of the machine.

use std::time::Duration;

use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, Limited};
use skopos_transport::{Death, TransportBody, TransportError};
use skopos_wire::Status;

use crate::{Clock, Failure, Trouble};

/// The most of an error's body that is read: a Status is far smaller.
const ERROR_BODY: usize = 256 << 10;
/// How long an error's body may take. The class of a watch has no deadline for bodies.
const ERROR_BODY_TIME: Duration = Duration::from_secs(5);

pub(crate) fn of_transport(error: &TransportError, clock: &Clock) -> Failure {
    let trouble = match error.death().root() {
        Death::Dns { .. } | Death::Refused { .. } | Death::ConnectTimeout { .. } | Death::Resources(_) => {
            Trouble::CannotConnect
        }
        Death::Tls(_) if error.connection().is_none() => Trouble::CannotConnect,
        // That there was no connection in the caller's time is said by what stood in the way.
        Death::CallerDeadline { because: Some(_), .. } => Trouble::CannotConnect,
        Death::HeadersDeadline { .. }
        | Death::ProgressDeadline { .. }
        | Death::BodyDeadline { .. }
        | Death::CallerDeadline { .. }
        | Death::Exhausted { .. } => Trouble::TimedOut,
        Death::Auth(_) => Trouble::NoCredentials,
        Death::Protocol(_)
        | Death::TooLarge(_)
        | Death::Redirected { .. }
        | Death::UnaskedEncoding { .. }
        | Death::Request(_) => Trouble::Protocol,
        Death::Closed => Trouble::Closed,
        // A dial that was cut short by whatever: nothing was sent.
        _ if matches!(error.death(), Death::BackingOff { .. }) => Trouble::CannotConnect,
        // Ping, reset, end of file, GOAWAY, a stream reset, suspended, retired.
        _ => Trouble::Lost,
    };
    let retry_at = match error.death() {
        Death::BackingOff { until, .. } => Some(clock.at(*until)),
        _ => None,
    };
    Failure::Connection { trouble, reason: error.to_string().into(), retry_at }
}

/// The failure in an answer that is no success.
pub(crate) async fn of_answer(parts: http::response::Parts, body: TransportBody) -> Failure {
    let whole = Limited::new(body, ERROR_BODY).collect();
    let body = match tokio::time::timeout(ERROR_BODY_TIME, whole).await {
        Ok(Ok(body)) => body.to_bytes(),
        // The status line is what counts.
        _ => Default::default(),
    };
    Failure::Answer {
        code: parts.status.as_u16(),
        status: Status::from_slice(&body).map(Box::new),
        retry_after: retry_after(&parts.headers),
    }
}

/// `Retry-After` in seconds. Kubernetes never sends the form with a date, and to understand it takes two right clocks.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

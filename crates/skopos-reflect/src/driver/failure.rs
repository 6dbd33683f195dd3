//! Mapping of transport errors to the machine's failures.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, Limited};
use skopos_transport::{TransportBody, TransportError, TransportErrorKind};
use skopos_wire::Status;

use crate::{Cause, Clock, Failure, Reason, Trouble};

/// The maximum size of an error's body that is read: a Status is far smaller.
const MAX_ERROR_BODY_BYTES: usize = 256 << 10;
/// The timeout of reading an error's body. Watch requests have no deadline for bodies.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn from_transport(error: &TransportError, clock: &Clock) -> Failure {
    let error_kind = error.kind().root();
    let trouble = match error_kind {
        TransportErrorKind::Dns { .. }
        | TransportErrorKind::Refused { .. }
        | TransportErrorKind::AddressDenied { .. }
        | TransportErrorKind::Proxy { .. }
        | TransportErrorKind::Parked(_)
        | TransportErrorKind::ConnectTimeout { .. }
        | TransportErrorKind::Resources(_) => Trouble::CannotConnect,
        // The caller's deadline passed before a connection was open: the reason is in `because`.
        TransportErrorKind::CallerDeadline { because: Some(_), .. } => Trouble::CannotConnect,
        TransportErrorKind::HeadersDeadline { .. }
        | TransportErrorKind::ProgressDeadline { .. }
        | TransportErrorKind::BodyDeadline { .. }
        | TransportErrorKind::CallerDeadline { .. }
        | TransportErrorKind::Exhausted { .. } => Trouble::TimedOut,
        TransportErrorKind::Auth(_) => Trouble::NoCredentials,
        TransportErrorKind::Protocol(_)
        | TransportErrorKind::TooLarge(_)
        | TransportErrorKind::Redirected { .. }
        | TransportErrorKind::UnaskedEncoding { .. }
        | TransportErrorKind::Request(_) => Trouble::Protocol,
        TransportErrorKind::Closed => Trouble::Closed,
        // A dial that was cut short, for example by a load balancer without backends: nothing was sent.
        _ if error.connection().is_none() => Trouble::CannotConnect,
        // Ping, reset, end of file, GOAWAY, a stream reset, suspended, retired.
        _ => Trouble::Lost,
    };
    let retry_at = match error.kind() {
        TransportErrorKind::BackingOff { until, .. } => Some(clock.at(*until)),
        _ => None,
    };
    let reason = Reason::new(Cause::Connection(error_kind.clone()), error.to_string());
    Failure::Connection { trouble, reason, retry_at }
}

/// Returns the failure in a response whose status is not a success.
pub(crate) async fn from_response(parts: http::response::Parts, body: TransportBody) -> Failure {
    let whole = Limited::new(body, MAX_ERROR_BODY_BYTES).collect();
    let body = match tokio::time::timeout(ERROR_BODY_TIMEOUT, whole).await {
        Ok(Ok(body)) => body.to_bytes(),
        // The status line is enough.
        _ => Default::default(),
    };
    Failure::Answer {
        code: parts.status.as_u16(),
        status: Status::from_slice(&body).map(Box::new),
        retry_after: retry_after(&parts.headers),
    }
}

/// Parses `Retry-After`, in seconds or as a date. Kubernetes sends seconds; a proxy in front of it may send a date. A
/// date is compared with the response's `Date`, so our own clock need not be right.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(header::RETRY_AFTER)?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let sent = text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    Some(at.duration_since(sent.unwrap_or_else(SystemTime::now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backing_off_failure_keeps_last_error() {
        let refused = TransportErrorKind::Refused { to: "a".into(), reason: "closed".into() };
        let until = tokio::time::Instant::now() + Duration::from_secs(1);
        let error_kind = TransportErrorKind::BackingOff { until, last: refused.clone().into() };
        let failure = from_transport(&error_kind.into(), &Clock::new());
        let Failure::Connection { trouble: Trouble::CannotConnect, reason, retry_at: Some(_) } = failure
        else {
            panic!("{failure:?}")
        };
        assert_eq!(reason.transport_error(), Some(&refused));
        assert!(reason.starts_with("not connected, next attempt in "), "the words say all: {reason}");
    }

    fn wish(retry_after: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, retry_after.parse().unwrap());
        if let Some(date) = date {
            headers.insert(header::DATE, date.parse().unwrap());
        }
        super::retry_after(&headers)
    }

    #[test]
    fn retry_after_accepts_seconds_and_dates() {
        let secs = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wish(" 20 ", None), secs(20));
        // The server's clock is in the past, which does not matter.
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(wish("Sun, 06 Nov 1994 08:51:37 GMT", now), secs(120));
        assert_eq!(wish("Sunday, 06-Nov-94 08:49:38 GMT", now), secs(1));
        assert_eq!(wish("Sun Nov  6 08:49:40 1994", now), secs(3));
        assert_eq!(wish("Sun, 06 Nov 1994 08:49:00 GMT", now), secs(0), "it is over");
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(
            wish(&soon, None).is_some_and(|wish| wish > Duration::from_secs(90)),
            "no Date: by our clock"
        );
        assert_eq!(wish("soon", now), None);
        assert_eq!(wish("-1", now), None);
    }
}

//! Requests to a receiver outside the cluster, with limits on time and on the size of the answer.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use ipnet::IpNet;
use skopos::transport::{
    RequestClass, RequestOptions, Transport, TransportBody, TransportError, TransportErrorKind,
    TransportOptions,
};
use skopos_fleet::address::AddressPolicy;

/// HTTP client of one receiver: of one scheme, host and port. It detects dead connections and follows no redirects.
#[derive(Clone)]
pub struct HttpClient {
    origin: String,
    transport: Transport,
    time_limit: Duration,
}

/// Options of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Time limit of an exchange, from the dial to the end of the answer. Default 15 s.
    pub time_limit: Duration,
    /// File with the CAs of the receiver, in PEM. Default: the system's.
    pub ca: Option<PathBuf>,
    /// Networks that may be connected to, although they are private or this machine.
    pub allow: Vec<IpNet>,
}

/// Response of a receiver.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: StatusCode,
    /// The pause that the receiver asks for.
    pub retry_after: Option<Duration>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Error of an exchange without a usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Nothing was sent.
    #[error("{0}")]
    NotSent(String),
    /// It may have arrived or not.
    #[error("{0}")]
    Unknown(String),
    /// There was an answer, but it cannot be used.
    #[error("{0}")]
    Answer(String),
    /// There was an answer, but its body ended early or is too long.
    #[error("{0}")]
    Cut(String),
}

/// Private networks, which are refused unless they are allowed (RFC 1918, 6598, 4193).
const PRIVATE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

impl Default for HttpOptions {
    fn default() -> Self {
        Self { time_limit: Duration::from_secs(15), ca: None, allow: Vec::new() }
    }
}

impl HttpClient {
    /// Makes a client for the scheme, host and port of a URL; it connects with the first request.
    ///
    /// # Errors
    /// When the URL or the CA cannot be used, with the reason for people.
    pub fn new(url: &Uri, options: &HttpOptions) -> Result<Self, String> {
        let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
            return Err(format!("{url} needs a scheme and a host, as in https://host/path"));
        };
        if authority.as_str().contains('@') {
            return Err("the URL has a user or a password in it: they would stand in logs".to_owned());
        }
        let origin = format!("{scheme}://{authority}");
        let base = format!("{origin}/").parse().map_err(|error| format!("{url}: {error}"))?;
        let mut config = kube::Config::new(base);
        if let Some(file) = &options.ca {
            config.root_cert_file = Some(file.clone());
            check_ca(file)?;
        }
        let mut addresses = AddressPolicy::outside();
        for network in PRIVATE {
            addresses = addresses.deny(network.parse().map_err(|error| format!("{network}: {error}"))?);
        }
        let addresses = options.allow.iter().fold(addresses, |policy, network| policy.allow(*network));
        let transport = TransportOptions { addresses: addresses.filter(), ..TransportOptions::default() };
        let transport = Transport::from_config(config, transport).map_err(|error| error.to_string())?;
        Ok(Self { origin, transport, time_limit: options.time_limit })
    }

    /// Returns the scheme, host and port.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Sends a request, and reads at most 64 KiB of the answer, for people. The status counts, however the body ends.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, HttpError> {
        let answer = self.exchange(RequestClass::Write, method, path, headers, body).await?;
        Ok(for_people(answer).await)
    }

    /// Gets a document. The body of a success is read up to `max_body` bytes; that of another status as [`send`](Self::send) does.
    ///
    /// # Errors
    /// When there is no answer, or the body of a success ends early or is longer.
    pub async fn get(
        &self,
        path: &str,
        headers: HeaderMap,
        max_body: usize,
    ) -> Result<HttpAnswer, HttpError> {
        let answer = self.exchange(RequestClass::List, Method::GET, path, headers, Bytes::new()).await?;
        if !answer.status().is_success() {
            return Ok(for_people(answer).await);
        }
        let (parts, body) = answer.into_parts();
        let whole = Limited::new(body, max_body).collect().await;
        let body = whole.map_err(|error| self.body_error(path, max_body, &*error))?.to_bytes();
        Ok(HttpAnswer::new(parts, body))
    }

    async fn exchange(
        &self,
        class: RequestClass,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<TransportBody>, HttpError> {
        let options = RequestOptions {
            class: Some(class),
            deadline: Some(self.time_limit),
            wait_for_connection: Some(false),
            ..RequestOptions::default()
        };
        let request = http::Request::builder().method(method).uri(path).extension(options);
        let mut request =
            request.body(body.into()).map_err(|error| HttpError::NotSent(format!("{path}: {error}")))?;
        request.headers_mut().extend(headers);
        self.transport.send(request).await.map_err(|error| self.error(error.kind()))
    }

    /// Distinguishes a body that came too slowly from one that was cut or is too long.
    fn body_error(
        &self,
        path: &str,
        max_body: usize,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> HttpError {
        use TransportErrorKind::{BodyDeadline, CallerDeadline, ProgressDeadline};
        let origin = &self.origin;
        if error.is::<LengthLimitError>() {
            return HttpError::Cut(format!("{origin}{path}: the body is longer than {max_body} bytes"));
        }
        let problem = format!("{origin}{path}: the body ended early: {error}");
        match error.downcast_ref::<TransportError>().map(TransportError::kind) {
            Some(CallerDeadline { .. } | BodyDeadline { .. } | ProgressDeadline { .. }) => {
                HttpError::Unknown(problem)
            }
            _ => HttpError::Cut(problem),
        }
    }

    fn error(&self, error_kind: &TransportErrorKind) -> HttpError {
        use TransportErrorKind::*;
        let problem = format!("{}: {error_kind}", self.origin);
        match error_kind.root() {
            Dns { .. }
            | Refused { .. }
            | AddressDenied { .. }
            | Proxy { .. }
            | Parked(_)
            | ConnectTimeout { .. }
            | Tls(_)
            | Auth(_)
            | Exhausted { .. }
            | Resources(_)
            | Request(_)
            | Closed => HttpError::NotSent(problem),
            CallerDeadline { because: Some(because), .. }
                if matches!(
                    because.root(),
                    Dns { .. } | Refused { .. } | ConnectTimeout { .. } | Proxy { .. } | Tls(_)
                ) =>
            {
                HttpError::NotSent(problem)
            }
            Redirected { status, location } => HttpError::Answer(format!(
                "{} answered {status} and points to {location}: redirects are not followed, write that URL into the configuration if it is meant",
                self.origin
            )),
            UnaskedEncoding { .. } => HttpError::Answer(problem),
            _ => HttpError::Unknown(problem),
        }
    }
}

/// Maximum length of a body for people. A longer one is no message.
const MAX_BODY: usize = 64 * 1024;

impl HttpAnswer {
    fn new(parts: Parts, body: Bytes) -> Self {
        let retry_after = retry_after(&parts.headers, SystemTime::now());
        Self { status: parts.status, retry_after, headers: parts.headers, body }
    }

    /// Describes the answer for people: the status and the beginning of the body.
    pub fn describe(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let line: String = body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
        match line.is_empty() {
            true => self.status.to_string(),
            false => format!("{}: {line}", self.status),
        }
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Reads the beginning of a body. An error within it is ignored.
async fn for_people(answer: Response<TransportBody>) -> HttpAnswer {
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    HttpAnswer::new(parts, body)
}

fn check_ca(file: &Path) -> Result<(), String> {
    std::fs::read(file)
        .map(drop)
        .map_err(|error| format!("the CA {} cannot be read: {error}", file.display()))
}

/// Reads `Retry-After`: seconds or a date (RFC 9110).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_in_seconds_or_until_a_date() {
        let now = httpdate::parse_http_date("Fri, 27 Nov 2026 10:00:00 GMT").unwrap();
        let of = |text: &'static str| {
            let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&headers, now)
        };
        assert_eq!(of("120"), Some(Duration::from_secs(120)));
        assert_eq!(of("Fri, 27 Nov 2026 10:01:00 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(of("Fri, 27 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("soon"), None);
    }

    #[tokio::test]
    async fn rejects_url_without_scheme_or_with_credentials() {
        let of = |url: &str| HttpClient::new(&url.parse().unwrap(), &HttpOptions::default()).unwrap_err();
        assert!(of("/path").contains("scheme"));
        assert!(of("https://user:word@host/").contains("logs"));
    }

    #[tokio::test]
    async fn a_private_address_is_not_connected_to() {
        for address in ["169.254.169.254", "127.0.0.1", "10.1.2.3", "192.168.0.1"] {
            let url: Uri = format!("http://{address}/x").parse().unwrap();
            let client = HttpClient::new(&url, &HttpOptions::default()).unwrap();
            let sent = client.send(Method::POST, "/x", HeaderMap::new(), Bytes::new()).await;
            let Err(HttpError::NotSent(problem)) = sent else { panic!("{address}: {sent:?}") };
            assert!(problem.contains("may not be connected to"), "{problem}");
        }
    }
}

//! A receiver of webhooks, by Standard Webhooks 1.0.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use super::delivery::DeliveryOutcome;
use super::message::MessageFormat;
use super::receiver::{EventMessage, EventReceiver};
use crate::http::{HttpAnswer, HttpClient, HttpError, HttpOptions};

/// A receiver of webhooks.
pub struct WebhookSink {
    options: WebhookOptions,
    path: String,
    client: HttpClient,
    /// One signer for each secret.
    signers: Vec<Webhook>,
}

/// Options of a receiver.
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookOptions {
    /// The URL.
    pub url: Uri,
    /// The connection.
    pub http: HttpOptions,
    /// The secrets, in base64 with or without `whsec_`. Each signs, so that a receiver can rotate its secret. Empty: no signature.
    pub secrets: Vec<String>,
    /// The form of the bodies. Default: CloudEvents.
    pub format: MessageFormat,
    /// The wall clock, for the time in signatures.
    pub clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// A receiver that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The URL or the CA cannot be used.
    #[error("{0}")]
    Client(String),
    /// A secret is not valid base64.
    #[error("secret {0} is not base64, with or without whsec_ before it")]
    Secret(usize),
}

impl WebhookOptions {
    /// Returns the defaults for a URL.
    pub fn new(url: Uri) -> Self {
        Self {
            url,
            http: HttpOptions::default(),
            secrets: Vec::new(),
            format: MessageFormat::default(),
            clock: Arc::new(SystemTime::now),
        }
    }
}

impl WebhookSink {
    /// Makes a sink; it connects with the first message.
    ///
    /// # Errors
    /// When the URL, the CA or a secret cannot be used.
    pub fn new(options: WebhookOptions) -> Result<Self, WebhookError> {
        let signer = |(index, secret): (usize, &String)| {
            Webhook::new(secret.trim()).map_err(|_| WebhookError::Secret(index + 1))
        };
        let signers = options.secrets.iter().enumerate().map(signer).collect::<Result<_, _>>()?;
        let client = HttpClient::new(&options.url, &options.http).map_err(WebhookError::Client)?;
        let path = options.url.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { options, path, client, signers })
    }

    fn headers(&self, id: &str, body: &[u8]) -> Result<HeaderMap, String> {
        let since = (self.options.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let sign = |signer: &Webhook| signer.sign(id, seconds, body);
        let signatures: Vec<_> = self
            .signers
            .iter()
            .map(sign)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("cannot be signed: {error}"))?;
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.options.format.content_type()));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("skopos-notify/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(HEADER_WEBHOOK_ID, value(id)?);
        headers.insert(HEADER_WEBHOOK_TIMESTAMP, value(&seconds.to_string())?);
        if !signatures.is_empty() {
            headers.insert(HEADER_WEBHOOK_SIGNATURE, value(&signatures.join(" "))?);
        }
        Ok(headers)
    }
}

#[async_trait]
impl EventReceiver for WebhookSink {
    async fn deliver(&self, message: EventMessage<'_>) -> DeliveryOutcome {
        let body = self.options.format.body(message);
        let headers = match self.headers(&message.delivery.id, &body) {
            Ok(headers) => headers,
            Err(problem) => return DeliveryOutcome::Rejected(problem),
        };
        match self.client.send(Method::POST, &self.path, headers, body.into()).await {
            Ok(answer) => outcome(&answer),
            Err(HttpError::NotSent(problem)) => DeliveryOutcome::Unreachable(problem),
            Err(HttpError::Unknown(problem)) => DeliveryOutcome::Unknown(problem),
            Err(HttpError::Answer(problem) | HttpError::Cut(problem)) => {
                DeliveryOutcome::Failed { problem, retry_after: None }
            }
        }
    }
}

impl fmt::Debug for WebhookSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSink").field("url", &self.options.url).finish_non_exhaustive()
    }
}

/// Reads the status, as Standard Webhooks 1.0 defines it.
fn outcome(answer: &HttpAnswer) -> DeliveryOutcome {
    let problem = format!("the receiver answered {}", answer.describe());
    let retry_after = answer.retry_after;
    match answer.status {
        status if status.is_success() => DeliveryOutcome::Delivered,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            DeliveryOutcome::Rejected(problem)
        }
        StatusCode::GONE => DeliveryOutcome::Disabled(format!(
            "{problem}: it wants no more messages; `skopos notify retry` sends them again"
        )),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => DeliveryOutcome::Throttled { problem, retry_after },
        _ => DeliveryOutcome::Failed { problem, retry_after },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sink(secrets: &[&str]) -> Result<WebhookSink, WebhookError> {
        let mut options = WebhookOptions::new(Uri::from_static("https://example.test/hook?a=b"));
        options.secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        WebhookSink::new(options)
    }

    #[tokio::test]
    async fn each_secret_signs() {
        let sink = sink(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "c2VjcmV0\n"]).unwrap();
        let headers = sink.headers("msg_1", b"{}").unwrap();
        for secret in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "c2VjcmV0"] {
            Webhook::new(secret).unwrap().verify(b"{}", &headers).unwrap();
        }
        assert!(Webhook::new("b3RoZXI=").unwrap().verify(b"{}", &headers).is_err());
        assert_eq!(sink.path, "/hook?a=b");
    }

    #[tokio::test]
    async fn rejects_invalid_secret_by_position() {
        assert_eq!(sink(&["c2VjcmV0", "no secret"]).unwrap_err(), WebhookError::Secret(2));
    }

    #[test]
    fn maps_status_codes_as_standard_webhooks() {
        let of = |status: u16| {
            let retry_after = Some(Duration::from_secs(7));
            outcome(&HttpAnswer {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after,
                headers: HeaderMap::new(),
                body: "no\nway".into(),
            })
            .as_str()
        };
        let expected = [
            (200, "delivered"),
            (204, "delivered"),
            (400, "rejected"),
            (401, "failed"),
            (404, "failed"),
            (410, "disabled"),
            (413, "rejected"),
            (422, "rejected"),
            (429, "throttled"),
            (500, "failed"),
            (502, "throttled"),
            (503, "throttled"),
            (504, "throttled"),
        ];
        for (status, word) in expected {
            assert_eq!(of(status), word, "{status}");
        }
    }
}

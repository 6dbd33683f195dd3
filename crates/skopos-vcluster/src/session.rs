//! Requests to the host within the deadline of one operation.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use skopos::transport::{Fault, TransportErrorKind};
use skopos::{Status, TransportError};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::Error;
use crate::progress::{Progress, Step};

/// A resource of the host's API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    /// The API group; `""` is the core group.
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
}

/// The requests of one operation. They share its deadline, and its limit on the time without a response.
pub(crate) struct Session<'a> {
    client: &'a kube::Client,
    progress: &'a dyn Progress,
    within: Duration,
    until: Instant,
    answer_timeout: Duration,
}

/// Extent of the objects in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Whole objects.
    Whole,
    /// The metadata only: the content may be secret, or large.
    Metadata,
}

/// A request without the credentials.
struct Ask<'a> {
    method: Method,
    uri: &'a str,
    accept: &'static str,
    content_type: Option<&'static str>,
    body: Bytes,
}

impl Resource {
    pub(crate) const fn core(plural: &'static str) -> Self {
        Self { group: "", plural }
    }

    pub(crate) const fn new(group: &'static str, plural: &'static str) -> Self {
        Self { group, plural }
    }

    /// Returns the path of a collection, or of one object. All groups used here are at v1.
    pub(crate) fn path(self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = match self.group {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        object_path(&root, self.plural, namespace, name)
    }
}

/// Returns the path of a collection or an object under `/api/v1` or `/apis/GROUP/VERSION`.
pub(crate) fn object_path(root: &str, plural: &str, namespace: Option<&str>, name: Option<&str>) -> String {
    let mut path = root.to_owned();
    if let Some(namespace) = namespace {
        path.push_str("/namespaces/");
        path.push_str(&escaped(namespace));
    }
    path.push('/');
    path.push_str(&escaped(plural));
    if let Some(name) = name {
        path.push('/');
        path.push_str(&escaped(name));
    }
    path
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        client: &'a kube::Client,
        progress: &'a dyn Progress,
        within: Duration,
        answer_timeout: Duration,
    ) -> Self {
        Self { client, progress, within, until: Instant::now() + within, answer_timeout }
    }

    pub(crate) fn report(&self, step: Step) {
        self.progress.step(step);
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Returns the error of an expired deadline.
    pub(crate) fn late(&self, doing: impl Into<String>) -> Error {
        Error::Deadline { within: self.within, doing: doing.into() }
    }

    /// Waits before the next read, at most until the deadline.
    pub(crate) async fn sleep(&self, time: Duration, doing: &str) -> Result<(), Error> {
        let next = Instant::now() + time;
        if next >= self.until {
            sleep_until(self.until).await;
            return Err(self.late(doing));
        }
        sleep_until(next).await;
        Ok(())
    }

    /// Returns an object's JSON, if it exists.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Bytes>, Error> {
        let ask =
            Ask { method: Method::GET, uri: path, accept: JSON, content_type: None, body: Bytes::new() };
        match self.ask(&ask).await {
            Err(Error::Refused { status, .. }) if status.code == 404 => Ok(None),
            other => other.map(Some),
        }
    }

    /// Returns the objects of a collection matching a selector, page by page.
    pub(crate) async fn list(
        &self,
        collection: &str,
        selector: &str,
        extent: Extent,
    ) -> Result<Vec<Box<RawValue>>, Error> {
        let accept = match extent {
            Extent::Whole => JSON,
            Extent::Metadata => METADATA,
        };
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let selector = escaped(selector);
            let uri = match token.as_str() {
                "" => format!("{collection}?labelSelector={selector}&limit={PAGE}"),
                token => {
                    format!("{collection}?labelSelector={selector}&limit={PAGE}&continue={}", escaped(token))
                }
            };
            let ask = Ask { method: Method::GET, uri: &uri, accept, content_type: None, body: Bytes::new() };
            let body = match self.ask(&ask).await {
                // The snapshot of the earlier pages has expired: start again.
                Err(Error::Refused { status, .. }) if status.is_expired() && !token.is_empty() => {
                    all.clear();
                    token.clear();
                    continue;
                }
                other => other?,
            };
            let page: Page = serde_json::from_slice(&body).map_err(|error| malformed(&ask, &error))?;
            all.extend(page.items.unwrap_or_default());
            match page.metadata.continue_token.filter(|token| !token.is_empty()) {
                Some(next) => token = next,
                None => return Ok(all),
            }
        }
    }

    /// Patches an object by a merge patch. `None`: it has changed since it was read, or is gone.
    pub(crate) async fn patch(&self, path: &str, patch: &serde_json::Value) -> Result<Option<Bytes>, Error> {
        let uri = format!("{path}?fieldManager={MANAGER}");
        match self.ask_patch(&uri, "application/merge-patch+json", patch).await {
            Err(Error::Refused { status, .. }) if matches!(status.code, 404 | 409) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Applies an object by server-side apply, whether it exists or not.
    pub(crate) async fn apply(&self, path: &str, object: &serde_json::Value) -> Result<(), Error> {
        let uri = format!("{path}?fieldManager={MANAGER}&force=true");
        loop {
            match self.ask_patch(&uri, "application/apply-patch+yaml", object).await {
                // There was a concurrent change.
                Err(Error::Refused { doing, status }) if status.code == 409 => {
                    self.sleep(RETRY_DELAY, &format!("{doing} ({status})")).await?;
                }
                other => return other.map(drop),
            }
        }
    }

    async fn ask_patch(
        &self,
        uri: &str,
        content_type: &'static str,
        patch: &serde_json::Value,
    ) -> Result<Bytes, Error> {
        let body = patch.to_string().into();
        self.ask(&Ask { method: Method::PATCH, uri, accept: JSON, content_type: Some(content_type), body })
            .await
    }

    /// Creates an object. Returns whether it did not exist before.
    pub(crate) async fn create(&self, collection: &str, object: &serde_json::Value) -> Result<bool, Error> {
        let uri = format!("{collection}?fieldManager={MANAGER}");
        let body = object.to_string().into();
        let ask = Ask { method: Method::POST, uri: &uri, accept: JSON, content_type: Some(JSON), body };
        match self.ask(&ask).await {
            Err(Error::Refused { status, .. }) if status.code == 409 => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Deletes an object; its dependents are deleted in the background. Returns whether it existed.
    pub(crate) async fn delete(&self, path: &str) -> Result<bool, Error> {
        self.delete_exactly(path, None).await
    }

    /// Deletes an object only if it has this uid; otherwise the host refuses with 409.
    pub(crate) async fn delete_exactly(&self, path: &str, uid: Option<&str>) -> Result<bool, Error> {
        let uri = format!("{path}?propagationPolicy=Background");
        let body = uid.map(|uid| serde_json::json!({"preconditions": {"uid": uid}}).to_string().into());
        let (content_type, body) = (body.is_some().then_some(JSON), body.unwrap_or_default());
        let ask = Ask { method: Method::DELETE, uri: &uri, accept: JSON, content_type, body };
        match self.ask(&ask).await {
            Err(Error::Refused { status, .. }) if status.code == 404 => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Sends a request with retries until the host answers, or its time or the caller's is over. All requests here can
    /// be repeated.
    async fn ask(&self, ask: &Ask<'_>) -> Result<Bytes, Error> {
        let give_up = (Instant::now() + self.answer_timeout).min(self.until);
        let mut last: Option<String> = None;
        loop {
            let reason = match timeout_at(give_up, self.once(ask)).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(Failure::Final(error))) => return Err(error),
                Ok(Err(Failure::Passing(reason))) => reason,
                Err(_) => last.clone().unwrap_or_else(|| "no answer".to_owned()),
            };
            // The time is used to its end.
            let left = give_up.saturating_duration_since(Instant::now());
            if left < MIN_REMAINING {
                return Err(match give_up == self.until {
                    true => self.late(format!("{} ({reason})", ask.doing())),
                    false => {
                        Error::HostUnreachable { doing: ask.doing(), after: self.answer_timeout, reason }
                    }
                });
            }
            let next = Instant::now() + RETRY_DELAY.min(left / 2);
            if last.as_ref() != Some(&reason) {
                self.report(Step::HostTrouble { reason: reason.clone() });
                last = Some(reason);
            }
            sleep_until(next).await;
        }
    }

    async fn once(&self, ask: &Ask<'_>) -> Result<Bytes, Failure> {
        let mut request =
            Request::builder().method(&ask.method).uri(ask.uri).header(header::ACCEPT, ask.accept);
        if let Some(content_type) = ask.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(ask.body.clone()));
        let request = request.map_err(|error| Failure::Final(malformed(ask, &error)))?;
        let response = self.client.send(request).await.map_err(|error| judge(&error))?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| judge(&*error))?.to_bytes();
        if code.is_success() {
            return Ok(body);
        }
        let status = Status::from_slice(&body).unwrap_or_else(|| {
            Status::failure(code.as_u16(), "", code.canonical_reason().unwrap_or("no reason given"))
        });
        match code {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Failure::Passing(format!("{}: {status}", code.as_u16()))),
            _ => Err(Failure::Final(Error::Refused { doing: ask.doing(), status: Box::new(status) })),
        }
    }
}

impl Ask<'_> {
    /// Returns a description of the request for users.
    fn doing(&self) -> String {
        let path = self.uri.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// Failure of an attempt, and whether a retry may help.
enum Failure {
    Final(Error),
    Passing(String),
}

fn judge(error: &(dyn std::error::Error + 'static)) -> Failure {
    let Some(transport) = transport_error(error) else { return Failure::Passing(chain(error)) };
    let root = transport.kind().root();
    match root {
        TransportErrorKind::Tls(_)
        | TransportErrorKind::Auth(_)
        | TransportErrorKind::Redirected { .. }
        | TransportErrorKind::Request(_)
        | TransportErrorKind::AddressDenied { .. }
        | TransportErrorKind::Closed => Failure::Final(Error::Connection { reason: root.to_string() }),
        TransportErrorKind::Proxy { fault, .. } if fault.fault() == Fault::Caller => {
            Failure::Final(Error::Connection { reason: root.to_string() })
        }
        _ => Failure::Passing(root.to_string()),
    }
}

/// Returns the transport's own error, at any depth of the chain.
fn transport_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a TransportError> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
}

/// Formats an error and its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn malformed(ask: &Ask<'_>, error: &dyn std::error::Error) -> Error {
    Error::Malformed { doing: ask.doing(), reason: error.to_string() }
}

/// Escapes a text for a path segment or a value in a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// The field manager.
const MANAGER: &str = "skopos";

/// Objects per page of a list.
const PAGE: usize = 500;

/// Limit on the size of a response.
const MAX_BYTES: usize = 64 << 20;

/// The remaining time below which no further attempt is made.
const MIN_REMAINING: Duration = Duration::from_millis(50);

/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_one_segment_for_each_name() {
        assert_eq!(
            Resource::new("apps", "deployments").path(Some("a"), None),
            "/apis/apps/v1/namespaces/a/deployments"
        );
        assert_eq!(Resource::core("namespaces").path(None, Some("../b?c")), "/api/v1/namespaces/..%2Fb%3Fc");
    }
}

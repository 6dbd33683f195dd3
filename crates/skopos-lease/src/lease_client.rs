//! The requests about one Lease.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;
use skopos_reflect::Target;
use skopos_transport::{RequestClass, RequestOptions, Transport};
use skopos_wire::{FieldRequirement, FieldSelector};
use tokio::time::timeout;

use crate::machine::{Action, Outcome};
use crate::record::{Record, new_lease};

/// The location of the Lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseClient {
    pub(crate) transport: Transport,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The maximum size of a Lease.
const MAX_LEASE_BYTES: usize = 1 << 20;

impl LeaseClient {
    /// Performs a request of the machine, within its timeout. Returns the number of the request and its outcome.
    pub(crate) async fn execute(self, action: Action) -> (u64, Outcome) {
        let (id, within, request) = match action {
            Action::Read { id, within } => (id, within, self.request(Method::GET, true, &Value::Null)),
            Action::Write { id, within, base: Some(base), spec } => {
                (id, within, self.request(Method::PUT, true, &base.with(&spec)))
            }
            Action::Write { id, within, base: None, spec } => (
                id,
                within,
                self.request(Method::POST, false, &new_lease(&self.namespace, &self.name, &spec)),
            ),
        };
        let outcome = match timeout(within, self.send(request, within)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(problem)) => self.failed(problem),
            Err(_) => self.failed(format!("no answer within {within:?}")),
        };
        (id, outcome)
    }

    /// Returns the target of the watch: this Lease alone, to which rights may be limited.
    pub(crate) fn target(&self) -> Target {
        let leases = Target::new("coordination.k8s.io", "v1", "leases").in_namespace(&self.namespace);
        match FieldRequirement::new("metadata.name", true, self.name.as_str()) {
            Ok(name) => leases.with_fields(&FieldSelector::from_iter([name])),
            Err(_) => leases,
        }
    }

    fn request(&self, method: Method, named: bool, body: &Value) -> Request<Body> {
        // Names of namespaces and Leases were checked: nothing in them needs to be encoded.
        let mut uri = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        if named {
            uri.push('/');
            uri.push_str(&self.name);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let json = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        request.headers_mut().insert(header::ACCEPT, json);
        request
    }

    /// Sends a request. An error gives the reason why the outcome is unknown.
    async fn send(&self, mut request: Request<Body>, within: Duration) -> Result<Outcome, String> {
        let class = if request.method() == Method::GET { RequestClass::Probe } else { RequestClass::Write };
        let options =
            RequestOptions { class: Some(class), deadline: Some(within), ..RequestOptions::default() };
        request.extensions_mut().insert(options);
        let response = self.transport.send(request).await.map_err(|error| error.to_string())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_LEASE_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        match code {
            StatusCode::CONFLICT => Ok(Outcome::Conflict),
            // A POST into a missing namespace gets the same status: the machine knows its request.
            StatusCode::NOT_FOUND => Ok(Outcome::Missing),
            code if code.is_success() => {
                let object = serde_json::from_slice(&body).map_err(|error| format!("no JSON: {error}"))?;
                Record::read(object).map(Outcome::Is)
            }
            code => Err(refusal(code, &body)),
        }
    }

    fn failed(&self, problem: String) -> Outcome {
        tracing::warn!(
            namespace = self.namespace,
            name = self.name,
            "the Lease cannot be read or written: {problem}"
        );
        Outcome::Failed(problem)
    }
}

/// Returns the message of a Status, in one line.
fn refusal(code: StatusCode, body: &[u8]) -> String {
    let status = skopos_wire::Status::from_slice(body);
    let message = status.map(|status| status.message).filter(|message| !message.is_empty());
    message.map_or_else(|| code.to_string(), |message| format!("{code}: {message}"))
}

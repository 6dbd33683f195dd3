//! `/virtualclusters`: a REST API to create, list, pause, resume and delete virtual clusters.
//!
//! ```text
//!  GET    /virtualclusters[?namespace=N]                 list all
//!  POST   /virtualclusters                               create one                   ┐
//!  GET    /virtualclusters/NAMESPACE/NAME                get one                      │ 202 and an operation
//!  POST   /virtualclusters/NAMESPACE/NAME/pause|resume                                │ with its steps
//!  DELETE /virtualclusters/NAMESPACE/NAME                                             ┘
//!  GET    /virtualclusters/-/operations/ID[?wait=30s]    progress of an operation
//!         all with ?host=NAME where there are several hosts (clusters of the fleet)
//! ```
//!
//! Long operations continue after the caller has gone. A repeated request gets the operation that is already under way.
//! Everything is authorized on the host.

mod hosts;
mod operations;
mod request;
mod rights;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;
use skopos_vcluster::{Error, Fault, Host, PauseOptions, names};
use skopos_wire::{GroupResource, Status};

pub(crate) use self::hosts::{FleetHosts, Hosts, NoHost};
use self::operations::{Operations, Started, Target, Task};
use self::request::{Creation, Deletion, wait};
use crate::auth::Identity;
use crate::authz::{Attributes, Authorizer};
use crate::gateway::route::{Audited, Call, Route};
use crate::request::headers::{Stamp, stamp};
use crate::request::path::Path;
use crate::request::query::Query;
use crate::response::{self, Response};

/// The lifecycle of virtual clusters in some hosts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lifecycle {
    authorizer: Authorizer,
    hosts: Arc<dyn Hosts>,
    operations: Operations,
}

/// A request with its body read.
struct LifecycleRequest {
    method: Method,
    path: Path,
    query: Query,
    body: Bytes,
    identity: Arc<Identity>,
    /// The entry for the audit log.
    audited: Mutex<Audited>,
}

/// The deadline of reads for a waiting caller, and of the request's body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

impl Lifecycle {
    /// Creates the route for virtual clusters in these hosts.
    pub(crate) fn new(authorizer: Authorizer, hosts: Arc<dyn Hosts>) -> Self {
        Self { authorizer, hosts, operations: Operations::default() }
    }

    /// Returns the same route with another authorizer. Running operations continue and stay visible.
    pub(crate) fn renewed(&self, authorizer: Authorizer) -> Self {
        Self { authorizer, ..self.clone() }
    }

    /// Cancels running operations (a repeated request resumes them) and waits at most `limit` until they have ended. Returns
    /// whether all have ended.
    pub(crate) async fn shutdown(&self, limit: Duration) -> bool {
        self.operations.shutdown(limit).await
    }

    async fn routed(&self, call: &LifecycleRequest) -> Result<Response, Status> {
        let segments: Vec<&str> = call.path.segments().collect();
        if call.method != Method::GET && self.authorizer.is_read_only() {
            let why = "the gateway is read-only: outbound.readOnly, or a quick start without --allow-writes";
            return Err(Status::forbidden(RESOURCE, "", why));
        }
        match (call.method.as_str(), segments.as_slice()) {
            ("GET", []) => self.list(call).await,
            ("POST", []) => self.create(call).await,
            ("GET", ["-", "operations", id]) => self.operation(call, id).await,
            ("GET", [namespace, name]) => self.get(call, namespace, name).await,
            ("DELETE", [namespace, name]) => self.delete(call, namespace, name).await,
            ("POST", [namespace, name, "pause"]) => self.pause(call, namespace, name).await,
            ("POST", [namespace, name, "resume"]) => self.begin(call, namespace, name, Task::Resume).await,
            (_, [] | ["-", "operations", _] | [_, _] | [_, _, "pause" | "resume"]) => {
                Err(Status::method_not_allowed(RESOURCE, call.method.as_str()))
            }
            _ => Err(Status::failure(404, "NotFound", "the server could not find the requested resource")),
        }
    }

    async fn list(&self, call: &LifecycleRequest) -> Result<Response, Status> {
        let name = self.host_name(call).await?;
        let namespace = call.query.single("namespace")?.filter(|namespace| !namespace.is_empty());
        self.require(&name, call, &rights::reading(namespace)).await?;
        let host = self.host(&name).await?;
        let items = host.list(namespace, READ_TIMEOUT).await.map_err(|error| status_of(&error))?;
        Ok(answer(StatusCode::OK, &json!({"host": name, "items": items})))
    }

    async fn get(&self, call: &LifecycleRequest, namespace: &str, name: &str) -> Result<Response, Status> {
        let host_name = self.host_name(call).await?;
        self.require(&host_name, call, &rights::reading(Some(namespace))).await?;
        let host = self.host(&host_name).await?;
        let found =
            host.find(name, Some(namespace), READ_TIMEOUT).await.map_err(|error| status_of(&error))?;
        Ok(answer(StatusCode::OK, &found))
    }

    async fn create(&self, call: &LifecycleRequest) -> Result<Response, Status> {
        let host_name = self.host_name(call).await?;
        self.require(&host_name, call, &rights::everything()).await?;
        let Creation { name, options } = Creation::parse(&call.body)?;
        let namespace = options.namespace.clone().unwrap_or_else(|| names::default_namespace(&name));
        let host = self.host(&host_name).await?;
        self.start(host, Target { host: host_name, namespace, name }, Task::Create(Box::new(options)))
    }

    async fn delete(&self, call: &LifecycleRequest, namespace: &str, name: &str) -> Result<Response, Status> {
        let host = self.host_name(call).await?;
        let Deletion { mut options } = Deletion::parse(&call.query)?;
        self.require(&host, call, &rights::everything()).await?;
        // Without the right to delete the namespace, the caller deletes only its content.
        let namespaces = self.authorizer.decide(&host, &call.identity, &rights::namespace(namespace)).await;
        options.removal.own_namespace &= namespaces.allowed;
        self.begin(call, namespace, name, Task::Delete(options)).await
    }

    async fn pause(&self, call: &LifecycleRequest, namespace: &str, name: &str) -> Result<Response, Status> {
        let host_name = self.host_name(call).await?;
        let mut options = PauseOptions { synced: false, ..PauseOptions::default() };
        self.require(&host_name, call, &rights::required_for(&Task::Pause(options), namespace)).await?;
        let host = self.host(&host_name).await?;
        let synced = host.has_synced_namespaces(name, namespace, READ_TIMEOUT).await;
        if synced.map_err(|error| status_of(&error))? {
            self.require(&host_name, call, &[rights::pods_everywhere()]).await?;
            options.synced = true;
        }
        // Namespaces synced from now on stay untouched, because the caller did not ask for them.
        self.begin(call, namespace, name, Task::Pause(options)).await
    }

    /// Begins an operation on an existing virtual cluster.
    async fn begin(
        &self,
        call: &LifecycleRequest,
        namespace: &str,
        name: &str,
        task: Task,
    ) -> Result<Response, Status> {
        let host_name = self.host_name(call).await?;
        self.require(&host_name, call, &rights::required_for(&task, namespace)).await?;
        let host = self.host(&host_name).await?;
        let target = Target { host: host_name, namespace: namespace.to_owned(), name: name.to_owned() };
        // An unfinished deletion can be resumed even if the rest is gone.
        if !matches!(task, Task::Delete(_)) {
            host.find(name, Some(namespace), READ_TIMEOUT).await.map_err(|error| status_of(&error))?;
        }
        self.start(host, target, task)
    }

    fn start(&self, host: Host, target: Target, task: Task) -> Result<Response, Status> {
        match self.operations.start(host, target, task) {
            Started::Running(operation) => {
                let mut response = answer(StatusCode::ACCEPTED, &operation.shown());
                let location = format!("/virtualclusters/-/operations/{}", operation.id());
                // An ID is hexadecimal.
                if let Ok(location) = HeaderValue::from_str(&location) {
                    response.headers_mut().insert(header::LOCATION, location);
                }
                Ok(response)
            }
            Started::Busy { target, verb, same } => {
                let otherwise = if same { ", and otherwise than this" } else { "" };
                let problem = format!("{verb} is under way{otherwise}: wait until it is done");
                Err(Status::conflict(RESOURCE, &target.name, problem))
            }
            Started::Full => Err(Status::too_many_requests("too many operations are under way", 5)),
        }
    }

    async fn operation(&self, call: &LifecycleRequest, id: &str) -> Result<Response, Status> {
        let missing = || Status::not_found(GroupResource::new(GROUP, "operations"), id);
        let operation = self.operations.find(id).ok_or_else(missing)?;
        let Target { host, namespace, .. } = operation.target();
        self.require(host, call, &rights::reading(Some(namespace))).await?;
        if let Some(limit) = wait(&call.query)? {
            // The returned state shows whether the operation has ended.
            let _ = tokio::time::timeout(limit, operation.done()).await;
        }
        Ok(answer(StatusCode::OK, &operation.shown()))
    }

    /// Returns the requested host, or the only one.
    async fn host_name(&self, call: &LifecycleRequest) -> Result<String, Status> {
        if let Some(name) = call.query.single("host")? {
            return Ok(name.to_owned());
        }
        let mut names = self.hosts.names().await.map_err(|none| no_host("", none))?;
        match names.pop() {
            Some(only) if names.is_empty() => Ok(only),
            Some(_) => Err(Status::bad_request("there are several hosts: say which with ?host=NAME")),
            None => Err(missing_host("")),
        }
    }

    /// Finds a host. Call this only for authorized callers: others must not learn whether it exists.
    async fn host(&self, name: &str) -> Result<Host, Status> {
        self.hosts.find(name, READ_TIMEOUT).await.map_err(|none| no_host(name, none))
    }

    /// Checks that the caller has all these rights on the host.
    async fn require(
        &self,
        host: &str,
        call: &LifecycleRequest,
        rights: &[Attributes],
    ) -> Result<(), Status> {
        for right in rights {
            let decision = self.authorizer.decide(host, &call.identity, right).await;
            let audited = Audited { cluster: Some(host.into()), ..call.audited.lock().clone() };
            *call.audited.lock() = audited.decided(&decision);
            if !decision.allowed {
                return Err(right.forbidden(&call.identity, &decision));
            }
        }
        Ok(())
    }
}

impl Route for Lifecycle {
    fn answer(&self, call: Call) -> BoxFuture<'static, Response> {
        let lifecycle = self.clone();
        Box::pin(async move {
            let Call { method, path, query, headers, body, identity, .. } = call;
            let body = match request::body(&headers, body, READ_TIMEOUT).await {
                Ok(body) => body,
                Err(status) => return response::status(&status),
            };
            let words: Vec<&str> = path.segments().collect();
            let what = format!("{method} virtualclusters {}", words.join("/"));
            let audited = Audited { what: what.into(), source: "gateway", ..Audited::default() };
            let asked =
                LifecycleRequest { method, path, query, body, identity, audited: Mutex::new(audited) };
            let answered = lifecycle.routed(&asked).await;
            let mut response = answered.unwrap_or_else(|status| response::status(&status));
            stamp(response.headers_mut(), &Stamp { source: "gateway", ..Stamp::default() });
            response.extensions_mut().insert(asked.audited.into_inner());
            response
        })
    }
}

impl std::fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lifecycle").finish_non_exhaustive()
    }
}

const GROUP: &str = "skopos.dev";

const RESOURCE: GroupResource<'static> = GroupResource { group: GROUP, resource: "virtualclusters" };

const HOST_DOWN: &str = "the host cannot be asked";

fn no_host(name: &str, why: NoHost) -> Status {
    match why {
        NoHost::Unknown => missing_host(name),
        NoHost::Down => Status::service_unavailable(HOST_DOWN),
    }
}

fn missing_host(name: &str) -> Status {
    Status::not_found(GroupResource::new(GROUP, "hosts"), name)
}

fn answer(code: StatusCode, body: &impl serde::Serialize) -> Response {
    let body = serde_json::to_vec(body).unwrap_or_default();
    response::bytes(code, "application/json", body.into())
}

/// Maps an error to a Status in the API server's words.
fn status_of(error: &Error) -> Status {
    match error {
        Error::NotFound { name, .. } => Status::not_found(RESOURCE, name),
        Error::InvalidName { .. } => Status::bad_request(error.to_string()),
        Error::Deadline { .. } => Status::timeout(error, 1),
        // The host's messages are meant for the gateway, not for the caller.
        Error::Refused { .. }
        | Error::Malformed { .. }
        | Error::Connection { .. }
        | Error::HostUnreachable { .. } => Status::service_unavailable(HOST_DOWN),
        other if other.fault() == Fault::State => Status::failure(409, "Conflict", other.to_string()),
        other => Status::failure(422, "Invalid", other.to_string()),
    }
}

//! Dispatch of requests to routes. Invalid requests are refused before their content is read.

pub(crate) mod audit;
pub(crate) mod route;
pub(crate) mod services;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode, header};
use http_body::Body as _;
use hyper::body::Incoming;
use skopos_wire::{GroupResource, Status, StatusReason};

pub(crate) use self::audit::Observer;
use self::route::{Audited, Call, Route};
use crate::auth::{Authenticator, Impersonation};
use crate::clusters::is_bodiless;
use crate::listen::{Handler, Peer};
use crate::request::body::LimitedBody;
use crate::request::path::Path;
use crate::request::query::Query;
use crate::request::via::InstanceId;
use crate::request::{authority, browser, headers};
use crate::response::{self, Response, media_type};
use crate::upgrade::{self, UpgradeRequest};

/// The gateway: authenticates requests and dispatches them by the first segment of their paths. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<GatewayInner>,
}

/// A builder of a gateway.
pub struct GatewayBuilder {
    instance: InstanceId,
    authenticator: Authenticator,
    body_bytes: usize,
    routes: BTreeMap<String, Arc<dyn Route>>,
    open: BTreeMap<String, Arc<dyn Route>>,
    observer: Option<Arc<dyn Observer>>,
}

struct GatewayInner {
    instance: InstanceId,
    authenticator: Authenticator,
    body_bytes: usize,
    routes: BTreeMap<String, Arc<dyn Route>>,
    open: BTreeMap<String, Arc<dyn Route>>,
    observer: Option<Arc<dyn Observer>>,
}

impl Gateway {
    /// Makes a builder without routes; at most `body_bytes` bytes of a body are read.
    pub fn builder(authenticator: Authenticator, body_bytes: usize) -> GatewayBuilder {
        GatewayBuilder {
            instance: InstanceId::random(),
            authenticator,
            body_bytes,
            routes: BTreeMap::new(),
            open: BTreeMap::new(),
            observer: None,
        }
    }

    /// Answers one request of a peer.
    pub async fn answer(&self, peer: Arc<Peer>, request: http::Request<LimitedBody>) -> Response {
        let (parts, body) = request.into_parts();
        let asked_to_switch = headers::wants_upgrade(&parts.headers);
        let mut audit_entry = audit::AuditEntry::new(&peer, &parts, self.shared.observer.clone());
        let answered = self.shared.answer(&peer, parts, body, &mut audit_entry).await;
        let mut answer = answered.unwrap_or_else(|status| response::status(&status));
        browser::protect(&mut answer);
        let headers = answer.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(header::HeaderValue::from_static("no-cache, private"));
        if asked_to_switch && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            // Bytes that the client has sent in the meantime belong to another protocol and are not the next request.
            answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        let audited: Option<Audited> = answer.extensions_mut().remove();
        audit_entry.end(answer.status(), audited.as_ref());
        answer
    }
}

impl Handler for Gateway {
    fn handle(
        &self,
        peer: Arc<Peer>,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = Response> + Send + 'static {
        let gateway = self.clone();
        let request = request.map(|body| LimitedBody::new(body, gateway.shared.body_bytes));
        async move { gateway.answer(peer, request).await }
    }
}

impl GatewayBuilder {
    /// Adds a route `/SEGMENT/...` for authenticated callers.
    #[must_use]
    pub fn route(mut self, segment: impl Into<String>, route: Arc<dyn Route>) -> Self {
        self.routes.insert(segment.into(), route);
        self
    }

    /// Adds a route `/SEGMENT/...` for all callers, such as health.
    #[must_use]
    pub fn open_route(mut self, segment: impl Into<String>, route: Arc<dyn Route>) -> Self {
        self.open.insert(segment.into(), route);
        self
    }

    /// Sets the ID of this instance. Requests that have already passed through it are refused.
    #[must_use]
    pub fn instance(mut self, instance: InstanceId) -> Self {
        self.instance = instance;
        self
    }

    /// Sets the observer of all answers.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Builds the gateway.
    pub fn build(self) -> Gateway {
        let Self { instance, authenticator, body_bytes, routes, open, observer } = self;
        Gateway {
            shared: Arc::new(GatewayInner { instance, authenticator, body_bytes, routes, open, observer }),
        }
    }
}

impl GatewayInner {
    async fn answer(
        &self,
        peer: &Peer,
        mut parts: http::request::Parts,
        body: LimitedBody,
        audit_entry: &mut audit::AuditEntry,
    ) -> Result<Response, Status> {
        headers::admit(&mut parts.headers)?;
        self.instance.admit(&parts.headers)?;
        body.admit()?;
        let switches = headers::wants_upgrade(&parts.headers);
        if parts.method == Method::CONNECT || switches && !self.routes.values().any(|route| route.switches())
        {
            return Err(no_switch());
        }
        if parts.method == Method::TRACE {
            let message = "the server does not allow this method on the requested resource";
            return Err(Status::failure(405, StatusReason::MethodNotAllowed, message));
        }
        authority::normalize(&mut parts)?;
        browser::admit_change(&parts.method, &parts.headers, peer.tls)?;
        if !is_bodiless(&parts.method) && !body.is_end_stream() {
            media_type::admit(&parts.headers)?;
        }
        let upgrade = if switches { Some(UpgradeRequest::from_request(&mut parts, &body)?) } else { None };
        let mut headers = std::mem::take(&mut parts.headers);
        let path = Path::parse(parts.uri.path())?;
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let Some((segment, rest)) = path.split_first() else { return Ok(not_found()) };
        let call = |identity, headers, body, upgrade| Call {
            method: parts.method.clone(),
            path: rest,
            query,
            headers,
            body,
            upgrade,
            identity,
            draining: peer.draining.clone(),
        };
        if let Some(route) = self.open.get(&segment) {
            if upgrade.is_some() {
                return Err(upgrade::only_into_pods());
            }
            audit_entry.routed(&segment);
            return Ok(route.answer(call(Arc::default(), headers, body, None)).await);
        }
        if self.authenticator.is_ambient(peer) {
            browser::admit_ambient(&headers, peer.tls)?;
        }
        // Only authenticated callers learn which routes exist.
        let identity =
            self.authenticator.identify(peer, &headers).await.inspect_err(|why| audit_entry.unknown(why))?;
        peer.record.caller_known();
        audit_entry.known(&identity);
        let Some(route) = self.routes.get(&segment) else { return Ok(not_found()) };
        audit_entry.routed(&segment);
        if upgrade.is_some() && !route.switches() {
            return Err(upgrade::only_into_pods());
        }
        let identity = match Impersonation::parse(&headers)? {
            Some(wanted) if route.impersonates() => Arc::new(wanted.by(identity)),
            Some(_) => return Err(no_impersonation()),
            None => identity,
        };
        audit_entry.known(&identity);
        forget_credentials(&mut headers);
        Ok(route.answer(call(identity, headers, body, upgrade)).await)
    }
}

/// Returns the API server's answer for a path that it does not serve (W16).
pub(crate) fn not_found() -> Response {
    response::text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn no_switch() -> Status {
    let refused = "connections into pods do not go through the gateway";
    Status::forbidden(GroupResource::new("", ""), "", refused)
}

fn no_impersonation() -> Status {
    let refused = "impersonation (kubectl --as) is possible in /clusters and /fleet only";
    Status::forbidden(GroupResource::new("", ""), "", refused)
}

fn forget_credentials(headers: &mut HeaderMap) {
    for name in [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE] {
        headers.remove(name);
    }
}

/// Makes a route from a function.
pub(crate) fn route_fn<F, Fut>(answer: F) -> Arc<dyn Route>
where
    F: Fn(Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    Arc::new(RouteFn(answer))
}

struct RouteFn<F>(F);

impl<F, Fut> Route for RouteFn<F>
where
    F: Fn(Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    fn answer(&self, call: Call) -> BoxFuture<'static, Response> {
        Box::pin((self.0)(call))
    }
}

//! Routes of the gateway: their requests and their answers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, Method};
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;
use crate::authz::{Decision, DecisionSource};
use crate::request::body::LimitedBody;
use crate::request::path::Path;
use crate::request::query::Query;
use crate::response::Response;
use crate::upgrade::UpgradeRequest;

/// The maximum lifetime of a watch. Clients resume with a new watch, which is authorized again.
pub(crate) const WATCH_LIFETIME: Duration = Duration::from_secs(600);

/// A validated request: its headers are admitted, its path is parsed, and its caller is known.
#[derive(Debug)]
pub struct Call {
    /// The method. Never CONNECT or TRACE.
    pub method: Method,
    /// The path after the route's own segment.
    pub path: Path,
    /// The parameters.
    pub query: Query,
    /// The headers, without credentials, cookies and impersonation headers.
    pub headers: HeaderMap,
    /// The body, within the configured limit.
    pub body: LimitedBody,
    /// The requested switch to another protocol. Only for routes that [switch](Route::switches).
    pub upgrade: Option<UpgradeRequest>,
    /// The identity whose rights count, with the [`actor`](Identity::actor) if a caller impersonates it.
    pub identity: Arc<Identity>,
    /// Cancelled when the gateway is about to stop; streams end then.
    pub draining: CancellationToken,
}

/// A handler of all paths that begin with one segment.
pub trait Route: Send + Sync + 'static {
    /// Answers a request, within its own deadline.
    fn answer(&self, call: Call) -> BoxFuture<'static, Response>;

    /// Returns whether connections may switch to another protocol.
    fn switches(&self) -> bool {
        false
    }

    /// Returns whether callers may impersonate others here. The route decides that with each right.
    fn impersonates(&self) -> bool {
        false
    }
}

/// The audit log's facts about an answer. A route puts them into the response's extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Audited {
    /// The cluster of the request, if it has one.
    pub cluster: Option<Arc<str>>,
    /// The requested operation: verb, resource, namespace, name.
    pub what: Arc<str>,
    /// The decision on the request, its origin and its age.
    pub decision: Option<(bool, DecisionSource, Duration)>,
    /// The source of the content: `memory` or `member`.
    pub source: &'static str,
    /// The age of the content, if known.
    pub age: Option<Duration>,
    /// Set if the content is objects of clusters, whose age the gateway answers for.
    pub has_objects: bool,
}

impl Audited {
    /// Adds the decision.
    pub(crate) fn decided(mut self, decision: &Decision) -> Self {
        self.decision = Some((decision.allowed, decision.source, decision.age));
        self
    }
}

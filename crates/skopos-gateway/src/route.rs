//! What a route of the gateway gets, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, Method};
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;
use crate::authz::{Decision, DecisionSource};
use crate::body::LimitedBody;
use crate::path::Path;
use crate::query::Query;
use crate::response::Response;
use crate::upgrade::Wish;

/// A watch lives at most so long: clients begin another where it ended, and are authorized anew.
pub const WATCH_LIFETIME: Duration = Duration::from_secs(600);

/// A request that passed: its headers are admitted, its path is parsed, and it is known who asks.
#[derive(Debug)]
pub struct Call {
    /// The method. Never CONNECT or TRACE.
    pub method: Method,
    /// What is left of the path behind the route's own segment.
    pub path: Path,
    /// The parameters.
    pub query: Query,
    /// The headers, without credentials, cookies and whatever speaks for others.
    pub headers: HeaderMap,
    /// The body, within the configured limit.
    pub body: LimitedBody,
    /// The other protocol that this connection shall switch to. Only for routes that [switch](Route::switches).
    pub upgrade: Option<Wish>,
    /// The identity whose rights count, with the [`actor`](Identity::actor) if a caller impersonates it.
    pub identity: Arc<Identity>,
    /// Cancelled when the gateway is about to stop: streams end then.
    pub draining: CancellationToken,
}

/// Answers all paths that begin with one segment.
pub trait Route: Send + Sync + 'static {
    /// Answers a request, within a time of its own.
    fn answer(&self, call: Call) -> BoxFuture<'static, Response>;

    /// Whether it lets connections switch to another protocol.
    fn switches(&self) -> bool {
        false
    }

    /// Returns whether callers may impersonate others here: the route decides that with each right.
    fn impersonates(&self) -> bool {
        false
    }
}

/// What the audit log says of an answer: put it into the response's extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// The cluster that was asked about, if one was.
    pub cluster: Option<Arc<str>>,
    /// What was asked for: verb, resource, namespace, name.
    pub what: Arc<str>,
    /// Whether it was allowed, by whom, and how old that decision is.
    pub decision: Option<(bool, DecisionSource, Duration)>,
    /// Where the content comes from: `memory` or `member`.
    pub source: &'static str,
    /// How old it is, if that is known.
    pub age: Option<Duration>,
}

// === impl Audited ===

impl Audited {
    /// With what was decided.
    #[must_use]
    pub fn decided(mut self, decision: &Decision) -> Self {
        self.decision = Some((decision.allowed, decision.source, decision.age));
        self
    }
}

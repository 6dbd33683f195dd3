//! Audit log: one line for each request, with caller, verb, cluster, decision and age of the answer. It never contains the
//! answer itself.
//! A request whose caller left before the answer is logged too, because the operation may have been done.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::route::Audited;
use crate::auth::{AuthError, Identity};
use crate::listen::Peer;

/// The facts known about a request so far. Dropped without [`AuditEntry::end`], it logs that the caller left before the
/// answer.
pub(crate) struct AuditEntry {
    began: Instant,
    from: IpAddr,
    method: http::Method,
    path: String,
    user: Option<Arc<Identity>>,
    refused: Option<AuthError>,
    /// The first segment of the path if a route matches. Metrics must not have a series for each unknown one.
    route: &'static str,
    observer: Option<Arc<dyn Observer>>,
    ended: bool,
}

/// An observer of all answers, for metrics.
pub trait Observer: Send + Sync + 'static {
    /// Records the start of an answer.
    fn answered(&self, answer: &Answer<'_>);
}

/// The start of an answer.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The route's name; `none` if no route matches.
    pub route: &'static str,
    /// The method of the request.
    pub method: &'a http::Method,
    /// The code. 499 means that the caller left before.
    pub code: StatusCode,
    /// The time since the request arrived.
    pub took: Duration,
    /// Set if the content is objects of clusters, whose age the gateway answers for.
    pub has_objects: bool,
    /// An upper bound on the age of the content, if there is one.
    pub age: Option<Duration>,
}

/// The code for a request whose caller left, as proxies name it.
const ABANDONED: u16 = 499;

/// The names of routes in metrics.
const ROUTES: [&str; 9] =
    ["clusters", "fleet", "virtualclusters", "api", "metrics", "healthz", "readyz", "livez", "other"];

impl AuditEntry {
    pub(crate) fn new(
        peer: &Peer,
        parts: &http::request::Parts,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self {
            began: Instant::now(),
            from: peer.address.ip(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            user: None,
            refused: None,
            route: "none",
            observer,
            ended: false,
        }
    }

    pub(crate) fn known(&mut self, identity: &Arc<Identity>) {
        self.user = Some(identity.clone());
    }

    pub(crate) fn unknown(&mut self, why: &AuthError) {
        self.refused = Some(*why);
    }

    pub(crate) fn routed(&mut self, segment: &str) {
        self.route = ROUTES.into_iter().find(|route| *route == segment).unwrap_or("other");
    }

    /// Logs the start of the answer.
    pub(crate) fn end(mut self, code: StatusCode, audited: Option<&Audited>) {
        self.ended = true;
        self.log(code, audited);
    }

    fn log(&self, code: StatusCode, audited: Option<&Audited>) {
        let took = self.began.elapsed();
        self.write(code, took, audited);
        if let Some(observer) = &self.observer {
            observer.answered(&Answer {
                route: self.route,
                method: &self.method,
                code,
                took,
                has_objects: audited.is_some_and(|audited| audited.has_objects),
                age: audited.and_then(|audited| audited.age),
            });
        }
    }

    fn write(&self, code: StatusCode, took: Duration, audited: Option<&Audited>) {
        let user = self.user.as_deref().map(|who| who.caller().user.as_str());
        let impersonated = self.user.as_deref().filter(|who| who.actor.is_some());
        let nothing = Audited::default();
        let said = audited.unwrap_or(&nothing);
        let (allowed, by, decided) = match said.decision {
            Some((allowed, source, age)) => (Some(allowed), Some(source.as_str()), Some(age)),
            None => (None, None, None),
        };
        let known = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        tracing::info!(
            target: "skopos::audit",
            from = %self.from,
            user,
            impersonated = impersonated.map(tracing::field::display),
            refused = self.refused.as_ref().map(tracing::field::display),
            method = %self.method,
            route = self.route,
            cluster = said.cluster.as_deref(),
            what = Some(&*said.what).filter(|what| !what.is_empty()),
            code = code.as_u16(),
            allowed,
            by,
            decision_age = decided.map(|age| age.as_secs_f64()),
            source = known(said.source),
            age = said.age.map(|age| age.as_secs_f64()),
            took = %format_args!("{:.6}", took.as_secs_f64()),
            "request"
        );
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let audited = Audited { what: self.path.as_str().into(), ..Audited::default() };
        self.log(StatusCode::from_u16(ABANDONED).unwrap_or(StatusCode::REQUEST_TIMEOUT), Some(&audited));
    }
}

//! One line for each request: who, what, of which cluster, who decided, and how old the answer was. Never what it said.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::auth::{AuthError, Identity};
use crate::listen::Peer;
use crate::route::Audited;

/// What is known of a request so far.
pub(crate) struct Trail {
    from: IpAddr,
    method: http::Method,
    user: Option<Arc<Identity>>,
    refused: Option<AuthError>,
    /// The first segment of the path, if a route is for it; metrics must not have a series for each wrong one.
    pub(crate) route: &'static str,
}

/// Routes as metrics name them.
const ROUTES: [&str; 9] =
    ["clusters", "fleet", "virtualclusters", "api", "metrics", "healthz", "readyz", "livez", "other"];

// === impl Trail ===

impl Trail {
    pub(crate) fn of(peer: &Peer, parts: &http::request::Parts) -> Self {
        Self {
            from: peer.address.ip(),
            method: parts.method.clone(),
            user: None,
            refused: None,
            route: "none",
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

    pub(crate) fn write(&self, code: StatusCode, took: Duration, audited: Option<&Audited>) {
        let user = self.user.as_deref().map_or("", |who| who.user.as_str());
        let nothing = Audited::default();
        let said = audited.unwrap_or(&nothing);
        let (allowed, by, decided) = match said.decision {
            Some((allowed, source, age)) => (Some(allowed), source.word(), Some(age)),
            None => (None, "", None),
        };
        tracing::info!(
            target: "skopos::audit",
            from = %self.from,
            user,
            refused = self.refused.as_ref().map(tracing::field::display),
            method = %self.method,
            route = self.route,
            cluster = said.cluster.as_deref().unwrap_or_default(),
            what = &*said.what,
            code = code.as_u16(),
            allowed,
            by,
            decision_age = decided.map(|age| age.as_secs_f64()),
            source = said.source,
            age = said.age.map(|age| age.as_secs_f64()),
            took = took.as_secs_f64(),
            "request"
        );
    }
}

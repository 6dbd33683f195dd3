//! Services shared by all routes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use skopos::transport::{RequestClass, RequestOptions};
use skopos_fleet::{Cluster, ClusterId, Fleet, FleetError};

use crate::authz::ask::{Ask, AskError, MAX_ANSWER_BYTES};
use crate::authz::{Attributes, Authorizer};
use crate::catalog::DefinitionsCache;
use crate::config::Config;
use crate::consistency::{Floors, Listings, PendingWrite};
use crate::limits::per_user_limit::PerUserLimit;

/// The services shared by all routes. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    /// The clusters.
    pub fleet: Fleet,
    /// The authorizer of requests to the clusters.
    pub authorizer: Authorizer,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The floors of later reads, raised by writes through the gateway.
    pub(crate) floors: Floors,
    /// The recent lists from members, made while memory was behind.
    pub(crate) listings: Listings,
    /// The watches of each caller.
    pub watches: PerUserLimit,
    /// The streams into pods of each caller.
    pub streams: PerUserLimit,
    /// The resources that each cluster defines itself.
    pub(crate) definitions: DefinitionsCache,
}

impl Services {
    /// Makes the services of a fleet, according to `config`.
    pub fn new(fleet: Fleet, config: Arc<Config>) -> Self {
        let authorizer = Authorizer::new(&config, Arc::new(FleetAsk::new(fleet.clone())));
        let watches = PerUserLimit::new("watches", config.listen.limits.watches_per_user);
        let streams = PerUserLimit::new("streams", config.outbound.streams.per_user);
        Self {
            fleet,
            authorizer,
            config,
            floors: Floors::default(),
            listings: Listings::default(),
            watches,
            streams,
            definitions: DefinitionsCache::default(),
        }
    }

    /// Returns the number of sources that have not listed their clusters within the deadline of members. Right after a start,
    /// an empty answer would be wrong while sources are unread.
    pub(crate) async fn unread_sources(&self) -> usize {
        self.fleet.unread_sources(self.config.cache.member_deadline.0).await
    }

    /// Begins a write to a cluster. If it is done, later reads contain it, whatever its answer is.
    pub(crate) fn begin_write(&self, cluster: &ClusterId, what: &Attributes) -> PendingWrite {
        let members = self.fleet.members();
        if self.floors.clusters() > members.len() {
            self.floors.retain(|id| members.contains_key(id.as_str()));
        }
        self.floors.write(cluster, &what.group, &what.resource)
    }

    /// Returns the same services with another configuration. Counters stay unless their limit has changed. Rights are decided
    /// as before until the authorizer takes over the new rules.
    #[must_use]
    pub fn renewed(&self, config: Arc<Config>) -> Self {
        let watches = self.watches.renewed(config.listen.limits.watches_per_user);
        let streams = self.streams.renewed(config.outbound.streams.per_user);
        Self { watches, streams, config, ..self.clone() }
    }
}

/// A client of the clusters of a fleet, with the fleet's credentials.
#[derive(Clone)]
pub struct FleetAsk {
    fleet: Fleet,
    trusted: bool,
}

impl FleetAsk {
    /// Makes a client of all clusters of a fleet.
    pub fn new(fleet: Fleet) -> Self {
        Self { fleet, trusted: false }
    }

    /// Makes a client of the clusters from trusted sources only ([`Fleet::trusted`]). For requests that contain a secret and
    /// whose answers count for all clusters.
    pub fn trusted_only(fleet: Fleet) -> Self {
        Self { fleet, trusted: true }
    }

    fn find(&self, name: &str) -> Result<Cluster, AskError> {
        let found = if self.trusted { self.fleet.trusted(name) } else { self.fleet.get(name) };
        found.ok_or_else(|| match self.fleet.get(name) {
            Some(_) => AskError::Untrusted(name.into()),
            None => AskError::Unknown(name.into()),
        })
    }
}

impl Ask for FleetAsk {
    fn ask(
        &self,
        cluster: &str,
        request: Request<Bytes>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, AskError>> {
        let found = self.find(cluster);
        Box::pin(async move {
            let cluster = found?;
            let (parts, body) = request.into_parts();
            let mut request = Request::from_parts(parts, Body::from(body));
            // A review changes nothing: it may be retried, and its deadline is that of a read.
            request.extensions_mut().insert(RequestOptions {
                class: Some(RequestClass::Read),
                deadline: Some(within),
                ..RequestOptions::default()
            });
            let answer = cluster.request(request, within).await.map_err(|error| down(&error))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| AskError::Down(error.to_string().into()))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        })
    }

    fn generation(&self, cluster: &str) -> Option<u64> {
        self.find(cluster).ok().map(|cluster| cluster.generation())
    }
}

fn down(error: &FleetError) -> AskError {
    match error {
        FleetError::UnknownCluster { name } => AskError::Unknown(name.as_str().into()),
        FleetError::Config { .. } | FleetError::Malformed { .. } | FleetError::Closed => {
            AskError::Unusable(error.to_string().into())
        }
        _ => AskError::Down(error.to_string().into()),
    }
}

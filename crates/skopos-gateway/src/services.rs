//! What all routes share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use skopos::transport::{RequestClass, RequestOptions};
use skopos_fleet::{Cluster, ClusterId, Fleet, FleetError};

use crate::ask::{Ask, AskError, MOST_BYTES};
use crate::authz::{Attributes, Authorizer};
use crate::catalog::DefinitionsCache;
use crate::config::Config;
use crate::consistency::{Floors, Listings, PendingWrite};
use crate::places::Places;

/// What all routes share. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    /// The clusters.
    pub fleet: Fleet,
    /// Who may do what in them.
    pub authorizer: Authorizer,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// What later reads have to hold because it was written through the gateway.
    pub(crate) floors: Floors,
    /// What members have listed while memory was behind.
    pub(crate) listings: Listings,
    /// How many watches each caller has.
    pub watches: Places,
    /// How many streams into pods each caller has.
    pub streams: Places,
    /// Which kinds each cluster has itself.
    pub(crate) definitions: DefinitionsCache,
}

// === impl Services ===

impl Services {
    /// Those of a fleet, as `config` says.
    #[must_use]
    pub fn new(fleet: Fleet, config: Arc<Config>) -> Self {
        let authorizer = Authorizer::new(&config, Arc::new(FleetAsk::new(fleet.clone())));
        let watches = Places::new("watches", config.listen.limits.watches_per_user);
        let streams = Places::new("streams", config.outbound.streams.per_user);
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

    /// How many sources have not said which clusters there are, though each had as long as a member has to answer. Right after
    /// a start nobody is to be told that there is nothing because it has not been looked for.
    pub(crate) async fn unread_sources(&self) -> usize {
        self.fleet.unread_sources(self.config.cache.member_deadline.0).await
    }

    /// Begins a write to a cluster: whatever becomes of it, later reads hold it if it was done.
    pub(crate) fn begin_write(&self, cluster: &ClusterId, what: &Attributes) -> PendingWrite {
        let members = self.fleet.members();
        if self.floors.clusters() > members.len() {
            self.floors.retain(|id| members.contains_key(id.as_str()));
        }
        self.floors.write(cluster, &what.group, &what.resource)
    }

    /// The same clusters under another configuration. What is open counts as before, unless its limit has changed. Rights are
    /// decided as before until [`Authorizer::take_over`].
    #[must_use]
    pub fn renewed(&self, config: Arc<Config>) -> Self {
        let watches = self.watches.renewed(config.listen.limits.watches_per_user);
        let streams = self.streams.renewed(config.outbound.streams.per_user);
        Self { watches, streams, config, ..self.clone() }
    }
}

/// Asks the clusters of a fleet, with the fleet's credentials.
#[derive(Clone)]
pub struct FleetAsk {
    fleet: Fleet,
    trusted: bool,
}

// === impl FleetAsk ===

impl FleetAsk {
    /// Asks the clusters of this one.
    #[must_use]
    pub fn new(fleet: Fleet) -> Self {
        Self { fleet, trusted: false }
    }

    /// Asks those of them that are listed by sources that are trusted ([`Fleet::trusted`]): what is asked is a secret, and what
    /// they answer counts for all clusters.
    #[must_use]
    pub fn of_trusted(fleet: Fleet) -> Self {
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
            // A review changes nothing: whoever asks may ask again, and waits for as long as for a read.
            request.extensions_mut().insert(RequestOptions {
                class: Some(RequestClass::Read),
                deadline: Some(within),
                ..RequestOptions::default()
            });
            let answer = cluster.request(request, within).await.map_err(|error| down(&error))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, MOST_BYTES).collect().await;
            let body = body.map_err(|error| AskError::Down(error.to_string().into()))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        })
    }

    fn way(&self, cluster: &str) -> Option<u64> {
        self.find(cluster).ok().map(|cluster| cluster.way())
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

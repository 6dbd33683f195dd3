//! `/clusters/NAME/...`: the Kubernetes API of one cluster.
//!
//! ```text
//!  name, target ─▶ may they? ─┬─▶ discovery, OpenAPI, version ─▶ memory, also while the cluster is down
//!                             ├─▶ get, list, watch of a kind ──▶ memory, with its age
//!                             ├─▶ exec, attach, port-forward ──▶ the member, on a connection of its own, both ways
//!                             └─▶ everything else ─────────────▶ the member, streamed
//! ```

mod dependence;
#[cfg(test)]
mod dependence_tests;
#[cfg(test)]
mod discovery_tests;
mod documents;
#[cfg(test)]
mod encoding_tests;
mod errors;
#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod impersonation_tests;
mod memory;
#[cfg(test)]
mod memory_tests;
mod newest;
#[cfg(test)]
mod noninterference_tests;
#[cfg(test)]
mod own_writes_tests;
mod presentation;
#[cfg(test)]
mod presentation_tests;
mod proxy;
mod state;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod stream_tls_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unreadable_tests;
mod view;
mod views;
#[cfg(test)]
mod watch_cache_tests;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Method;
use skopos_fleet::Cluster;
use skopos_wire::{GroupResource, Status};

pub(crate) use self::documents::answer as document_answer;
pub(crate) use self::errors::status_of;
use self::presentation::Presentations;
pub(crate) use self::views::Served;
use self::views::Views;
use crate::auth::Identity;
use crate::authz::Attributes;
use crate::config::ConnectPolicy;
use crate::config::fleet::KeptParts;
use crate::gateway::not_found;
use crate::gateway::route::{Audited, Call, Route};
use crate::gateway::services::Services;
use crate::request::target::{ResourceTarget, Target};
use crate::request::watch_path::spelled_as_list;
use crate::response::{self, Response};
use crate::upgrade;

/// The route of single clusters.
#[derive(Clone)]
pub struct Clusters {
    services: Services,
    views: Views,
    presentations: Presentations,
    /// The parts of an object that are in memory, decided when the informers are made.
    kept: KeptParts,
}

/// An allowed request to an existing cluster.
pub(crate) struct Allowed {
    pub(crate) cluster: Cluster,
    pub(crate) call: Call,
}

impl Clusters {
    /// Makes the route over these services' clusters.
    pub fn new(services: Services) -> Self {
        let cache = &services.config.cache;
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let (compressed, per_cluster) = (bytes(cache.compressed_bytes.0), bytes(cache.bytes_per_cluster.0));
        let views = Views::new(compressed, per_cluster, services.listings.clone());
        let kept = KeptParts::from_config(&services.config);
        Self { services, views, presentations: Presentations::new(), kept }
    }

    /// Returns the route with other services; watches continue.
    #[must_use]
    pub fn renewed(&self, services: Services) -> Self {
        Self { services, ..self.clone() }
    }

    /// Returns the statistics of lists and watches so far, and the memory held for them.
    pub fn served(&self) -> Served {
        self.views.served()
    }

    /// Ends all watches, and waits until all have ended, at most for `limit`. Returns whether all have.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.views.shutdown(limit).await
    }

    async fn serve(self, mut call: Call) -> Response {
        let Some((name, path)) = call.path.split_first() else { return not_found() };
        call.path = path;
        let mut audited = Audited { cluster: Some(name.as_str().into()), ..Audited::default() };
        let answered = self.routed(&name, call, &mut audited).await;
        let mut answer = answered.unwrap_or_else(|status| response::status(&status));
        if let Some(said) = answer.extensions_mut().remove::<Audited>() {
            audited.age = said.age;
            audited.has_objects = said.has_objects;
            audited.source = if said.source.is_empty() { audited.source } else { said.source };
        }
        answer.extensions_mut().insert(audited);
        answer
    }

    async fn routed(&self, name: &str, mut call: Call, audited: &mut Audited) -> Result<Response, Status> {
        (call.path, call.query) = spelled_as_list(&call.method, call.path, call.query)?;
        let target = Target::parse(&call.method, &call.path, &call.query)?;
        let what = target.attributes();
        audited.what = what.to_string().into();
        if let Target::Resource(target) = &target {
            self.admit(target, &call)?;
        } else if call.upgrade.is_some() {
            return Err(upgrade::only_into_pods());
        }
        let fleet = &self.services.fleet;
        if fleet.get(name).is_none() && self.services.unread_sources().await > 0 && fleet.get(name).is_none()
        {
            return Err(errors::not_known_yet());
        }
        let generation = fleet.get(name).map(|cluster| cluster.generation());
        // Authorization precedes the lookup: a caller without permission does not learn whether the cluster exists.
        let reviewed = self.reviewed(&call.identity).clone();
        let decision = self.services.authorizer.decide(name, &reviewed, what).await;
        *audited = std::mem::take(audited).decided(&decision);
        if !decision.allowed {
            return Err(what.forbidden(&reviewed, &decision));
        }
        let rights = rights_of(&target);
        for right in rights.iter().skip(1) {
            let decision = self.services.authorizer.decide(name, &reviewed, right).await;
            if !decision.allowed {
                *audited = std::mem::take(audited).decided(&decision);
                return Err(right.forbidden(&reviewed, &decision));
            }
        }
        let cluster = fleet.cluster(name).map_err(|error| status_of(&error))?;
        if generation != Some(cluster.generation()) {
            return Err(errors::is_another_now());
        }
        let is_common = match self.is_trusted(&reviewed) {
            // For a trusted caller that impersonates, the member decides everything.
            true => call.identity.actor.is_none(),
            false => {
                let is_own_name = !self.services.config.outbound.impersonate;
                self.has_common_answer(&cluster, &target, &call.path, is_own_name).await?
            }
        };
        let allowed = Allowed { cluster, call };
        match target {
            Target::Path(_) => {
                let document = if is_common { self.document(&allowed).await } else { None };
                if let Some(document) = document {
                    audited.source = "memory";
                    return document;
                }
                audited.source = "member";
                self.forward(allowed, None).await
            }
            Target::Resource(target) if target.connects() => {
                audited.source = "member";
                self.switch(allowed, rights, &audited.what).await
            }
            Target::Resource(target) => {
                let answer = if is_common { self.answer_from_memory(&allowed, &target).await } else { None };
                if let Some(answer) = answer {
                    audited.source = "memory";
                    return answer;
                }
                audited.source = "member";
                self.forward(allowed, Some(target)).await
            }
        }
    }

    /// Refuses requests that the gateway never lets through, whatever the caller's permissions.
    fn admit(&self, target: &ResourceTarget, call: &Call) -> Result<(), Status> {
        let who = self.reviewed(&call.identity);
        let outbound = &self.services.config.outbound;
        let refused = |why: &str| {
            let what = &target.attributes;
            Err(Status::forbidden(GroupResource::new(&what.group, &what.resource), &what.name, why))
        };
        let streams = self.switches() && target.streams_into_pod(&call.path);
        if target.connects() && !streams {
            return refused("connections into pods and proxies do not go through the gateway");
        }
        if call.upgrade.is_some() && !streams {
            return Err(upgrade::only_into_pods());
        }
        if call.upgrade.is_none() && streams {
            return Err(upgrade::required());
        }
        if target.reads_log() && outbound.connect == ConnectPolicy::Refused {
            return refused("logs do not go through the gateway: outbound.connect is Refused");
        }
        if outbound.read_only && (!target.reads() || streams) && !reviews_itself(target) {
            return refused(
                "the gateway is read-only: outbound.readOnly, or a quick start without --allow-writes",
            );
        }
        // In the gateway's own name a caller could grant permissions that it does not have: the member checks those of
        // the request's sender.
        if (!target.reads() || streams) && !outbound.impersonate && !self.is_trusted(who) {
            return refused("writes do not go through the gateway: outbound.impersonate is off");
        }
        Ok(())
    }

    /// Returns the identity whose permissions the gateway reviews. The member itself reviews an impersonation by a
    /// trusted caller: such requests go there with the gateway's credentials.
    fn reviewed<'a>(&self, who: &'a Arc<Identity>) -> &'a Arc<Identity> {
        let actor = who.actor.as_ref().map(|actor| &actor.identity);
        actor.filter(|actor| self.is_trusted(actor)).unwrap_or(who)
    }

    /// Returns whether the caller counts as the gateway itself.
    fn is_trusted(&self, who: &Identity) -> bool {
        self.services.authorizer.trusts(who)
    }
}

impl Route for Clusters {
    fn answer(&self, call: Call) -> BoxFuture<'static, Response> {
        let clusters = self.clone();
        Box::pin(clusters.serve(call))
    }

    fn switches(&self) -> bool {
        self.services.config.outbound.connect == ConnectPolicy::Streams
    }

    fn impersonates(&self) -> bool {
        true
    }
}

/// Returns whether a request asks the cluster about the caller (`kubectl auth`), and so changes nothing although it is a
/// POST.
fn reviews_itself(target: &ResourceTarget) -> bool {
    let what = &target.attributes;
    matches!(
        (&*what.group, &*what.resource),
        ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
            | ("authentication.k8s.io", "selfsubjectreviews")
    )
}

/// Returns the permissions that the caller needs. Streaming into a pod needs `create`, even if it begins with a GET, like
/// WebSockets: since 1.35 the API server requires both, too.
fn rights_of(target: &Target) -> Vec<Attributes> {
    let asked = target.attributes();
    match target {
        Target::Resource(target) if target.connects() && asked.verb != "create" => {
            vec![asked.clone(), Attributes { verb: "create".into(), ..asked.clone() }]
        }
        _ => vec![asked.clone()],
    }
}

/// Returns whether requests of this method have no body.
pub(crate) fn is_bodiless(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

//! `/fleet/...`: requests to many clusters, from parsing to the response.
//!
//! ```text
//!  call ─▶ FleetRequest ─▶ Scope: what may they see? ─┬─▶ Discovery ─▶ Answer ─▶ response
//!                                                     └─▶ Reader ────────▲
//! ```

use std::time::Duration;

use futures::future::BoxFuture;
use skopos_wire::Status;
use tokio_util::sync::CancellationToken;

use super::answer_status::Answer;
use super::describe::{self, Discovery};
use super::kinds::KindsOptions;
use super::read::Reader;
use super::request::FleetRequest;
use super::scope::Scope;
use crate::catalog::Catalogs;
use crate::clusters::Served;
use crate::gateway::route::{Audited, Call, Route};
use crate::gateway::services::Services;
use crate::response::{self, Response};

/// The route of all clusters together. Cheap to clone.
#[derive(Clone)]
pub struct Merged {
    services: Services,
    discovery: Discovery,
    pub(super) reader: Reader,
}

impl Merged {
    /// Makes the route over all clusters of these services. Feeds run until [`Merged::shutdown`].
    pub fn new(services: Services, options: KindsOptions) -> Self {
        let catalogs = Catalogs::new(services.fleet.clone(), services.definitions.clone());
        let reader = Reader::new(&services, catalogs.clone(), options);
        Self { services, discovery: Discovery::new(catalogs), reader }
    }

    /// Returns the route with other services; running feeds continue.
    #[must_use]
    pub fn renewed(&self, services: Services) -> Self {
        Self { services, discovery: self.discovery.renewed(), reader: self.reader.clone() }
    }

    /// Reads the file of the keys of continue tokens again until cancelled. Ends at once if there is none.
    pub async fn follow_keys(&self, stop: CancellationToken) {
        self.reader.follow_keys(stop).await;
    }

    /// Returns the memory held for lists and watches, and the statistics of watches of the kinds in memory.
    pub fn served(&self) -> Served {
        self.reader.kinds.served()
    }

    /// Waits, at most for `limit`, until watches can get all content of the members. The content must not change any
    /// more.
    pub async fn settle(&self, limit: Duration) {
        self.reader.kinds.settle(limit).await;
    }

    /// Stops the feeds, writes the state for the next process, and waits for both; at most for `limit`. Returns whether
    /// all tasks have ended.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.reader.kinds.shutdown(limit).await
    }

    async fn serve(self, call: Call) -> Response {
        let mut audited = Audited { source: "memory", ..Audited::default() };
        let answered = self.answered(call, &mut audited).await;
        let mut response = answered.map_or_else(|status| response::status(&status), Answer::into_response);
        if let Some(said) = response.extensions_mut().remove::<Audited>() {
            audited.age = said.age;
            audited.has_objects = said.has_objects;
        }
        response.extensions_mut().insert(audited);
        response
    }

    async fn answered(&self, call: Call, audited: &mut Audited) -> Result<Answer, Status> {
        let (services, cache) = (&self.services, &self.services.config.cache);
        match FleetRequest::parse(call, cache, audited)? {
            FleetRequest::Version => Ok(describe::version()),
            FleetRequest::Discovery { path, accept, review } => {
                let scope = match review {
                    Some(review) => Some(Scope::review(services, &review).await),
                    None => None,
                };
                let decision = scope.as_ref().and_then(|scope| scope.decision.as_ref());
                if let Some(decision) = decision.filter(|decision| decision.allowed) {
                    *audited = std::mem::take(audited).decided(decision);
                }
                self.discovery.document(cache, &path, &accept, scope).await
            }
            FleetRequest::OpenApi { document, accept, known, review } => {
                let seen = Scope::review(services, &review).await.seen;
                self.discovery.openapi(cache, document.as_deref(), &accept, known.as_ref(), &seen).await
            }
            FleetRequest::Read(request) => {
                let review = &request.review;
                let scope = Scope::review(services, review).await;
                if let Some(decision) = &scope.decision {
                    *audited = std::mem::take(audited).decided(decision);
                    if scope.seen.is_empty() && !decision.allowed {
                        return Err(review.what.forbidden(&review.who, decision));
                    }
                }
                let resource = self.discovery.resource(cache, &request, &scope.seen).await?;
                self.reader.read(services, &request, &resource, scope).await
            }
        }
    }
}

impl Route for Merged {
    fn answer(&self, call: Call) -> BoxFuture<'static, Response> {
        let merged = self.clone();
        Box::pin(merged.serve(call))
    }

    fn impersonates(&self) -> bool {
        true
    }
}

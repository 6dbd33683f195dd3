//! Which requests a fault strikes.

use skopos_serve::RequestVerb;

use super::RequestFacts;
use crate::connection::ConnectionId;

/// Which requests a fault strikes: those that meet every demand.
#[derive(Clone, Debug, Default)]
pub struct Match {
    verbs: Vec<RequestVerb>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    path_prefix: Option<String>,
    user_agent: Option<String>,
    connection: Option<ConnectionId>,
    query: Vec<(String, String)>,
    pub(super) new_only: bool,
}

// === impl Match ===

impl Match {
    /// All requests.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Watches.
    #[must_use]
    pub fn watch() -> Self {
        Self::verbs(&[RequestVerb::Watch])
    }

    /// Lists.
    #[must_use]
    pub fn list() -> Self {
        Self::verbs(&[RequestVerb::List])
    }

    /// Reads of single objects.
    #[must_use]
    pub fn get() -> Self {
        Self::verbs(&[RequestVerb::Get])
    }

    /// Everything that writes.
    #[must_use]
    pub fn write() -> Self {
        use RequestVerb::{Create, Delete, DeleteCollection, Patch, Update};
        Self::verbs(&[Create, Update, Patch, Delete, DeleteCollection])
    }

    /// Discovery, health and everything else that is not about a resource.
    #[must_use]
    pub fn other() -> Self {
        Self::verbs(&[RequestVerb::Other])
    }

    /// Only this resource, by its plural name.
    #[must_use]
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Only requests in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only requests that name this object in their path.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only paths that begin so.
    #[must_use]
    pub fn path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.path_prefix = Some(prefix.into());
        self
    }

    /// Only clients whose `User-Agent` contains this.
    #[must_use]
    pub fn user_agent(mut self, part: impl Into<String>) -> Self {
        self.user_agent = Some(part.into());
        self
    }

    /// Only requests over this connection.
    #[must_use]
    pub fn connection(mut self, id: ConnectionId) -> Self {
        self.connection = Some(id);
        self
    }

    /// Only requests with this query parameter; an empty value also means its absence.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Only requests that come after the fault was injected: streams that are open already stay well.
    #[must_use]
    pub fn new_requests(mut self) -> Self {
        self.new_only = true;
        self
    }

    pub(crate) fn matches_facts(&self, facts: &RequestFacts) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        (self.verbs.is_empty() || self.verbs.contains(&facts.verb))
            && same(&self.resource, &facts.resource)
            && same(&self.namespace, &facts.namespace)
            && same(&self.name, &facts.name)
            && self.path_prefix.as_ref().is_none_or(|prefix| facts.path.starts_with(prefix))
            && self.connection.is_none_or(|id| id == facts.connection)
            && self
                .user_agent
                .as_ref()
                .is_none_or(|part| facts.user_agent.as_ref().is_some_and(|agent| agent.contains(part)))
            && self.query.iter().all(|(name, value)| facts.query.get(name).unwrap_or_default() == value)
    }

    fn verbs(verbs: &[RequestVerb]) -> Self {
        Self { verbs: verbs.to_vec(), ..Self::default() }
    }
}

//! Matchers of the requests that a fault affects.

use skopos_serve::RequestVerb;

use super::RequestAttributes;
use crate::connection::ConnectionId;

/// Matcher of requests: all of its conditions must hold.
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

impl Match {
    /// Matches all requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches watches.
    pub fn watch() -> Self {
        Self::verbs(&[RequestVerb::Watch])
    }

    /// Matches lists.
    pub fn list() -> Self {
        Self::verbs(&[RequestVerb::List])
    }

    /// Matches reads of single objects.
    pub fn get() -> Self {
        Self::verbs(&[RequestVerb::Get])
    }

    /// Matches all writes.
    pub fn write() -> Self {
        use RequestVerb::{Create, Delete, DeleteCollection, Patch, Update};
        Self::verbs(&[Create, Update, Patch, Delete, DeleteCollection])
    }

    /// Matches discovery, health and everything else without a resource.
    pub fn other() -> Self {
        Self::verbs(&[RequestVerb::Other])
    }

    /// Restricts to this resource, by its plural name.
    #[must_use]
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Restricts to requests in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Restricts to requests with this object name in their path.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Restricts to paths with this prefix.
    #[must_use]
    pub fn path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.path_prefix = Some(prefix.into());
        self
    }

    /// Restricts to clients whose `User-Agent` contains this text.
    #[must_use]
    pub fn user_agent(mut self, part: impl Into<String>) -> Self {
        self.user_agent = Some(part.into());
        self
    }

    /// Restricts to requests over this connection.
    #[must_use]
    pub fn connection(mut self, id: ConnectionId) -> Self {
        self.connection = Some(id);
        self
    }

    /// Restricts to requests with this query parameter; an empty value also matches its absence.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Restricts to requests that arrive after the injection: open streams stay healthy.
    #[must_use]
    pub fn new_requests(mut self) -> Self {
        self.new_only = true;
        self
    }

    pub(crate) fn matches_attributes(&self, attributes: &RequestAttributes) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        (self.verbs.is_empty() || self.verbs.contains(&attributes.verb))
            && same(&self.resource, &attributes.resource)
            && same(&self.namespace, &attributes.namespace)
            && same(&self.name, &attributes.name)
            && self.path_prefix.as_ref().is_none_or(|prefix| attributes.path.starts_with(prefix))
            && self.connection.is_none_or(|id| id == attributes.connection)
            && self
                .user_agent
                .as_ref()
                .is_none_or(|part| attributes.user_agent.as_ref().is_some_and(|agent| agent.contains(part)))
            && self.query.iter().all(|(name, value)| attributes.query.get(name).unwrap_or_default() == value)
    }

    fn verbs(verbs: &[RequestVerb]) -> Self {
        Self { verbs: verbs.to_vec(), ..Self::default() }
    }
}

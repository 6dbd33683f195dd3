//! Attributes of a request that faults are matched against.

use std::sync::Arc;

use http::request::Parts;
use skopos_serve::RequestVerb;

use crate::connection::ConnectionId;

/// Attributes of a request when its faults are chosen.
#[derive(Clone, Debug)]
pub(crate) struct RequestAttributes {
    pub(crate) connection: ConnectionId,
    pub(crate) verb: RequestVerb,
    pub(crate) path: String,
    pub(crate) resource: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) user_agent: Option<String>,
    pub(crate) query: skopos_serve::Query,
}

impl RequestAttributes {
    /// Returns the attributes that the server attached to a request.
    pub(crate) fn from_parts(parts: &Parts) -> Arc<Self> {
        parts.extensions.get::<Arc<Self>>().cloned().unwrap_or_default()
    }
}

impl Default for RequestAttributes {
    fn default() -> Self {
        Self {
            connection: ConnectionId::default(),
            verb: RequestVerb::Other,
            path: String::new(),
            resource: None,
            namespace: None,
            name: None,
            user_agent: None,
            query: skopos_serve::Query::default(),
        }
    }
}

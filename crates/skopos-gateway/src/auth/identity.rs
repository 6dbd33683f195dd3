//! Who asks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Who asks, as Kubernetes describes a user: all of it decides, so all of it is part of every key of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The name, for example `jane` or `system:serviceaccount:shop:web`.
    #[serde(rename = "username")]
    pub user: String,
    /// The uid, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups, in the order in which the source named them.
    pub groups: Vec<String>,
    /// What else the source said, for example scopes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The group of everybody who proved to be somebody.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

// === impl Identity ===

impl Identity {
    /// A user who was authenticated, in these groups and that of all who were.
    pub fn authenticated(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut identity =
            Self { user: user.into(), groups: groups.into_iter().collect(), ..Self::default() };
        identity.join(AUTHENTICATED);
        identity
    }

    /// Whoever calls from this machine where nothing else is configured.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            user: "skopos:loopback-anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Self::default()
        }
    }

    pub(crate) fn join(&mut self, group: &str) {
        if !self.groups.iter().any(|g| g == group) {
            self.groups.push(group.to_owned());
        }
    }
}

/// The name alone: what messages show.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)
    }
}

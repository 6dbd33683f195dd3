//! Who asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

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
    /// The only cluster in which this is who it says: names that begin with `system:` each cluster gives out itself, so one of
    /// another cluster is somebody else. `None`: the same everywhere.
    #[serde(skip)]
    pub home: Option<Arc<str>>,
    /// The caller, where it impersonates this identity. Whether it may do that is decided in each cluster with every right.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// A caller who impersonates another identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Actor {
    /// The caller.
    #[serde(serialize_with = "by_value")]
    pub identity: Arc<Identity>,
    /// The groups that the request names. Those that follow from the user are not reviewed.
    pub named: Vec<String>,
}

/// The group of everybody who proved to be somebody.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The group of requests without credentials.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// What the names begin with that Kubernetes itself gives out.
const SYSTEM: &str = "system:";

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
            groups: vec![UNAUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// Whether the name means the same in that cluster.
    #[must_use]
    pub fn is_known_in(&self, cluster: &str) -> bool {
        self.home.as_deref().is_none_or(|home| home == cluster)
    }

    /// Whether a cluster itself gave the name or one of the groups: service accounts, nodes, whoever bootstraps it.
    pub(crate) fn is_of_system(&self) -> bool {
        let mut groups = self.groups.iter().filter(|group| *group != AUTHENTICATED);
        self.user.starts_with(SYSTEM) || groups.any(|group| group.starts_with(SYSTEM))
    }

    /// Returns the identity that the caller proved: this one, or the one that impersonates it. What is bounded for each caller counts
    /// for it.
    pub(crate) fn caller(&self) -> &Self {
        self.actor.as_ref().map_or(self, |actor| &actor.identity)
    }

    pub(crate) fn join(&mut self, group: &str) {
        if !self.groups.iter().any(|g| g == group) {
            self.groups.push(group.to_owned());
        }
    }
}

fn by_value<S: Serializer>(identity: &Arc<Identity>, serializer: S) -> Result<S::Ok, S::Error> {
    identity.as_ref().serialize(serializer)
}

/// Splits the name of a service account's user into namespace and name, if it is one that kube-apiserver takes for one.
pub(crate) fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_name = |name: &str, longest| name.len() <= longest && name.split('.').all(is_label);
    (is_label(namespace) && is_name(namespace, 63) && is_name(name, 253)).then_some((namespace, name))
}

/// Returns whether a text is a label of DNS, of any length.
fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_allowed) && !text.starts_with('-') && !text.ends_with('-')
}

/// The name alone: what messages show.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)
    }
}

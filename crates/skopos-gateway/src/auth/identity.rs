//! Identity of a caller.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// The identity of a caller, as Kubernetes describes a user. All fields affect decisions, so all are part of each cache
/// key.
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
    /// Other attributes from the source, for example scopes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
    /// The only cluster in which the identity is valid. Each cluster assigns names that begin with `system:` itself, so
    /// the same name in another cluster is another identity. `None`: valid in all.
    #[serde(skip)]
    pub home: Option<Arc<str>>,
    /// The caller, if it impersonates this identity. Each cluster decides on the impersonation with each permission.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// A caller who impersonates another identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Actor {
    /// The caller.
    #[serde(serialize_with = "by_value")]
    pub identity: Arc<Identity>,
    /// The groups named in the request. Those that follow from the user are not reviewed.
    pub named: Vec<String>,
}

/// The group of all authenticated callers.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The group of requests without credentials.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Prefix of the names that Kubernetes itself assigns.
const SYSTEM: &str = "system:";

impl Identity {
    /// Makes an authenticated user, in these groups and that of all authenticated callers.
    pub fn authenticated(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut identity =
            Self { user: user.into(), groups: groups.into_iter().collect(), ..Self::default() };
        identity.join(AUTHENTICATED);
        identity
    }

    /// Makes the identity of callers on this machine, for a gateway without authentication.
    pub fn loopback() -> Self {
        Self {
            user: "skopos:loopback-anonymous".into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// Returns whether the name has the same meaning in that cluster.
    pub fn is_known_in(&self, cluster: &str) -> bool {
        self.home.as_deref().is_none_or(|home| home == cluster)
    }

    /// Returns whether a cluster itself assigned the name or one of the groups: service accounts, nodes, bootstrap users.
    pub(crate) fn is_of_system(&self) -> bool {
        let mut groups = self.groups.iter().filter(|group| *group != AUTHENTICATED);
        self.user.starts_with(SYSTEM) || groups.any(|group| group.starts_with(SYSTEM))
    }

    /// Returns the authenticated identity: this one, or the one that impersonates it. Limits per caller count for it.
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

/// Splits the name of a service account's user into namespace and name, if kube-apiserver accepts it as one.
pub(crate) fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_name = |name: &str, longest| name.len() <= longest && name.split('.').all(is_label);
    (is_label(namespace) && is_name(namespace, 63) && is_name(name, 253)).then_some((namespace, name))
}

/// Returns whether a text is a DNS label, of any length.
fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_allowed) && !text.starts_with('-') && !text.ends_with('-')
}

/// The name alone, for messages.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)
    }
}

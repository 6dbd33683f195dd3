//! Names of the outside, the objects that ask for them, and the values behind them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name that the outside knows: a DNS name, or a backend of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName(Arc<str>);

/// One value of a name: an address of a DNS name, or `address:port` of a server in a backend.
pub type EntryValue = Arc<str>;

/// The object of the cluster that asks for a name. The default names none, for sinks whose marks do not keep owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryOwner {
    /// The resource in the singular, such as `service`.
    pub resource: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The uid. An object that was deleted and created again is another owner.
    pub uid: Arc<str>,
}

/// The readiness of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Readiness {
    /// It passes its checks.
    Ready,
    /// It fails its checks, perhaps only briefly.
    NotReady,
    /// It is being deleted, and may finish its connections.
    Terminating,
}

/// The values of a name that one owner wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredEntry {
    /// The object that asks for it.
    pub owner: Arc<EntryOwner>,
    /// The values. An entry without values differs from no entry: the name is still asked for.
    pub members: BTreeMap<EntryValue, Readiness>,
}

impl EntryName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for EntryName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for EntryName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl Borrow<str> for EntryName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl EntryOwner {
    /// Parses an owner as [`Display`](fmt::Display) writes it; `None` if it has not three parts.
    pub fn parse(text: &str, uid: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/').map(Arc::from);
        let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { resource, namespace, name, uid: uid.into() })
    }

    /// Returns whether this is the same object. An object that was created again is another one.
    pub fn is(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

impl fmt::Display for EntryOwner {
    /// Writes `service/namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
    }
}

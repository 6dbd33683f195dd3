//! The words that all parts share: names of the outside, who asks for them, and what is behind them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A name that the outside knows: a DNS name, or a backend of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// One thing behind a name: an address of a DNS name, or `address:port` of a server in a backend.
pub type Value = Arc<str>;

/// The object of the cluster that asks for a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The resource in the singular, such as `service`.
    pub resource: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The uid: an object that was deleted and created again is another owner.
    pub uid: Arc<str>,
}

/// Whether a value can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Readiness {
    /// It serves.
    Ready,
    /// It fails its checks, perhaps for a moment.
    NotReady,
    /// It is about to go, and may finish what it has begun.
    Terminating,
}

/// What one owner wants a name to lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who asks for it.
    pub owner: Owner,
    /// What is behind it. No value at all is not the same as no entry: the name is still asked for.
    pub members: BTreeMap<Value, Readiness>,
}

// === impl Name ===

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Owner ===

impl fmt::Display for Owner {
    /// Writes `service/namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
    }
}

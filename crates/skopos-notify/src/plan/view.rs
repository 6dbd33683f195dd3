use std::collections::BTreeMap;
use std::sync::Arc;

use skopos_reflect::Time;

use crate::entry::{Entry, Name};

/// What the cluster wants the outside to be, and how old that is.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// For each name those who ask for it, sorted by owner.
    pub entries: Arc<BTreeMap<Name, Vec<Entry>>>,
    /// Up to when the content is proven; `None` before the first list.
    pub as_of: Option<Time>,
    /// The cluster's identity, once it is known. After it has changed nothing is written.
    pub cluster: Option<Arc<str>>,
}

use std::collections::BTreeMap;
use std::sync::Arc;

use skopos_reflect::Time;

use crate::entry::{DesiredEntry, EntryName};

/// For each name those who ask for it, sorted by owner.
pub type DesiredEntries = BTreeMap<EntryName, Arc<[DesiredEntry]>>;

/// The outside as the cluster wants it, and its age.
#[derive(Clone, Debug, Default)]
pub struct DesiredView {
    /// What is asked for. Entries that stay are to stay behind the same pointer: then they are not compared.
    pub entries: Arc<DesiredEntries>,
    /// Up to when the content is proven; `None` before the first list.
    pub as_of: Option<Time>,
    /// The cluster's identity, once it is known. After it has changed nothing is written.
    pub cluster: Option<Arc<str>>,
}

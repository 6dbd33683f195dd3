use std::collections::BTreeMap;
use std::sync::Arc;

use skopos_reflect::Time;

use crate::entry::{DesiredEntry, EntryName};
use crate::packed::Packed;

/// The requests for each name, sorted by owner.
pub type DesiredEntries = BTreeMap<EntryName, Packed<Vec<DesiredEntry>>>;

/// The outside as the cluster wants it, and its age.
#[derive(Clone, Debug, Default)]
pub struct DesiredView {
    /// The requests.
    pub entries: Arc<DesiredEntries>,
    /// Time up to which the content is proven; `None` before the first list.
    pub as_of: Option<Time>,
    /// The cluster's identity, once it is known. After a change of it nothing is written.
    pub cluster: Option<Arc<str>>,
}

impl DesiredView {
    /// Returns the requests for a name, sorted by owner.
    pub(super) fn claimants(&self, name: &EntryName) -> Vec<DesiredEntry> {
        self.entries.get(name).map(Packed::unpack).unwrap_or_default()
    }
}

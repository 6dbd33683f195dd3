//! Write records for observers.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use skopos_serve::EventType;

use super::{ResourceKey, StoredEvent};

/// Change of one object, reported at the time of the write.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WriteRecord {
    /// Plural name of the resource.
    pub resource: Arc<str>,
    /// Event type, as in watches: `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: EventType,
    /// New state of the object; for a deletion, the last state with the resourceVersion of the deletion.
    pub object: Value,
}

/// Callback for each change at the time of the write.
#[derive(Clone)]
pub(crate) struct WriteObserver(Arc<dyn Fn(&WriteRecord) + Send + Sync>);

impl WriteObserver {
    pub(crate) fn new(observe: impl Fn(&WriteRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(super) fn notify(&self, resource: &ResourceKey, changes: &[StoredEvent]) {
        for change in changes {
            let (resource, kind, object) =
                (resource.plural.clone(), change.kind(), change.object().to_value());
            (self.0)(&WriteRecord { resource, kind, object });
        }
    }
}

impl fmt::Debug for WriteObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

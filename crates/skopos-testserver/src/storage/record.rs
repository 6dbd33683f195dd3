//! What an observer is told of a write.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use skopos_serve::EventType;

use super::{Change, ResourceKey};

/// A change of one object, in the moment in which it is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WriteRecord {
    /// The plural name of its resource.
    pub resource: Arc<str>,
    /// `ADDED`, `MODIFIED` or `DELETED`, as watches are told.
    pub kind: EventType,
    /// The object as it is now; of a deletion, its last state with the resourceVersion of the deletion.
    pub object: Value,
}

/// Called with each change in the moment in which it is made.
#[derive(Clone)]
pub(crate) struct Observer(Arc<dyn Fn(&WriteRecord) + Send + Sync>);

// === impl Observer ===

impl Observer {
    pub(crate) fn new(observe: impl Fn(&WriteRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(super) fn tell(&self, resource: &ResourceKey, changes: &[Change]) {
        for change in changes {
            let (resource, kind, object) =
                (resource.plural.clone(), change.kind(), change.object().to_value());
            (self.0)(&WriteRecord { resource, kind, object });
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

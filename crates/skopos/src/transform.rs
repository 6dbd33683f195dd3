//! What is kept of an object.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use skopos_wire::{Limits, RawObject};

use crate::panic::text_of;

/// What is done to each object before it is kept.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Transform {
    /// Kept as the server sent it.
    #[default]
    Keep,
    /// Without `metadata.managedFields`, which is often half of an object and which hardly anybody reads.
    DropManagedFields,
    /// Your own function from JSON to JSON. It must leave name, namespace, uid and resourceVersion as they are; if it does not, or
    /// panics, the object is kept as it was, and that is logged.
    Custom {
        /// Tells this transform from others: the same name must mean the same function.
        name: String,
        /// From the object's JSON to the JSON that is kept.
        apply: TransformFn,
    },
}

/// The function of a [`Transform::Custom`].
pub type TransformFn = Arc<dyn Fn(&[u8]) -> Bytes + Send + Sync>;

impl Transform {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Keep => "keep",
            Self::DropManagedFields => "drop-managed-fields",
            Self::Custom { name, .. } => name,
        }
    }

    /// The object as it is kept.
    pub(crate) fn refine(&self, object: RawObject) -> RawObject {
        let json = match self {
            Self::Keep => return object,
            Self::DropManagedFields => skopos_wire::transform::drop_managed_fields(object.bytes()),
            Self::Custom { apply, .. } => match catch_unwind(AssertUnwindSafe(|| apply(object.bytes()))) {
                Ok(json) => json,
                Err(panic) => {
                    let (key, panic) = (object.key(), text_of(&*panic));
                    tracing::error!(%key, transform = ?self, %panic, "a transform panicked: the object is kept as it was");
                    return object;
                }
            },
        };
        match RawObject::scan(json, &Limits::default()) {
            Ok(refined) if same_identity(&refined, &object) => refined,
            _ => {
                let key = object.key();
                tracing::error!(%key, transform = ?self, "a transform broke an object: it is kept as it was");
                object
            }
        }
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn same_identity(a: &RawObject, b: &RawObject) -> bool {
    (a.key(), a.uid(), a.resource_version()) == (b.key(), b.uid(), b.resource_version())
}

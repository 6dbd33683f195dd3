//! Transforms: the reduction of objects before they are stored.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use skopos_wire::{Limits, RawObject};

use crate::handler::panic::text_of;

/// The change of each object before it is stored.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Transform {
    /// Store the object as the server sent it.
    #[default]
    Keep,
    /// Remove `metadata.managedFields`, which is often half of an object and rarely read.
    DropManagedFields,
    /// A custom function from JSON to JSON. It must not change name, namespace, uid and resourceVersion; if it does, or
    /// panics, the object is stored unchanged, and that is logged.
    Custom {
        /// The name that distinguishes this transform from others: the same name must mean the same function.
        name: String,
        /// The function from the object's JSON to the JSON that is stored.
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

    /// Returns the object in the form in which it is stored.
    pub(crate) fn refine(&self, object: RawObject) -> RawObject {
        let refined = match self {
            Self::Keep => return object,
            Self::DropManagedFields => object.without_managed_fields(&Limits::default()),
            Self::Custom { apply, .. } => match catch_unwind(AssertUnwindSafe(|| apply(&object.json()))) {
                Ok(json) => RawObject::scan(json, &Limits::default()),
                Err(panic) => {
                    let (key, panic) = (object.key(), text_of(&*panic));
                    tracing::error!(%key, transform = ?self, %panic, "a transform panicked: the object is kept as it was");
                    return object;
                }
            },
        };
        match refined {
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

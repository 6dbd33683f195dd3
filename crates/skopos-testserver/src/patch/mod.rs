//! The four kinds of PATCH of an API server, as pure functions on JSON.
//!
//! | content type | module | what it is |
//! |---|---|---|
//! | `application/json-patch+json` | [`json`] | RFC 6902 |
//! | `application/merge-patch+json` | the `json-patch` crate | RFC 7386 |
//! | `application/strategic-merge-patch+json` | [`strategic`] | merge patch that knows lists with keys |
//! | `application/apply-patch+yaml` | [`apply`] | server-side apply, with [`managed`] fields |

pub(crate) mod apply;
pub(crate) mod fields;
mod json;
pub(crate) mod managed;
mod shape;
mod strategic;

use serde_json::Value;
use thiserror::Error;

use self::apply::Conflict;
pub(crate) use self::shape::PatchShape;

/// Kind of a PATCH body, by its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Merge patch with list keys, for built-in kinds only.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// Reason why a patch does not apply. The client is at fault in each case.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum PatchError {
    /// The body is not a patch: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch has too many operations: 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch is well-formed but not applicable to this object: 422.
    #[error("{0}")]
    Unprocessable(String),
    /// Server-side apply would take fields that other managers own: 409.
    #[error("{}", apply::conflict_message(.0))]
    Conflict(Vec<Conflict>),
}

impl PatchKind {
    /// Returns the kind for a `Content-Type` header; parameters such as `charset` are ignored.
    pub(crate) fn from_content_type(content_type: &str) -> Option<Self> {
        Some(match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" => Self::Apply,
            _ => return None,
        })
    }
}

/// Applies a JSON, merge or strategic patch to `object`.
///
/// # Errors
/// When the patch is malformed or not applicable. For server-side apply, see [`apply::apply`].
pub(crate) fn patch(
    kind: PatchKind,
    object: &Value,
    patch: &Value,
    shape: PatchShape<'_>,
) -> Result<Value, PatchError> {
    let mut result = object.clone();
    match kind {
        PatchKind::Json => json::apply(&mut result, patch)?,
        PatchKind::Merge | PatchKind::Apply => {
            expect_object(patch)?;
            json_patch::merge(&mut result, patch);
        }
        PatchKind::Strategic => {
            expect_object(patch)?;
            strategic::merge(&mut result, patch, shape)?;
        }
    }
    Ok(result)
}

fn expect_object(patch: &Value) -> Result<(), PatchError> {
    if patch.is_object() {
        Ok(())
    } else {
        Err(PatchError::Malformed("invalid patch: expected a JSON object".into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_type_selects_patch_kind() {
        assert_eq!(
            PatchKind::from_content_type("application/json-patch+json; charset=utf-8"),
            Some(PatchKind::Json)
        );
        assert_eq!(PatchKind::from_content_type("application/json"), None);
    }

    #[test]
    fn json_patch_and_merge_patch() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let merged = patch(
            PatchKind::Merge,
            &object,
            &json!({"metadata": {"labels": {"a": null}}}),
            PatchShape::builtin(),
        );
        assert_eq!(merged, Ok(json!({"metadata": {"labels": {"b": "2"}}})));
        let operations = json!([{"op": "replace", "path": "/metadata/labels/a", "value": "3"}]);
        let patched = patch(PatchKind::Json, &object, &operations, PatchShape::builtin()).unwrap();
        assert_eq!(patched["metadata"]["labels"]["a"], "3");
        let failing = json!([{"op": "test", "path": "/metadata/labels/a", "value": "9"}]);
        let error = patch(PatchKind::Json, &object, &failing, PatchShape::builtin());
        assert!(matches!(error, Err(PatchError::Unprocessable(_))));
        let error = patch(PatchKind::Json, &object, &json!({"op": "test"}), PatchShape::builtin());
        assert!(matches!(error, Err(PatchError::Malformed(_))));
    }
}

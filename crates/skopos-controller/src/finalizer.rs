//! Finalizers: work that is done before an object disappears.

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::error::ReconcileError;
use crate::service::Outcome;

/// The work that an object needs now.
#[derive(Clone, Debug, PartialEq)]
pub enum Work<K> {
    /// The object has the finalizer and is not being deleted: bring the cluster to its desired state.
    Apply(K),
    /// The object is being deleted: undo the work. When that succeeds, the finalizer is removed.
    Cleanup(K),
}

/// Runs `work` with a finalizer of this name around it. The finalizer is on the object before any work is applied, and is
/// removed only after the cleanup has succeeded. So nothing stays behind, whenever the process ends.
///
/// Both changes are conditional on the state of `object`: when another client has changed the finalizers meanwhile, the
/// result is an error that is retried, with a newer object. An object that is gone already needs nothing.
///
/// # Errors
/// The error of the work, or of a request.
pub async fn with_finalizer<K, F>(
    api: &Api<K>,
    name: &str,
    object: K,
    work: impl FnOnce(Work<K>) -> F,
) -> Result<Outcome, ReconcileError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    F: Future<Output = Result<Outcome, ReconcileError>>,
{
    let place = object.finalizers().iter().position(|own| own == name);
    match (object.meta().deletion_timestamp.is_some(), place) {
        (false, Some(_)) => work(Work::Apply(object)).await,
        (false, None) => {
            let version = object.resource_version();
            let operation = match object.finalizers().is_empty() {
                true => json!({"op": "add", "path": "/metadata/finalizers", "value": [name]}),
                false => json!({"op": "add", "path": "/metadata/finalizers/-", "value": name}),
            };
            let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
            let Some(object) = patch(api, &object, json!([test, operation])).await? else {
                return Ok(Outcome::Done);
            };
            work(Work::Apply(object)).await
        }
        // It was cleaned up, and waits for the finalizers of other controllers.
        (true, None) => Ok(Outcome::Done),
        (true, Some(place)) => {
            let outcome = work(Work::Cleanup(object.clone())).await?;
            let path = format!("/metadata/finalizers/{place}");
            let test = json!({"op": "test", "path": path, "value": name});
            patch(api, &object, json!([test, {"op": "remove", "path": path}])).await?;
            Ok(outcome)
        }
    }
}

/// Applies a JSON patch; `None` if the object is gone.
async fn patch<K>(api: &Api<K>, object: &K, patch: serde_json::Value) -> Result<Option<K>, ReconcileError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    match api.patch(&object.name_any(), &PatchParams::default(), &patch).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

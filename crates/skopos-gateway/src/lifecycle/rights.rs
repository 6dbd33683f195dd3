//! What a caller has to be allowed on the host, so that nobody does by way of the gateway what they may not do themselves.

use super::operations::Task;
use crate::authz::Attributes;

/// Seeing virtual clusters of a namespace, or of all: their workloads and pods.
pub(super) fn reading(namespace: Option<&str>) -> Vec<Attributes> {
    [("apps", "statefulsets"), ("apps", "deployments"), ("", "pods")]
        .map(|(group, resource)| in_namespace("list", group, resource, namespace.unwrap_or_default()))
        .into()
}

/// Making or deleting one, everywhere: its chart makes roles and takes values that may ask for anything, and a release that somebody
/// wrote into its namespace may name any object, and more to be made when it goes. Its cluster roles and synced namespaces are
/// known by names and labels that those of another one may have, too.
pub(super) fn everything() -> Vec<Attributes> {
    vec![Attributes::resource("*", "*", "*", "*")]
}

/// Pausing one that has namespaces of its own in the host: that they are its own, only their label says.
pub(super) fn pods_everywhere() -> Attributes {
    Attributes::resource("delete", "", "v1", "pods")
}

/// Deleting its namespace.
pub(super) fn namespace(namespace: &str) -> Attributes {
    Attributes::resource("delete", "", "v1", "namespaces").in_namespace(namespace).named(namespace)
}

pub(super) fn of_task(task: &Task, namespace: &str) -> Vec<Attributes> {
    let patch =
        ["statefulsets", "deployments"].map(|resource| in_namespace("patch", "apps", resource, namespace));
    match task {
        Task::Create(_) | Task::Delete(_) => everything(),
        Task::Resume => reading(Some(namespace)).into_iter().chain(patch).collect(),
        Task::Pause(_) => {
            let pods = in_namespace("delete", "", "pods", namespace);
            reading(Some(namespace)).into_iter().chain(patch).chain([pods]).collect()
        }
    }
}

fn in_namespace(verb: &str, group: &str, resource: &str, namespace: &str) -> Attributes {
    Attributes::resource(verb, group, "v1", resource).in_namespace(namespace)
}

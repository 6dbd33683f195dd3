//! Rights on the host that a caller needs, so that the gateway never extends them.

use super::operations::Task;
use crate::authz::Attributes;

/// Returns the rights to see the virtual clusters of one or all namespaces: their workloads and pods.
pub(super) fn reading(namespace: Option<&str>) -> Vec<Attributes> {
    [("apps", "statefulsets"), ("apps", "deployments"), ("", "pods")]
        .map(|(group, resource)| in_namespace("list", group, resource, namespace.unwrap_or_default()))
        .into()
}

/// Returns the right to create or delete a virtual cluster, which is all rights everywhere. Its chart creates roles and takes
/// arbitrary values. A release planted in its namespace may name any object, and more to be created when it is removed. Its
/// cluster roles and synced namespaces are known by names and labels that those of another one may have too.
pub(super) fn everything() -> Vec<Attributes> {
    vec![Attributes::resource("*", "*", "*", "*")]
}

/// Returns the right to pause a virtual cluster with its own namespaces in the host. Only a label shows that they are its own.
pub(super) fn pods_everywhere() -> Attributes {
    Attributes::resource("delete", "", "v1", "pods")
}

/// Returns the right to delete its namespace.
pub(super) fn namespace(namespace: &str) -> Attributes {
    Attributes::resource("delete", "", "v1", "namespaces").in_namespace(namespace).named(namespace)
}

pub(super) fn required_for(task: &Task, namespace: &str) -> Vec<Attributes> {
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

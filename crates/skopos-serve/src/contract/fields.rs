//! Which fields a field selector may name: few, and different for each resource, as in kube-apiserver.

use crate::resources::ResourceType;

/// The fields beside `metadata.name` and `metadata.namespace`.
pub(super) fn selectable(resource: &ResourceType) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["name", "status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "source",
            "type",
        ],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => &[],
    }
}

/// What the API server says of a field that may not be selected by.
pub(super) fn not_supported(resource: &ResourceType, field: &str) -> String {
    if resource.custom || !selectable(resource).is_empty() {
        return format!("field label not supported: {field}");
    }
    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}

/// Where the value lies in the JSON: the first of these that is not empty.
pub(super) fn json_paths(field: &str) -> impl Iterator<Item = &str> {
    let (first, others): (&str, &'static [&'static str]) = match field {
        "name" => ("metadata.name", &[]),
        // Who reports an event where no component is named (ToSelectableFields of kube-apiserver's events); each group has names of
        // its own.
        "source" => {
            ("source.component", &["deprecatedSource.component", "reportingComponent", "reportingController"])
        }
        "status.successful" => ("status.succeeded", &[]),
        other => (other, &[]),
    };
    std::iter::once(first).chain(others.iter().copied())
}

/// What an absent field counts as: zero values of Go.
pub(super) fn absent(field: &str) -> &'static str {
    match field {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        "status.replicas" | "status.successful" => "0",
        _ => "",
    }
}

//! Fields that a field selector may name: few, and different for each resource, as in kube-apiserver.

use crate::resources::ResourceType;

/// Returns the selectable fields besides `metadata.name` and `metadata.namespace`.
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

/// Returns the API server's message for a field that is not selectable.
pub(super) fn not_supported(resource: &ResourceType, field: &str) -> String {
    if resource.custom || !selectable(resource).is_empty() {
        return format!("field label not supported: {field}");
    }
    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}

/// Returns the JSON paths of a field's value; the first that is not empty counts.
pub(super) fn json_paths(field: &str) -> impl Iterator<Item = &str> {
    let (first, others): (&str, &'static [&'static str]) = match field {
        "name" => ("metadata.name", &[]),
        // The reporter of an event where no component is named (ToSelectableFields of kube-apiserver's events); the two groups
        // name these fields differently.
        "source" => {
            ("source.component", &["deprecatedSource.component", "reportingComponent", "reportingController"])
        }
        "status.successful" => ("status.succeeded", &[]),
        other => (other, &[]),
    };
    std::iter::once(first).chain(others.iter().copied())
}

/// Returns the value of an absent field: Go's zero value.
pub(super) fn absent(field: &str) -> &'static str {
    match field {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        "status.replicas" | "status.successful" => "0",
        _ => "",
    }
}

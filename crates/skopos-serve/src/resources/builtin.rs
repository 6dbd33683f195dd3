//! Built-in resources: those that controllers and kubectl find in every cluster.

use super::{ResourceType, Subresource, Verb};

/// Returns the built-in resources in discovery's order (by group, then by name).
pub(super) fn resources() -> Vec<ResourceType> {
    TABLE.iter().map(Row::build).collect()
}

/// Row of the table: `(group, version, plural, kind, scope, short names, categories, extras)`.
struct Row(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Scope,
    &'static str,
    &'static str,
    &'static [Feature],
);

#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Namespaced,
    Cluster,
}

/// Feature of a resource besides the usual eight verbs.
#[derive(Clone, Copy, PartialEq)]
enum Feature {
    Status,
    Scale,
    Eviction,
    Binding,
    Log,
    Token,
    /// Virtual: objects can be created, but only the response exists and nothing is stored.
    CreateOnly,
}

use Feature::{Binding, CreateOnly, Eviction, Log, Scale, Status, Token};
use Scope::{Cluster, Namespaced};

const ADMISSION: &str = "admissionregistration.k8s.io";
const APIEXTENSIONS: &str = "apiextensions.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row("", "v1", "bindings", "Binding", Namespaced, "", "", &[CreateOnly]),
    Row("", "v1", "configmaps", "ConfigMap", Namespaced, "cm", "", &[]),
    Row("", "v1", "endpoints", "Endpoints", Namespaced, "ep", "", &[]),
    Row("", "v1", "events", "Event", Namespaced, "ev", "", &[]),
    Row("", "v1", "limitranges", "LimitRange", Namespaced, "limits", "", &[]),
    Row("", "v1", "namespaces", "Namespace", Cluster, "ns", "", &[Status]),
    Row("", "v1", "nodes", "Node", Cluster, "no", "", &[Status]),
    Row("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Namespaced, "pvc", "", &[Status]),
    Row("", "v1", "persistentvolumes", "PersistentVolume", Cluster, "pv", "", &[Status]),
    Row("", "v1", "pods", "Pod", Namespaced, "po", "all", &[Status, Binding, Eviction, Log]),
    Row("", "v1", "podtemplates", "PodTemplate", Namespaced, "", "", &[]),
    Row("", "v1", "replicationcontrollers", "ReplicationController", Namespaced, "rc", "all", &[Status, Scale]),
    Row("", "v1", "resourcequotas", "ResourceQuota", Namespaced, "quota", "", &[Status]),
    Row("", "v1", "secrets", "Secret", Namespaced, "", "", &[]),
    Row("", "v1", "serviceaccounts", "ServiceAccount", Namespaced, "sa", "", &[Token]),
    Row("", "v1", "services", "Service", Namespaced, "svc", "all", &[Status]),
    Row(ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", Cluster, "", "api-extensions", &[]),
    Row(ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", Cluster, "", "api-extensions", &[]),
    Row(APIEXTENSIONS, "v1", "customresourcedefinitions", "CustomResourceDefinition", Cluster, "crd crds", "api-extensions", &[Status]),
    Row("apps", "v1", "controllerrevisions", "ControllerRevision", Namespaced, "", "", &[]),
    Row("apps", "v1", "daemonsets", "DaemonSet", Namespaced, "ds", "all", &[Status]),
    Row("apps", "v1", "deployments", "Deployment", Namespaced, "deploy", "all", &[Status, Scale]),
    Row("apps", "v1", "replicasets", "ReplicaSet", Namespaced, "rs", "all", &[Status, Scale]),
    Row("apps", "v1", "statefulsets", "StatefulSet", Namespaced, "sts", "all", &[Status, Scale]),
    Row(AUTHENTICATION, "v1", "selfsubjectreviews", "SelfSubjectReview", Cluster, "", "", &[CreateOnly]),
    Row(AUTHENTICATION, "v1", "tokenreviews", "TokenReview", Cluster, "", "", &[CreateOnly]),
    Row(AUTHORIZATION, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", Namespaced, "", "", &[CreateOnly]),
    Row(AUTHORIZATION, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", Cluster, "", "", &[CreateOnly]),
    Row(AUTHORIZATION, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", Cluster, "", "", &[CreateOnly]),
    Row(AUTHORIZATION, "v1", "subjectaccessreviews", "SubjectAccessReview", Cluster, "", "", &[CreateOnly]),
    Row("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Namespaced, "hpa", "all", &[Status]),
    Row("batch", "v1", "cronjobs", "CronJob", Namespaced, "cj", "all", &[Status]),
    Row("batch", "v1", "jobs", "Job", Namespaced, "", "all", &[Status]),
    Row("coordination.k8s.io", "v1", "leases", "Lease", Namespaced, "", "", &[]),
    Row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Namespaced, "", "", &[]),
    Row("events.k8s.io", "v1", "events", "Event", Namespaced, "ev", "", &[]),
    Row(NETWORKING, "v1", "ingressclasses", "IngressClass", Cluster, "", "", &[]),
    Row(NETWORKING, "v1", "ingresses", "Ingress", Namespaced, "ing", "", &[Status]),
    Row(NETWORKING, "v1", "networkpolicies", "NetworkPolicy", Namespaced, "netpol", "", &[]),
    Row("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Namespaced, "pdb", "", &[Status]),
    Row(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Cluster, "", "", &[]),
    Row(RBAC, "v1", "clusterroles", "ClusterRole", Cluster, "", "", &[]),
    Row(RBAC, "v1", "rolebindings", "RoleBinding", Namespaced, "", "", &[]),
    Row(RBAC, "v1", "roles", "Role", Namespaced, "", "", &[]),
    Row("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", Cluster, "pc", "", &[]),
    Row(STORAGE, "v1", "csidrivers", "CSIDriver", Cluster, "", "", &[]),
    Row(STORAGE, "v1", "csinodes", "CSINode", Cluster, "", "", &[]),
    Row(STORAGE, "v1", "storageclasses", "StorageClass", Cluster, "sc", "", &[]),
    Row(STORAGE, "v1", "volumeattachments", "VolumeAttachment", Cluster, "", "", &[Status]),
];

impl Row {
    fn build(&self) -> ResourceType {
        let Self(group, version, plural, kind, scope, short, categories, has) = *self;
        let mut resource = ResourceType::new(group, version, plural, kind);
        resource.namespaced = scope == Namespaced;
        resource.short_names = split_words(short);
        resource.categories = split_words(categories);
        resource.subresources = has.iter().filter_map(|has| has.subresource()).collect();
        if has.contains(&CreateOnly) {
            resource.verbs = vec![Verb::Create];
        }
        resource
    }
}

impl Feature {
    fn subresource(self) -> Option<Subresource> {
        Some(match self {
            Status => Subresource::Status,
            Scale => Subresource::workload_scale(),
            Eviction => Subresource::Eviction,
            Binding => Subresource::Binding,
            Log => Subresource::Log,
            Token => Subresource::Token,
            CreateOnly => return None,
        })
    }
}

fn split_words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

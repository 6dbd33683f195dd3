//! Built-in resources: those that controllers and kubectl find in every cluster.

use super::{ResourceType, Subresource, Verb};

/// Returns the built-in resources in discovery's order (by group, then by name).
pub(super) fn resources() -> Vec<ResourceType> {
    TABLE.iter().map(Builtin::build).collect()
}

/// Row of the table: `(group, version, plural, kind, scope, short names, categories, extras)`.
struct Builtin(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    ResourceScope,
    &'static str,
    &'static str,
    &'static [Feature],
);

#[derive(Clone, Copy, PartialEq)]
enum ResourceScope {
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
use ResourceScope::{Cluster, Namespaced};

const ADMISSION: &str = "admissionregistration.k8s.io";
const APIEXTENSIONS: &str = "apiextensions.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";

#[rustfmt::skip]
const TABLE: &[Builtin] = &[
    Builtin("", "v1", "bindings", "Binding", Namespaced, "", "", &[CreateOnly]),
    Builtin("", "v1", "configmaps", "ConfigMap", Namespaced, "cm", "", &[]),
    Builtin("", "v1", "endpoints", "Endpoints", Namespaced, "ep", "", &[]),
    Builtin("", "v1", "events", "Event", Namespaced, "ev", "", &[]),
    Builtin("", "v1", "limitranges", "LimitRange", Namespaced, "limits", "", &[]),
    Builtin("", "v1", "namespaces", "Namespace", Cluster, "ns", "", &[Status]),
    Builtin("", "v1", "nodes", "Node", Cluster, "no", "", &[Status]),
    Builtin("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Namespaced, "pvc", "", &[Status]),
    Builtin("", "v1", "persistentvolumes", "PersistentVolume", Cluster, "pv", "", &[Status]),
    Builtin("", "v1", "pods", "Pod", Namespaced, "po", "all", &[Status, Binding, Eviction, Log]),
    Builtin("", "v1", "podtemplates", "PodTemplate", Namespaced, "", "", &[]),
    Builtin("", "v1", "replicationcontrollers", "ReplicationController", Namespaced, "rc", "all", &[Status, Scale]),
    Builtin("", "v1", "resourcequotas", "ResourceQuota", Namespaced, "quota", "", &[Status]),
    Builtin("", "v1", "secrets", "Secret", Namespaced, "", "", &[]),
    Builtin("", "v1", "serviceaccounts", "ServiceAccount", Namespaced, "sa", "", &[Token]),
    Builtin("", "v1", "services", "Service", Namespaced, "svc", "all", &[Status]),
    Builtin(ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", Cluster, "", "api-extensions", &[]),
    Builtin(ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", Cluster, "", "api-extensions", &[]),
    Builtin(APIEXTENSIONS, "v1", "customresourcedefinitions", "CustomResourceDefinition", Cluster, "crd crds", "api-extensions", &[Status]),
    Builtin("apps", "v1", "controllerrevisions", "ControllerRevision", Namespaced, "", "", &[]),
    Builtin("apps", "v1", "daemonsets", "DaemonSet", Namespaced, "ds", "all", &[Status]),
    Builtin("apps", "v1", "deployments", "Deployment", Namespaced, "deploy", "all", &[Status, Scale]),
    Builtin("apps", "v1", "replicasets", "ReplicaSet", Namespaced, "rs", "all", &[Status, Scale]),
    Builtin("apps", "v1", "statefulsets", "StatefulSet", Namespaced, "sts", "all", &[Status, Scale]),
    Builtin(AUTHENTICATION, "v1", "selfsubjectreviews", "SelfSubjectReview", Cluster, "", "", &[CreateOnly]),
    Builtin(AUTHENTICATION, "v1", "tokenreviews", "TokenReview", Cluster, "", "", &[CreateOnly]),
    Builtin(AUTHORIZATION, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", Namespaced, "", "", &[CreateOnly]),
    Builtin(AUTHORIZATION, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", Cluster, "", "", &[CreateOnly]),
    Builtin(AUTHORIZATION, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", Cluster, "", "", &[CreateOnly]),
    Builtin(AUTHORIZATION, "v1", "subjectaccessreviews", "SubjectAccessReview", Cluster, "", "", &[CreateOnly]),
    Builtin("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Namespaced, "hpa", "all", &[Status]),
    Builtin("batch", "v1", "cronjobs", "CronJob", Namespaced, "cj", "all", &[Status]),
    Builtin("batch", "v1", "jobs", "Job", Namespaced, "", "all", &[Status]),
    Builtin("coordination.k8s.io", "v1", "leases", "Lease", Namespaced, "", "", &[]),
    Builtin("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Namespaced, "", "", &[]),
    Builtin("events.k8s.io", "v1", "events", "Event", Namespaced, "ev", "", &[]),
    Builtin(NETWORKING, "v1", "ingressclasses", "IngressClass", Cluster, "", "", &[]),
    Builtin(NETWORKING, "v1", "ingresses", "Ingress", Namespaced, "ing", "", &[Status]),
    Builtin(NETWORKING, "v1", "networkpolicies", "NetworkPolicy", Namespaced, "netpol", "", &[]),
    Builtin("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Namespaced, "pdb", "", &[Status]),
    Builtin(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Cluster, "", "", &[]),
    Builtin(RBAC, "v1", "clusterroles", "ClusterRole", Cluster, "", "", &[]),
    Builtin(RBAC, "v1", "rolebindings", "RoleBinding", Namespaced, "", "", &[]),
    Builtin(RBAC, "v1", "roles", "Role", Namespaced, "", "", &[]),
    Builtin("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", Cluster, "pc", "", &[]),
    Builtin(STORAGE, "v1", "csidrivers", "CSIDriver", Cluster, "", "", &[]),
    Builtin(STORAGE, "v1", "csinodes", "CSINode", Cluster, "", "", &[]),
    Builtin(STORAGE, "v1", "storageclasses", "StorageClass", Cluster, "sc", "", &[]),
    Builtin(STORAGE, "v1", "volumeattachments", "VolumeAttachment", Cluster, "", "", &[Status]),
];

impl Builtin {
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

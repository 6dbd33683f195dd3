//! Objects of a release of the chart `vcluster` in the host cluster.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

/// Chart version in the objects' labels.
const VERSION: &str = "0.30.0";

/// Release of the chart `vcluster`. By default it is the one of `vcluster create NAME`: a StatefulSet with its database in a
/// volume, in its own namespace.
#[derive(Clone, Debug)]
pub struct VirtualCluster {
    name: String,
    namespace: String,
    made_namespace: bool,
    kind: &'static str,
    replicas: u32,
    etcd: bool,
    helm: bool,
    sync_namespaces: bool,
}

impl VirtualCluster {
    /// Creates the release of `vcluster create NAME`, in the namespace `vcluster-NAME`, which has the annotation of the CLI.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            namespace: format!("vcluster-{name}"),
            name,
            made_namespace: true,
            kind: "StatefulSet",
            replicas: 1,
            etcd: false,
            helm: true,
            sync_namespaces: false,
        }
    }

    /// Uses a namespace that the caller creates, before or later.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self.made_namespace = false;
        self
    }

    /// Uses an external database: the control plane is a Deployment without a volume.
    #[must_use]
    pub fn deployment(mut self) -> Self {
        self.kind = "Deployment";
        self
    }

    /// Uses etcd as a separate StatefulSet; the control plane is a Deployment.
    #[must_use]
    pub fn deployed_etcd(mut self) -> Self {
        self.etcd = true;
        self.deployment()
    }

    /// Sets the number of control plane pods (`controlPlane.statefulSet.highAvailability.replicas`).
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Installs from rendered manifests: helm knows no release.
    #[must_use]
    pub fn without_helm(mut self) -> Self {
        self.helm = false;
        self
    }

    /// Enables `sync.toHost.namespaces`: the pods run in separate namespaces.
    #[must_use]
    pub fn namespace_sync(mut self) -> Self {
        self.sync_namespaces = true;
        self
    }

    /// Returns the name of the release.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace of the release.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the output of `helm template`, as objects; the namespace is not among them.
    pub fn manifests(&self) -> Vec<Value> {
        let name = &self.name;
        let mut all = vec![
            self.object("v1", "ServiceAccount", &format!("vc-{name}"), json!({})),
            self.object("v1", "ServiceAccount", &format!("vc-workload-{name}"), json!({})),
            self.object("v1", "Secret", &format!("vc-config-{name}"), json!({
                "type": "Opaque", "stringData": {"config.yaml": self.config()}})),
            self.object("rbac.authorization.k8s.io/v1", "Role", &format!("vc-{name}"), json!({"rules": [
                {"apiGroups": [""], "resources": ["configmaps", "secrets", "services", "pods", "persistentvolumeclaims"],
                 "verbs": ["create", "delete", "patch", "update", "get", "list", "watch"]}]})),
            self.object("rbac.authorization.k8s.io/v1", "RoleBinding", &format!("vc-{name}"), json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("vc-{name}")},
                "subjects": [{"kind": "ServiceAccount", "name": format!("vc-{name}"), "namespace": self.namespace}]})),
            self.service(),
        ];
        if self.sync_namespaces {
            let role = format!("vc-mn-{name}-v-{}", self.namespace);
            all.push(self.object("rbac.authorization.k8s.io/v1", "ClusterRole", &role, json!({"rules": [
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "delete", "get", "list", "watch"]}]})));
        }
        if self.kind == "StatefulSet" {
            all.push(self.headless(name, "vcluster"));
        }
        all.push(self.control_plane());
        if self.etcd {
            all.push(self.headless(&format!("{name}-etcd"), "vcluster-etcd"));
            all.push(self.stateful_set(
                &format!("{name}-etcd"),
                "vcluster-etcd",
                1,
                "etcd",
                "registry.k8s.io/etcd:3.6.4-0",
            ));
        }
        all
    }

    /// Returns the namespace as the CLI creates it, if the release owns it.
    pub(super) fn own_namespace(&self) -> Option<Value> {
        self.made_namespace.then(|| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": self.namespace, "annotations": {"vcluster.loft.sh/created": "true"}}})
        })
    }

    /// Returns helm's Secret of the release, if helm installed it.
    pub(super) fn release_secret(&self) -> Option<Value> {
        let name = &self.name;
        let release = json!({
            "name": name, "namespace": self.namespace, "version": 1, "info": {"status": "deployed"},
            "chart": {"metadata": {"name": "vcluster", "version": VERSION}}, "config": {},
            "manifest": self.manifests().iter().map(|object| format!("---\n{object}\n")).collect::<String>(),
        });
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to a vector cannot fail.
        let packed = packed.write_all(release.to_string().as_bytes()).and_then(|()| packed.finish()).ok()?;
        self.helm.then(|| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
                "metadata": {"name": format!("sh.helm.release.v1.{name}.v1"), "namespace": self.namespace,
                    "labels": {"owner": "helm", "name": name, "status": "deployed", "version": "1"}},
                "stringData": {"release": STANDARD.encode(packed)},
            })
        })
    }

    fn config(&self) -> String {
        let workload = if self.kind == "StatefulSet" { "statefulSet" } else { "deployment" };
        let (replicas, synced) = (self.replicas, self.sync_namespaces);
        format!(
            "controlPlane:\n  {workload}:\n    highAvailability:\n      replicas: {replicas}\n\
             sync:\n  toHost:\n    namespaces:\n      enabled: {synced}\n"
        )
    }

    fn control_plane(&self) -> Value {
        let image = format!("ghcr.io/loft-sh/vcluster-pro:{VERSION}");
        if self.kind == "StatefulSet" {
            return self.stateful_set(&self.name, "vcluster", self.replicas, "syncer", &image);
        }
        let spec = json!({
            "replicas": self.replicas, "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": self.pod_labels("vcluster")},
            "template": self.template("vcluster", "syncer", &image),
        });
        self.object("apps/v1", "Deployment", &self.name, json!({"spec": spec}))
    }

    fn stateful_set(&self, name: &str, app: &str, replicas: u32, container: &str, image: &str) -> Value {
        let spec = json!({
            "replicas": replicas, "serviceName": format!("{name}-headless"), "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "selector": {"matchLabels": self.pod_labels(app)},
            "template": self.template(app, container, image),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}}],
        });
        let mut set = self.object("apps/v1", "StatefulSet", name, json!({"spec": spec}));
        set["metadata"]["labels"]["app"] = app.into();
        set
    }

    fn template(&self, app: &str, container: &str, image: &str) -> Value {
        json!({
            "metadata": {"labels": self.pod_labels(app), "annotations": {"vClusterConfigHash": "0"}},
            "spec": {
                "serviceAccountName": format!("vc-{}", self.name),
                "terminationGracePeriodSeconds": 10,
                "containers": [{"name": container, "image": image, "ports": [{"name": "https", "containerPort": 8443}],
                    "resources": {"limits": {"memory": "4Gi"}, "requests": {"cpu": "200m", "memory": "256Mi"}}}],
            },
        })
    }

    fn service(&self) -> Value {
        let mut service = self.object("v1", "Service", &self.name, json!({"spec": {
            "type": "ClusterIP", "selector": self.pod_labels("vcluster"),
            "ports": [{"name": "https", "port": 443, "targetPort": 8443}, {"name": "kubelet", "port": 10250, "targetPort": 8443}],
        }}));
        service["metadata"]["labels"]["vcluster.loft.sh/service"] = "true".into();
        service
    }

    fn headless(&self, name: &str, app: &str) -> Value {
        self.object(
            "v1",
            "Service",
            &format!("{name}-headless"),
            json!({"spec": {
                "clusterIP": "None", "publishNotReadyAddresses": true, "selector": self.pod_labels(app),
                "ports": [{"name": "https", "port": 443, "targetPort": 8443}],
            }}),
        )
    }

    fn pod_labels(&self, app: &str) -> Value {
        json!({"app": app, "release": self.name})
    }

    /// Creates an object with the labels that the chart sets on every object.
    fn object(&self, api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
        let mut object: Map<String, Value> = rest.as_object().cloned().unwrap_or_default();
        let mut metadata = json!({"name": name, "labels": {
            "app": "vcluster", "release": self.name, "chart": format!("vcluster-{VERSION}"), "heritage": "Helm"}});
        if !kind.starts_with("Cluster") {
            metadata["namespace"] = self.namespace.as_str().into();
        }
        object.insert("metadata".into(), metadata);
        object.insert("apiVersion".into(), api_version.into());
        object.insert("kind".into(), kind.into());
        Value::Object(object)
    }
}

//! A StatefulSet or Deployment of a virtual cluster, and the patches that pause and resume it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skopos::ResourceVersion;

use super::meta::{Meta, or_default};
use super::names;

/// A StatefulSet or Deployment that is a part of a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// The part.
    pub part: Part,
    /// The kind.
    pub kind: WorkloadKind,
    /// Its own name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The virtual cluster's name.
    pub release: String,
    /// The wanted number of pods.
    pub replicas: u32,
    /// The current number of pods, including terminating ones.
    pub pods: u32,
    /// The number of ready pods.
    pub ready: u32,
    /// Set if it is annotated as paused.
    pub paused: bool,
    /// The annotated number of replicas after a resume, if any.
    pub paused_replicas: Option<String>,
    /// Set if it is annotated as being restored from a backup.
    pub restoring: bool,
    /// Set if it is labelled as put to sleep by the platform.
    pub sleeping: bool,
    /// Set if it is annotated as protected against deletion.
    pub non_deletable: bool,
    /// The tag of the syncer's image.
    pub version: Option<String>,
    /// The creation time.
    pub created: Option<jiff::Timestamp>,
    /// The resource version from which this was read.
    pub resource_version: String,
}

/// Part of a virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The control plane, which always exists. Its annotations apply to the whole virtual cluster.
    ControlPlane,
    /// The API server, if it runs separately.
    Api,
    /// The controller manager, if it runs separately.
    Controller,
    /// etcd, if it runs separately.
    Etcd,
}

/// The kind of a [`Workload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum WorkloadKind {
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `apps/v1` Deployment.
    Deployment,
}

/// Reason why a virtual cluster is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Off {
    /// It is annotated as paused.
    Paused,
    /// The platform put it to sleep.
    Sleeping,
    /// It has no wanted replicas, without any annotation.
    ScaledDown,
}

impl Workload {
    /// Parses an object; `None` if it is not a part of a virtual cluster.
    ///
    /// # Errors
    /// If it is not JSON, or its fields have other types than such an object's.
    pub fn parse(kind: WorkloadKind, json: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let Object { metadata, spec, status } = serde_json::from_slice(json)?;
        let part = metadata.label("app").and_then(Part::from_app_label);
        let Some((part, release)) = part.zip(metadata.label("release")) else { return Ok(None) };
        let syncer = spec.template.spec.containers.iter().find(|container| container.name == "syncer");
        Ok(Some(Self {
            part,
            kind,
            release: release.to_owned(),
            // The API server's default.
            replicas: spec.replicas.unwrap_or(1),
            pods: status.replicas,
            ready: status.ready_replicas,
            paused: metadata.says(names::PAUSED),
            paused_replicas: metadata.annotation(names::PAUSED_REPLICAS).map(str::to_owned),
            restoring: metadata.says(names::RESTORING),
            sleeping: metadata.label(names::SLEEP_MODE) == Some("true"),
            non_deletable: metadata.says(names::NON_DELETABLE),
            version: syncer.and_then(|container| tag(&container.image)).map(str::to_owned),
            created: metadata.creation_timestamp,
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
        }))
    }

    /// Returns whether it is switched off: paused, asleep or scaled to zero. With the annotation of a pause this is so
    /// even while pods still exist: they are about to end.
    pub fn is_off(&self) -> bool {
        self.off_reason().is_some()
    }

    /// Returns the reason why it is switched off.
    pub fn off_reason(&self) -> Option<Off> {
        match () {
            () if self.sleeping => Some(Off::Sleeping),
            () if self.paused => Some(Off::Paused),
            () if self.replicas == 0 => Some(Off::ScaledDown),
            () => None,
        }
    }

    /// Returns the merge patch that pauses it; `None` if there is nothing to change. The patch applies only to the
    /// version that this was read from.
    ///
    /// `configured` is the number of replicas after a resume if it is scaled to zero already; `date` is
    /// [`paused_date`].
    pub fn pause_patch(&self, configured: u32, date: &str) -> Option<Value> {
        if self.restoring || self.sleeping || (self.paused && self.replicas == 0) {
            return None;
        }
        let mut patch = json!({"metadata": self.precondition(), "spec": {"replicas": 0}});
        // It is annotated and has replicas: it was scaled up by hand, or the release was upgraded. The annotations
        // remain true.
        if !self.paused {
            let replicas = if self.replicas == 0 { configured.max(1) } else { self.replicas };
            patch["metadata"]["annotations"] = json!({
                names::PAUSED: "true", names::PAUSED_REPLICAS: replicas.to_string(), names::PAUSED_DATE: date});
        }
        Some(patch)
    }

    /// Returns the merge patch that resumes it; `None` if it is not paused. The patch applies only to the version that
    /// this was read from.
    pub fn resume_patch(&self) -> Option<Value> {
        let mut metadata = self.precondition();
        metadata["annotations"] =
            json!({names::PAUSED: null, names::PAUSED_REPLICAS: null, names::PAUSED_DATE: null});
        let patch = json!({"metadata": metadata, "spec": {"replicas": self.replicas_after_resume()}});
        self.paused.then_some(patch)
    }

    /// Returns the number of replicas after a resume: the annotated one, or 1 if that is not valid.
    pub fn replicas_after_resume(&self) -> u32 {
        let annotated = self.paused_replicas.as_deref().and_then(|text| text.parse().ok());
        annotated.filter(|replicas| (1..=MAX_REPLICAS).contains(replicas)).unwrap_or(1)
    }

    /// Returns whether this is an earlier state of the same object than `other`.
    pub fn is_older_than(&self, other: &Self) -> bool {
        let version = |workload: &Self| workload.resource_version.parse::<ResourceVersion>().ok();
        version(self).zip(version(other)).is_some_and(|(own, others)| own < others)
    }

    fn precondition(&self) -> Value {
        match self.resource_version.as_str() {
            "" => json!({}),
            version => json!({"resourceVersion": version}),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Part {
    /// All parts; the control plane first.
    pub const ALL: [Self; 4] = [Self::ControlPlane, Self::Api, Self::Controller, Self::Etcd];

    /// Returns the value of label `app` on its objects.
    pub fn app(self) -> &'static str {
        match self {
            Self::ControlPlane => "vcluster",
            Self::Api => "vcluster-api",
            Self::Controller => "vcluster-controller",
            Self::Etcd => "vcluster-etcd",
        }
    }

    fn from_app_label(app: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.app() == app)
    }
}

impl WorkloadKind {
    /// Returns the resource in API paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulsets",
            Self::Deployment => "deployments",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StatefulSet => "StatefulSet",
            Self::Deployment => "Deployment",
        })
    }
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "paused",
            Self::Sleeping => "put to sleep by the platform",
            Self::ScaledDown => "scaled to zero",
        })
    }
}

/// Returns the value of the annotation with the time of a pause, as the vcluster CLI writes it: local time, despite the
/// `Z`.
pub fn paused_date(now: &jiff::Zoned) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Limit on annotated replicas: a larger number of control planes is a mistake.
const MAX_REPLICAS: u32 = 1000;

/// Returns the tag of an image's reference.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    name.split_once(':').map(|(_, tag)| tag).filter(|tag| !tag.is_empty())
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Object {
    metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: ObjectStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    #[serde(deserialize_with = "or_default")]
    spec: PodSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodSpec {
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    image: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectStatus {
    #[serde(deserialize_with = "or_default")]
    replicas: u32,
    #[serde(deserialize_with = "or_default")]
    ready_replicas: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(change: impl FnOnce(&mut Value)) -> Workload {
        let mut object = json!({
            "metadata": {"name": "shop", "namespace": "team", "resourceVersion": "7",
                "labels": {"app": "vcluster", "release": "shop"}, "annotations": null,
                "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "other", "image": "x:1"}, {"name": "syncer", "image": "host:5000/a/b:0.30.0@sha256:00"}]}}},
            "status": {"replicas": 3, "readyReplicas": 2},
        });
        change(&mut object);
        Workload::parse(WorkloadKind::StatefulSet, object.to_string().as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn parses_workload_fields() {
        let set = set(|_| {});
        assert_eq!((set.part, set.release.as_str()), (Part::ControlPlane, "shop"));
        assert_eq!((set.replicas, set.pods, set.ready), (3, 3, 2));
        assert_eq!(set.version.as_deref(), Some("0.30.0"));
        assert_eq!(set.to_string(), "StatefulSet team/shop");
        assert_eq!(set.off_reason(), None);
    }

    #[test]
    fn ignores_unrelated_workloads() {
        let parse = |json: &Value| Workload::parse(WorkloadKind::Deployment, json.to_string().as_bytes());
        for labels in [json!(null), json!({"app": "vcluster"}), json!({"app": "web", "release": "x"})] {
            assert_eq!(parse(&json!({"metadata": {"name": "x", "labels": labels}})).unwrap(), None);
        }
        assert!(parse(&json!({"metadata": {"labels": 1}})).is_err());
        let bare = parse(&json!({"metadata": {"labels": {"app": "vcluster-etcd", "release": "x"}}}));
        assert_eq!(bare.unwrap().map(|w| (w.part, w.replicas)), Some((Part::Etcd, 1)));
    }

    #[test]
    fn pause_patch_records_replicas_and_version() {
        let patch = set(|_| {}).pause_patch(9, "now").unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "annotations": {"loft.sh/paused": "true",
                "loft.sh/paused-replicas": "3", "loft.sh/paused-date": "now"}}, "spec": {"replicas": 0}})
        );
        // It was scaled to zero before, so the configuration decides.
        let scaled = set(|set| set["spec"]["replicas"] = 0.into());
        assert_eq!(scaled.off_reason(), Some(Off::ScaledDown));
        let patch = scaled.pause_patch(2, "now").unwrap();
        assert_eq!(patch["metadata"]["annotations"]["loft.sh/paused-replicas"], "2");
    }

    #[test]
    fn pause_patch_skips_workload_already_down() {
        let paused = |set: &mut Value| set["metadata"]["annotations"] = json!({"loft.sh/paused": "true"});
        assert!(set(|s| (paused(s), s["spec"]["replicas"] = 0.into()).1).pause_patch(1, "now").is_none());
        let restoring = |s: &mut Value| s["metadata"]["annotations"] = json!({"loft.sh/restoring": "true"});
        assert!(set(restoring).pause_patch(1, "now").is_none());
        let sleeping = set(|s| s["metadata"]["labels"]["loft.sh/sleep-mode"] = "true".into());
        assert_eq!(sleeping.off_reason(), Some(Off::Sleeping));
        assert!(sleeping.pause_patch(1, "now").is_none());
        // It is annotated but was scaled up: it is scaled down again, and the annotations stay.
        let patch = set(paused).pause_patch(1, "now").unwrap();
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 0}}));
    }

    #[test]
    fn resume_patch_restores_annotated_replicas() {
        let resumed = |replicas: Value| {
            let set = set(|set| {
                set["metadata"]["annotations"] =
                    json!({"loft.sh/paused": "true", "loft.sh/paused-replicas": replicas});
            });
            set.resume_patch().unwrap()["spec"]["replicas"].as_u64().unwrap()
        };
        assert_eq!(resumed("3".into()), 3);
        for nonsense in ["", "many", "0", "-1", "99999999"] {
            assert_eq!(resumed(nonsense.into()), 1, "{nonsense}");
        }
        assert!(set(|_| {}).resume_patch().is_none());
        let patch =
            set(|set| set["metadata"]["annotations"] = json!({"loft.sh/paused": "true"})).resume_patch();
        assert_eq!(patch.unwrap()["metadata"]["annotations"]["loft.sh/paused-date"], Value::Null);
    }

    #[test]
    fn paused_date_is_local_with_z_suffix() {
        let tokyo = "2026-03-04T05:06:07.0895+09:00[Asia/Tokyo]".parse().unwrap();
        assert_eq!(paused_date(&tokyo), "2026-03-04T05:06:07.089Z");
    }
}

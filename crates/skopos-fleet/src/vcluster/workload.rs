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
    /// Which part.
    pub part: Part,
    /// What it is.
    pub kind: WorkloadKind,
    /// Its own name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The virtual cluster's name.
    pub release: String,
    /// How many pods it is to have.
    pub replicas: u32,
    /// How many it has, those that are on their way out included.
    pub pods: u32,
    /// How many of them are ready.
    pub ready: u32,
    /// Annotated as paused.
    pub paused: bool,
    /// How many pods a resume shall bring back, if something is annotated.
    pub paused_replicas: Option<String>,
    /// Annotated as being restored from a backup.
    pub restoring: bool,
    /// Labelled as put to sleep by the platform.
    pub sleeping: bool,
    /// Annotated as not to be deleted.
    pub non_deletable: bool,
    /// The tag of the syncer's image.
    pub version: Option<String>,
    /// Since when it is there.
    pub created: Option<jiff::Timestamp>,
    /// The version of the object that this was read from.
    pub resource_version: String,
}

/// What of a virtual cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The one that is always there, and that the annotations on it speak for the whole.
    ControlPlane,
    /// The API server, where it is apart.
    Api,
    /// The controller manager, where it is apart.
    Controller,
    /// etcd, where it is apart.
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

/// Why nobody is meant to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Off {
    /// Annotated as paused.
    Paused,
    /// Put to sleep by the platform.
    Sleeping,
    /// No replicas are wanted, and nothing is annotated.
    ScaledDown,
}

// === impl Workload ===

impl Workload {
    /// Reads an object; `None` if it is no part of a virtual cluster.
    ///
    /// # Errors
    /// If it is no JSON, or its fields are of other types than such an object's.
    pub fn parse(kind: WorkloadKind, json: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let Object { metadata, spec, status } = serde_json::from_slice(json)?;
        let part = metadata.label("app").and_then(Part::of_app);
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

    /// Whether nobody is meant to answer: paused, asleep or scaled to zero. Annotated as paused counts also while pods
    /// are still there: they are about to go.
    pub fn is_off(&self) -> bool {
        self.off_reason().is_some()
    }

    /// Why nobody is meant to answer.
    pub fn off_reason(&self) -> Option<Off> {
        match () {
            () if self.sleeping => Some(Off::Sleeping),
            () if self.paused => Some(Off::Paused),
            () if self.replicas == 0 => Some(Off::ScaledDown),
            () => None,
        }
    }

    /// The merge patch that pauses it; `None` if there is nothing to change. It applies to the version that this was read
    /// from and to no other.
    ///
    /// `configured` is how many replicas a resume brings back if it is scaled to zero already; `date` is
    /// [`paused_date`].
    pub fn pause_patch(&self, configured: u32, date: &str) -> Option<Value> {
        if self.restoring || self.sleeping || (self.paused && self.replicas == 0) {
            return None;
        }
        let mut patch = json!({"metadata": self.precondition(), "spec": {"replicas": 0}});
        // Annotated, and has replicas: somebody scaled it up, or upgraded the release. What is annotated stays true.
        if !self.paused {
            let replicas = if self.replicas == 0 { configured.max(1) } else { self.replicas };
            patch["metadata"]["annotations"] = json!({
                names::PAUSED: "true", names::PAUSED_REPLICAS: replicas.to_string(), names::PAUSED_DATE: date});
        }
        Some(patch)
    }

    /// The merge patch that resumes it; `None` if it is not paused. It applies to the version that this was read from and
    /// to no other.
    pub fn resume_patch(&self) -> Option<Value> {
        let mut metadata = self.precondition();
        metadata["annotations"] =
            json!({names::PAUSED: null, names::PAUSED_REPLICAS: null, names::PAUSED_DATE: null});
        let patch = json!({"metadata": metadata, "spec": {"replicas": self.replicas_after_resume()}});
        self.paused.then_some(patch)
    }

    /// How many replicas a resume brings back: what is annotated, or 1 where that is no number of them.
    pub fn replicas_after_resume(&self) -> u32 {
        let annotated = self.paused_replicas.as_deref().and_then(|text| text.parse().ok());
        annotated.filter(|replicas| (1..=MOST_REPLICAS).contains(replicas)).unwrap_or(1)
    }

    /// Whether this is an earlier state of the same than that one.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
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

// === impl Part ===

impl Part {
    /// All of them; the control plane first.
    pub const ALL: [Self; 4] = [Self::ControlPlane, Self::Api, Self::Controller, Self::Etcd];

    /// The label `app` of its objects.
    pub fn app(self) -> &'static str {
        match self {
            Self::ControlPlane => "vcluster",
            Self::Api => "vcluster-api",
            Self::Controller => "vcluster-controller",
            Self::Etcd => "vcluster-etcd",
        }
    }

    fn of_app(app: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.app() == app)
    }
}

// === impl WorkloadKind ===

impl WorkloadKind {
    /// The resource in the API's paths.
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

// === impl Off ===

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "paused",
            Self::Sleeping => "put to sleep by the platform",
            Self::ScaledDown => "scaled to zero",
        })
    }
}

/// The annotation of when it was paused, as the vcluster CLI writes it: local time, and yet with a `Z`.
pub fn paused_date(now: &jiff::Zoned) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Nobody runs so many control planes; a larger number is a mistake.
const MOST_REPLICAS: u32 = 1000;

/// The tag of an image's reference.
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
    fn what_matters_is_read() {
        let set = set(|_| {});
        assert_eq!((set.part, set.release.as_str()), (Part::ControlPlane, "shop"));
        assert_eq!((set.replicas, set.pods, set.ready), (3, 3, 2));
        assert_eq!(set.version.as_deref(), Some("0.30.0"));
        assert_eq!(set.to_string(), "StatefulSet team/shop");
        assert_eq!(set.off_reason(), None);
    }

    #[test]
    fn others_workloads_are_nobody() {
        let parse = |json: &Value| Workload::parse(WorkloadKind::Deployment, json.to_string().as_bytes());
        for labels in [json!(null), json!({"app": "vcluster"}), json!({"app": "web", "release": "x"})] {
            assert_eq!(parse(&json!({"metadata": {"name": "x", "labels": labels}})).unwrap(), None);
        }
        assert!(parse(&json!({"metadata": {"labels": 1}})).is_err());
        let bare = parse(&json!({"metadata": {"labels": {"app": "vcluster-etcd", "release": "x"}}}));
        assert_eq!(bare.unwrap().map(|w| (w.part, w.replicas)), Some((Part::Etcd, 1)));
    }

    #[test]
    fn a_pause_remembers_the_replicas_and_the_version_it_is_for() {
        let patch = set(|_| {}).pause_patch(9, "now").unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "annotations": {"loft.sh/paused": "true",
                "loft.sh/paused-replicas": "3", "loft.sh/paused-date": "now"}}, "spec": {"replicas": 0}})
        );
        // Scaled to zero before: what the configuration says.
        let scaled = set(|set| set["spec"]["replicas"] = 0.into());
        assert_eq!(scaled.off_reason(), Some(Off::ScaledDown));
        let patch = scaled.pause_patch(2, "now").unwrap();
        assert_eq!(patch["metadata"]["annotations"]["loft.sh/paused-replicas"], "2");
    }

    #[test]
    fn what_is_down_for_a_reason_is_not_paused_again() {
        let paused = |set: &mut Value| set["metadata"]["annotations"] = json!({"loft.sh/paused": "true"});
        assert!(set(|s| (paused(s), s["spec"]["replicas"] = 0.into()).1).pause_patch(1, "now").is_none());
        let restoring = |s: &mut Value| s["metadata"]["annotations"] = json!({"loft.sh/restoring": "true"});
        assert!(set(restoring).pause_patch(1, "now").is_none());
        let sleeping = set(|s| s["metadata"]["labels"]["loft.sh/sleep-mode"] = "true".into());
        assert_eq!(sleeping.off_reason(), Some(Off::Sleeping));
        assert!(sleeping.pause_patch(1, "now").is_none());
        // Annotated, but somebody scaled it up: down again, and what was annotated stays.
        let patch = set(paused).pause_patch(1, "now").unwrap();
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 0}}));
    }

    #[test]
    fn a_resume_brings_back_what_was_annotated() {
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
    fn the_date_is_local_and_ends_in_z() {
        let tokyo = "2026-03-04T05:06:07.0895+09:00[Asia/Tokyo]".parse().unwrap();
        assert_eq!(paused_date(&tokyo), "2026-03-04T05:06:07.089Z");
    }
}

//! State of a virtual cluster, in the terms of `vcluster list`.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use skopos_fleet::vcluster::meta::{Meta, or_default};

/// State in the column STATUS of `vcluster list`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The pod is running.
    Running,
    /// The pod has no node, or its containers are not created yet.
    Pending,
    /// The pod is being deleted.
    Terminating,
    /// The workload is paused, or put to sleep by the platform.
    Paused,
    /// The API server answers; its workloads are asleep.
    WorkloadsSleeping,
    /// The workload is scaled to zero without the annotations of a pause.
    ScaledDown,
    /// There should be pods and are none, or their state is unknown.
    Unknown,
    /// Any other state of the pod: `CrashLoopBackOff`, `ImagePullBackOff`, `Init:0/1`, `Completed`.
    Pod(Box<str>),
}

/// A pod of a virtual cluster's control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodState {
    /// Its namespace.
    pub namespace: String,
    /// The virtual cluster's name.
    pub release: String,
    /// The state in the column STATUS of kubectl.
    pub status: String,
}

impl Status {
    /// Returns the text used by `vcluster list`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "Running",
            Self::Pending => "Pending",
            Self::Terminating => "Terminating",
            Self::Paused => "Paused",
            Self::WorkloadsSleeping => "Sleeping (workloads only)",
            Self::ScaledDown => "ScaledDown",
            Self::Unknown => "Unknown",
            Self::Pod(other) => other,
        }
    }

    pub(crate) fn from_pod_status(status: &str) -> Self {
        match status {
            "Running" => Self::Running,
            "Pending" => Self::Pending,
            "Terminating" => Self::Terminating,
            "Unknown" | "" => Self::Unknown,
            other => Self::Pod(other.into()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl PodState {
    /// Parses a pod; `None` if it does not belong to a control plane.
    ///
    /// # Errors
    /// If it is not JSON, or its fields have other types than a pod's.
    pub fn parse(json: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let pod: Pod = serde_json::from_slice(json)?;
        let release = pod.metadata.label("release").filter(|_| pod.metadata.label("app") == Some("vcluster"));
        Ok(release.map(|release| Self {
            namespace: pod.metadata.namespace.clone(),
            release: release.to_owned(),
            status: pod.status(),
        }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(deserialize_with = "or_default")]
    phase: String,
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "or_default")]
    ready: bool,
    #[serde(deserialize_with = "or_default")]
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    running: Option<serde::de::IgnoredAny>,
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Waiting {
    #[serde(deserialize_with = "or_default")]
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    exit_code: i64,
    #[serde(deserialize_with = "or_default")]
    signal: i64,
}

impl Pod {
    fn status(&self) -> String {
        let PodStatus { phase, reason, .. } = &self.status;
        if self.metadata.deletion_timestamp.is_some() {
            return if reason == "NodeLost" { "Unknown" } else { "Terminating" }.to_owned();
        }
        let own = if reason.is_empty() { phase } else { reason };
        self.initializing().unwrap_or_else(|| self.container_state(own))
    }

    /// Returns the state of the first init container that has not succeeded.
    fn initializing(&self) -> Option<String> {
        let all = &self.status.init_container_statuses;
        let (number, container) =
            all.iter().enumerate().find(|(_, container)| !container.state.succeeded())?;
        let progress = || format!("{number}/{}", self.spec.init_containers.len());
        let said = match &container.state {
            State { terminated: Some(ended), .. } => ended.describe(),
            State { waiting: Some(waiting), .. }
                if !matches!(waiting.reason.as_str(), "" | "PodInitializing") =>
            {
                waiting.reason.clone()
            }
            _ => progress(),
        };
        Some(format!("Init:{said}"))
    }

    /// Returns the state of the first container that has one to report, else the pod's own.
    fn container_state(&self, own: &str) -> String {
        let all = &self.status.container_statuses;
        let said = all.iter().find_map(|container| match &container.state {
            State { waiting: Some(waiting), .. } if !waiting.reason.is_empty() => {
                Some(waiting.reason.clone())
            }
            State { terminated: Some(ended), .. } => Some(ended.describe()),
            _ => None,
        });
        let said = said.unwrap_or_else(|| own.to_owned());
        let runs = || all.iter().any(|container| container.ready && container.state.running.is_some());
        // A completed container leaves the others running.
        if said == "Completed" && runs() { "Running".to_owned() } else { said }
    }
}

impl State {
    fn succeeded(&self) -> bool {
        self.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0)
    }
}

impl Terminated {
    fn describe(&self) -> String {
        match self {
            Self { reason, .. } if !reason.is_empty() => reason.clone(),
            Self { signal, .. } if *signal != 0 => format!("Signal:{signal}"),
            Self { exit_code, .. } => format!("ExitCode:{exit_code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(status: Value) -> String {
        parse(json!({}), status).status
    }

    fn parse(metadata: Value, status: Value) -> PodState {
        let mut pod = json!({"metadata": metadata, "spec": {"initContainers": [{}, {}]}, "status": status});
        pod["metadata"]["labels"] = json!({"app": "vcluster", "release": "shop"});
        PodState::parse(pod.to_string().as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn pods_speak_as_in_kubectl() {
        let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
        let ended = |fields: Value| json!({"state": {"terminated": fields}});
        let running = json!({"ready": true, "state": {"running": {"startedAt": "x"}}});
        let containers = |all: Value| json!({"phase": "Running", "containerStatuses": all});
        let init = |all: Value| json!({"phase": "Pending", "initContainerStatuses": all});
        let done = ended(json!({"exitCode": 0, "reason": "Completed"}));
        let cases = [
            (json!({"phase": "Pending"}), "Pending"),
            (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
            (containers(json!([running])), "Running"),
            (containers(json!([running, waiting("CrashLoopBackOff")])), "CrashLoopBackOff"),
            (containers(json!([waiting("First"), waiting("Second")])), "First"),
            (containers(json!([ended(json!({"exitCode": 2, "reason": "Error"}))])), "Error"),
            (containers(json!([ended(json!({"exitCode": 2}))])), "ExitCode:2"),
            (containers(json!([ended(json!({"exitCode": 2, "signal": 9}))])), "Signal:9"),
            (containers(json!([done, running])), "Running"),
            (containers(json!([done])), "Completed"),
            (init(json!([done, waiting("PodInitializing")])), "Init:1/2"),
            (init(json!([waiting("ErrImagePull")])), "Init:ErrImagePull"),
            (init(json!([ended(json!({"exitCode": 1, "reason": "Error"}))])), "Init:Error"),
            (init(json!([ended(json!({"exitCode": 3}))])), "Init:ExitCode:3"),
            (init(json!([{"state": {"running": {}}}])), "Init:0/2"),
            (init(json!([done, done])), "Pending"),
        ];
        for (pod, told) in cases {
            assert_eq!(status(pod.clone()), told, "{pod}");
        }
    }

    #[test]
    fn a_pod_on_its_way_out_says_only_that() {
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(parse(going.clone(), json!({"phase": "Running"})).status, "Terminating");
        assert_eq!(parse(going, json!({"phase": "Running", "reason": "NodeLost"})).status, "Unknown");
    }

    #[test]
    fn only_control_planes_count() {
        let pod = json!({"metadata": {"labels": {"app": "vcluster-etcd", "release": "shop"}}});
        assert_eq!(PodState::parse(pod.to_string().as_bytes()).unwrap(), None);
    }
}

//! A virtual cluster, assembled from its objects.

use serde::{Serialize, Serializer};
use skopos_fleet::vcluster::{ConfigSecret, Off, Part, Workload, WorkloadKind};

use crate::progress::Step;
use crate::status::{PodState, Status};

/// A virtual cluster as `vcluster list` finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VirtualCluster {
    /// The release's name.
    pub name: String,
    /// The host's namespace in which it runs.
    pub namespace: String,
    /// The state.
    pub status: Status,
    /// The StatefulSet or Deployment of its control plane.
    pub workload: Workload,
}

impl VirtualCluster {
    /// Assembles a virtual cluster from a control plane's workload, its configuration if that was readable, and pods.
    /// Pods of other virtual clusters are ignored.
    pub fn assemble(workload: Workload, config: Option<&ConfigSecret>, pods: &[PodState]) -> Self {
        let of_it = |pod: &&PodState| pod.release == workload.release && pod.namespace == workload.namespace;
        // The last pod wins, as in the vcluster CLI.
        let pod = pods.iter().rfind(of_it);
        let status = match workload.off_reason() {
            Some(Off::Paused | Off::Sleeping) => Status::Paused,
            _ if config.is_some_and(|config| config.workloads_sleep) => Status::WorkloadsSleeping,
            off => match (pod, off) {
                (Some(pod), _) => Status::from_pod_status(&pod.status),
                (None, Some(_)) => Status::ScaledDown,
                (None, None) => Status::Unknown,
            },
        };
        Self { name: workload.release.clone(), namespace: workload.namespace.clone(), status, workload }
    }

    /// Returns the progress step that shows its state.
    pub(crate) fn found(&self) -> Step {
        Step::Found {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            status: self.status.clone(),
        }
    }

    /// Returns the virtual clusters of a host's objects, by namespace and name. Two control planes of one name in one
    /// namespace both count, as in the vcluster CLI: the StatefulSet first.
    pub fn assemble_all(workloads: Vec<Workload>, configs: &[ConfigSecret], pods: &[PodState]) -> Vec<Self> {
        let control_planes = workloads.into_iter().filter(|workload| workload.part == Part::ControlPlane);
        let mut all: Vec<Self> = control_planes
            .map(|workload| {
                let config = configs
                    .iter()
                    .find(|config| config.name == workload.release && config.namespace == workload.namespace);
                Self::assemble(workload, config, pods)
            })
            .collect();
        all.sort_by(|a, b| {
            let key = |of: &Self| (of.namespace.clone(), of.name.clone(), of.workload.kind);
            key(a).cmp(&key(b))
        });
        all
    }
}

/// JSON form for programs, the same in the command line and in the gateway.
impl Serialize for VirtualCluster {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown<'a> {
            name: &'a str,
            namespace: &'a str,
            status: &'a Status,
            kind: WorkloadKind,
            replicas: u32,
            ready_replicas: u32,
            #[serde(skip_serializing_if = "Option::is_none")]
            version: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            created: Option<jiff::Timestamp>,
        }
        let Self { name, namespace, status, workload } = self;
        let Workload { kind, replicas, ready, version, created, .. } = workload;
        let (kind, replicas, ready_replicas, created) = (*kind, *replicas, *ready, *created);
        let version = version.as_deref();
        Shown { name, namespace, status, kind, replicas, ready_replicas, version, created }
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload(change: impl FnOnce(&mut Value)) -> Workload {
        let mut object = json!({"metadata": {"name": "shop", "namespace": "team", "annotations": {},
            "labels": {"app": "vcluster", "release": "shop"}}, "spec": {"replicas": 1}});
        change(&mut object);
        Workload::parse(WorkloadKind::StatefulSet, object.to_string().as_bytes()).unwrap().unwrap()
    }

    fn pod(status: &str) -> PodState {
        PodState { namespace: "team".into(), release: "shop".into(), status: status.into() }
    }

    fn status(workload: Workload, asleep: bool, pods: &[PodState]) -> String {
        let mut config = ConfigSecret::default();
        config.workloads_sleep = asleep;
        VirtualCluster::assemble(workload, Some(&config), pods).status.to_string()
    }

    #[test]
    fn status_prefers_annotations_then_pods_then_replicas() {
        let running = [pod("Running")];
        let paused = |o: &mut Value| o["metadata"]["annotations"]["loft.sh/paused"] = "true".into();
        let asleep = |o: &mut Value| o["metadata"]["labels"]["loft.sh/sleep-mode"] = "true".into();
        let zero = |o: &mut Value| o["spec"]["replicas"] = 0.into();
        assert_eq!(status(workload(|_| {}), false, &running), "Running");
        assert_eq!(status(workload(paused), true, &running), "Paused");
        assert_eq!(status(workload(asleep), false, &running), "Paused");
        assert_eq!(status(workload(|_| {}), true, &running), "Sleeping (workloads only)");
        assert_eq!(status(workload(zero), false, &[pod("Terminating")]), "Terminating");
        assert_eq!(status(workload(zero), false, &[]), "ScaledDown");
        assert_eq!(status(workload(|_| {}), false, &[]), "Unknown");
        assert_eq!(
            status(workload(|_| {}), false, &[pod("Running"), pod("CrashLoopBackOff")]),
            "CrashLoopBackOff"
        );
    }

    #[test]
    fn pods_of_other_clusters_do_not_count() {
        let elsewhere = PodState { namespace: "other".into(), ..pod("Running") };
        let another = PodState { release: "other".into(), ..pod("Running") };
        assert_eq!(status(workload(|_| {}), false, &[elsewhere, another]), "Unknown");
    }

    #[test]
    fn all_of_a_host_in_order() {
        let named = |name: &str, namespace: &str, app: &str| {
            workload(|o| {
                o["metadata"]["namespace"] = namespace.into();
                o["metadata"]["labels"] = json!({"app": app, "release": name});
            })
        };
        let all = VirtualCluster::assemble_all(
            vec![
                named("b", "y", "vcluster"),
                named("b", "x", "vcluster-etcd"),
                named("b", "x", "vcluster"),
                named("a", "y", "vcluster"),
            ],
            &[],
            &[],
        );
        let names: Vec<_> = all.iter().map(|one| (one.namespace.as_str(), one.name.as_str())).collect();
        assert_eq!(names, [("x", "b"), ("y", "a"), ("y", "b")]);
    }
}

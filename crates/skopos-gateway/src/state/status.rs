//! `/api/v1/status`: the state of the gateway and its clusters, as JSON. Clients parse it with the same types.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos::Freshness;
use skopos_fleet::{CheckpointStats, Cluster, KindStats};

use super::Shared;

/// The state of a gateway and its clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of the gateway.
    pub version: String,
    /// Connections of clients.
    pub connections: usize,
    /// Watches of clients.
    pub watches: u64,
    /// The reason why the present content of the configuration file is not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused: Option<String>,
    /// The clusters, by name.
    pub clusters: Vec<ClusterReport>,
    /// The problems of sources of clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The state of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// The name.
    pub name: String,
    /// The kubeconfig's context, or the name in another source, if it differs from the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The value of the label `skopos.dev/cluster` that selects its objects, if it differs from the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_value: Option<String>,
    /// `connecting`, `live`, `degraded`, `unreachable`, `paused` or `removed`.
    pub state: String,
    /// The number of seconds in this state.
    pub since_seconds: f64,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Upper bound in seconds on the age of memory: that of the oldest resource. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// Seconds since its last answer of any kind. This is not the age of content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<f64>,
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Bytes of JSON in memory.
    pub bytes: u64,
    /// The budget of these bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Requests passed through.
    pub requests: u64,
    /// The checkpoints of the cluster, if enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsReport>,
    /// The resources in memory.
    pub kinds: Vec<KindReport>,
}

/// The checkpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointsReport {
    /// Seconds since the files matched memory, for the oldest part; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// Number of files.
    pub files: usize,
    /// Size of the files.
    pub bytes: u64,
    /// Files refused since the start.
    pub refused: u64,
    /// The latest problem, or reason why a file was refused, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The state of a resource in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindReport {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// `live`, `stale`, `never-synced` or `stopped`.
    pub freshness: String,
    /// Upper bound on the age in seconds, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// The problem, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of objects.
    pub objects: usize,
    /// Bytes of their JSON.
    pub bytes: u64,
    /// Watch events applied.
    pub events: u64,
    /// Lists begun because the watch could not be continued.
    pub relists: u64,
    /// Audits that found a difference.
    pub audit_mismatches: u64,
}

impl Report {
    pub(super) fn new(shared: &Shared) -> Self {
        let fleet = &shared.services.fleet;
        let refused = shared.config.as_ref().and_then(|config| config.borrow().refused.clone());
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            connections: shared.listen.read().as_ref().map_or(0, |listen| listen.connections()),
            watches: shared.services.watches.open(),
            config_refused: refused.map(|refused| refused.reason.to_string()),
            clusters: fleet.members().values().map(ClusterReport::from_cluster).collect(),
            problems: fleet.problems().iter().map(ToString::to_string).collect(),
        }
    }
}

impl ClusterReport {
    fn from_cluster(cluster: &Cluster) -> Self {
        let stats = cluster.stats();
        let label_value = Some(stats.id.label_value()).filter(|value| *value != stats.id.as_str());
        Self {
            name: stats.id.to_string(),
            context: cluster.original_name().map(|name| name.to_string()),
            label_value: label_value.map(str::to_owned),
            state: stats.state.condition.as_str().to_owned(),
            since_seconds: seconds(stats.state.since.elapsed()),
            reason: stats.state.reason.as_deref().map(str::to_owned),
            age_seconds: stats
                .kinds
                .iter()
                .filter_map(|kind| kind.informer.freshness.age())
                .max()
                .map(seconds),
            silent_seconds: stats.state.answered_at.map(|at| seconds(at.elapsed())),
            labels: BTreeMap::clone(&cluster.labels()),
            bytes: stats.bytes,
            budget_bytes: stats.memory_budget,
            requests: stats.requests,
            checkpoints: stats.kept.as_ref().map(CheckpointsReport::from_stats),
            kinds: stats.kinds.iter().map(KindReport::from_stats).collect(),
        }
    }
}

impl CheckpointsReport {
    fn from_stats(kept: &CheckpointStats) -> Self {
        Self {
            age_seconds: kept.age.map(seconds),
            files: kept.files,
            bytes: kept.bytes,
            refused: kept.refused,
            problem: kept.problem.as_deref().map(str::to_owned),
        }
    }
}

impl KindReport {
    fn from_stats(kind: &KindStats) -> Self {
        let informer = &kind.informer;
        let freshness = match &informer.freshness {
            Freshness::Live { .. } => "live",
            Freshness::Stale { .. } => "stale",
            Freshness::NeverSynced { .. } => "never-synced",
            Freshness::Stopped { .. } => "stopped",
        };
        Self {
            group: informer.resource.group.clone(),
            version: informer.resource.version.clone(),
            resource: informer.resource.plural.clone(),
            freshness: freshness.to_owned(),
            age_seconds: informer.freshness.age().map(seconds),
            reason: informer.freshness.reason().map(ToString::to_string),
            objects: informer.objects,
            bytes: informer.bytes,
            events: informer.events,
            relists: informer.relists,
            audit_mismatches: informer.audits.mismatches,
        }
    }
}

/// Returns seconds with milliseconds, rounded up: a bound must stay one.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).ceil() / 1000.0
}

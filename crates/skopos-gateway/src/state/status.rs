//! `/api/v1/status`: how everything stands, as JSON. The same types read it again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos::Freshness;
use skopos_fleet::{Cluster, KeptStats, KindStats};

use super::Shared;

/// How a gateway and its clusters stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of the gateway.
    pub version: String,
    /// Connections of clients.
    pub connections: usize,
    /// Watches of clients.
    pub watches: u64,
    /// Why the configuration file's present content is not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_refused: Option<String>,
    /// The clusters, by name.
    pub clusters: Vec<ClusterReport>,
    /// What sources of clusters cannot use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// How a cluster stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// Its name.
    pub name: String,
    /// The kubeconfig's context, or the name in another source, where that is not the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The value of the label `skopos.dev/cluster` by which its objects are selected, where that is not the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_value: Option<String>,
    /// `connecting`, `live`, `degraded`, `unreachable`, `paused` or `removed`.
    pub state: String,
    /// For how many seconds.
    pub since_seconds: f64,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Upper bound in seconds on the age of what is in memory: that of the oldest kind. Absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// How many seconds ago it last answered anything: no age of content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<f64>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Bytes of JSON in memory.
    pub bytes: u64,
    /// What they may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Requests passed through.
    pub requests: u64,
    /// What is kept of it over restarts, if anything is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsReport>,
    /// The kinds in memory.
    pub kinds: Vec<KindReport>,
}

/// What is kept of a cluster over restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointsReport {
    /// How many seconds ago the files had what the memory had; absent while there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// Files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were refused since the start.
    pub refused: u64,
    /// What stands in the way, or why a file was refused: the latest, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How a kind in memory stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindReport {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The resource, in the plural.
    pub resource: String,
    /// `live`, `stale`, `never-synced` or `stopped`.
    pub freshness: String,
    /// Upper bound on the age in seconds, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// What is wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Objects.
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

// === impl Report ===

impl Report {
    pub(super) fn of(shared: &Shared) -> Self {
        let fleet = &shared.services.fleet;
        let refused = shared.config.as_ref().and_then(|config| config.borrow().refused.clone());
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            connections: shared.listen.read().as_ref().map_or(0, |listen| listen.connections()),
            watches: shared.services.watches.open(),
            config_refused: refused.map(|refused| refused.reason.to_string()),
            clusters: fleet.members().values().map(ClusterReport::of).collect(),
            problems: fleet.problems().iter().map(ToString::to_string).collect(),
        }
    }
}

// === impl ClusterReport ===

impl ClusterReport {
    fn of(cluster: &Cluster) -> Self {
        let stats = cluster.stats();
        let label_value = Some(stats.id.label_value()).filter(|value| *value != stats.id.as_str());
        Self {
            name: stats.id.to_string(),
            context: cluster.original_name().map(|name| name.to_string()),
            label_value: label_value.map(str::to_owned),
            state: stats.state.condition.word().to_owned(),
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
            checkpoints: stats.kept.as_ref().map(CheckpointsReport::of),
            kinds: stats.kinds.iter().map(KindReport::of).collect(),
        }
    }
}

// === impl CheckpointsReport ===

impl CheckpointsReport {
    fn of(kept: &KeptStats) -> Self {
        Self {
            age_seconds: kept.age.map(seconds),
            files: kept.files,
            bytes: kept.bytes,
            refused: kept.refused,
            problem: kept.problem.as_deref().map(str::to_owned),
        }
    }
}

// === impl KindReport ===

impl KindReport {
    fn of(kind: &KindStats) -> Self {
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

/// With milliseconds, rounded up: a bound must stay one.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).ceil() / 1000.0
}

//! What was measured, as it is kept in `docs/evidence/comparison/*.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client::Who;
use crate::machine::Machine;
use crate::programs;
use crate::server::Kind;

/// The results of all faults.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FaultResults {
    pub(crate) machine: Machine,
    /// The longest that was waited for a recovery, in seconds.
    pub(crate) cap_s: f64,
    pub(crate) faults: Vec<FaultResult>,
}

/// What became of three clients under one fault.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FaultResult {
    pub(crate) id: String,
    pub(crate) row: u8,
    pub(crate) title: String,
    pub(crate) server: Kind,
    /// When the fault was healed, in seconds after it began; `None` if it was over at once or lasts for ever.
    pub(crate) healed_s: Option<f64>,
    /// How long it was looked at.
    pub(crate) seconds: f64,
    pub(crate) clients: Vec<Outcome>,
}

/// What became of one client under one fault. Seconds count from the fault unless something else is said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) client: Who,
    /// When it told its user of trouble, and how.
    pub(crate) told_s: Option<f64>,
    pub(crate) told: Option<String>,
    /// When its store was the server's again for the first time.
    pub(crate) equal_s: Option<f64>,
    /// When its store was the server's again, in seconds after the heal, or after the fault where nothing is healed.
    pub(crate) recovered_s: Option<f64>,
    /// At how many names the handler or the store were wrong in the end.
    pub(crate) wrong: usize,
    /// Names at which a deletion and a creation were reported as an update.
    pub(crate) crossings: usize,
    /// Deletions that no event told of.
    pub(crate) untold_deletions: usize,
    /// Requests from the fault to the end, where the server counts them.
    pub(crate) requests: Option<u64>,
    /// The same, lists.
    pub(crate) lists: Option<u64>,
    /// Connections from the fault to the end.
    pub(crate) connections: u64,
    /// The wait for the first sync ended in vain after so many seconds, and said this.
    pub(crate) sync_timeout: Option<(f64, String)>,
    /// How long it took to end in the end.
    pub(crate) stop_s: Option<f64>,
    /// Whether its process ended before it was asked to.
    pub(crate) died: bool,
}

/// The results of speed and memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpeedResults {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<SpeedResult>,
}

/// One client at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpeedResult {
    pub(crate) client: Who,
    /// How it is used.
    pub(crate) mode: String,
    pub(crate) server: Kind,
    pub(crate) pods: usize,
    pub(crate) sync_s: f64,
    pub(crate) sync_cpu_us_per_pod: f64,
    /// CPU of the server while the client synced; `None` for the test server, which shares a process with this program.
    pub(crate) server_cpu_us_per_pod: Option<f64>,
    pub(crate) peak_kib_per_pod: f64,
    pub(crate) steady_kib_per_pod: f64,
    pub(crate) events: u64,
    pub(crate) events_per_cpu_second: f64,
}

/// The results of the controllers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControllerResults {
    pub(crate) machine: Machine,
    pub(crate) objects: usize,
    pub(crate) events: usize,
    pub(crate) workers: usize,
    /// How long the server was down, in seconds, until it was started again.
    pub(crate) down_s: f64,
    /// How long children may take to be right, in seconds, before they count as lost.
    pub(crate) patience_s: f64,
    pub(crate) rows: Vec<ControllerResult>,
}

/// A controller, and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Library {
    ControllerRuntime,
    /// The same, with reads that wait for its own writes.
    ControllerRuntimeOwnWrites,
    KubeRs,
    Skopos,
}

impl Library {
    pub(crate) const ALL: [Library; 4] =
        [Library::ControllerRuntime, Library::ControllerRuntimeOwnWrites, Library::KubeRs, Library::Skopos];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Library::ControllerRuntime => "controller-runtime",
            Library::ControllerRuntimeOwnWrites => "controller-runtime, reads own writes",
            Library::KubeRs => "kube-rs",
            Library::Skopos => "Skopos",
        }
    }

    /// What it calls itself to servers.
    pub(crate) fn user_agent(self) -> &'static str {
        match self {
            Library::ControllerRuntime | Library::ControllerRuntimeOwnWrites => "peer-controller-runtime",
            Library::KubeRs => "peer-kube-rs",
            Library::Skopos => "peer-skopos",
        }
    }
}

/// One controller at the job. Seconds of wall time unless something else is said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControllerResult {
    pub(crate) runtime: Library,
    /// From the start of the process until all children were right for the first time.
    pub(crate) first_s: f64,
    pub(crate) first_reconciles: u64,
    pub(crate) first_cpu_s: f64,
    /// From the first update of the burst to the last, with the time in which the server was down.
    pub(crate) burst_s: f64,
    /// From the kill of the server until it was ready again.
    pub(crate) outage_s: f64,
    /// From then until the controller wrote again.
    pub(crate) written_again_s: Option<f64>,
    /// From an update made right after the restart until its child was right.
    pub(crate) right_again_s: Option<f64>,
    /// From the last update of the burst until all children were right.
    pub(crate) settled_s: Option<f64>,
    /// Children that were not right when the patience ended.
    pub(crate) lost: usize,
    pub(crate) reconciles: u64,
    pub(crate) failed: u64,
    pub(crate) cpu_s: f64,
    pub(crate) peak_kib: u64,
    pub(crate) steady_kib: u64,
    /// Requests that the server got from it, by verb.
    pub(crate) requests: BTreeMap<String, u64>,
    /// States of parents, the most that a child can be written for.
    pub(crate) states: u64,
    /// Writes of children that changed something, counted by the server's storage.
    pub(crate) changes: u64,
    /// CPU time of the server in all, in seconds: it takes the burst as well.
    pub(crate) server_cpu_s: f64,
}

impl ControllerResult {
    /// Writes of children that changed nothing.
    pub(crate) fn idle_writes(&self) -> u64 {
        self.requests.get("apply").copied().unwrap_or_default().saturating_sub(self.changes)
    }
}

/// Where the results and plots are kept.
pub(crate) fn folder() -> PathBuf {
    programs::repository().join("docs/evidence/comparison")
}

/// Reads results.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes results.
pub(crate) fn write(file: &Path, results: &impl Serialize) -> Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(results)? + "\n";
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

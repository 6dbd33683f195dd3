//! State of the clusters at one moment, as plain numbers.
use std::time::Duration;

use skopos_fleet::Condition;

/// State at one moment. Times count from the start of the demo.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Time of the sample
    pub(crate) at: Duration,
    /// The clusters, in order of their names
    pub(crate) clusters: Vec<ClusterSample>,
    /// Number of clusters that there should be
    pub(crate) expected: usize,
}

/// State of one cluster, as the gateway knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterSample {
    /// Its name
    pub(crate) name: String,
    /// Its condition
    pub(crate) condition: Condition,
    /// Time since which it has this condition
    pub(crate) since: Duration,
    /// Reason for the condition
    pub(crate) reason: Option<String>,
    /// True if everything cached of it is complete
    pub(crate) synced: bool,
    /// Objects in memory
    pub(crate) objects: u64,
    /// Maximum age of the objects
    pub(crate) age: Option<Duration>,
    /// Changes received since the start
    pub(crate) events: u64,
    /// The last trouble of each kind of object
    pub(crate) troubles: Vec<Trouble>,
    /// The faults inflicted on it
    pub(crate) broken: Option<String>,
}

/// A failure of one kind's view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Time at which it was noticed
    pub(crate) at: Duration,
    /// Reason
    pub(crate) what: String,
    /// Time of the recovery, and how it came about
    pub(crate) healed: Option<(Duration, String)>,
}

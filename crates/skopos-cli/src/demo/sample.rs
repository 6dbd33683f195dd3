//! How the clusters stand at one moment, as plain numbers.
use std::time::Duration;

use skopos_fleet::Condition;

/// What is known at one moment. Times count from the start of the demo.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// When
    pub(crate) at: Duration,
    /// The clusters, in order of their names
    pub(crate) clusters: Vec<ClusterSample>,
    /// How many there are to be found
    pub(crate) expected: usize,
}

/// What the gateway knows of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterSample {
    /// Its name
    pub(crate) name: String,
    /// What is the case
    pub(crate) condition: Condition,
    /// Since when
    pub(crate) since: Duration,
    /// Why
    pub(crate) reason: Option<String>,
    /// Everything that is kept of it is complete
    pub(crate) synced: bool,
    /// Objects in memory
    pub(crate) objects: u64,
    /// How old they are at most
    pub(crate) age: Option<Duration>,
    /// Changes received since the start
    pub(crate) events: u64,
    /// The last thing that went wrong with each kind of object
    pub(crate) troubles: Vec<Trouble>,
    /// What somebody has broken about it
    pub(crate) broken: Option<String>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// When it was noticed
    pub(crate) at: Duration,
    /// What it was
    pub(crate) what: String,
    /// When and by what it was over
    pub(crate) healed: Option<(Duration, String)>,
}

//! What the compared clients write and are asked.
//!
//! Each client is a program of its own. It takes the flags of [`Arguments`], writes one [`Line`] of JSON for everything that
//! happens on standard output, and reads commands from standard input, one a line:
//!
//! | command | answer |
//! |---|---|
//! | `digest` | a `digest` line: how many objects the client's store holds, and the [`digest`] of them |
//! | `usage` | a `usage` line |
//! | `quit`, or the end of the input | the client ends in the way that its library's documentation shows |
//!
//! `peers/client-go` does the same in Go.
//!
//! The controllers, which do the [`job`], take [`ControllerArguments`] and answer `usage` by a `reconciled` line; `peers/controller-runtime` does
//! that in Go.

pub mod job;
mod line;
mod reporter;
mod tally;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
pub use line::{Change, EventLine, Line, Version, What, digest};
pub use reporter::Reporter;
pub use tally::{ControllerArguments, Reconciled, Tally};
pub use usage::Usage;

/// The flags that all clients have. Client-go's program has `--encoding json|protobuf` besides, as the others speak JSON
/// only.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// What is watched.
    #[arg(long, value_enum, default_value_t = Resource::Pods)]
    pub resource: Resource,
    /// Only this namespace.
    #[arg(long)]
    pub namespace: Option<String>,
    /// Seconds to wait for the first sync.
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub sync_timeout: Duration,
    /// Seconds between usage lines; 0: none.
    #[arg(long, default_value = "0", value_parser = seconds)]
    pub report_every: Duration,
    /// Whether the first list is streamed by a watch.
    #[arg(long, value_enum, default_value_t = WatchList::Default)]
    pub watch_list: WatchList,
    /// Which events are written.
    #[arg(long, value_enum, default_value_t = Events::All)]
    pub events: Events,
    /// Write the event of this object, and a usage line.
    #[arg(long)]
    pub mark: Option<String>,
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Resource {
    /// Pods, typed.
    Pods,
    /// Config maps, typed.
    Configmaps,
}

/// Whether the first list is streamed by a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchList {
    /// As the library does it unless told otherwise.
    Default,
    /// Streamed.
    On,
    /// Listed.
    Off,
}

/// Which events are written. All are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Events {
    /// All.
    All,
    /// Those after the first sync.
    Live,
    /// None.
    None,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

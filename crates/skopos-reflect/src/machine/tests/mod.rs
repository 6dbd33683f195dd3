//! The machine against a model of a server, in virtual time.

mod conduct;
mod course;
mod desk;
mod doubts;
mod endings;
mod history;
mod hostile;
mod properties;
mod recorder;
mod scenarios;
mod server;
mod undecodable;
mod world;

use std::time::Duration;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

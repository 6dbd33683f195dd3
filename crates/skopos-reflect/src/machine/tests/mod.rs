//! The machine against a model of a server, in virtual time.

mod awaited;
mod budgets;
mod conduct;
mod counted;
mod course;
mod desk;
mod endings;
mod history;
mod hostile;
mod late;
mod lists;
mod properties;
mod recorder;
mod scenarios;
mod server;
mod shared;
mod stalls;
mod streams;
mod undecodable;
mod words;
mod world;

use std::time::Duration;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

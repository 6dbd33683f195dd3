//! Inflicts all faults, several at a time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, stream};

use crate::machine::Machine;
use crate::results::{self, FaultResult, FaultResults};
use crate::server::Kind;
use crate::{catalogue, programs, scene};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these faults; the results of the others are kept.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds after which a client that has not recovered is given up.
    #[arg(long, default_value_t = 330)]
    cap: u64,
    /// How many faults at the same time; they mostly wait.
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// Build the programs first.
    #[arg(long)]
    build: bool,
    /// The test server also where the real one would do.
    #[arg(long)]
    test_server: bool,
    /// Where the results go.
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        programs::build()?;
    }
    let all = catalogue::all();
    for id in &options.only {
        ensure!(all.iter().any(|fault| fault.id == id), "there is no fault {id:?}: see `list`");
    }
    let chosen = |id: &str| options.only.is_empty() || options.only.iter().any(|only| only == id);
    let out = options.out.clone().unwrap_or_else(|| results::folder().join("faults.json"));
    let mut kept: Vec<FaultResult> = match options.only.is_empty() {
        true => Vec::new(),
        false => results::read::<FaultResults>(&out).map(|old| old.faults).unwrap_or_default(),
    };
    let cap = Duration::from_secs(options.cap);
    let mut chosen: Vec<_> = all.iter().filter(|fault| chosen(fault.id)).cloned().collect();
    // The longest first, so that nobody waits for it alone.
    chosen.sort_by_key(|fault| (fault.cap.is_none(), fault.lasts.is_some()));
    let plays = chosen.into_iter().map(|fault| async move {
        let kind = if options.test_server { Kind::Test } else { fault.server };
        let (id, title) = (fault.id, fault.title);
        eprintln!("{id}: {title}");
        (id, scene::play(fault, kind, cap).await)
    });
    let mut plays = stream::iter(plays).buffer_unordered(options.jobs);
    let mut failed = Vec::new();
    while let Some((id, result)) = plays.next().await {
        match result {
            Ok(result) => {
                print(&result);
                kept.retain(|other| other.id != id);
                kept.push(result);
            }
            Err(error) => {
                eprintln!("{id}: {error:#}");
                failed.push(id);
            }
        }
        let place = |result: &FaultResult| all.iter().position(|fault| fault.id == result.id);
        kept.sort_by_key(place);
        let results =
            FaultResults { machine: Machine::this(), cap_s: cap.as_secs_f64(), faults: kept.clone() };
        results::write(&out, &results)?;
    }
    ensure!(failed.is_empty(), "could not be played: {failed:?}");
    Ok(())
}

fn print(result: &FaultResult) {
    let seconds = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    println!("{} ({}, {:.0} s)", result.id, result.server.name(), result.seconds);
    for outcome in &result.clients {
        println!(
            "  {:9} told {:>7} equal {:>7} recovered {:>7} wrong {} crossings {} untold {} requests {:?} connections {} \
             stop {} {}{}",
            outcome.client.name(),
            seconds(outcome.told_s),
            seconds(outcome.equal_s),
            seconds(outcome.recovered_s),
            outcome.wrong,
            outcome.crossings,
            outcome.untold_deletions,
            outcome.requests,
            outcome.connections,
            seconds(outcome.stop_s),
            if outcome.died { "DIED " } else { "" },
            outcome.told.as_deref().unwrap_or_default(),
        );
        if let Some((after, reason)) = &outcome.sync_timeout {
            println!("            sync timeout after {after:.1}: {reason}");
        }
    }
}

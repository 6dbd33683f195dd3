//! external-dns and `skopos notify` between the same cluster and the same DNS server, through the failure cases that apply to a zone.
//!
//! ```text
//!  test server ── external-dns ── BIND        each case: two fresh worlds, side by side
//!  test server ── skopos notify ─ BIND        the outside is watched by queries and read by transfers
//! ```

mod cases;
mod outcome;
mod page;
mod side;
mod world;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::{StreamExt as _, TryFutureExt as _, stream};
use serde::{Deserialize, Serialize};

use self::cases::Case;
use self::outcome::Outcome;
pub(crate) use self::page::write as write_page;
use self::side::Side;
use self::world::World;
use crate::machine::Machine;
use crate::{programs, results};

#[derive(Args)]
pub(crate) struct Options {
    /// Build external-dns and `skopos` first.
    #[arg(long)]
    build: bool,
    /// Only the cases with these IDs; the results of the others are kept.
    #[arg(long)]
    only: Vec<String>,
    /// How many cases run at the same time.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Keep the notifiers' logs in this folder.
    #[arg(long)]
    logs: Option<PathBuf>,
}

/// The results of all cases.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Results {
    machine: Machine,
    cases: Vec<CaseResult>,
}

/// What became of both in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CaseResult {
    id: String,
    row: String,
    title: String,
    skopos: Outcome,
    external_dns: Outcome,
}

/// Where the results are kept.
fn file() -> PathBuf {
    results::folder().join("external-dns.json")
}

/// Plays the cases, and writes the results and the page.
pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        programs::build_external_dns()?;
        programs::build_skopos()?;
    }
    let wanted = |case: &Case| options.only.is_empty() || options.only.iter().any(|id| id == case.id);
    let (alone, together): (Vec<_>, Vec<_>) =
        cases::all().into_iter().filter(wanted).partition(|case| case.alone);
    let mut playing = stream::iter(together).map(|case| play(case, options)).buffer_unordered(options.jobs);
    let (mut new, mut failed) = (Vec::new(), Vec::new());
    while let Some(played) = playing.next().await {
        played.map_or_else(|error| failed.push(error), |result| new.push(result));
    }
    for case in alone {
        play_in_turn(case, options).await.map_or_else(|error| failed.push(error), |result| new.push(result));
    }
    keep(new)?;
    write_page()?;
    ensure!(failed.is_empty(), "{} cases could not be played: {failed:?}", failed.len());
    Ok(())
}

/// Plays a case for both at the same time.
async fn play(case: Case, options: &Options) -> Result<CaseResult> {
    let (skopos, external_dns) =
        futures::future::try_join(side(case, Side::Skopos, options), side(case, Side::ExternalDns, options))
            .await?;
    Ok(result(case, skopos, external_dns))
}

/// Plays a case for one after the other.
async fn play_in_turn(case: Case, options: &Options) -> Result<CaseResult> {
    let skopos = side(case, Side::Skopos, options).await?;
    Ok(result(case, skopos, side(case, Side::ExternalDns, options).await?))
}

fn result(case: Case, skopos: Outcome, external_dns: Outcome) -> CaseResult {
    CaseResult {
        id: case.id.to_owned(),
        row: case.row.to_owned(),
        title: case.title.to_owned(),
        skopos,
        external_dns,
    }
}

/// Plays a case for one of them, in a world of its own.
async fn side(case: Case, side: Side, options: &Options) -> Result<Outcome> {
    let mut world = World::start(side, case.setting).await?;
    let about = || format!("{} with {}", case.id, side.name());
    let played = (case.play)(&mut world).map_err(|error| error.context(about())).await;
    if let Some(folder) = &options.logs {
        keep_log(&world, folder, case.id)?;
    }
    if let Ok(outcome) = &played {
        println!("{:12} {:12} {}", case.id, side.name(), outcome.said);
    }
    world.stop().await?;
    played
}

fn keep_log(world: &World, folder: &Path, case: &str) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    world.notifier.keep_log(folder, case)
}

/// Puts new results beside those that are kept, in the order of the cases.
fn keep(new: Vec<CaseResult>) -> Result<()> {
    let kept = results::read::<Results>(&file()).map(|results| results.cases).unwrap_or_default();
    let of = |id: &str| new.iter().chain(&kept).find(|result| result.id == id).cloned();
    let cases = cases::all().iter().filter_map(|case| of(case.id)).collect();
    results::write(&file(), &Results { machine: Machine::this(), cases }).context("writing the results")
}

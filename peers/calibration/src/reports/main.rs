//! The promises of Skopos on Kubernetes' own server code, over kernel TCP and TLS: the five reports from the field that it starts
//! from, and what its transport promises. The server is killed and started again, and a gate stands before it.
//!
//! ```text
//!  field, transport ──▶ Scene ──▶ gate ──▶ peers/apiserver, one process for each scene
//! ```

#[path = "../../../../crates/skopos-testserver/tests/calibration/kit/mod.rs"]
mod kit;
#[path = "../real.rs"]
mod real;

mod field;
mod gate;
mod scene;
mod transport;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Parser;
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::real::RealServer;
use crate::scene::Scene;

/// Plays what happened in the field, and what a transport promises, on a server made of Kubernetes' own libraries.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program that `go build` made of peers/apiserver.
    #[arg(long)]
    apiserver: PathBuf,
    /// Only scenes whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
    /// How many at the same time, each with a server of its own; they mostly wait.
    #[arg(long, default_value_t = 8)]
    jobs: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let scenes = field::SCENES.into_iter().chain(transport::SCENES);
    let chosen: Vec<Scene> = scenes.filter(|scene| scene.name.starts_with(&arguments.only)).collect();
    ensure!(!chosen.is_empty(), "no scene's name begins with {:?}", arguments.only);
    let plays = chosen.into_iter().map(|scene| play(scene, &arguments.apiserver));
    let failed = stream::iter(plays)
        .buffer_unordered(arguments.jobs.max(1))
        .filter(|passed| std::future::ready(!passed))
        .count()
        .await;
    ensure!(failed == 0, "{failed} scenes failed");
    Ok(())
}

/// Plays it on a server of its own, and prints what came of it.
async fn play(scene: Scene, apiserver: &Path) -> bool {
    let begin = Instant::now();
    let outcome = on_a_server(scene, apiserver).await;
    let seconds = begin.elapsed().as_secs_f64();
    match &outcome {
        Ok(told) => println!("ok      {:<52} {seconds:>5.1} s  {told}", scene.name),
        Err(error) => println!("FAILED  {:<52} {seconds:>5.1} s  {error:#}", scene.name),
    }
    outcome.is_ok()
}

async fn on_a_server(scene: Scene, apiserver: &Path) -> anyhow::Result<String> {
    let server = RealServer::start(apiserver, scene.flags).await?;
    let outcome = (scene.play)(&server).await;
    server.stop().await?;
    outcome
}

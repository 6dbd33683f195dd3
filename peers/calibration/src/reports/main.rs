//! The five reports from the field that Skopos starts from, on Kubernetes' own server code over kernel TCP and TLS: the same
//! promises as in `crates/skopos/tests/reports.rs`, with a server that is killed and started again, and a gate before it.

#[path = "../../../../crates/skopos-testserver/tests/calibration/kit/mod.rs"]
mod kit;
#[path = "../real.rs"]
mod real;

mod gate;
mod scenes;

use std::path::PathBuf;
use tokio::time::Instant;

use anyhow::bail;
use clap::Parser;

use crate::real::RealServer;
use crate::scenes::Scene;

/// Plays the five reports on a server made of Kubernetes' own libraries.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program that `go build` made of peers/apiserver.
    #[arg(long)]
    apiserver: PathBuf,
    /// Only scenes whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut failed = 0;
    for scene in Scene::ALL.into_iter().filter(|scene| scene.name().starts_with(&arguments.only)) {
        let server = RealServer::start(&arguments.apiserver).await?;
        let begin = Instant::now();
        let outcome = scene.play(&server).await;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(told) => println!("ok      {:<44} {seconds:>5.1} s  {told}", scene.name()),
            Err(error) => {
                failed += 1;
                println!("FAILED  {:<44} {seconds:>5.1} s  {error:#}", scene.name());
            }
        }
        server.stop().await?;
    }
    if failed > 0 {
        bail!("{failed} scenes failed");
    }
    Ok(())
}

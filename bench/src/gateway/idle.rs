//! A fleet of many small clusters in one process, with nothing to do.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::members::KINDS;
use super::setup::Setup;
use crate::figures::{machine, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// How many clusters, for each round.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 300, 1000])]
    clusters: Vec<usize>,
    /// Objects of each of the ten kinds.
    #[arg(long, default_value_t = 5)]
    objects: usize,
    /// For how long it is watched what it uses.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// For how long it is left alone before.
    #[arg(long, default_value_t = 5)]
    settle: u64,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let mut rows = Vec::new();
    for &clusters in &options.clusters {
        rows.push(measure(clusters, &options).await?);
    }
    let header = [
        "clusters",
        "kinds",
        "all live after, s",
        "CPU until live, ms per cluster",
        "resident MiB",
        "KiB per kind",
        "sockets",
        "idle CPU, % of a core",
        "µs of CPU a second per kind",
    ];
    println!("{}", table(header, rows));
    println!(
        "Ten kinds with {} objects in each cluster, TLS; the members run in a process of their own, on the same machine. Idle \
         over {} s. {}.",
        options.objects,
        options.seconds,
        machine()?
    );
    Ok(())
}

async fn measure(clusters: usize, options: &Options) -> Result<[String; 9]> {
    let setup = Setup::new()?;
    let folder = setup.folder("clusters")?;
    let none = setup.folder("none")?;
    let members = [
        "members".to_owned(),
        format!("--folder={}", folder.display()),
        format!("--clusters={clusters}"),
        format!("--objects={}", options.objects),
    ];
    let members = Process::of_self(None, members).await?;
    // What the process itself takes.
    let empty = setup.gateway("empty", &none, json!({}), None).await?;
    let (resident, sockets) = (empty.process.resident_kib()?, empty.process.sockets()?);
    empty.process.stop().await?;

    let kinds = KINDS.map(
        |(group, version, resource, _)| json!({"group": group, "version": version, "resource": resource}),
    );
    let kinds = kinds.map(|mut kind| {
        if kind["group"] == "" {
            kind.as_object_mut().map(|kind| kind.remove("group"));
        }
        kind
    });
    let mut gateway = setup.gateway("idle", &folder, json!({"kinds": kinds}), None).await?;
    let live = gateway.process.ask(&format!("live {clusters} {}", KINDS.len())).await?;
    let until_live = gateway.process.cpu()?;
    tokio::time::sleep(Duration::from_secs(options.settle)).await;
    let cpu = gateway.process.cpu()?;
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let idle = (gateway.process.cpu()? - cpu).as_secs_f64() / options.seconds as f64;
    let resident = gateway.process.resident_kib()?.saturating_sub(resident);
    let sockets = gateway.process.sockets()?.saturating_sub(sockets);
    gateway.process.stop().await?;
    members.stop().await?;
    let kinds = clusters * KINDS.len();
    Ok([
        clusters.to_string(),
        kinds.to_string(),
        format!("{:.1}", live.parse::<f64>()? / 1000.0),
        format!("{:.1}", until_live.as_secs_f64() * 1000.0 / clusters as f64),
        format!("{:.0}", resident as f64 / 1024.0),
        format!("{:.1}", resident as f64 / kinds as f64),
        sockets.to_string(),
        format!("{:.1}", idle * 100.0),
        format!("{:.0}", idle * 1e6 / kinds as f64),
    ])
}

//! Many pods in one gateway, compressed and not: memory, the time until they are there, and what reads and events cost.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::Args;
use http::header;
use serde_json::json;

use super::daemon::GetTimes;
use super::setup::{Gateway, Setup};
use crate::figures::{machine, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// Number of clusters.
    #[arg(long, default_value_t = 10)]
    clusters: usize,
    /// Pods in each.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Number of objects that are read by name.
    #[arg(long, default_value_t = 100_000)]
    gets: usize,
    /// Number of changes of pods of one cluster.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
    /// Rate of these changes, per second.
    #[arg(long, default_value_t = 2_000.0)]
    rate: f64,
}

const LIST: &str = "/clusters/c0000/api/v1/pods";

pub(crate) async fn run(options: Options) -> Result<()> {
    let setup = Setup::new()?;
    let (folder, none) = (setup.folder("clusters")?, setup.folder("none")?);
    let members = [
        "members".to_owned(),
        format!("--folder={}", folder.display()),
        format!("--clusters={}", options.clusters),
        format!("--pods={}", options.pods),
    ];
    let mut members = Process::of_self(None, members).await?;
    // What the process itself takes.
    let empty = setup.gateway("empty", &none, json!({}), None).await?;
    let own = empty.process.resident_kib()?;
    empty.process.stop().await?;
    let mut rows = Vec::new();
    for (name, above) in [("compressed", "0"), ("plain", "1024Gi")] {
        rows.push(measure(&setup, &folder, &mut members, &options, own, name, above).await?);
    }
    members.stop().await?;
    let header = [
        "objects",
        "resident MiB",
        "bytes per pod",
        "all live after, s",
        "CPU until live, µs per pod",
        "get, µs (p50 / p99)",
        "get as JSON, µs (p50 / p99)",
        "protobuf list, pods per CPU second",
        "JSON list, pods per CPU second",
        "CPU per event, µs",
    ];
    println!("{}", table(header, rows));
    println!(
        "{} clusters of {} pods each over TLS, in a process of their own on the same machine; managedFields are dropped. Bytes per \
         pod without the {} MiB of a gateway without clusters. The first JSON list and the first protobuf list after the start; {} \
         events at {} a second. {}.",
        options.clusters,
        options.pods,
        own / 1024,
        options.events,
        options.rate,
        machine()?
    );
    Ok(())
}

async fn measure(
    setup: &Setup,
    folder: &Path,
    members: &mut Process,
    options: &Options,
    own: u64,
    name: &str,
    above: &str,
) -> Result<[String; 10]> {
    let cache = json!({"kinds": [{"resource": "pods"}], "bytesPerCluster": "8Gi", "compactAbove": above,
        "managedFields": "Drop", "firstUseDeadline": "300s", "compressedBytes": "1Mi"});
    let mut gateway = setup.gateway(name, folder, cache, None).await?;
    let live = gateway.process.ask(&format!("live {} 1", options.clusters)).await?;
    let until_live = gateway.process.cpu()?;
    let resident = gateway.process.resident_kib()?;
    let pods = (options.clusters * options.pods) as f64;
    let times: GetTimes = gateway.process.ask_for(&format!("gets {}", options.gets)).await?;
    let protobuf = list(&gateway, "application/vnd.kubernetes.protobuf", options.pods).await?;
    let json = list(&gateway, "application/json", options.pods).await?;
    let cpu = gateway.process.cpu()?;
    members.ask(&format!("churn c0000 {} {}", options.events, options.rate)).await?;
    let per_event = (gateway.process.cpu()? - cpu).as_secs_f64() * 1e6 / options.events as f64;
    gateway.process.stop().await?;
    Ok([
        name.to_owned(),
        format!("{:.0}", resident as f64 / 1024.0),
        format!("{:.0}", resident.saturating_sub(own) as f64 * 1024.0 / pods),
        format!("{:.1}", live.parse::<f64>()? / 1000.0),
        format!("{:.1}", until_live.as_secs_f64() * 1e6 / pods),
        format!("{:.1} / {:.1}", times.held[0], times.held[1]),
        format!("{:.1} / {:.1}", times.json[0], times.json[1]),
        format!("{protobuf:.0}"),
        format!("{json:.0}"),
        format!("{per_event:.1}"),
    ])
}

/// Lists the pods of a cluster; returns how many of them a second of the gateway's CPU is worth.
async fn list(gateway: &Gateway, accept: &'static str, pods: usize) -> Result<f64> {
    let mut connection = gateway.target.connect().await?;
    let cpu = gateway.process.cpu()?;
    let mut lists = 0;
    // The kernel counts CPU time in hundredths of a second.
    while lists < 3 {
        let bytes = connection.measure(LIST, &[(header::ACCEPT, accept)]).await?;
        ensure!(bytes > 500 * pods as u64, "{bytes} bytes are not {pods} pods");
        lists += 1;
    }
    Ok((lists * pods) as f64 / (gateway.process.cpu()? - cpu).as_secs_f64())
}

//! The gateway's process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use skopos_fleet::{Condition, Paused, PausedBy};
use skopos_gateway::Daemon;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long anything may take that is waited for.
const TIMEOUT: Duration = Duration::from_secs(500);

/// Serves as a configuration file says until standard input ends. Commands:
///
/// - `live CLUSTERS KINDS` waits until so many clusters are live with so many live kinds each, and says how many
///   milliseconds after the start that was
/// - `pause NAME` says that the cluster is switched off
/// - `dials` says how many connections were begun to each cluster
pub(crate) async fn run(config: PathBuf) -> Result<()> {
    let started = Instant::now();
    let daemon = Daemon::from_file(config).await?;
    let (url, fleet) = (daemon.url(), daemon.fleet().clone());
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(daemon.run(stop.clone()));
    println!("ready {url}");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["live", clusters, kinds] => {
                let (clusters, kinds): (usize, usize) = (clusters.parse()?, kinds.parse()?);
                let live = || {
                    let members = fleet.members();
                    let mut live: Vec<_> = members.values().collect();
                    live.retain(|cluster| cluster.state().condition == Condition::Live);
                    if live.len() < clusters {
                        return live.len();
                    }
                    live.retain(|cluster| {
                        let kept = cluster.kinds();
                        kept.iter().filter(|kind| kind.informer().freshness().is_live()).count() >= kinds
                    });
                    live.len()
                };
                while live() < clusters {
                    ensure!(started.elapsed() < TIMEOUT, "only {} are live", live());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                println!("{}", started.elapsed().as_millis());
            }
            ["pause", name] => {
                let cluster = loop {
                    // The folder is read while it runs.
                    if let Some(cluster) = fleet.get(name) {
                        break cluster;
                    }
                    ensure!(started.elapsed() < TIMEOUT, "there is no cluster {name}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                };
                cluster.pause(Paused { by: PausedBy::ScaledDown, since: None });
                println!("done");
            }
            ["dials"] => {
                let dials = |cluster: &skopos_fleet::Cluster| {
                    cluster.stats().transport.map_or(0, |transport| transport.dials)
                };
                let dials: BTreeMap<String, u64> =
                    fleet.members().iter().map(|(id, cluster)| (id.to_string(), dials(cluster))).collect();
                println!("{}", serde_json::to_string(&dials)?);
            }
            _ => bail!("unknown command {line:?}"),
        }
    }
    stop.cancel();
    while running.join_next().await.is_some() {}
    Ok(())
}

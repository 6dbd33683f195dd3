//! The gateway's process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use skopos::{ObjectKey, RawObject, Snapshot};
use skopos_fleet::{Condition, Fleet, Paused, PausedBy};
use skopos_gateway::Daemon;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Durations of reads of single objects, in microseconds: the median and the 99th percentile.
#[derive(Serialize, Deserialize)]
pub(crate) struct GetTimes {
    /// As they came.
    pub(crate) held: [f64; 2],
    /// As JSON.
    pub(crate) json: [f64; 2],
}

/// How long anything may take that is waited for.
const TIMEOUT: Duration = Duration::from_secs(500);

/// Serves as a configuration file says until standard input ends. Commands:
///
/// - `live CLUSTERS KINDS` waits until so many clusters are live with so many live kinds each, and says how many
///   milliseconds after the start that was
/// - `pause NAME` says that the cluster is switched off
/// - `gets COUNT` reads COUNT objects from memory, and prints the durations ([`GetTimes`])
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
            ["gets", count] => println!("{}", serde_json::to_string(&gets(&fleet, count.parse()?))?),
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

/// Reads objects of all clusters, spread over all that there are.
fn gets(fleet: &Fleet, count: usize) -> GetTimes {
    let clusters = fleet.members();
    let snapshots: Vec<Snapshot<RawObject>> = clusters
        .values()
        .flat_map(|cluster| cluster.kinds())
        .map(|kind| kind.informer().snapshot())
        .collect();
    let objects: usize = snapshots.iter().map(Snapshot::len).sum();
    let stride = (objects / count.max(1)).max(1);
    let mut keys: Vec<(usize, ObjectKey)> = Vec::new();
    for (at, snapshot) in snapshots.iter().enumerate() {
        keys.extend(snapshot.iter().step_by(stride).map(|object| (at, object.key().clone())));
    }
    fastrand::shuffle(&mut keys);
    let timed = |read: fn(&RawObject) -> usize| {
        let mut times: Vec<f64> = keys
            .iter()
            .map(|(at, key)| {
                let begun = Instant::now();
                let read = snapshots[*at].get(key).map(|object| read(object.raw()));
                let took = begun.elapsed().as_secs_f64() * 1e6;
                std::hint::black_box(read);
                took
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
        [at(0.5), at(0.99)]
    };
    GetTimes { held: timed(|object| object.content().len()), json: timed(|object| object.json().len()) }
}

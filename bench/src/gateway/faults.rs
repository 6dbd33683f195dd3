//! Report R1 at scale, over sockets: what reads of healthy clusters cost beside many that are ill.
//!
//! Two gateways run over the same healthy clusters. Those that are ill in the first are well in the second; both get the
//! same requests, in turns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::http::{Connection, TIMEOUT, Target};
use super::setup::{Gateway, Setup};
use crate::figures::{Millis, Times, machine, median, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// How many clusters.
    #[arg(long, default_value_t = 200)]
    clusters: usize,
    /// How many of them are ill in each way: packets are lost, connections are refused, answers take 5 s, paused.
    #[arg(long, default_value_t = 20)]
    ill: usize,
    /// Pods of each.
    #[arg(long, default_value_t = 50)]
    pods: usize,
    /// How long each gateway is asked, each time.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How often, in turns: with fewer reads the p99 is that of how often they met a list of the whole fleet.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Reads of healthy clusters a second.
    #[arg(long, default_value_t = 300.0)]
    rate: f64,
    /// Reads a second of clusters that are ill in the first gateway.
    #[arg(long, default_value_t = 20.0)]
    ill_rate: f64,
    /// Lists over all clusters a second.
    #[arg(long, default_value_t = 1.0)]
    fleet_rate: f64,
    /// For how long it is counted what the ill ones are asked and how often they are dialed, when nobody reads.
    #[arg(long, default_value_t = 30)]
    count_seconds: u64,
}

/// What one gateway's turns gave.
#[derive(Default)]
struct Side {
    healthy: Times,
    p99s: Vec<f64>,
    fleet: Times,
    ill: Times,
    failed: usize,
    /// Clusters that the last list over all named as missing.
    missing: usize,
}

const WAYS: [&str; 4] = ["hole", "refuses", "slow", "off"];

pub(crate) async fn run(options: Options) -> Result<()> {
    let healthy = options.clusters - WAYS.len() * options.ill;
    let setup = Setup::new()?;
    let (ill_folder, well_folder) = (setup.folder("ill")?, setup.folder("well")?);
    let mut members = start_members(&well_folder, &options).await?;
    let mut ill = Vec::new();
    for number in 0..options.clusters {
        let (name, file) = (format!("c{number:04}"), format!("c{number:04}.yaml"));
        let Some(way) = number.checked_sub(healthy).map(|n| n / options.ill) else {
            std::fs::copy(well_folder.join(&file), ill_folder.join(&file))?;
            continue;
        };
        // Of those that lose packets, half take connections.
        let way = if WAYS[way] == "hole" && number % 2 == 0 { "mute" } else { WAYS[way] };
        members.ask(&format!("ill {} {way} {name}", ill_folder.display())).await?;
        ill.push((name, way));
    }

    let starts = starts(&setup, &ill_folder, &well_folder, healthy).await?;
    let mut beside_ill = setup.gateway("ill", &ill_folder, json!({}), None).await?;
    let mut alone = setup.gateway("well", &well_folder, json!({}), None).await?;
    for (name, _) in ill.iter().filter(|(_, way)| *way == "off") {
        beside_ill.process.ask(&format!("pause {name}")).await?;
    }
    for (gateway, there) in [(&beside_ill, healthy), (&alone, options.clusters)] {
        let answered = touch_all(gateway, options.clusters).await?;
        ensure!(answered >= there, "{answered} clusters answer instead of {there}");
    }
    beside_ill.process.ask(&format!("live {healthy} 1")).await?;
    alone.process.ask(&format!("live {} 1", options.clusters)).await?;

    let (mut a, mut b) = (Side::default(), Side::default());
    for round in 0..options.rounds {
        let turns = if round % 2 == 0 { [true, false] } else { [false, true] };
        for beside in turns {
            let (gateway, side) = if beside { (&beside_ill, &mut a) } else { (&alone, &mut b) };
            turn(gateway, side, &options, healthy).await?;
        }
    }
    print(&options, healthy, &a, &b, &starts)?;
    count(&mut members, &mut beside_ill, &ill, &options).await?;
    beside_ill.process.stop().await?;
    alone.process.stop().await?;
    members.stop().await
}

async fn start_members(folder: &Path, options: &Options) -> Result<Process> {
    let arguments = [
        "members".to_owned(),
        format!("--folder={}", folder.display()),
        format!("--clusters={}", options.clusters),
        format!("--pods={}", options.pods),
    ];
    Process::of_self(None, arguments).await
}

/// Seconds from the start of a gateway's process until it says that it is ready, and until all healthy clusters have
/// answered a first read.
struct Start {
    ready: f64,
    served: f64,
}

/// Some starts, in turns: with the ill, and with all well.
async fn starts(setup: &Setup, ill: &Path, well: &Path, healthy: usize) -> Result<[Vec<Start>; 2]> {
    let mut starts = [Vec::new(), Vec::new()];
    for round in 0..3 {
        for (side, folder) in [ill, well].into_iter().enumerate() {
            let begun = Instant::now();
            let gateway = setup.gateway(&format!("start-{round}-{side}"), folder, json!({}), None).await?;
            let mut connection = gateway.target.connect().await?;
            while !connection.get("/readyz", &[]).await?.status.is_success() {
                ensure!(begun.elapsed() < TIMEOUT, "the gateway does not become ready");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let ready = begun.elapsed().as_secs_f64();
            ensure!(touch_all(&gateway, healthy).await? == healthy, "a healthy cluster does not answer");
            starts[side].push(Start { ready, served: begun.elapsed().as_secs_f64() });
            drop(connection);
            gateway.process.stop().await?;
        }
    }
    Ok(starts)
}

/// Reads pods of the first `count` clusters once, all at the same time; how many gave them.
async fn touch_all(gateway: &Gateway, count: usize) -> Result<usize> {
    let mut touching = JoinSet::new();
    let begun = Instant::now();
    for number in 0..count {
        let target = gateway.target.clone();
        touching.spawn(async move {
            let mut connection = target.connect().await?;
            // The folder is read when the gateway starts, cluster by cluster.
            loop {
                let answer = connection.get(&pods_of(number), &[]).await?;
                if answer.status != 404 && answer.status != 403 {
                    return anyhow::Ok(answer.status.is_success());
                }
                ensure!(begun.elapsed() < TIMEOUT, "{}: {}", pods_of(number), answer.status);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let mut answered = 0;
    while let Some(touched) = touching.join_next().await {
        answered += usize::from(touched??);
    }
    Ok(answered)
}

fn pods_of(number: usize) -> String {
    format!("/clusters/c{number:04}/api/v1/pods")
}

/// What is asked for by one of many at an even rate.
struct Load {
    rate: f64,
    lanes: usize,
    seconds: u64,
}

/// One gateway's turn.
async fn turn(gateway: &Gateway, side: &mut Side, options: &Options, healthy: usize) -> Result<()> {
    let load = |rate: f64, lanes| Load { rate, lanes, seconds: options.seconds };
    let total = options.clusters;
    let well = move |n: usize| pods_of(n * 7 % healthy);
    let sick = move |n: usize| pods_of(healthy + n * 7 % (total - healthy));
    let all = |_: usize| "/fleet/api/v1/pods?limit=500".to_owned();
    let (of_healthy, of_ill, of_fleet) = tokio::join!(
        load(options.rate, 32).put(&gateway.target, well),
        load(options.ill_rate, 64).put(&gateway.target, sick),
        load(options.fleet_rate, 8).put(&gateway.target, all),
    );
    let (of_healthy, of_ill, of_fleet) = (of_healthy?, of_ill?, of_fleet?);
    side.failed += of_healthy.failed + of_fleet.failed;
    side.p99s.push(of_healthy.times.at(0.99).as_secs_f64());
    side.healthy.extend(&of_healthy.times);
    side.ill.extend(&of_ill.times);
    side.fleet.extend(&of_fleet.times);
    let mut connection = gateway.target.connect().await?;
    let list = connection.get("/fleet/api/v1/pods?limit=1", &[]).await?;
    let list: Value = serde_json::from_slice(&list.body)?;
    let named = |name: &str| list["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned();
    side.missing = named("skopos.dev/missing").split("; ").filter(|name| !name.is_empty()).count();
    Ok(())
}

/// What a load saw.
#[derive(Default)]
struct Seen {
    times: Times,
    failed: usize,
}

impl Load {
    /// Asks for `path(0)`, `path(1)`, ... at an even rate, over connections of their own. Each request counts from its start.
    async fn put(
        self,
        target: &Target,
        path: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Result<Seen> {
        let path = Arc::new(path);
        let begun = Instant::now() + Duration::from_millis(100);
        let count = (self.rate * self.seconds as f64) as usize;
        let mut lanes = JoinSet::new();
        for lane in 0..self.lanes {
            let (target, path, rate, step) = (target.clone(), path.clone(), self.rate, self.lanes);
            lanes.spawn(async move {
                let mut connection: Connection = target.connect().await?;
                let mut seen = Seen::default();
                for number in (lane..count).step_by(step) {
                    sleep_until(begun + Duration::from_secs_f64(number as f64 / rate)).await;
                    let asked = Instant::now();
                    let answer = connection.get(&path(number), &[]).await?;
                    seen.times.add(asked.elapsed());
                    seen.failed += usize::from(!answer.status.is_success());
                }
                anyhow::Ok(seen)
            });
        }
        let mut all = Seen::default();
        while let Some(seen) = lanes.join_next().await {
            let seen = seen??;
            all.times.extend(&seen.times);
            all.failed += seen.failed;
        }
        Ok(all)
    }
}

fn print(options: &Options, healthy: usize, a: &Side, b: &Side, starts: &[Vec<Start>; 2]) -> Result<()> {
    let row = |name: &str, side: &Side, starts: &[Start]| {
        let start = |figure: fn(&Start) -> f64| median(starts.iter().map(figure).collect());
        [
            name.to_owned(),
            side.healthy.len().to_string(),
            Millis(side.healthy.at(0.5)).to_string(),
            Millis(side.healthy.at(0.99)).to_string(),
            format!("{:.2}", median(side.p99s.clone()) * 1000.0),
            Millis(side.fleet.at(0.5)).to_string(),
            Millis(side.fleet.at(1.0)).to_string(),
            side.missing.to_string(),
            Millis(side.ill.at(1.0)).to_string(),
            format!("{:.2}", start(|s| s.ready)),
            format!("{:.2}", start(|s| s.served)),
        ]
    };
    let header = [
        "gateway",
        "reads",
        "p50 ms",
        "p99 ms",
        "p99 of a round, median, ms",
        "/fleet p50 ms",
        "/fleet max ms",
        "named missing",
        "reads of the ill, max ms",
        "ready, s",
        "healthy read, s",
    ];
    let ill = format!("{} ill of {}", options.clusters - healthy, options.clusters);
    println!("{}", table(header, [row(&ill, a, &starts[0]), row("all well", b, &starts[1])]));
    let change = |of: fn(&Side) -> f64| (of(a) / of(b) - 1.0) * 100.0;
    println!(
        "p99 of reads of the healthy beside the ill against all well: {:+.1} % (all reads), {:+.1} % (median of rounds); p50: {:+.1} %.",
        change(|side| side.healthy.at(0.99).as_secs_f64()),
        change(|side| median(side.p99s.clone())),
        change(|side| side.healthy.at(0.5).as_secs_f64()),
    );
    println!(
        "{} reads a second of {healthy} healthy clusters with {} pods each, {} of the others, {} of the whole fleet; {} rounds of {} s \
         in turns. {}.",
        options.rate,
        options.pods,
        options.ill_rate,
        options.fleet_rate,
        options.rounds,
        options.seconds,
        machine()?
    );
    ensure!(
        a.failed + b.failed == 0,
        "{} and {} reads of healthy clusters or of the fleet failed",
        a.failed,
        b.failed
    );
    Ok(())
}

/// What the ill ones are asked while the fleet is left alone.
async fn count(
    members: &mut Process,
    gateway: &mut Gateway,
    ill: &[(String, &str)],
    options: &Options,
) -> Result<()> {
    if options.count_seconds == 0 {
        return Ok(());
    }
    let _: BTreeMap<String, u64> = members.ask_for("requests").await?;
    let before: BTreeMap<String, u64> = gateway.process.ask_for("dials").await?;
    tokio::time::sleep(Duration::from_secs(options.count_seconds)).await;
    let requests: BTreeMap<String, u64> = members.ask_for("requests").await?;
    let after: BTreeMap<String, u64> = gateway.process.ask_for("dials").await?;
    let minutes = options.count_seconds as f64 / 60.0;
    let rows = ["hole", "mute", "refuses", "slow", "off"].map(|way| {
        let names: Vec<&String> = ill.iter().filter(|(_, w)| *w == way).map(|(name, _)| name).collect();
        let most = |count: &dyn Fn(&str) -> u64| names.iter().map(|name| count(name)).max().unwrap_or(0);
        let asked = most(&|name| requests.get(name).copied().unwrap_or(0));
        let dialed = most(&|name| {
            after.get(name).copied().unwrap_or(0).saturating_sub(before.get(name).copied().unwrap_or(0))
        });
        let heard =
            if matches!(way, "slow") { format!("{:.1}", asked as f64 / minutes) } else { "-".to_owned() };
        [way.to_owned(), names.len().to_string(), heard, format!("{:.1}", dialed as f64 / minutes)]
    });
    let header =
        ["how it is ill", "clusters", "most HTTP requests a minute", "most connection attempts a minute"];
    println!("{}", table(header, rows));
    Ok(())
}

//! What a consistent read costs: gets of one object from the gateway, as old as its bound lets them be and as new as an API
//! server's, beside the same gets from that API server, by one reader and by many at once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use http::header::{CACHE_CONTROL, HeaderName};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http::{Connection, Target};
use super::setup::Setup;
use crate::figures::{Millis, Times, machine, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// The server of `peers/apiserver`: `go build -o ../bin/apiserver .` there.
    #[arg(long, default_value = "peers/bin/apiserver")]
    apiserver: PathBuf,
    /// How many pods there are.
    #[arg(long, default_value_t = 1_000)]
    pods: usize,
    /// How many readers read at the same time, each without a pause.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1_000])]
    readers: Vec<usize>,
    /// How long each way to read is measured, each time.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often, in turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A way to read.
struct Way {
    name: &'static str,
    target: Target,
    headers: &'static [(HeaderName, &'static str)],
}

/// What was measured of a way with so many readers.
#[derive(Default)]
struct Figures {
    times: Times,
    measured: Duration,
    gateway: Duration,
    member: Duration,
}

/// The context's name in a kubeconfig of the peer.
const CLUSTER: &str = "skopos-peer";

pub(crate) async fn run(options: Options) -> Result<()> {
    let setup = Setup::new()?;
    let kubeconfig = setup.path("peer.kubeconfig");
    let pods = options.pods.to_string();
    let arguments = ["--pods".as_ref(), pods.as_ref(), "--kubeconfig-out".as_ref(), kubeconfig.as_os_str()];
    let member = Process::start(&options.apiserver, None, arguments).await.context("the peer")?;
    let cache = json!({"kinds": [{"resource": "pods"}], "firstUseDeadline": "300s"});
    let mut gateway = setup.gateway_with_tls("reads", &kubeconfig, cache).await?;
    gateway.process.ask("live 1 1").await?;
    let direct = Target::of_kubeconfig(&kubeconfig).await?;
    let through = gateway.target.clone().below(format!("/clusters/{CLUSTER}"));
    let ways = [
        Way { name: "member", target: direct, headers: &[] },
        Way { name: "gateway, bounded", target: through.clone(), headers: &[] },
        Way { name: "gateway, consistent", target: through, headers: &[(CACHE_CONTROL, "no-cache")] },
    ];
    let path = path_of_a_pod(&ways[0].target).await?;

    let mut rows = Vec::new();
    for readers in &options.readers {
        let mut figures: [Figures; 3] = Default::default();
        // The first round warms up.
        for round in 0..=options.rounds {
            for (way, figures) in ways.iter().zip(&mut figures) {
                let one = way.measure(*readers, &path, &options, [&gateway.process, &member]).await?;
                if round > 0 {
                    figures.add(&one);
                }
            }
        }
        let base = figures[0].times.at(0.5);
        rows.extend(ways.iter().zip(&figures).map(|(way, figures)| figures.row(*readers, way.name, base)));
    }
    let header = [
        "readers",
        "read from",
        "reads per second",
        "p50 ms",
        "p99 ms",
        "p50 to member's",
        "gateway's CPU, µs per read",
        "member's CPU, µs per read",
    ];
    println!("{}", table(header, rows));
    println!(
        "One of {} pods by name, HTTP/1.1 over TLS, a connection for each reader, {} rounds of {} s. {}.",
        options.pods,
        options.rounds,
        options.seconds,
        machine()?
    );
    gateway.process.stop().await?;
    member.terminate().await
}

async fn path_of_a_pod(member: &Target) -> Result<String> {
    let list = member.connect().await?.get("/api/v1/pods?limit=1", &[]).await?;
    let list: Value = serde_json::from_slice(&list.body)?;
    let text = |field: &str| list["items"][0]["metadata"][field].as_str().context("the peer has no pods");
    Ok(format!("/api/v1/namespaces/{}/pods/{}", text("namespace")?, text("name")?))
}

impl Way {
    /// Reads for a while with so many readers.
    async fn measure(
        &self,
        readers: usize,
        path: &str,
        options: &Options,
        [gateway, member]: [&Process; 2],
    ) -> Result<Figures> {
        let mut connections = Vec::new();
        for _ in 0..readers {
            connections.push(self.target.connect().await?);
        }
        let (cpu, begun) = ([gateway.cpu()?, member.cpu()?], Instant::now());
        let until = begun + Duration::from_secs(options.seconds);
        let mut running = JoinSet::new();
        for connection in connections {
            running.spawn(read(connection, path.to_owned(), self.headers, until));
        }
        let mut figures = Figures::default();
        while let Some(times) = running.join_next().await {
            figures.times.extend(&times??);
        }
        figures.measured = begun.elapsed();
        [figures.gateway, figures.member] = [gateway.cpu()? - cpu[0], member.cpu()? - cpu[1]];
        Ok(figures)
    }
}

async fn read(
    mut connection: Connection,
    path: String,
    headers: &'static [(HeaderName, &'static str)],
    until: Instant,
) -> Result<Times> {
    let mut times = Times::default();
    while Instant::now() < until {
        let begun = Instant::now();
        let answer = connection.get(&path, headers).await?;
        times.add(begun.elapsed());
        ensure!(answer.status.is_success(), "{path}: {}", answer.status);
        let source = answer.header("skopos-source");
        ensure!(source.is_empty() || source == "memory", "a read was not answered from memory");
    }
    Ok(times)
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.times.extend(&other.times);
        self.measured += other.measured;
        self.gateway += other.gateway;
        self.member += other.member;
    }

    fn row(&self, readers: usize, name: &str, base: Duration) -> [String; 8] {
        let reads = self.times.len() as f64;
        let p50 = self.times.at(0.5);
        let per_read = |cpu: Duration| format!("{:.0}", cpu.as_secs_f64() * 1e6 / reads);
        [
            readers.to_string(),
            name.to_owned(),
            format!("{:.0}", reads / self.measured.as_secs_f64()),
            Millis(p50).to_string(),
            Millis(self.times.at(0.99)).to_string(),
            format!("{:.2}", p50.as_secs_f64() / base.as_secs_f64()),
            per_read(self.gateway),
            per_read(self.member),
        ]
    }
}

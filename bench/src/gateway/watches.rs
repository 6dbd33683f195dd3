//! Many watchers of one kind of one cluster: does each get every event, what does one cost, and does anybody suffer for one
//! that stops reading?

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http::Target;
use super::members::{WRITTEN, now_micros};
use super::setup::Setup;
use crate::figures::{Millis, Times, machine, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// Watchers and events a second, for each round: 10000x5,100x1000.
    #[arg(long, value_delimiter = ',', default_values_t = [Round { watchers: 10_000, rate: 5 }, Round { watchers: 100, rate: 1_000 }])]
    rounds: Vec<Round>,
    /// How long events are sent in each round.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Pods of the cluster.
    #[arg(long, default_value_t = 1_000)]
    pods: usize,
    /// Watches on one connection.
    #[arg(long, default_value_t = 200)]
    per_connection: usize,
    /// Watchers that stop reading, each on a connection of its own, in rounds of 100 events a second and more.
    #[arg(long, default_value_t = 3)]
    stalled: usize,
}

/// So many watchers, and so many events a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    watchers: usize,
    rate: u64,
}

/// What the process of watchers is started with.
#[derive(Args)]
pub(crate) struct WatcherOptions {
    /// The gateway.
    #[arg(long)]
    url: String,
    /// How many.
    #[arg(long)]
    watchers: usize,
    /// On one connection.
    #[arg(long)]
    per_connection: usize,
    /// How many more stop reading after the first event.
    #[arg(long)]
    stalled: usize,
    /// Where events begin.
    #[arg(long)]
    from: String,
}

/// What the watchers saw.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    /// Watches that had ended.
    ended: usize,
    /// The fewest and the most events that one got.
    fewest: u64,
    most: u64,
    /// How many different streams of bytes there were: all got the same if it is one.
    streams: usize,
    bytes: u64,
    /// From the write on the member until a watcher has read it, of every hundredth watcher.
    times: Times,
    /// Of those that stopped reading: how many found their watch ended when they read on, and the most events that one got.
    dropped: usize,
    most_of_dropped: u64,
}

const PATH: &str = "/clusters/c0000/api/v1/pods";

pub(crate) async fn run(options: Options) -> Result<()> {
    let setup = Setup::new()?;
    let folder = setup.folder("clusters")?;
    let members = [
        "members".to_owned(),
        format!("--folder={}", folder.display()),
        "--clusters=1".to_owned(),
        format!("--pods={}", options.pods),
    ];
    let mut members = Process::of_self(None, members).await?;
    let cache = json!({"kinds": [{"resource": "pods"}]});
    let mut gateway = setup.gateway("watches", &folder, cache, None).await?;
    gateway.process.ask("live 1 1").await?;
    let mut rows = Vec::new();
    for round in &options.rounds {
        let mut connection = gateway.target.connect().await?;
        let list = connection.get(&format!("{PATH}?limit=1"), &[]).await?;
        let list: Value = serde_json::from_slice(&list.body)?;
        let from = list["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
        let stalled = if round.rate >= 100 { options.stalled } else { 0 };
        let before = (gateway.process.resident_kib()?, counts(&gateway.target).await?);
        let begun = Instant::now();
        let watchers = [
            "watchers".to_owned(),
            format!("--url={}", gateway.url),
            format!("--watchers={}", round.watchers),
            format!("--per-connection={}", options.per_connection),
            format!("--stalled={stalled}"),
            format!("--from={from}"),
        ];
        let mut watchers = Process::of_self(None, watchers).await?;
        let opening = begun.elapsed();
        let resident = gateway.process.resident_kib()?.saturating_sub(before.0);
        let (cpu, begun) = (gateway.process.cpu()?, Instant::now());
        let events = round.rate * options.seconds;
        members.ask(&format!("churn c0000 {events} {}", round.rate)).await?;
        let report: Report = watchers.ask_for(&format!("report {events}")).await?;
        let (took, cpu) = (begun.elapsed(), gateway.process.cpu()? - cpu);
        let after = counts(&gateway.target).await?;
        watchers.stop().await?;
        let frames = events * round.watchers as u64;
        rows.push([
            round.to_string(),
            format!("{events}"),
            if report.fewest == report.most {
                report.fewest.to_string()
            } else {
                format!("{} to {}", report.fewest, report.most)
            },
            report.streams.to_string(),
            report.ended.to_string(),
            format!("{:.1}", resident as f64 / round.watchers as f64),
            format!("{:.1}", opening.as_secs_f64()),
            (after.encoded - before.1.encoded).to_string(),
            format!("{:.1}", cpu.as_secs_f64() * 1e6 / frames as f64),
            format!("{:.0}", frames as f64 / took.as_secs_f64()),
            Millis(report.times.at(0.5)).to_string(),
            Millis(report.times.at(0.99)).to_string(),
            format!("{} of {stalled} after {}", report.dropped, report.most_of_dropped),
            (after.evicted - before.1.evicted).to_string(),
        ]);
    }
    let header = [
        "watchers x events/s",
        "events",
        "seen by each",
        "different streams",
        "watches ended",
        "KiB per watcher",
        "opened in, s",
        "frames encoded",
        "gateway's CPU, µs per frame",
        "frames a second",
        "p50 ms",
        "p99 ms",
        "stalled and dropped",
        "evictions counted",
    ];
    println!("{}", table(header, rows));
    println!(
        "Pods of about 4 KB, HTTP/2, {} watches on a connection; times from the write on the member until the watcher has it. {}.",
        options.per_connection,
        machine()?
    );
    gateway.process.stop().await?;
    members.stop().await
}

/// What the gateway counts of its watches.
#[derive(Clone, Copy)]
struct Counts {
    encoded: u64,
    evicted: u64,
}

async fn counts(target: &Target) -> Result<Counts> {
    let answer = target.connect().await?.get("/metrics", &[]).await?;
    let text = String::from_utf8(answer.body.to_vec())?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_ascii_whitespace().nth(1));
        let number = number.and_then(|number| number.parse::<f64>().ok());
        number.map(|number| number as u64).with_context(|| format!("no {name} in /metrics"))
    };
    Ok(Counts {
        encoded: value("skopos_watch_frames_encoded_total")?,
        evicted: value("skopos_watch_evictions_total")?,
    })
}

/// One watcher's account.
#[derive(Default)]
struct Account {
    events: u64,
    /// Of all bytes.
    digest: crc32fast::Hasher,
    bytes: u64,
    times: Times,
    ended: bool,
}

/// Watches until standard input ends. `report N` waits until everybody has N events, or for a minute without any.
pub(crate) async fn watchers(options: WatcherOptions) -> Result<()> {
    let mut target = Target::plain(&options.url)?;
    target.http2 = true;
    let path = format!("{PATH}?watch=1&resourceVersion={}&timeoutSeconds=590", options.from);
    let (wanted, expected) = watch::channel(u64::MAX);
    let mut watching = JoinSet::new();
    let mut connections = Vec::new();
    for number in 0..options.watchers {
        if number % options.per_connection == 0 {
            connections.push(target.connect().await?);
        }
        let connection = connections.last_mut().context("one was just opened")?;
        let answer = connection.begin(&path, &[]).await?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        watching.spawn(read(answer.into_body(), number % 100 == 0, expected.clone()));
    }
    let mut stalled = Vec::new();
    target.narrow = true;
    for _ in 0..options.stalled {
        let mut connection = target.connect().await?;
        let answer = connection.begin(&path, &[]).await?;
        stalled.push((connection, answer.into_body()));
    }
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let Some(events) = line.strip_prefix("report ") else { bail!("unknown command {line:?}") };
        let events = events.parse()?;
        wanted.send_replace(events);
        let mut accounts = Vec::new();
        while let Some(account) = watching.join_next().await {
            accounts.push(account?);
        }
        let mut digests: Vec<u32> = accounts.iter().map(|a| a.digest.clone().finalize()).collect();
        digests.sort_unstable();
        digests.dedup();
        let mut times = Times::default();
        accounts.iter().for_each(|account| times.extend(&account.times));
        let (mut dropped, mut most_of_dropped) = (0, 0);
        for (_, body) in std::mem::take(&mut stalled) {
            let account = read(body, false, expected.clone()).await;
            dropped += usize::from(account.ended && account.events < events);
            most_of_dropped = most_of_dropped.max(account.events);
        }
        let report = Report {
            ended: accounts.iter().filter(|account| account.ended).count(),
            fewest: accounts.iter().map(|account| account.events).min().unwrap_or_default(),
            most: accounts.iter().map(|account| account.events).max().unwrap_or_default(),
            streams: digests.len(),
            bytes: accounts.iter().map(|account| account.bytes).sum(),
            times,
            dropped,
            most_of_dropped,
        };
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

/// Reads until it has what is expected, once that is known, or nothing comes any more.
async fn read(mut body: Incoming, timed: bool, mut expected: watch::Receiver<u64>) -> Account {
    const QUIET: Duration = Duration::from_secs(60);
    let mut account = Account::default();
    let mut wanted = *expected.borrow_and_update();
    while account.events < wanted {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            changed = expected.changed(), if wanted == u64::MAX => {
                wanted = *expected.borrow_and_update();
                if changed.is_err() {
                    return account;
                }
                continue;
            }
            () = tokio::time::sleep(QUIET), if wanted != u64::MAX => return account,
        };
        match frame {
            Some(Ok(frame)) => account.take(&frame.into_data().unwrap_or_default(), timed),
            _ => {
                account.ended = true;
                return account;
            }
        }
    }
    account
}

impl Account {
    fn take(&mut self, data: &[u8], timed: bool) {
        self.bytes += data.len() as u64;
        self.digest.update(data);
        self.events += memchr::memchr_iter(b'\n', data).count() as u64;
        if timed {
            let now = now_micros();
            for at in memchr::memmem::find_iter(data, WRITTEN.as_bytes()) {
                // `":"` and the digits.
                let digits =
                    data[at + WRITTEN.len()..].iter().skip(3).take_while(|byte| byte.is_ascii_digit());
                let written = digits.fold(0_u128, |number, digit| number * 10 + u128::from(digit - b'0'));
                if written > 0 {
                    let took = u64::try_from(now.saturating_sub(written)).unwrap_or(u64::MAX);
                    self.times.add(Duration::from_micros(took));
                }
            }
        }
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.watchers, self.rate)
    }
}

impl std::str::FromStr for Round {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (watchers, rate) = text.split_once('x').context("write it as WATCHERSxRATE")?;
        Ok(Self { watchers: watchers.parse()?, rate: rate.parse()? })
    }
}

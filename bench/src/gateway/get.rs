//! One object by its name, many times a second, from a gateway on one core, beside a server that does nothing but answer: what
//! that one takes is the machine's, the HTTP library's and the client's.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, stdin};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::setup::Setup;
use crate::figures::{Millis, Times, machine, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// How many pods there are.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Requests a second.
    #[arg(long, default_value_t = 5_000.0)]
    rate: f64,
    /// For how long each of the two is asked, each time.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often, in turns.
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// Connections of the client.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// The core that the gateway has.
    #[arg(long, default_value = "0")]
    core: String,
    /// The core of the members and of the client, which spins.
    #[arg(long, default_value = "1")]
    others: String,
}

/// What the client saw.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Report {
    times: Times,
    /// How long the request that was sent latest had to wait for its turn: the client's own lateness.
    late: Times,
    seconds: f64,
}

/// What the client's process is started with.
#[derive(Args)]
pub(crate) struct ClientOptions {
    /// The gateway.
    #[arg(long)]
    address: String,
    /// Requests a second.
    #[arg(long)]
    rate: f64,
    /// How many.
    #[arg(long)]
    requests: usize,
    /// Connections.
    #[arg(long)]
    connections: usize,
    /// A file with a path on each line.
    #[arg(long)]
    paths: std::path::PathBuf,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let setup = Setup::new()?;
    let folder = setup.folder("clusters")?;
    let pods = options.pods.to_string();
    let members = [
        "members".as_ref(),
        "--folder".as_ref(),
        folder.as_os_str(),
        "--clusters=1".as_ref(),
        "--pods".as_ref(),
        pods.as_ref(),
    ];
    let members = Process::of_self(Some(&options.others), members).await?;
    let cache = json!({"kinds": [{"resource": "pods"}]});
    let mut gateway = setup.gateway("get", &folder, cache, Some(&options.core)).await?;
    gateway.process.ask("live 1 1").await?;

    let mut connection = gateway.target.connect().await?;
    let list = connection.get("/clusters/c0000/api/v1/pods", &[]).await?;
    let list: Value = serde_json::from_slice(&list.body)?;
    let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let paths: Vec<String> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|pod| {
            format!("/clusters/c0000/api/v1/namespaces/{}/pods/{}", text(pod, "namespace"), text(pod, "name"))
        })
        .collect();
    ensure!(paths.len() == options.pods, "{} pods are in memory", paths.len());
    let file = setup.path("paths");
    std::fs::write(&file, paths.join("\n"))?;

    let pod = connection.get(&paths[0], &[]).await?.body;
    let answer = setup.path("answer");
    std::fs::write(&answer, &pod)?;
    let control = ["answers".as_ref(), "--file".as_ref(), answer.as_os_str()];
    let control = Process::of_self(Some(&options.core), control).await?;

    let mut sides = [
        Side::new("the gateway", &gateway.process, gateway.url.trim_start_matches("http://")),
        Side::new("only answers", &control, &control.ready),
    ];
    for side in &mut sides {
        // What is done once is not measured.
        side.turn(&options, &file, 2).await?;
        (side.report, side.cpu) = Default::default();
    }
    for _ in 0..options.rounds {
        for side in &mut sides {
            side.turn(&options, &file, options.seconds).await?;
        }
    }
    let header = [
        "server",
        "requests per second",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "its CPU, µs per request",
        "of its core",
        "client late, p99 ms",
    ];
    println!("{}", table(header, sides.iter().map(Side::row)));
    println!(
        "{} pods, {} connections, HTTP/1.1; each request counts from the time at which it was due. {}.",
        options.pods,
        options.connections,
        machine()?
    );
    drop(sides);
    control.stop().await?;
    gateway.process.stop().await?;
    members.stop().await
}

/// One of the two servers, and what the client saw of it.
struct Side<'a> {
    name: &'static str,
    server: &'a Process,
    address: &'a str,
    report: Report,
    cpu: Duration,
}

/// What the process is started with that only answers.
#[derive(Args)]
pub(crate) struct AnswersOptions {
    /// What it answers.
    #[arg(long)]
    file: std::path::PathBuf,
}

/// Answers everything with the same bytes, as if they were a gateway's, until standard input ends.
pub(crate) async fn answers(options: AnswersOptions) -> Result<()> {
    let body = Bytes::from(std::fs::read(options.file)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    let mut input = stdin();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = input.read_u8() => return Ok(()),
        };
        stream.set_nodelay(true)?;
        let body = body.clone();
        let service = service_fn(move |_| {
            let mut answer = Response::new(Full::new(body.clone()));
            let headers = answer.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert("skopos-source", HeaderValue::from_static("memory"));
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new());
        connections.spawn(builder.serve_connection(TokioIo::new(stream), service));
    }
}

/// A connection that is asked one thing at a time.
struct Lane {
    stream: TcpStream,
    /// When the request that it answers was due.
    due: Option<Instant>,
    read: Vec<u8>,
}

/// Sends requests at their times and reads the answers, all in one thread that never sleeps: whoever sleeps wakes late.
pub(crate) fn client(options: &ClientOptions) -> Result<()> {
    let paths = std::fs::read_to_string(&options.paths)?;
    let paths: Vec<&str> = paths.lines().collect();
    let mut lanes =
        (0..options.connections).map(|_| Lane::open(&options.address)).collect::<Result<Vec<_>>>()?;
    let mut report = Report { times: Times::default(), late: Times::default(), seconds: 0.0 };
    let begun = Instant::now();
    let due = |number: usize| begun + Duration::from_secs_f64(number as f64 / options.rate);
    let mut sent = 0;
    while report.times.len() < options.requests {
        let now = Instant::now();
        if sent < options.requests
            && due(sent) <= now
            && let Some(lane) = lanes.iter_mut().find(|lane| lane.due.is_none())
        {
            // A stride that is prime to the number of paths visits all of them in an order that no cache likes.
            lane.send(paths[sent.wrapping_mul(7_919) % paths.len()], &options.address)?;
            lane.due = Some(due(sent));
            report.late.add(now - due(sent));
            sent += 1;
        }
        for lane in &mut lanes {
            if lane.due.is_some() && lane.has_answer()? {
                let due = lane.due.take().context("it was asked")?;
                report.times.add(due.elapsed());
            }
        }
        let due = Duration::from_secs_f64(options.requests as f64 / options.rate);
        let limit = due * 5 + Duration::from_secs(10);
        ensure!(
            begun.elapsed() < limit,
            "{} answers in {limit:?}: the rate is not to be had",
            report.times.len()
        );
    }
    report.seconds = begun.elapsed().as_secs_f64();
    println!("ready {}", serde_json::to_string(&report)?);
    Ok(())
}

impl<'a> Side<'a> {
    fn new(name: &'static str, server: &'a Process, address: &'a str) -> Self {
        Self { name, server, address, report: Report::default(), cpu: Duration::ZERO }
    }

    /// Asks it for so many seconds.
    async fn turn(&mut self, options: &Options, paths: &Path, seconds: u64) -> Result<()> {
        let arguments = [
            "get-client".to_owned(),
            format!("--address={}", self.address),
            format!("--rate={}", options.rate),
            format!("--requests={}", (options.rate * seconds as f64) as usize),
            format!("--connections={}", options.connections),
            format!("--paths={}", paths.display()),
        ];
        let cpu = self.server.cpu()?;
        let client = Process::of_self(Some(&options.others), arguments).await?;
        self.cpu += self.server.cpu()? - cpu;
        let report: Report = serde_json::from_str(&client.ready)?;
        self.report.times.extend(&report.times);
        self.report.late.extend(&report.late);
        self.report.seconds += report.seconds;
        client.stop().await
    }

    fn row(&self) -> [String; 9] {
        let Report { times, late, seconds } = &self.report;
        [
            self.name.to_owned(),
            format!("{:.0}", times.len() as f64 / seconds),
            Millis(times.at(0.5)).to_string(),
            Millis(times.at(0.99)).to_string(),
            Millis(times.at(0.999)).to_string(),
            Millis(times.at(1.0)).to_string(),
            format!("{:.1}", self.cpu.as_secs_f64() * 1e6 / times.len() as f64),
            format!("{:.0} %", self.cpu.as_secs_f64() / seconds * 100.0),
            Millis(late.at(0.99)).to_string(),
        ]
    }
}

impl Lane {
    fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, due: None, read: Vec::new() })
    }

    fn send(&mut self, path: &str, host: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\n\r\n");
        // A request is smaller than any buffer.
        Ok(self.stream.write_all(request.as_bytes())?)
    }

    /// Takes in what has come; says whether the answer is whole.
    fn has_answer(&mut self) -> Result<bool> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => bail!("the gateway closed a connection"),
            Ok(read) => self.read.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let Some(head) = self.read.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(false);
        };
        let text = std::str::from_utf8(&self.read[..head])?;
        ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
        ensure!(text.contains("skopos-source: memory"), "not from memory: {text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.with_context(|| format!("no length: {text}"))?.trim().parse()?;
        let whole = self.read.len() >= head + 4 + length;
        if whole {
            self.read.clear();
        }
        Ok(whole)
    }
}

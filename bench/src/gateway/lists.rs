//! A long list from the gateway's memory, beside the same list from Kubernetes' own server libraries: the same request, the
//! same bytes, in one run.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use flate2::read::GzDecoder;
use http::header;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http::{Connection, Target};
use super::setup::Setup;
use crate::figures::{machine, median, table};
use crate::process::Process;

#[derive(Args)]
pub(crate) struct Options {
    /// The server of `peers/apiserver`: `go build -o ../bin/apiserver .` there.
    #[arg(long, default_value = "peers/bin/apiserver")]
    apiserver: PathBuf,
    /// How many pods are listed.
    #[arg(long, default_value_t = 50_000)]
    pods: usize,
    /// How many clients list at the same time.
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// How long each server is asked for each form, each time.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// How often everything is measured, in turns; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// HTTP/2 instead of HTTP/1.1.
    #[arg(long)]
    http2: bool,
}

/// In which form a list is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Gzip,
    Protobuf,
}

/// One server in one form, for a while.
#[derive(Clone, Copy)]
struct Figures {
    lists_per_second: f64,
    /// CPU of the server.
    cpu_ms_per_list: f64,
    /// As sent.
    mib_per_list: f64,
}

const PATH: &str = "/api/v1/pods";

/// The context's name in a kubeconfig of the peer.
const CLUSTER: &str = "skopos-peer";

pub(crate) async fn run(options: Options) -> Result<()> {
    let setup = Setup::new()?;
    let kubeconfig = setup.path("peer.kubeconfig");
    let pods = options.pods.to_string();
    let arguments = [
        "--pods".as_ref(),
        pods.as_ref(),
        "--managed-fields=false".as_ref(),
        "--kubeconfig-out".as_ref(),
        kubeconfig.as_os_str(),
    ];
    let peer = Process::start(&options.apiserver, None, arguments).await.context("the peer")?;
    let cache = json!({"bytesPerCluster": "8Gi", "compressedBytes": "2Gi",
        "kinds": [{"resource": "pods"}], "firstUseDeadline": "300s"});
    let gateway = setup.gateway_with_tls("lists", &kubeconfig, cache).await?;
    let both = [
        ("apiserver", &peer, Target::of_kubeconfig(&kubeconfig).await?),
        ("skopos", &gateway.process, gateway.target.clone().below(format!("/clusters/{CLUSTER}"))),
    ];
    let both = both.map(|(name, process, mut target)| {
        target.http2 = options.http2;
        (name, process, target)
    });
    let bytes = same_bytes(&both[0].2, &both[1].2).await?;

    let mut measured = Vec::new();
    for _ in 0..options.rounds {
        for form in Form::ALL {
            for (name, process, target) in &both {
                let figures = measure(process, target, form, &options).await?;
                measured.push((form, *name, figures));
            }
        }
    }
    print(&options, bytes, &measured)?;
    gateway.process.stop().await?;
    peer.terminate().await
}

/// Lists with each server in each form: all must be the same when unpacked. How many bytes that are.
async fn same_bytes(peer: &Target, gateway: &Target) -> Result<usize> {
    let mut seen: Option<(usize, Vec<u8>)> = None;
    let mut protobuf: Option<Vec<u8>> = None;
    for (name, target) in [("peer", peer), ("gateway", gateway)] {
        let mut connection = target.connect().await?;
        // The first list with gzip compresses; that is not what a list costs.
        for form in [Form::Plain, Form::Gzip] {
            let answer = connection.get(PATH, form.headers()).await?;
            ensure!(answer.status.is_success(), "{name}: {}", answer.status);
            ensure!(name == "peer" || answer.header("skopos-source") == "memory", "it was not in memory");
            ensure!((answer.header("content-encoding") == "gzip") == (form == Form::Gzip), "{name}: no gzip");
            let (len, digest) = unpacked(form, &answer.body)?;
            if let Some((known, same)) = &seen {
                ensure!(
                    *known == len && *same == digest,
                    "{name} sent {len} other bytes than the {known} before"
                );
            }
            seen = Some((len, digest));
        }
        let answer = connection.get(PATH, Form::Protobuf.headers()).await?;
        let (len, digest) = unpacked(Form::Protobuf, &answer.body)?;
        let same = *protobuf.get_or_insert_with(|| digest.clone()) == digest;
        ensure!(same, "{name} sent {len} bytes of protobuf that differ from those before");
    }
    Ok(seen.map_or(0, |(len, _)| len))
}

fn unpacked(form: Form, body: &Bytes) -> Result<(usize, Vec<u8>)> {
    let mut hasher = Sha256::new();
    let mut len = 0;
    match form {
        Form::Plain | Form::Protobuf => {
            hasher.update(body);
            len = body.len();
        }
        Form::Gzip => {
            let mut decoder = GzDecoder::new(&**body);
            let mut buffer = vec![0; 1 << 20];
            loop {
                match decoder.read(&mut buffer)? {
                    0 => break,
                    read => {
                        hasher.update(&buffer[..read]);
                        len += read;
                    }
                }
            }
        }
    }
    Ok((len, hasher.finalize().to_vec()))
}

async fn measure(process: &Process, target: &Target, form: Form, options: &Options) -> Result<Figures> {
    let mut clients = JoinSet::new();
    let mut connections: Vec<Connection> = Vec::new();
    for _ in 0..options.clients {
        connections.push(target.connect().await?);
    }
    let (cpu, begun) = (process.cpu()?, Instant::now());
    let until = begun + Duration::from_secs(options.seconds);
    for mut connection in connections {
        clients.spawn(async move {
            let (mut lists, mut bytes) = (0_u64, 0_u64);
            while Instant::now() < until {
                bytes += connection.measure(PATH, form.headers()).await?;
                lists += 1;
            }
            anyhow::Ok((lists, bytes))
        });
    }
    let (mut lists, mut bytes) = (0, 0);
    while let Some(done) = clients.join_next().await {
        let done = done??;
        lists += done.0;
        bytes += done.1;
    }
    let (took, cpu) = (begun.elapsed(), process.cpu()? - cpu);
    Ok(Figures {
        lists_per_second: lists as f64 / took.as_secs_f64(),
        cpu_ms_per_list: cpu.as_secs_f64() * 1000.0 / lists as f64,
        mib_per_list: bytes as f64 / lists as f64 / f64::from(1 << 20),
    })
}

fn print(options: &Options, bytes: usize, measured: &[(Form, &str, Figures)]) -> Result<()> {
    let of = |form: Form, name: &str, figure: fn(&Figures) -> f64| {
        let rounds = measured.iter().filter(|(f, n, _)| *f == form && *n == name);
        median(rounds.map(|(_, _, figures)| figure(figures)).collect())
    };
    let rows = Form::ALL.into_iter().flat_map(|form| {
        ["apiserver", "skopos"].map(|name| {
            let with = |figure: fn(&Figures) -> f64, digits: usize| {
                let (value, base) = (of(form, name, figure), of(form, "apiserver", figure));
                format!("{value:.digits$} ({:.*})", if value > base { 1 } else { 3 }, value / base)
            };
            let sent = format!("{:.1}", of(form, name, |f| f.mib_per_list));
            [
                form.name().to_owned(),
                name.to_owned(),
                with(|f| f.lists_per_second, 2),
                with(|f| f.cpu_ms_per_list, 1),
                sent,
            ]
        })
    });
    let header = ["form", "server", "lists per second", "server's CPU, ms per list", "MiB sent per list"];
    println!("{}", table(header, rows));
    println!(
        "{} pods, {:.1} MiB of JSON, byte for byte the same from both, also unpacked; {} clients, HTTP/{} over TLS, {} rounds \
         of {} s.\nIn brackets: the ratio to the API server's libraries in the same run. {}.",
        options.pods,
        bytes as f64 / f64::from(1 << 20),
        options.clients,
        if options.http2 { "2" } else { "1.1" },
        options.rounds,
        options.seconds,
        machine()?
    );
    Ok(())
}

impl Form {
    const ALL: [Self; 3] = [Self::Plain, Self::Gzip, Self::Protobuf];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Protobuf => "protobuf",
        }
    }

    fn headers(self) -> &'static [(header::HeaderName, &'static str)] {
        match self {
            Self::Plain => &[],
            Self::Gzip => &[(header::ACCEPT_ENCODING, "gzip")],
            Self::Protobuf => &[(header::ACCEPT, "application/vnd.kubernetes.protobuf")],
        }
    }
}

//! CPU and memory of syncing and of watching, one client at a time.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{Stream, StreamExt as _};
use peer_protocol::{Line, Usage, What};
use tokio::time::timeout;

use crate::client::{Client, Who};
use crate::gateway::Gateway;
use crate::machine::Machine;
use crate::programs;
use crate::results::{self, SpeedResult, SpeedResults};
use crate::server::{Kind, Server};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many pods the server has, for each round.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 50_000, 100_000])]
    pods: Vec<usize>,
    /// How many watch events follow the sync.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
    /// The test server instead of the real one.
    #[arg(long)]
    test_server: bool,
    /// Only these ways: protobuf; "protobuf, through the gateway"; JSON; default; streaming list; raw; typed handler. May be given
    /// several times.
    #[arg(long = "mode")]
    modes: Vec<String>,
    /// Build the programs first.
    #[arg(long)]
    build: bool,
    /// Where the results go.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A client in one of its ways.
struct Mode {
    who: Who,
    name: &'static str,
    flags: &'static [&'static str],
}

/// client-go in protobuf, through a gateway in front of the server.
const THROUGH: &str = "protobuf, through the gateway";

const MODES: [Mode; 11] = [
    Mode { who: Who::ClientGo, name: "protobuf", flags: &["--encoding", "protobuf"] },
    Mode { who: Who::ClientGo, name: THROUGH, flags: &["--encoding", "protobuf"] },
    Mode { who: Who::ControllerRuntime, name: "protobuf", flags: &["--encoding", "protobuf"] },
    Mode { who: Who::ControllerRuntime, name: THROUGH, flags: &["--encoding", "protobuf"] },
    Mode { who: Who::ClientGo, name: "JSON", flags: &["--encoding", "json"] },
    Mode { who: Who::KubeRs, name: "default", flags: &[] },
    Mode { who: Who::KubeRs, name: "streaming list", flags: &["--watch-list", "on"] },
    Mode { who: Who::Skopos, name: "raw", flags: &[] },
    Mode { who: Who::Skopos, name: "typed handler", flags: &["--typed"] },
    Mode { who: Who::Skopos, name: "raw, JSON", flags: &["--encoding", "json"] },
    Mode { who: Who::Skopos, name: "typed handler, JSON", flags: &["--typed", "--encoding", "json"] },
];

pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        programs::build()?;
        programs::build_skopos()?;
    }
    let out = options.out.clone().unwrap_or_else(|| results::folder().join("speed.json"));
    let mut rows: Vec<SpeedResult> =
        results::read(&out).map(|old: SpeedResults| old.rows).unwrap_or_default();
    let kind = if options.test_server { Kind::Test } else { Kind::Real };
    for &pods in &options.pods {
        eprintln!("starting the {} with {pods} pods", kind.name());
        let server = Server::start(kind, pods).await?;
        let wanted =
            |mode: &&Mode| options.modes.is_empty() || options.modes.iter().any(|name| name == mode.name);
        for mode in MODES.iter().filter(wanted) {
            let row = measure(&server, kind, mode, pods, options.events).await?;
            println!("{row:?}");
            let same = |other: &SpeedResult| {
                (other.client, other.pods, other.server) == (mode.who, pods, kind) && other.mode == mode.name
            };
            rows.retain(|other| !same(other));
            rows.push(row);
            rows.sort_by_key(|row| (row.server == Kind::Test, row.pods, row.client));
            results::write(&out, &SpeedResults { machine: Machine::this(), rows: rows.clone() })?;
        }
        server.stop().await?;
    }
    Ok(())
}

/// The pod whose creation ends the events.
const LAST: &str = "last-of-all";
/// How long a sync or all events may take.
const TIMEOUT: Duration = Duration::from_secs(900);
/// After the events the memory gets so long to settle.
const CALM: Duration = Duration::from_secs(5);

async fn measure(
    server: &Server,
    kind: Kind,
    mode: &Mode,
    pods: usize,
    events: usize,
) -> Result<SpeedResult> {
    let folder = tempfile::tempdir()?;
    let mut gateway = None;
    let mut text = server.kubeconfig()?;
    if mode.name == THROUGH {
        let cache = "{kinds: [{resource: pods}], bytesPerCluster: 8Gi}";
        let started = Gateway::start_with_tls(&programs::skopos(), folder.path(), &text, cache).await?;
        text = started.kubeconfig(started.port());
        gateway = Some(started);
    }
    let mut kubeconfig = tempfile::NamedTempFile::new()?;
    kubeconfig.write_all(text.as_bytes())?;
    let idle = server.cpu();
    let (mut client, mut lines, start) = begin(mode, kubeconfig.path()).await?;
    let (sync_ms, synced) = next(&mut lines, |what| match what {
        What::Synced { usage, .. } => Some(*usage),
        _ => None,
    })
    .await
    .context("no sync")?;
    let server_cpu = server.cpu().zip(idle).map(|(now, before)| now.saturating_sub(before));
    server.churn(events).await?;
    server.create(LAST).await?;
    let (_, done) = next(&mut lines, usage).await.context("the last event did not come")?;
    tokio::time::sleep(CALM).await;
    client.ask("usage").await;
    let (_, steady) = next(&mut lines, usage).await.context("no usage")?;
    client.quit().await;
    if let Some(gateway) = gateway {
        gateway.stop().await?;
    }
    server.delete(LAST).await?;
    let per_pod = |kib: u64| kib.saturating_sub(start.rss_kib) as f64 / pods as f64;
    let live = done.live_events - synced.live_events;
    Ok(SpeedResult {
        client: mode.who,
        mode: mode.name.to_owned(),
        server: kind,
        pods,
        sync_s: sync_ms / 1000.0,
        sync_cpu_us_per_pod: (synced.cpu_us - start.cpu_us) as f64 / pods as f64,
        server_cpu_us_per_pod: server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / pods as f64),
        peak_kib_per_pod: per_pod(steady.peak_kib),
        steady_kib_per_pod: per_pod(steady.rss_kib),
        events: live,
        events_per_cpu_second: live as f64 / ((done.cpu_us - synced.cpu_us) as f64 / 1e6),
    })
}

async fn begin(
    mode: &Mode,
    kubeconfig: &Path,
) -> Result<(Client, impl Stream<Item = Line> + Unpin + use<>, Usage)> {
    let flags = [mode.flags, &["--events", "none", "--mark", LAST, "--sync-timeout", "600"]].concat();
    let (client, mut lines) = Client::start(mode.who, kubeconfig, &flags)?;
    let (_, start) = next(&mut lines, |what| match what {
        What::Start { usage, .. } => Some(*usage),
        _ => None,
    })
    .await
    .context("no start")?;
    Ok((client, lines, start))
}

fn usage(what: &What) -> Option<Usage> {
    match what {
        What::Usage(usage) => Some(*usage),
        _ => None,
    }
}

async fn next(
    lines: &mut (impl Stream<Item = Line> + Unpin),
    wanted: impl Fn(&What) -> Option<Usage>,
) -> Option<(f64, Usage)> {
    let found = async {
        while let Some(line) = lines.next().await {
            if let Some(usage) = wanted(&line.what) {
                return Some((line.at_ms, usage));
            }
        }
        None
    };
    timeout(TIMEOUT, found).await.ok().flatten()
}

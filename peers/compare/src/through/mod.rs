//! client-go and managers of controller-runtime on a gateway beside the same on the gateway's member: both are to see the same
//! history, whatever becomes of the ways between them.
//!
//! ```text
//!                 ┌─ front ─── client-go, controller-runtime (lists or streamed lists, JSON or protobuf)
//!          skopos serve
//!                 └─ behind ─┐
//!                            ├─ test server
//!  client-go ────── beside ──┘
//! ```
//!
//! In the first part nothing fails, and every informer has to be given exactly what was done. In the second, ways are cut,
//! refuse and fall silent, watches end, the member restarts and forgets its history. An informer that lists again learns the
//! outcome alone, on the member as on the gateway: it is to be given nothing that was not, in no other order, and to hold what
//! there is in the end.

mod truth;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use peer_protocol::{EventLine, Line, What};
use skopos_testserver::{CloseMode, TestServer};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::truth::{Given, Truth};
use crate::belief::Belief;
use crate::client::{Client, Who};
use crate::gateway::Gateway;
use crate::programs;
use crate::proxy::{self, Door, Proxy, Wire, kubeconfig_through};

#[derive(Args)]
pub(crate) struct Options {
    /// The program `skopos`; without it, the one that `cargo build` makes in the repository.
    #[arg(long)]
    skopos: Option<PathBuf>,
    /// What the changes and faults are drawn from: the same number, the same course.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Changes without faults, and as many with them.
    #[arg(long, default_value_t = 300)]
    changes: usize,
    /// Faults in the second part.
    #[arg(long, default_value_t = 24)]
    faults: usize,
    /// Build the programs of client-go and controller-runtime, and `skopos`, first.
    #[arg(long)]
    build: bool,
}

/// Longer than client-go's longest pause between two attempts.
const PLENTY: Duration = Duration::from_secs(120);

/// Informers: how they ask for their first list, and in which encoding.
const INFORMERS: [(Who, [&str; 4]); 6] = [
    (Who::ClientGo, ["--watch-list", "off", "--encoding", "json"]),
    (Who::ClientGo, ["--watch-list", "on", "--encoding", "json"]),
    (Who::ClientGo, ["--watch-list", "off", "--encoding", "protobuf"]),
    (Who::ClientGo, ["--watch-list", "on", "--encoding", "protobuf"]),
    (Who::ControllerRuntime, ["--watch-list", "off", "--encoding", "protobuf"]),
    (Who::ControllerRuntime, ["--watch-list", "on", "--encoding", "protobuf"]),
];

/// Plays both parts. An error says which informer saw what that was not so.
pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        programs::build_client_go()?;
        programs::build_controller_runtime()?;
        programs::build_skopos()?;
    }
    let skopos = options.skopos.clone().unwrap_or_else(programs::skopos);
    let mut world = World::start(&skopos, options.seed).await?;
    world.settled().await?;
    for n in 0..options.changes {
        world.truth.change()?;
        if n % 20 == 0 {
            sleep(Duration::from_millis(50)).await;
        }
    }
    world.settled().await?;
    let changes = world.truth.len();
    world.report("without faults", |truth, events| truth.is(events))?;
    println!(
        "All {} informers were given each of {changes} changes once and in order.\n",
        world.informers.len()
    );

    let pace = (options.changes / options.faults.max(1)).max(1);
    let mut inflicted = Vec::new();
    for n in 0..options.changes {
        world.truth.change()?;
        if n % pace == 0 && inflicted.len() < options.faults {
            inflicted.push(world.fail().await?);
        }
    }
    world.settled().await?;
    println!("Faults: {}.\n", inflicted.join(", "));
    world.report("with faults", |truth, events| truth.includes(events))?;
    world.same_objects().await?;
    println!(
        "Of {} changes, no informer was given one that did not happen, or one in another order, and all hold the same objects.",
        world.truth.len()
    );
    world.stop().await
}

/// A member, a gateway, the ways between all of them, and informers on both.
struct World {
    truth: Truth,
    gateway: Gateway,
    ways: [(&'static str, Proxy); 3],
    informers: Vec<Informer>,
    reading: JoinSet<()>,
    random: fastrand::Rng,
    _folder: tempfile::TempDir,
}

/// An informer, in a process of its own.
struct Informer {
    name: String,
    client: Client,
    seen: Arc<Mutex<Seen>>,
}

/// What it was given.
#[derive(Default)]
struct Seen {
    events: Vec<EventLine>,
    belief: Belief,
    digest: Option<String>,
    /// How often it told of a failure.
    failures: usize,
}

impl World {
    async fn start(skopos: &Path, seed: u64) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = TestServer::builder().tls(true).start().await?;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut truth = Truth::new(server.clone(), random.fork());
        for _ in 0..20 {
            truth.change()?;
        }
        let [behind, beside] = [Proxy::start(server.port()).await?, Proxy::start(server.port()).await?];
        let member = kubeconfig_through(&server.kubeconfig(), behind.port())?;
        let gateway = Gateway::start(skopos, folder.path(), &member).await?;
        let front = Proxy::start(gateway.port()).await?;
        let mut reading = JoinSet::new();
        let mut informers = Vec::new();
        for (name, kubeconfig) in [
            ("member", kubeconfig_through(&server.kubeconfig(), beside.port())?),
            ("gateway", gateway.kubeconfig(front.port())),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, kubeconfig)?;
            for (who, flags) in INFORMERS {
                let arguments = [&["--resource", "configmaps"][..], &flags].concat();
                let (client, lines) = Client::start(who, &path, &arguments)?;
                let seen = Arc::<Mutex<Seen>>::default();
                reading.spawn(read(lines, seen.clone()));
                informers.push(Informer {
                    name: format!("{name}, {} {}", who.name(), flags.join(" ")),
                    client,
                    seen,
                });
            }
        }
        let ways = [("front", front), ("behind", behind), ("beside", beside)];
        Ok(Self { truth, gateway, ways, informers, reading, random, _folder: folder })
    }

    /// Waits until all informers know what there is.
    async fn settled(&self) -> Result<()> {
        let objects = self.truth.objects();
        let late =
            || self.informers.iter().find(|informer| informer.seen.lock().belief.differences(&objects) > 0);
        let waiting = async {
            while late().is_some() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(PLENTY, waiting).await.is_err() {
            bail!("{} does not get there", late().map_or("an informer", |informer| &informer.name));
        }
        Ok(())
    }

    /// A line for each informer, and an error if any was given something wrong.
    fn report(&self, part: &str, judge: impl Fn(&Truth, &Given<'_>) -> Result<()>) -> Result<()> {
        println!("{part:65} {:>8} {:>8} {:>9}", "changes", "events", "failures");
        let mut wrong = Vec::new();
        for informer in &self.informers {
            let seen = informer.seen.lock();
            let given = Given::of(&seen.events);
            let problem = judge(&self.truth, &given).err();
            println!(
                "{:65} {:>8} {:>8} {:>9}{}",
                informer.name,
                given.len(),
                seen.events.len(),
                seen.failures,
                if problem.is_some() { "  WRONG" } else { "" }
            );
            wrong.extend(problem.map(|problem| format!("{}: {problem}", informer.name)));
        }
        ensure!(wrong.is_empty(), "{part}, an informer was given another history:\n{}", wrong.join("\n"));
        Ok(())
    }

    /// Whether the stores of all informers hold what there is.
    async fn same_objects(&mut self) -> Result<()> {
        let wanted = self.truth.digest();
        for informer in &mut self.informers {
            informer.client.ask("digest").await;
        }
        for informer in &self.informers {
            let told = async {
                loop {
                    if let Some(digest) = informer.seen.lock().digest.clone() {
                        return digest;
                    }
                    sleep(Duration::from_millis(20)).await;
                }
            };
            let digest = timeout(PLENTY, told).await;
            let digest = digest.with_context(|| format!("{} says no digest", informer.name))?;
            ensure!(digest == wanted, "{} holds other objects than the server", informer.name);
        }
        Ok(())
    }

    /// Something goes wrong, for two seconds at most; returns what.
    async fn fail(&mut self) -> Result<String> {
        let server = self.truth.server().clone();
        let a_while = Duration::from_millis(self.random.u64(100..2000));
        let (name, way) = &self.ways[self.random.usize(..self.ways.len())];
        let what = match self.random.u8(..7) {
            0 => {
                way.kill(proxy::CloseMode::Rst);
                format!("{name} reset")
            }
            1 => {
                way.kill(proxy::CloseMode::Fin);
                format!("{name} closed")
            }
            2 => {
                way.set_door(Door::Refuse);
                way.kill(proxy::CloseMode::Rst);
                sleep(a_while).await;
                way.set_door(Door::Open);
                format!("{name} refused")
            }
            3 => {
                // client-go does not notice silence within minutes where it speaks HTTP/1.1: it ends with the connection.
                way.set_open_wires(Wire { to_client_lost: true, to_server_lost: true, ..Wire::default() });
                sleep(a_while).await;
                way.kill(proxy::CloseMode::Rst);
                format!("{name} silent")
            }
            4 => {
                server.close_watches();
                "watches ended".to_owned()
            }
            5 => {
                server.restart(CloseMode::Rst).await?;
                "member restarted".to_owned()
            }
            _ => {
                server.pause_with(CloseMode::Rst).await;
                for _ in 0..5 {
                    self.truth.change()?;
                }
                server.compact();
                server.forget_events();
                server.resume().await?;
                "history forgotten".to_owned()
            }
        };
        sleep(a_while).await;
        Ok(what)
    }

    async fn stop(mut self) -> Result<()> {
        for informer in &mut self.informers {
            ensure!(informer.client.quit().await.is_some(), "{} had to be killed", informer.name);
        }
        self.gateway.stop().await?;
        self.truth.server().stop().await;
        self.reading.shutdown().await;
        Ok(())
    }
}

async fn read(mut lines: impl Stream<Item = Line> + Unpin, seen: Arc<Mutex<Seen>>) {
    while let Some(line) = lines.next().await {
        let mut seen = seen.lock();
        seen.belief.take(&line.what);
        match line.what {
            What::Event(event) => seen.events.push(event),
            What::Digest { hash, .. } => seen.digest = Some(hash),
            What::Told { .. } => seen.failures += 1,
            _ => {}
        }
    }
}

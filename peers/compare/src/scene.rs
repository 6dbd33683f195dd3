//! One fault: a server, the three clients behind a proxy each, changes all the time, and what becomes of them.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, iter};
use peer_protocol::{Line, WatchList, What};
use skopos_testserver::FaultGuard;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

use crate::belief::{Belief, Objects, digest_of};
use crate::catalogue::{Begin, Fault, Harm};
use crate::client::{Client, Who};
use crate::proxy::{CloseMode, Door, Proxy, Wire, kubeconfig_through};
use crate::results::{FaultResult, Outcome};
use crate::server::{Kind, NAMESPACE, Server};

/// Inflicts a fault on all three clients.
pub(crate) async fn play(fault: Fault, kind: Kind, cap: Duration) -> Result<FaultResult> {
    let mut scene = Scene::set(fault, kind).await?;
    if scene.fault.begin == Begin::Synced {
        scene.raise_curtain()?;
        scene.wait_for_sync().await?;
    }
    scene.inflict().await?;
    if scene.fault.begin == Begin::First {
        scene.raise_curtain()?;
    }
    let cap = scene.fault.cap.unwrap_or(cap);
    scene.watch(cap).await?;
    scene.end().await
}

/// Objects from the start.
const BASE: usize = 40;
/// Changes before anything begins: some past, which can be forgotten.
const HISTORY: usize = 200;
/// How long everything may take until the fault begins.
const LONGEST_SYNC: Duration = Duration::from_secs(120);
/// How often an object is created.
const TICK: Duration = Duration::from_secs(1);
/// How long it is looked at after all have recovered.
const AFTERMATH: Duration = Duration::from_secs(5);
/// What is underway in the end gets so long to arrive.
const LAST_LOOK: Duration = Duration::from_secs(2);

struct Scene {
    fault: Fault,
    server: Server,
    players: Vec<Player>,
    lines: SelectAll<BoxStream<'static, (usize, Option<Line>)>>,
    truth: Objects,
    /// Objects that were deleted after the sync, by uid.
    gone: Vec<String>,
    ticks: usize,
    down: bool,
    began: Instant,
    /// The objects have changed under the fault.
    changed: bool,
    healed: Option<Instant>,
    guards: Vec<FaultGuard>,
}

struct Player {
    who: Who,
    proxy: Proxy,
    kubeconfig: tempfile::NamedTempFile,
    client: Option<Client>,
    /// The client's own clock began then.
    epoch: Option<Instant>,
    belief: Belief,
    /// The digest that the store had, when it was last asked, and whether it was right.
    right: bool,
    asked: Option<Instant>,
    connections_before: u64,
    told: Option<(Instant, String)>,
    equal: Option<Instant>,
    recovered: Option<Instant>,
    sync_timeout: Option<(Instant, String)>,
    requests: u64,
    lists: u64,
    died: bool,
}

impl Scene {
    async fn set(fault: Fault, kind: Kind) -> Result<Self> {
        let server = Server::start(kind, 0).await?;
        for number in 0..BASE {
            server.create(&format!("base-{number}")).await?;
        }
        for name in ["updated", "deleted", "replaced"] {
            server.create(name).await?;
        }
        for number in 0..HISTORY {
            server.touch("updated", &number.to_string()).await?;
        }
        let kubeconfig = server.kubeconfig()?;
        let mut players = Vec::new();
        for who in Who::ALL {
            let proxy = Proxy::start(server.port()).await?;
            let mut file = tempfile::NamedTempFile::new()?;
            file.write_all(kubeconfig_through(&kubeconfig, proxy.port())?.as_bytes())?;
            players.push(Player::new(who, proxy, file));
        }
        let truth = server.objects().await?;
        Ok(Self {
            fault,
            server,
            players,
            lines: SelectAll::new(),
            truth,
            gone: Vec::new(),
            ticks: 0,
            down: false,
            began: Instant::now(),
            changed: false,
            healed: None,
            guards: Vec::new(),
        })
    }

    /// Starts the clients.
    fn raise_curtain(&mut self) -> Result<()> {
        let watch_list = match self.fault.watch_list {
            WatchList::Default => "default",
            WatchList::On => "on",
            WatchList::Off => "off",
        };
        let flags = ["--namespace", NAMESPACE, "--watch-list", watch_list];
        for (index, player) in self.players.iter_mut().enumerate() {
            let (client, lines) = Client::start(player.who, player.kubeconfig.path(), &flags)?;
            player.client = Some(client);
            self.lines.push(lines.map(Some).chain(iter([None])).map(move |line| (index, line)).boxed());
        }
        Ok(())
    }

    /// Waits until all stores are right, and then some seconds more, while objects are created.
    async fn wait_for_sync(&mut self) -> Result<()> {
        let limit = Instant::now() + LONGEST_SYNC;
        self.act_until(limit, |scene| scene.players.iter().all(|player| player.right)).await?;
        ensure!(self.players.iter().all(|player| player.right), "{}: not all clients sync", self.fault.id);
        let calm = Duration::from_millis(fastrand::u64(3_000..7_000));
        self.act_until(Instant::now() + calm, |_| false).await
    }

    async fn inflict(&mut self) -> Result<()> {
        self.began = Instant::now();
        if let Server::Test(server) = &self.server {
            server.clear_requests();
        }
        for player in &mut self.players {
            player.connections_before = player.proxy.accepted();
            player.right = false;
            player.asked = None;
        }
        match self.fault.harm {
            Harm::Wire { open, new } => self.proxies().for_each(|proxy| {
                proxy.set_new_wires(new);
                proxy.set_open_wires(open);
            }),
            Harm::Cut { kill, door } => self.proxies().for_each(|proxy| {
                proxy.set_door(door);
                kill.into_iter().for_each(|how| proxy.kill(how));
            }),
            Harm::Crash => {
                self.proxies().for_each(|proxy| {
                    proxy.set_door(Door::Refuse);
                    proxy.kill(CloseMode::Rst);
                });
                self.down = true;
                self.server.crash().await?;
            }
            Harm::Freeze => self.clients().for_each(|client| client.freeze(true)),
            Harm::Inside(harm) => {
                for who in Who::ALL {
                    let guards = harm(self.server.test()?, who.user_agent());
                    self.guards.extend(guards);
                }
            }
            Harm::Whole(harm) => {
                let guards = harm(self.server.test()?);
                self.guards.extend(guards);
            }
        }
        if !self.down {
            self.change().await?;
        }
        Ok(())
    }

    /// One of each sort of change.
    async fn change(&mut self) -> Result<()> {
        // The server may have gone back in time.
        self.truth = self.server.objects().await?;
        let uid =
            |name: &str| self.truth.get(&format!("{NAMESPACE}/{name}")).map(|version| version.uid.clone());
        if self.fault.begin == Begin::Synced {
            let gone = [uid("deleted"), uid("replaced")];
            self.gone.extend(gone.into_iter().flatten());
        }
        self.server.create("created").await?;
        self.server.touch("updated", "yes").await?;
        self.server.delete("deleted").await?;
        self.server.delete("replaced").await?;
        self.server.create("replaced").await?;
        if let Some(after) = self.fault.after_changes {
            after(self.server.test()?);
        }
        self.truth = self.server.objects().await?;
        self.changed = true;
        Ok(())
    }

    async fn heal(&mut self) -> Result<()> {
        match self.fault.harm {
            Harm::Wire { .. } => self.proxies().for_each(|proxy| {
                proxy.set_new_wires(Wire::default());
                proxy.set_open_wires(Wire::default());
            }),
            Harm::Cut { .. } => {}
            Harm::Crash => {
                self.server.come_back().await?;
                self.down = false;
                self.change().await?;
            }
            Harm::Freeze => self.clients().for_each(|client| client.freeze(false)),
            Harm::Inside(_) | Harm::Whole(_) => self.take_back()?,
        }
        self.proxies().for_each(|proxy| proxy.set_door(Door::Open));
        self.healed = Some(Instant::now());
        Ok(())
    }

    /// A fault that was meant for a client and missed it shows nothing.
    fn take_back(&mut self) -> Result<()> {
        let missed = self.guards.drain(..).filter(|guard| guard.hits() == 0).count();
        ensure!(missed == 0 || !matches!(self.fault.harm, Harm::Inside(_)), "it missed {missed} clients");
        Ok(())
    }

    /// Until all have recovered, but at most so long.
    async fn watch(&mut self, cap: Duration) -> Result<()> {
        if let Some(lasts) = self.fault.lasts {
            self.act_until(self.began + lasts, |_| false).await?;
            self.heal().await?;
        }
        let all =
            |scene: &Scene| scene.players.iter().all(|player| player.recovered.is_some() || player.died);
        self.act_until(self.began + cap, all).await?;
        self.act_until(Instant::now() + AFTERMATH, |_| false).await
    }

    async fn end(mut self) -> Result<FaultResult> {
        let calm = Instant::now() + LAST_LOOK;
        self.ask_all().await;
        while let Ok(Some((index, line))) = timeout_at(calm, self.lines.next()).await {
            self.take(index, line).await;
        }
        self.ask_all().await;
        let last = Instant::now() + LAST_LOOK;
        while let Ok(Some((index, line))) = timeout_at(last, self.lines.next()).await {
            self.take(index, line).await;
        }
        self.drain_requests();
        let seconds = self.began.elapsed().as_secs_f64();
        let counted = matches!(self.server, Server::Test(_));
        let since = self.began;
        let from = if self.fault.lasts.is_some() { self.healed } else { Some(since) };
        let mut clients = Vec::new();
        for player in &mut self.players {
            let stop = match &mut player.client {
                Some(client) => client.quit().await,
                None => None,
            };
            clients.push(player.outcome(since, from, &self.truth, &self.gone, counted, stop));
        }
        self.take_back()?;
        self.server.stop().await?;
        Ok(FaultResult {
            id: self.fault.id.to_owned(),
            row: self.fault.row,
            title: self.fault.title.to_owned(),
            server: if counted { Kind::Test } else { Kind::Real },
            healed_s: self.healed.map(|at| at.duration_since(since).as_secs_f64()),
            seconds,
            clients,
        })
    }

    /// Lets things happen until `done`, or until then.
    async fn act_until(&mut self, end: Instant, done: impl Fn(&Self) -> bool) -> Result<()> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        while !done(self) {
            tokio::select! {
                Some((index, line)) = self.lines.next() => self.take(index, line).await,
                _ = ticks.tick() => self.tick().await?,
                () = sleep_until(end) => return Ok(()),
            }
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<()> {
        self.ask_all().await;
        self.drain_requests();
        if !self.down {
            self.ticks += 1;
            let name = format!("tick-{}", self.ticks);
            let version = self.server.create(&name).await.context("creating an object")?;
            self.truth.insert(format!("{NAMESPACE}/{name}"), version);
        }
        Ok(())
    }

    /// Asks those whose stores are not known to be right for their digests.
    async fn ask_all(&mut self) {
        for player in &mut self.players {
            player.ask().await;
        }
    }

    async fn take(&mut self, index: usize, line: Option<Line>) {
        let player = &mut self.players[index];
        let Some(line) = line else {
            player.died = true;
            return;
        };
        let at = player.time_of(&line);
        player.belief.take(&line.what);
        match line.what {
            What::Event(_) | What::Replaced
                if player.asked.is_none() && player.belief.objects == self.truth =>
            {
                player.ask().await;
            }
            What::Told { state, reason }
                if state == "failing" && at >= self.began && player.recovered.is_none() =>
            {
                player.told.get_or_insert((at, reason));
            }
            What::SyncTimeout { reason } => player.sync_timeout = Some((at, reason)),
            What::Digest { hash, .. } => {
                player.asked = None;
                player.right = hash == digest_of(&self.truth);
                if player.right && self.changed && at >= self.began {
                    player.equal.get_or_insert(at);
                    if self.fault.lasts.is_none() || self.healed.is_some_and(|healed| at >= healed) {
                        player.recovered.get_or_insert(at);
                    }
                }
            }
            _ => {}
        }
    }

    /// Counts the requests since the last time.
    fn drain_requests(&mut self) {
        let Server::Test(server) = &self.server else { return };
        let requests = server.requests();
        server.clear_requests();
        for player in &mut self.players {
            let agent = player.who.user_agent();
            let own = requests
                .iter()
                .filter(|request| request.user_agent.as_ref().is_some_and(|name| name.contains(agent)));
            let (lists, others): (Vec<_>, Vec<_>) = own.partition(|request| request.verb == "list");
            player.lists += lists.len() as u64;
            player.requests += (lists.len() + others.len()) as u64;
        }
    }

    fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.players.iter().map(|player| &player.proxy)
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.players.iter().filter_map(|player| player.client.as_ref())
    }
}

impl Player {
    fn new(who: Who, proxy: Proxy, kubeconfig: tempfile::NamedTempFile) -> Self {
        Self {
            who,
            proxy,
            kubeconfig,
            client: None,
            epoch: None,
            belief: Belief::default(),
            right: false,
            asked: None,
            connections_before: 0,
            told: None,
            equal: None,
            recovered: None,
            sync_timeout: None,
            requests: 0,
            lists: 0,
            died: false,
        }
    }

    async fn ask(&mut self) {
        if let Some(client) = &mut self.client {
            self.asked = Some(Instant::now());
            client.ask("digest").await;
        }
    }

    /// When a line was written, also if it is read late.
    fn time_of(&mut self, line: &Line) -> Instant {
        let now = Instant::now();
        let since_start = Duration::from_secs_f64(line.at_ms / 1000.0);
        let epoch = *self.epoch.get_or_insert_with(|| now.checked_sub(since_start).unwrap_or(now));
        (epoch + since_start).min(now)
    }

    fn outcome(
        &self,
        began: Instant,
        from: Option<Instant>,
        truth: &Objects,
        gone: &[String],
        counted: bool,
        stop: Option<Duration>,
    ) -> Outcome {
        let since = |at: Instant, from: Instant| at.saturating_duration_since(from).as_secs_f64();
        let wrong = self.belief.differences(truth);
        Outcome {
            client: self.who,
            told_s: self.told.as_ref().map(|(at, _)| since(*at, began)),
            told: self.told.as_ref().map(|(_, reason)| reason.clone()),
            equal_s: self.equal.map(|at| since(at, began)),
            recovered_s: self.recovered.zip(from).map(|(at, from)| since(at, from)),
            wrong: if self.right { wrong } else { wrong.max(1) },
            crossings: self.belief.crossings.len(),
            untold_deletions: self.belief.untold(gone),
            requests: counted.then_some(self.requests),
            lists: counted.then_some(self.lists),
            connections: self.proxy.accepted() - self.connections_before,
            sync_timeout: self.sync_timeout.as_ref().map(|(at, reason)| (since(*at, began), reason.clone())),
            stop_s: stop.map(|time| time.as_secs_f64()),
            died: self.died,
        }
    }
}

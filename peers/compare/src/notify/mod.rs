//! `skopos notify` on the real API server code: restarts, an absence, and two replicas that take turns.
//!
//! ```text
//!                    ┌─ skopos notify ─┐      ┌─ BIND: a name for each Service
//!  k8s.io/apiserver ─┤      Lease      ├──────┤
//!                    └─ skopos notify ─┘      └─ a receiver: a message for each Service
//! ```
//!
//! The cases are 1, 2 and 25 of the notifier's failure cases. An error says which promise was broken.

mod receiver;
mod replica;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use self::receiver::Receiver;
use self::replica::Replica;
use crate::dns::{Bind, Resolver, full};
use crate::programs;
use crate::server::{NAMESPACE, Real};

#[derive(Args)]
pub(crate) struct Options {
    /// How often the API server is restarted.
    #[arg(long, default_value_t = 10)]
    restarts: usize,
    /// How long it is gone once, in seconds.
    #[arg(long, default_value_t = 120)]
    away: u64,
    /// How often the replicas take turns, by an end and by a kill.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Build k8s.io/apiserver and `skopos` first.
    #[arg(long)]
    build: bool,
}

/// The number of Services that are there from the beginning.
const SERVICES: usize = 20;
const ANNOTATION: &str = "skopos.dev/hostname";
/// The duration of the Lease: the default.
const LEASE: Duration = Duration::from_secs(15);
/// A change answers so soon after the API server is back.
const CAUGHT_UP: Duration = Duration::from_secs(2);
/// The outside is seen equal to the cluster as it is since the outage so soon after the API server is back.
const AGE: Duration = Duration::from_secs(15);
/// A replica that ends in order is followed so soon.
const CLEAN: Duration = Duration::from_secs(1);
/// A replica that is killed is followed so soon after its last renewal.
const KILLED: Duration = Duration::from_secs(LEASE.as_secs() + 3);
/// Longer than anything takes.
const PLENTY: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(10);

/// Plays all cases.
pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        programs::build_apiserver()?;
        programs::build_skopos()?;
    }
    let mut world = World::start().await?;
    world.restarts(options.restarts).await.context("case 1: the API server restarts")?;
    world.away(Duration::from_secs(options.away)).await.context("case 2: the API server is gone")?;
    world.turns(options.turns).await.context("case 25: two replicas")?;
    world.told().await.context("the receiver")?;
    println!("every promise was kept");
    Ok(())
}

struct World {
    server: Real,
    bind: Bind,
    resolver: Resolver,
    receiver: Receiver,
    /// The one that works, and the one that stands by.
    replicas: [Replica; 2],
    /// The Services, each with its address.
    services: Vec<(String, String)>,
}

impl World {
    /// Starts everything, and waits until the first names answer.
    async fn start() -> Result<Self> {
        let server = Real::start(0, false).await?;
        let bind = Bind::start("", "").await?;
        let receiver = Receiver::start().await?;
        let resolver = Resolver::of(bind.address).await?;
        let kubeconfig = server.kubeconfig();
        let replica = || Replica::new(&kubeconfig, bind.address, receiver.address);
        let replicas = [replica()?, replica()?];
        let mut world = Self { server, bind, resolver, receiver, replicas, services: Vec::new() };
        for _ in 0..SERVICES {
            world.create().await?;
        }
        world.replicas[0].run()?;
        world.all_answer(PLENTY).await.context("the first names")?;
        world.replicas[1].run()?;
        world.replicas[1].until("standby").await?;
        Ok(world)
    }

    /// Restarts the API server again and again, and changes the cluster as soon as it is back.
    async fn restarts(&mut self, count: usize) -> Result<()> {
        let (mut slowest, mut oldest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            let before = self.bind.transfer().await?;
            self.server.kill().await?;
            sleep(Duration::from_secs(3)).await;
            // A proof from here on is of the new server, which may answer before its start is known.
            let down = Instant::now();
            self.server.launch().await?;
            let back = Instant::now();
            ensure!(self.bind.transfer().await? == before, "the zone has changed meanwhile");
            self.create().await?;
            self.all_answer(PLENTY).await?;
            slowest = slowest.max(back.elapsed());
            self.is_young(down).await?;
            oldest = oldest.max(back.elapsed());
        }
        println!(
            "case 1, {count} restarts: the zone unchanged meanwhile; a change afterwards answers within {slowest:.2?}, the outside is younger than the \
             restart after {oldest:.1?}"
        );
        ensure!(slowest < CAUGHT_UP, "a change answers after {slowest:?}, later than {CAUGHT_UP:?}");
        ensure!(oldest < AGE, "the outside is old for {oldest:?}, longer than {AGE:?}");
        Ok(())
    }

    /// Stops the API server for a while.
    async fn away(&mut self, time: Duration) -> Result<()> {
        let before = self.bind.transfer().await?;
        self.server.kill().await?;
        let gone = Instant::now();
        while gone.elapsed() < time {
            sleep(Duration::from_secs(5).min(time)).await;
            ensure!(self.bind.transfer().await? == before, "the zone has changed after {:?}", gone.elapsed());
        }
        let age = self.age().await?;
        ensure!(
            age.is_none_or(|age| age + Duration::from_secs(25) > time),
            "after {time:?} the outside calls itself {age:?} old"
        );
        self.server.launch().await?;
        let back = Instant::now();
        self.create().await?;
        self.all_answer(PLENTY).await?;
        let caught_up = back.elapsed();
        println!(
            "case 2, gone for {time:?}: nothing was removed, {}; a change afterwards answers within {caught_up:.2?}",
            age.map_or_else(
                || "and no replica works without a Lease".to_owned(),
                |age| format!("and the outside called itself {age:.0?} old")
            )
        );
        // After so long no replica has the Lease: the next term comes first.
        ensure!(
            caught_up < CAUGHT_UP + LEASE,
            "a change answers after {caught_up:?}, later than a Lease and {CAUGHT_UP:?}"
        );
        Ok(())
    }

    /// Ends and kills the working replica in turns.
    async fn turns(&mut self, count: usize) -> Result<()> {
        let (mut clean, mut killed) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            self.order().await?;
            self.replicas[0].end()?;
            clean = clean.max(self.follow().await?);
            self.order().await?;
            self.replicas[0].kill().await?;
            killed = killed.max(self.follow().await?);
        }
        println!(
            "case 25, {count} turns each: a change answers within {clean:.2?} of an end in order, and within {killed:.1?} of a kill; none is lost"
        );
        ensure!(clean < CLEAN, "an end in order costs {clean:?}, more than {CLEAN:?}");
        ensure!(killed < KILLED, "a kill costs {killed:?}, more than {KILLED:?}");
        Ok(())
    }

    /// Changes the cluster while the working replica is on its way out; returns when the other has done it, and starts the first again.
    async fn follow(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        for _ in 0..5 {
            self.create().await?;
        }
        self.all_answer(PLENTY).await?;
        let took = begun.elapsed();
        self.replicas[0].ended().await?;
        self.replicas[0].run()?;
        self.replicas.swap(0, 1);
        self.replicas[1].until("standby").await?;
        Ok(took)
    }

    /// Puts the replica that works first.
    async fn order(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PLENTY {
            for index in 0..2 {
                if self.replicas[index].status().await.is_ok_and(|status| status.phase == "working") {
                    self.replicas.swap(0, index);
                    return self.replicas[1].until("standby").await;
                }
            }
            sleep(OFTEN).await;
        }
        anyhow::bail!("no replica works")
    }

    /// Waits until the receiver knows every Service.
    async fn told(&mut self) -> Result<()> {
        let all: BTreeSet<_> = self.services.iter().map(|(name, _)| name.clone()).collect();
        let missing = || all.difference(&self.receiver.names()).cloned().collect::<Vec<_>>();
        let begun = Instant::now();
        while !missing().is_empty() {
            ensure!(begun.elapsed() < PLENTY, "was never told of {:?}", missing());
            sleep(OFTEN).await;
        }
        println!("webhook: all {} Services were told, by {} messages", all.len(), self.receiver.messages());
        Ok(())
    }

    /// Creates the next Service.
    async fn create(&mut self) -> Result<()> {
        let index = self.services.len();
        let (name, address) = (format!("s{index}"), format!("10.1.{}.{}", index / 250, 1 + index % 250));
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": NAMESPACE, "name": name, "annotations": {ANNOTATION: full(&name)}},
            "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "externalIPs": [address]},
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/services");
        self.server.send("POST", &path, &service).await?;
        self.services.push((name, address));
        Ok(())
    }

    /// Waits until every Service's name leads to its address.
    async fn all_answer(&mut self, limit: Duration) -> Result<()> {
        for (name, address) in &self.services {
            let wanted = [address.clone()];
            let asking = async {
                while !self.resolver.ask(&full(name)).await.is_ok_and(|answer| answer.is(&wanted)) {
                    sleep(OFTEN).await;
                }
            };
            timeout(limit, asking).await.with_context(|| format!("{name} does not lead to {address}"))?;
        }
        Ok(())
    }

    /// Waits until the outside is younger than a moment.
    async fn is_young(&mut self, since: Instant) -> Result<()> {
        loop {
            let elapsed = since.elapsed();
            if self.age().await?.is_some_and(|age| age < elapsed) {
                return Ok(());
            }
            ensure!(elapsed < PLENTY, "the outside stays old");
            sleep(OFTEN).await;
        }
    }

    /// Returns the age of the zone that the working replica tells.
    async fn age(&mut self) -> Result<Option<Duration>> {
        for replica in &self.replicas {
            if let Ok(status) = replica.status().await
                && status.phase == "working"
            {
                return Ok(status.age());
            }
        }
        Ok(None)
    }
}

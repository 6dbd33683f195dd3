//! The five reports from the field: the same promises as in `crates/skopos/tests/reports.rs`.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{FutureExt as _, StreamExt as _};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Api, ListParams, PostParams};
use skopos::wire::WatchEvent;
use skopos::{
    Condition, Event, FactoryOptions, Informer, InformerFactory, InformerOptions, RawWatch, RawWatchItem,
    ReadError, Target as Resource,
};
use tokio::time::{Instant, sleep, timeout};

use crate::gate::Gate;
use crate::kit::target::Target as _;
use crate::real::RealServer;
use crate::scene::{SLACK, Scene, create, eventually, request, secs, transport, within};

/// What happened in the field, in the order of the reports.
pub(crate) const SCENES: [Scene; 8] = [
    Scene::new("R1 a paused cluster holds nobody up", |server| paused_cluster(server).boxed()),
    Scene::new("R2 a killed server that comes back", |server| killed_server(server).boxed()),
    Scene::new("R2 old connections that say nothing", |server| black_hole(server).boxed()),
    Scene::new("R3 waiting, reading, shutting down", |server| unreachable(server).boxed()),
    Scene::new("R3 a create after a disconnect", |server| create_after_disconnect(server).boxed()),
    Scene::new("R4 recreated during a disconnect", |server| recreated(server, false).boxed()),
    Scene::new("R4 recreated, and the server forgot how", |server| recreated(server, true).boxed()),
    Scene::new("R5 a raw watch goes on", |server| raw_watch_goes_on(server).boxed()),
];

async fn paused_cluster(server: &RealServer) -> anyhow::Result<String> {
    create(server, "one").await?;
    let (gate, shut) = (Gate::to(server.port()).await?, Gate::to(server.port()).await?);
    shut.shut();
    let (well, paused) = (factory(server, &gate)?, factory(server, &shut)?);
    let (ours, theirs) = (config_maps(&well)?, config_maps(&paused)?);
    let begin = Instant::now();
    let (synced, not) = tokio::join!(ours.wait_synced(secs(3)), theirs.wait_synced(secs(3)));
    within("both waits", begin, secs(3))?;
    synced.context("the well one is not synced")?;
    let not = not.err().context("the paused one is synced")?;
    ensure!(not.who[0].state.condition == Condition::Unreachable, "{not}");
    let begin = Instant::now();
    ours.read(secs(30), secs(5)).await?;
    within("a read of the well one", begin, secs(0))?;
    let begin = Instant::now();
    ensure!(matches!(theirs.read(secs(30), secs(1)).await, Err(ReadError::TooOld { .. })));
    within("a read of the paused one", begin, secs(1))?;
    shut.open();
    let begin = Instant::now();
    theirs.wait_synced(secs(5)).await?;
    let back = begin.elapsed();
    ensure!(back <= secs(2) + SLACK, "synced {back:?} after the return");
    Ok(format!("synced {back:.1?} after the return"))
}

async fn killed_server(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let factory = factory(server, &gate)?;
    let maps = config_maps(&factory)?;
    let services = factory.informer::<Service>(InformerOptions::all())?;
    let secrets = factory.metadata::<Secret>(InformerOptions::namespace("default"))?;
    factory.wait_synced(Duration::from_secs(30)).await?;
    let mut slowest = Duration::ZERO;
    // A restarted server has forgotten its window, so that each time costs a 410, a list and a watch: more restarts within
    // a minute than these are beyond what a link may send in one, and it waits for the rest of the minute.
    for round in 0..3 {
        server.kill().await?;
        sleep(Duration::from_millis([0, 300, 4000][round])).await;
        server.start_again().await?;
        let back = Instant::now();
        let version = create(server, &format!("round-{round}")).await?;
        maps.wait_for(&version.into(), secs(10)).await.with_context(|| format!("round {round}"))?;
        let states = || [maps.freshness(), services.freshness(), secrets.freshness()];
        let live = || states().iter().all(|state| state.is_live());
        let all = eventually(secs(10), live).await;
        all.with_context(|| format!("round {round}, not all are live: {:?}", states()))?;
        slowest = slowest.max(back.elapsed());
    }
    ensure!(slowest <= secs(5) + SLACK, "live after {slowest:?}");
    ensure!(maps.snapshot().len() == 3, "{} objects", maps.snapshot().len());
    ensure!(factory.shutdown(secs(1)).await.complete, "the shutdown is not complete");
    Ok(format!("live at most {slowest:.1?} after the server was ready, 3 times"))
}

async fn black_hole(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let factory = factory(server, &gate)?;
    let maps = config_maps(&factory)?;
    factory.wait_synced(Duration::from_secs(30)).await?;
    eventually(secs(10), || maps.freshness().is_live()).await?;
    let mut slowest = Duration::ZERO;
    for round in 0..3 {
        gate.swallow();
        let gone = Instant::now();
        let version = create(server, &format!("round-{round}")).await?;
        maps.wait_for(&version.into(), secs(60)).await?;
        slowest = slowest.max(gone.elapsed());
        sleep(secs(3)).await;
    }
    ensure!(slowest <= secs(17) + SLACK, "seen after {slowest:?}");
    Ok(format!("seen at most {slowest:.1?} after the connections fell silent, 3 times"))
}

async fn unreachable(server: &RealServer) -> anyhow::Result<String> {
    let mut told = Vec::new();
    for case in ["refused", "silent"] {
        let gate = Gate::to(server.port()).await?;
        if case == "refused" {
            gate.shut()
        } else {
            gate.swallow_all()
        }
        let factory = factory(server, &gate)?;
        let maps = config_maps(&factory)?;
        let begin = Instant::now();
        // A connection is given up after 10 s.
        let error = maps.wait_synced(secs(15)).await.err().context("it is synced")?;
        within(case, begin, secs(15))?;
        ensure!(error.who[0].attempts > 0, "{error}");
        let begin = Instant::now();
        let report = factory.shutdown(secs(1)).await;
        within("the shutdown", begin, secs(1))?;
        ensure!(report.complete && report.tasks_left == 0, "{report:?}");
        told.push(format!("{case}: {} attempts", error.who[0].attempts));
    }
    Ok(told.join(", "))
}

async fn create_after_disconnect(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let factory = factory(server, &gate)?;
    let maps = config_maps(&factory)?;
    factory.wait_synced(Duration::from_secs(30)).await?;
    let api = Api::<ConfigMap>::namespaced(factory.transport().client("default"), "default");
    gate.shut();
    let begin = Instant::now();
    let refused = timeout(secs(60), api.create(&PostParams::default(), &new_map("x"))).await;
    ensure!(refused.context("the create hangs")?.is_err(), "created through a shut gate");
    let failed = begin.elapsed();
    ensure!(failed <= secs(10) + SLACK, "the create failed after {failed:?}");
    gate.open();
    let begin = Instant::now();
    let created = loop {
        match api.create(&PostParams::default(), &new_map("x")).await {
            Ok(created) => break created,
            Err(error) => ensure!(begin.elapsed() <= secs(2) + SLACK, "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    let back = begin.elapsed();
    let version: u64 = created.metadata.resource_version.context("no version")?.parse()?;
    maps.wait_for(&version.into(), secs(5)).await?;
    ensure!(api.list(&ListParams::default()).await?.items.len() == 1, "the list shows something else");
    Ok(format!("failed after {failed:.1?}, created {back:.1?} after the return"))
}

/// With `unseen`, the server is restarted meanwhile, so that its watch cache no longer knows what happened.
async fn recreated(server: &RealServer, unseen: bool) -> anyhow::Result<String> {
    create(server, "same-name").await?;
    let gate = Gate::to(server.port()).await?;
    let factory = factory(server, &gate)?;
    let maps = config_maps(&factory)?;
    let mut events = Box::pin(maps.events()?);
    maps.wait_synced(secs(5)).await?;
    let first = events.next().await.context("no event")?.object().clone();
    gate.shut();
    request(server, Method::DELETE, "/api/v1/namespaces/default/configmaps/same-name", None).await?;
    let version = create(server, "same-name").await?;
    if unseen {
        server.compact().await?;
        server.restart().await?;
    }
    gate.open();
    maps.wait_for(&version.into(), secs(30)).await?;
    let second = timeout(secs(5), events.next()).await?.context("no event")?;
    let Event::Deleted { object, flags, .. } = &second else { anyhow::bail!("not a deletion: {second:?}") };
    ensure!(object.uid() == first.uid() && flags.gap == unseen, "{second:?}");
    let third = timeout(secs(5), events.next()).await?.context("no event")?;
    let Event::Added { object, flags, .. } = &third else { anyhow::bail!("not an addition: {third:?}") };
    ensure!(object.uid() != first.uid() && flags.gap == unseen, "{third:?}");
    let more = timeout(secs(2), events.next()).await;
    ensure!(more.is_err(), "and more: {more:?}");
    Ok(format!("a deletion and an addition, gap: {unseen}"))
}

async fn raw_watch_goes_on(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let transport = transport(server, &gate)?;
    let mut watch = RawWatch::builder(transport, Resource::new("", "v1", "configmaps")).from_now();
    let (mut slowest, mut skips) = (Duration::ZERO, 0);
    // The first bookmark tells that it has begun.
    let begun = timeout(secs(90), watch.next()).await.context("no bookmark")?.context("it ended")?;
    ensure!(matches!(begun, RawWatchItem::Event(WatchEvent::Bookmark { .. })), "{begun:?}");
    for round in 0..3 {
        match round {
            0 => gate.cut(),
            1 => {
                gate.shut();
                sleep(secs(1)).await;
                gate.open();
            }
            _ => server.restart().await?,
        }
        let begin = Instant::now();
        let name = format!("round-{round}");
        create(server, &name).await?;
        loop {
            match timeout(secs(20), watch.next()).await.context("the event is lost")?.context("it ended")? {
                RawWatchItem::Event(WatchEvent::Added(object)) => {
                    ensure!(object.name() == name, "{} instead of {name}", object.name());
                    break;
                }
                RawWatchItem::Event(WatchEvent::Bookmark { .. }) => {}
                // A restarted server may have forgotten, and then says so: the object may be older than the new start.
                RawWatchItem::Skipped { .. } => {
                    skips += 1;
                    break;
                }
                other => anyhow::bail!("{other:?}"),
            }
        }
        slowest = slowest.max(begin.elapsed());
        sleep(secs(1)).await;
    }
    Ok(format!("at most {slowest:.1?} after each of 3 troubles; {skips} gaps told"))
}

fn factory(server: &RealServer, gate: &Gate) -> anyhow::Result<InformerFactory> {
    let options = FactoryOptions { audit_interval: None, ..FactoryOptions::default() };
    Ok(InformerFactory::new(transport(server, gate)?, options))
}

fn config_maps(factory: &InformerFactory) -> anyhow::Result<Informer<ConfigMap>> {
    Ok(factory.informer(InformerOptions::all())?)
}

fn new_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

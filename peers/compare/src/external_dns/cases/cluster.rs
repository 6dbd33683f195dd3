//! What happens to the cluster.

use std::time::Duration;

use anyhow::Result;
use http::header::CONTENT_TYPE;
use serde_json::json;
use skopos_testserver::{Fault, FaultGuard, Match};
use tokio::time::{Instant, sleep};

use crate::dns::{Watch, full};
use crate::external_dns::outcome::Outcome;
use crate::external_dns::side::Side;
use crate::external_dns::world::World;

const OFTEN: Duration = Duration::from_millis(50);
const ALL_THE_TIME: Duration = Duration::from_millis(2);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) async fn restart(world: &mut World) -> Result<Outcome> {
    let hosts = world.settled(20).await?;
    let watch = world.watch(&hosts, OFTEN).await?;
    world.stop_server().await;
    world.put("s0", "s0", &["10.9.0.1"])?;
    world.put("new", "new", &["10.9.0.2"])?;
    sleep(secs(20)).await;
    world.server.resume().await?;
    let since = Instant::now();
    let changed = world.leads("s0", &["10.9.0.1"], since).await;
    let created = world.leads("new", &["10.9.0.2"], since).await;
    let mut outcome = Outcome::default();
    let lost = outcome.count("lost", watch.seen().most_missing);
    let changed = outcome.seconds("changed", changed);
    let created = outcome.seconds("created", created);
    let ends = ended(world, &mut outcome);
    Ok(outcome.say(format!(
        "{lost} of 20 names lost; after its return the change answers after {changed}, the new name after {created}{ends}"
    )))
}

/// Says how often the process ended, if it did.
pub(super) fn ended(world: &World, outcome: &mut Outcome) -> String {
    match outcome.count("ends", world.notifier.ends()) {
        0 => String::new(),
        ends => format!("; the process ended {ends} times"),
    }
}

/// The API server goes away and forgets its history, so that everybody lists when it is back.
async fn forget(world: &World) -> Result<()> {
    world.stop_server().await;
    for _ in 0..10 {
        let about = json!({"generateName": "other-", "namespace": "default"});
        let other = world.server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}));
        other.map_err(|status| anyhow::anyhow!("{status:?}"))?;
    }
    world.server.compact();
    world.server.forget_events();
    Ok(())
}

/// The API server is back, and lists no Services.
async fn empty_lists(world: &World) -> Result<FaultGuard> {
    forget(world).await?;
    let version = world.server.resource_version().to_string();
    let list = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []});
    let empty = Fault::Answer {
        code: 200,
        headers: vec![(CONTENT_TYPE, "application/json".into())],
        body: list.to_string(),
    };
    let guard = world.server.faults().inject(empty).on(Match::list().resource("services"));
    world.server.resume().await?;
    Ok(guard)
}

pub(super) async fn empty_list(world: &mut World) -> Result<Outcome> {
    let hosts = world.settled(30).await?;
    let watch = world.watch(&hosts, OFTEN).await?;
    let guard = empty_lists(world).await?;
    sleep(secs(90)).await;
    healed(world, &hosts, &watch, guard).await
}

pub(super) async fn empty_list_at_start(world: &mut World) -> Result<Outcome> {
    let hosts = world.settled(30).await?;
    world.notifier.kill().await;
    let watch = world.watch(&hosts, OFTEN).await?;
    let guard = empty_lists(world).await?;
    world.notifier.start()?;
    sleep(secs(90)).await;
    healed(world, &hosts, &watch, guard).await
}

/// Ends the empty lists, and says what was lost meanwhile, and for how long.
async fn healed(world: &mut World, hosts: &[String], watch: &Watch, empty: FaultGuard) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.count("empty_lists", usize::try_from(empty.hits())?);
    let (_, held) = world.notifier.held().await?;
    let held = outcome.count("held", held);
    forget(world).await?;
    empty.heal();
    world.server.resume().await?;
    let since = Instant::now();
    let mut back = Some(0.0);
    for host in hosts {
        back = back.zip(world.until(host, since, |answer| !answer.is_nothing()).await).map(|(_, at)| at);
    }
    let lost = outcome.count("lost", watch.seen().most_missing);
    let missing = outcome.seconds("missing", Some(watch.seen().missing_s));
    if lost == 0 {
        return Ok(outcome.say(format!("0 of 30 names lost; {held} removals held")));
    }
    let back = outcome.seconds("back", back);
    let held = if world.side == Side::Skopos { format!(", {held} removals held") } else { String::new() };
    Ok(outcome.say(format!(
        "**{lost} of 30 names lost**{held}; all back {back} after the list was right again, {missing} without all"
    )))
}

pub(super) async fn many_deleted(world: &mut World) -> Result<Outcome> {
    let hosts = world.settled(50).await?;
    let deleted = &hosts[..20];
    let since = Instant::now();
    for host in deleted {
        world.delete(host)?;
    }
    let mut outcome = Outcome::default();
    if world.side == Side::ExternalDns {
        let gone = world.gone(deleted, since).await;
        let gone = outcome.seconds("gone", gone);
        return Ok(outcome.say(format!("all 20 gone after {gone}; without an approval")));
    }
    sleep(secs(60)).await;
    let gone = outcome.count("gone_without_approval", 20 - world.answered(deleted).await?);
    let (ids, held) = world.notifier.held().await?;
    let held = outcome.count("held", held);
    let approved = Instant::now();
    for id in &ids {
        world.notifier.approve(id).await?;
    }
    let all = world.gone(deleted, approved).await;
    let all = outcome.seconds("gone_after_approval", all);
    Ok(outcome.say(format!("{gone} gone within 60 s, {held} held until `approve`; gone {all} after it")))
}

pub(super) async fn two_claims(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    world.put("first", "shared", &["10.1.0.1"])?;
    world.leads("shared", &["10.1.0.1"], Instant::now()).await;
    world.put("another", "shared", &["10.1.0.2"])?;
    sleep(secs(25)).await;
    let both = world.answer("shared").await?.values;
    let watch = world.watch(&["shared".to_owned()], ALL_THE_TIME).await?;
    world.delete("first")?;
    let since = Instant::now();
    let taken = world.leads("shared", &["10.1.0.2"], since).await;
    sleep(secs(15)).await;
    let mut outcome = Outcome::default();
    outcome.count("kept_by_first", usize::from(both == ["10.1.0.1"]));
    let (taken, missing) =
        (outcome.seconds("taken", taken), outcome.seconds("missing", Some(watch.seen().missing_s)));
    let who = match both.join(", ").as_str() {
        "10.1.0.1" => "the first keeps it".to_owned(),
        "10.1.0.2" => "**the second takes it**".to_owned(),
        both => format!("it leads to {both}"),
    };
    Ok(outcome.say(format!(
        "{who}; after the deletion the other's answers after {taken}, without an answer {missing}"
    )))
}

pub(super) async fn rename(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    let since = Instant::now();
    world.put("s0", "fresh", &["10.0.0.1"])?;
    let (mut fresh, mut old) = (None, None);
    while (fresh.is_none() || old.is_none()) && since.elapsed() < crate::external_dns::world::CAP {
        let now = since.elapsed().as_secs_f64();
        if fresh.is_none() && world.answer("fresh").await?.has("10.0.0.1") {
            fresh = Some(now);
        }
        if old.is_none() && world.answer("s0").await?.is_nothing() {
            old = Some(now);
        }
        sleep(ALL_THE_TIME).await;
    }
    let mut outcome = Outcome::default();
    let (fresh, old) = (outcome.seconds("new", fresh), outcome.seconds("old_gone", old));
    Ok(outcome.say(format!("the new name answers after {fresh}, the old one is gone after {old}")))
}

pub(super) async fn again(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    let watch = world.watch(&["s0".to_owned()], ALL_THE_TIME).await?;
    world.delete("s0")?;
    world.put("s0", "s0", &["10.9.0.1"])?;
    let follows = world.leads("s0", &["10.9.0.1"], Instant::now()).await;
    sleep(secs(15)).await;
    let mut outcome = Outcome::default();
    let follows = outcome.seconds("follows", follows);
    let missing = outcome.seconds("missing", Some(watch.seen().missing_s));
    Ok(outcome.say(format!("the new address answers after {follows}, without an answer {missing}")))
}

pub(super) async fn while_down(world: &mut World) -> Result<Outcome> {
    let hosts = world.settled(10).await?;
    world.notifier.kill().await;
    world.delete("s0")?;
    world.delete("s1")?;
    world.put("s2", "s2", &["10.9.0.1"])?;
    sleep(secs(5)).await;
    world.notifier.start()?;
    let since = Instant::now();
    let added = world.until("s2", since, |answer| answer.has("10.9.0.1")).await;
    let changed = world.leads("s2", &["10.9.0.1"], since).await;
    let gone = world.gone(&hosts[..2], since).await;
    let marks = world.bind.transfer().await?;
    let left =
        marks.iter().filter(|record| record.0.ends_with(&full("s0")) || record.0.ends_with(&full("s1")));
    let mut outcome = Outcome::default();
    let left = outcome.count("records_left", left.count());
    let added = outcome.seconds("added", added);
    let (gone, changed) = (outcome.seconds("gone", gone), outcome.seconds("changed", changed));
    Ok(outcome.say(format!(
        "after its start the two are gone after {gone} ({left} records left), the new address answers after {added}, and alone after {changed}"
    )))
}

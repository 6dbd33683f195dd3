//! What happens to names and records.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use crate::dns::full;
use crate::external_dns::outcome::Outcome;
use crate::external_dns::side::{Side, TTL_ANNOTATION};
use crate::external_dns::world::{World, service_object};

const ALL_THE_TIME: Duration = Duration::from_millis(2);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) async fn type_change(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    sleep(secs(12)).await;
    let watch = world.watch(&["s0".to_owned()], ALL_THE_TIME).await?;
    world.put("s0", "s0", &["lb.example.org"])?;
    let alias = world.leads("s0", &["lb.example.org"], Instant::now()).await;
    sleep(secs(25)).await;
    let first = watch.seen().missing_s;
    world.put("s0", "s0", &["10.9.0.1"])?;
    let address = world.leads("s0", &["10.9.0.1"], Instant::now()).await;
    sleep(secs(25)).await;
    let seen = watch.seen();
    let mut outcome = Outcome::default();
    let queries = outcome.count("queries", usize::try_from(seen.answers)?);
    let (alias, address) = (outcome.seconds("alias", alias), outcome.seconds("address", address));
    let to_alias = outcome.seconds("missing_to_alias", Some(first));
    let back = outcome.seconds("missing_back", Some(seen.missing_s - first));
    Ok(outcome.say(format!(
        "without an answer {to_alias} and {back}, by {queries} queries; the CNAME answers after {alias}, the address after {address}"
    )))
}

pub(super) async fn ttl(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    let watch = world.watch(&["s0".to_owned()], ALL_THE_TIME).await?;
    let how = match world.side {
        Side::Skopos => {
            world.notifier.configure(60)?;
            "its file, for all names"
        }
        Side::ExternalDns => {
            let mut service = service_object("s0", "s0", &["10.0.0.1"]);
            service["metadata"]["annotations"][TTL_ANNOTATION] = "60".into();
            world.put_object(service)?;
            "an annotation of the Service"
        }
    };
    let changed = world.until("s0", Instant::now(), |answer| answer.ttl == Some(60)).await;
    let mut outcome = Outcome::default();
    let changed = outcome.seconds("changed", changed);
    let missing = outcome.seconds("missing", Some(watch.seen().missing_s));
    Ok(outcome.say(format!("by {how}: answers with it after {changed}, without an answer {missing}")))
}

pub(super) async fn many_addresses(world: &mut World) -> Result<Outcome> {
    let many: Vec<_> = (1..=150).map(|index| format!("10.8.0.{index}")).collect();
    world.put("big", "big", &many.iter().map(String::as_str).collect::<Vec<_>>())?;
    let hosts: Vec<_> = (0..10).map(|index| format!("s{index}")).collect();
    for host in &hosts {
        world.put(host, host, &["10.0.0.1"])?;
    }
    world.notifier.start()?;
    sleep(secs(60)).await;
    let mut outcome = Outcome::default();
    let addresses = outcome.count("addresses", world.bind.at("big", "A").await?.len());
    let others = outcome.count("others", world.answered(&hosts).await?);
    let (bold, end) = if others < hosts.len() { ("**", "**") } else { ("", "") };
    Ok(outcome
        .say(format!("after 60 s {addresses} addresses, and {bold}{others} of the 10 other names{end}")))
}

pub(super) async fn foreign(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    world.put("mail", "mail", &["10.9.0.9"])?;
    sleep(secs(40)).await;
    let during = world.answer("mail").await?.values;
    world.delete("mail")?;
    sleep(secs(30)).await;
    let after = world.answer("mail").await?.values;
    let mut outcome = Outcome::default();
    outcome.count("intact", usize::from(during == ["192.0.2.1"]));
    outcome.count("intact_after_deletion", usize::from(after == ["192.0.2.1"]));
    let whole = |values: &[String]| match values == ["192.0.2.1"] {
        true => "untouched".to_owned(),
        false => format!("**leads to {}**", values.join(" and ")),
    };
    let (during, after) = (whole(&during), whole(&after));
    Ok(outcome.say(format!("{during} for 40 s; after the Service was deleted: {after}")))
}

pub(super) async fn drift(world: &mut World) -> Result<Outcome> {
    world.settled(5).await?;
    sleep(secs(12)).await;
    world.bind.change(&format!("update delete {} A", full("s0"))).await?;
    let deleted = world.leads("s0", &["10.0.0.1"], Instant::now()).await;
    let name = full("s1");
    world.bind.change(&format!("update delete {name} A\nupdate add {name} 30 A 192.0.2.99")).await?;
    let since = Instant::now();
    let right = world.until("s1", since, |answer| answer.has("10.0.0.2")).await;
    let edited = world.leads("s1", &["10.0.0.2"], since).await;
    let mut outcome = Outcome::default();
    let right = outcome.seconds("edited_right", right);
    let (deleted, edited) = (outcome.seconds("deleted", deleted), outcome.seconds("edited", edited));
    Ok(outcome.say(format!("deleted: back after {deleted}; edited: the right address answers after {right}, and alone after {edited}")))
}

pub(super) async fn mark_lost(world: &mut World) -> Result<Outcome> {
    world.settled(3).await?;
    sleep(secs(12)).await;
    let mark = match world.side {
        Side::Skopos => format!("_skopos.{}", full("s0")),
        Side::ExternalDns => format!("a-{}", full("s0")),
    };
    world.bind.change(&format!("update delete {mark} TXT")).await?;
    sleep(secs(12)).await;
    world.put("s0", "s0", &["10.9.0.1"])?;
    let follows = world.leads("s0", &["10.9.0.1"], Instant::now()).await;
    let mut outcome = Outcome::default();
    let told = if follows.is_none() { ": what bears no mark is left alone" } else { "" };
    let follows = outcome.seconds("follows", follows);
    Ok(outcome.say(format!("the new address answers {follows}{told}")))
}

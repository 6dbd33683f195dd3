//! Many names, and changes all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

use crate::dns::{Resolver, full};
use crate::external_dns::outcome::Outcome;
use crate::external_dns::world::World;

const NAMES: usize = 1_000;
const PER_SECOND: u64 = 10;
const SECONDS: u64 = 30;

/// Names whose new address does not answer yet.
type Waiting = BTreeMap<String, (String, Instant)>;

pub(super) async fn changes(world: &mut World) -> Result<Outcome> {
    let begun = Instant::now();
    world.settled(NAMES).await?;
    let mut outcome = Outcome::default();
    let filled = outcome.seconds("filled", Some(begun.elapsed().as_secs_f64()));
    sleep(Duration::from_secs(15)).await;
    let (mut took, changed) = change_and_follow(world).await?;
    sleep(Duration::from_secs(30)).await;
    let mut resolver = Resolver::of(world.bind.address).await?;
    let mut old = 0;
    for name in &changed {
        old += usize::from(resolver.ask(name).await?.values.len() > 1);
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took.get(((took.len().max(1) - 1) as f64 * share) as usize).copied();
    let (p50, p99) = (outcome.seconds("p50", at(0.5)), outcome.seconds("p99", at(0.99)));
    let (followed, answered) = (changed.len(), outcome.count("answered", took.len()));
    let old = outcome.count("old_too", old);
    Ok(outcome.say(format!(
        "change → answer p50 {p50}, p99 {p99}, {answered} of {followed} changes; 30 s later {old} names still have the old address too; 1,000 names written in {filled}"
    )))
}

/// Returns how long each change took until it answered, and which names changed.
async fn change_and_follow(world: &World) -> Result<(Vec<f64>, Vec<String>)> {
    let mut resolver = Resolver::of(world.bind.address).await?;
    let (mut waiting, mut took, mut changed) = (Waiting::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    for change in 0..PER_SECOND * SECONDS {
        let due = begun + Duration::from_millis(change * 1_000 / PER_SECOND);
        while Instant::now() < due {
            look(&mut resolver, &mut waiting, &mut took).await?;
        }
        let host = format!("s{}", usize::try_from(change)? * 7 % NAMES);
        let address = format!("10.20.{}.{}", change / 250, 1 + change % 250);
        world.put(&host, &host, &[&address])?;
        changed.push(full(&host));
        waiting.insert(full(&host), (address, Instant::now()));
    }
    let end = Instant::now();
    while !waiting.is_empty() && end.elapsed() < Duration::from_secs(60) {
        look(&mut resolver, &mut waiting, &mut took).await?;
    }
    Ok((took, changed))
}

async fn look(resolver: &mut Resolver, waiting: &mut Waiting, took: &mut Vec<f64>) -> Result<()> {
    let names: Vec<_> = waiting.keys().cloned().collect();
    for name in names {
        let answer = resolver.ask(&name).await.context("BIND answers")?;
        let (address, since) = &waiting[&name];
        if answer.has(address) {
            took.push(since.elapsed().as_secs_f64());
            waiting.remove(&name);
        }
    }
    sleep(Duration::from_millis(5)).await;
    Ok(())
}

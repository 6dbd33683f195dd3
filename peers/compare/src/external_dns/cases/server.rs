//! What happens to the DNS server.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::cluster::ended;
use crate::dns::SECRET;
use crate::external_dns::outcome::{Outcome, message};
use crate::external_dns::side::Side;
use crate::external_dns::world::World;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One address changes, and one Service is new.
fn two_changes(world: &World) -> Result<()> {
    world.put("s0", "s0", &["10.9.0.1"])?;
    world.put("new", "new", &["10.9.0.2"])
}

/// Waits for both, and returns when the later one answered.
async fn both_answer(world: &mut World, since: Instant) -> Option<f64> {
    let changed = world.leads("s0", &["10.9.0.1"], since).await?;
    Some(world.leads("new", &["10.9.0.2"], since).await?.max(changed))
}

pub(super) async fn killed(world: &mut World) -> Result<Outcome> {
    world.settled(10).await?;
    // What it has written, it has read back by now.
    sleep(secs(12)).await;
    world.bind.kill().await?;
    two_changes(world)?;
    // Not a multiple of the time between two looks at the zone, which begin with the notifier.
    sleep(secs(65)).await;
    world.bind.run().await?;
    let caught_up = both_answer(world, Instant::now()).await;
    let mut outcome = Outcome::default();
    let caught_up = outcome.seconds("caught_up", caught_up);
    let ends = ended(world, &mut outcome);
    Ok(outcome.say(format!("caught up {caught_up} after its return{ends}")))
}

pub(super) async fn frozen(world: &mut World) -> Result<Outcome> {
    world.settled(10).await?;
    world.bind.freeze()?;
    two_changes(world)?;
    sleep(secs(20)).await;
    world.bind.wake()?;
    let caught_up = both_answer(world, Instant::now()).await;
    sleep(secs(15)).await;
    let records = world.bind.at("s0", "A").await?.len() + world.bind.at("new", "A").await?.len();
    let mut outcome = Outcome::default();
    let caught_up = outcome.seconds("caught_up", caught_up);
    let extra = outcome.count("extra", records.saturating_sub(2));
    let ends = ended(world, &mut outcome);
    Ok(outcome.say(format!("caught up {caught_up} after it woke, {extra} records too many{ends}")))
}

pub(super) async fn wrong_key(world: &mut World) -> Result<Outcome> {
    world.notifier.set_secret("d3Jvbmc=")?;
    world.put("web", "web", &["10.9.0.1"])?;
    world.notifier.start()?;
    sleep(secs(60)).await;
    let mut outcome = Outcome::default();
    let attempts = outcome.count("attempts", world.bind.logged("BADSIG"));
    let words = ["BADSIG", "bad signature", "secret", "NOTAUTH", "NotAuth", "bad auth"];
    let said = message(world.notifier.last_line(&words));
    let ends = ended(world, &mut outcome);
    world.notifier.set_secret(SECRET)?;
    let how = match world.side {
        Side::Skopos => "after the file was right",
        Side::ExternalDns => {
            world.notifier.kill().await;
            world.notifier.start()?;
            "after a restart with the right flag"
        }
    };
    let written = world.leads("web", &["10.9.0.1"], Instant::now()).await;
    let written = outcome.seconds("written", written);
    Ok(outcome
        .say(format!("{attempts} messages refused in 60 s{ends}; says {said}; written {written} {how}")))
}

pub(super) async fn transfer_refused(world: &mut World) -> Result<Outcome> {
    world.settled(10).await?;
    world.bind.kill().await?;
    world.bind.allow("allow-update { key skopos; 127.0.0.3; }; allow-transfer { 127.0.0.3; };")?;
    world.bind.run().await?;
    world.put("mail", "mail", &["10.9.0.9"])?;
    world.put("new", "new", &["10.9.0.2"])?;
    world.put("s0", "s0", &["10.9.0.1"])?;
    world.delete("s1")?;
    sleep(secs(60)).await;
    let mut outcome = Outcome::default();
    let foreign = world.answer("mail").await?.values;
    let changed = world.answer("s0").await?.values;
    outcome.count("foreign_intact", usize::from(foreign == ["192.0.2.1"]));
    let created = outcome.count("new_written", usize::from(!world.answer("new").await?.is_nothing()));
    outcome.count("deleted_gone", usize::from(world.answer("s1").await?.is_nothing()));
    world.bind.kill().await?;
    world
        .bind
        .allow("allow-update { key skopos; 127.0.0.3; }; allow-transfer { key skopos; 127.0.0.3; };")?;
    world.bind.run().await?;
    let since = Instant::now();
    let caught_up = both_answer(world, since).await;
    let gone = world.gone(&["s1".to_owned()], since).await;
    let caught_up = outcome.seconds("caught_up", caught_up.zip(gone).map(|(one, other)| one.max(other)));
    let after = world.answer("mail").await?.values;
    outcome.count("foreign_intact_after", usize::from(after == ["192.0.2.1"]));
    let said = message(world.notifier.last_line(&["AXFR", "transfer"]));
    let ends = ended(world, &mut outcome);
    let foreign = match foreign == ["192.0.2.1"] {
        true => "another program's record is untouched".to_owned(),
        false => format!("**another program's name leads to {}**", foreign.join(" and ")),
    };
    let after = match after == ["192.0.2.1"] {
        true => String::new(),
        false => format!(", and in the end to {}", after.join(" and ")),
    };
    let created = if created == 1 { "the new name is written" } else { "nothing is written" };
    Ok(outcome.say(format!(
        "{created}, the changed one leads to {}, {foreign}{after}; says {said}; caught up {caught_up} after transfers were allowed{ends}",
        changed.join(" and ")
    )))
}

pub(super) async fn one_refused(world: &mut World) -> Result<Outcome> {
    world.put("bad", "bad", &["10.9.0.1"])?;
    let hosts: Vec<_> = (0..10).map(|index| format!("s{index}")).collect();
    for host in &hosts {
        world.put(host, host, &["10.0.0.1"])?;
    }
    world.notifier.start()?;
    sleep(secs(60)).await;
    let mut outcome = Outcome::default();
    let written = outcome.count("written", world.answered(&hosts).await?);
    let ends = ended(world, &mut outcome);
    if written == hosts.len() {
        return Ok(outcome.say(format!("the 10 others are written{ends}")));
    }
    world.delete("bad")?;
    let since = Instant::now();
    let mut all = None;
    for host in &hosts {
        all = world.leads(host, &["10.0.0.1"], since).await;
    }
    let all = outcome.seconds("all", all);
    Ok(outcome.say(format!(
        "**{written} of the 10 others are written** within 60 s; all {all} after the refused Service was deleted{ends}"
    )))
}

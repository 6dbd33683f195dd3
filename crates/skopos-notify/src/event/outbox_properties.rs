//! Random tests: after any failures the receiver knows the cluster's state in the end, and never got a message that it should not
//! have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use skopos::ResourceVersion;

use super::delivery::{ChangeKind, Delivery, DeliveryOutcome};
use super::ledger::LedgerChange;
use super::options::Departure;
use super::outbox_tests::{RESOURCE, World, key};

#[derive(Clone, Debug)]
enum Happening {
    Put {
        name: u8,
        value: u8,
    },
    Recreated {
        name: u8,
    },
    Deleted {
        name: u8,
    },
    /// It is deleted, without an event.
    Vanished {
        name: u8,
    },
    Listed,
    Time(u16),
    Send(Vec<Answer>),
    DiskFull,
    Crash,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Delivered,
    Failed,
    /// It arrived, and the answer was lost.
    Lost,
    /// It never arrived, and the sender does not know.
    Silence,
    Unreachable,
    Rejected,
    Throttled,
    /// No answer so far.
    Pending,
}

/// The expected state, computed independently of the outbox.
#[derive(Default)]
struct Truth {
    version: u64,
    uids: u64,
    cluster: BTreeMap<String, (u64, u64, u64)>,
    /// Deletions that may be reported: seen, or confirmed.
    sure: BTreeSet<(String, u64)>,
    /// Time at which an object was noted as missing.
    missing: BTreeMap<(String, u64), skopos_reflect::Time>,
    received: BTreeMap<String, Vec<Received>>,
    acknowledged: BTreeMap<Arc<str>, bool>,
    pending: Vec<Delivery>,
}

#[derive(Clone, Debug)]
struct Received {
    uid: String,
    version: u64,
    kind: ChangeKind,
    value: Option<u64>,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Answer::*;
    let answer = prop_oneof![
        5 => Just(Delivered), 1 => Just(Failed), 1 => Just(Lost), 1 => Just(Silence), 1 => Just(Unreachable), 1 => Just(Rejected),
        1 => Just(Throttled), 1 => Just(Pending)
    ];
    prop_oneof![
        6 => (0..3_u8, 0..3_u8).prop_map(|(name, value)| Happening::Put { name, value }),
        1 => (0..3_u8).prop_map(|name| Happening::Recreated { name }),
        2 => (0..3_u8).prop_map(|name| Happening::Deleted { name }),
        2 => (0..3_u8).prop_map(|name| Happening::Vanished { name }),
        1 => Just(Happening::Listed),
        4 => (0..60_u16).prop_map(Happening::Time),
        6 => prop::collection::vec(answer, 1..4).prop_map(Happening::Send),
        1 => Just(Happening::DiskFull),
        1 => Just(Happening::Crash),
    ]
}

impl Truth {
    fn put(&mut self, world: &mut World, name: &str, value: u64, recreate: bool) {
        self.version += 1;
        let uid = match self.cluster.get(name) {
            Some((uid, ..)) if !recreate => *uid,
            _ => {
                self.uids += 1;
                self.uids
            }
        };
        // Another object with the same name is evidence enough.
        if let Some((old, ..)) = self.cluster.get(name).filter(|(old, ..)| *old != uid) {
            self.sure.insert((name.to_owned(), *old));
        }
        let vanished: Vec<_> =
            self.missing.keys().filter(|(of, old)| of == name && *old != uid).cloned().collect();
        self.sure.extend(vanished);
        self.cluster.insert(name.to_owned(), (uid, self.version, value));
        world.put(name, &format!("u{uid}"), self.version, value);
    }

    fn goes(&mut self, world: &mut World, name: &str, seen: bool) {
        let Some((uid, ..)) = self.cluster.remove(name) else { return };
        self.version += 1;
        if seen {
            self.sure.insert((name.to_owned(), uid));
            world.gone(name, self.version, Departure::Deleted);
        } else {
            self.missing.insert((name.to_owned(), uid), world.now);
            world.gone(name, self.version, Departure::Missing);
        }
    }

    fn listed(&mut self, world: &mut World) {
        for ((name, uid), since) in &self.missing {
            if *since + std::time::Duration::from_secs(30) <= world.now {
                self.sure.insert((name.clone(), *uid));
            }
        }
        world.outbox.listed(RESOURCE, world.now);
    }

    /// Ends the process, and starts another one, which resumes from the disk and lists the cluster.
    fn crash(&mut self, world: &mut World) {
        // A message in flight may still arrive.
        for delivery in std::mem::take(&mut self.pending) {
            self.arrives(&delivery);
        }
        world.crash();
        // An acknowledgement that is not yet on disk is lost.
        self.acknowledged.retain(|_, on_disk| *on_disk);
        for (name, (uid, version, value)) in &self.cluster {
            world.put(name, &format!("u{uid}"), *version, *value);
        }
        let cluster = &self.cluster;
        let version = ResourceVersion::from(self.version);
        world.outbox.synced(world.now, RESOURCE, &version, |key| cluster.contains_key(key.object.name()));
        // For the new process they are missing from now on.
        self.missing.values_mut().for_each(|since| *since = world.now);
    }

    fn arrives(&mut self, delivery: &Delivery) {
        let value =
            delivery.object.as_ref().map(|object| object.to_value()["spec"]["value"].as_u64().unwrap_or(0));
        self.received.entry(delivery.key.object.name().to_owned()).or_default().push(Received {
            uid: delivery.uid.to_string(),
            version: delivery.version.as_u64().unwrap_or(0),
            kind: delivery.kind,
            value,
        });
    }

    fn send(&mut self, world: &mut World, answers: &[Answer]) -> Result<(), TestCaseError> {
        let sent = world.send();
        for delivery in &sent {
            self.check(world, delivery)?;
        }
        self.pending.extend(sent);
        for answer in answers {
            let Some(delivery) = self.pending.pop() else { break };
            let name = delivery.key.object.name().to_owned();
            let problem = String::from("no");
            let outcome = match answer {
                Answer::Pending => {
                    self.pending.insert(0, delivery);
                    continue;
                }
                Answer::Delivered => DeliveryOutcome::Delivered,
                Answer::Failed => DeliveryOutcome::Failed { problem, retry_after: None },
                Answer::Lost | Answer::Silence => DeliveryOutcome::Unknown(problem),
                Answer::Unreachable => DeliveryOutcome::Unreachable(problem),
                Answer::Rejected => DeliveryOutcome::Rejected(problem),
                Answer::Throttled => DeliveryOutcome::Throttled { problem, retry_after: None },
            };
            if matches!(answer, Answer::Delivered | Answer::Lost) {
                self.arrives(&delivery);
            }
            if matches!(answer, Answer::Delivered) {
                self.acknowledged.insert(delivery.id.clone(), false);
            }
            world.answer(&name, outcome);
        }
        Ok(())
    }

    /// Notes that the ledger is on disk: states acknowledged by then are never sent again.
    fn written(&mut self) {
        self.acknowledged.values_mut().for_each(|on_disk| *on_disk = true);
    }

    fn check(&mut self, world: &World, delivery: &Delivery) -> Result<(), TestCaseError> {
        let name = delivery.key.object.name().to_owned();
        prop_assert!(
            self.pending.iter().all(|pending| pending.key != delivery.key),
            "two deliveries of {name} in flight"
        );
        prop_assert!(
            self.acknowledged.get(&delivery.id) != Some(&true),
            "sent again after it was acknowledged and written: {delivery:?}"
        );
        prop_assert!(
            world.disk.recorded.contains_key(&delivery.key),
            "sent before it was remembered: {delivery:?}"
        );
        if delivery.kind == ChangeKind::Deleted {
            let uid = delivery.uid[1..].parse().unwrap_or(0);
            prop_assert!(self.sure.contains(&(name, uid)), "N2: a deletion without evidence: {delivery:?}");
            return Ok(());
        }
        let newest =
            self.received.get(&name).into_iter().flatten().filter(|known| *known.uid == *delivery.uid);
        let newest = newest.map(|known| known.version).max().unwrap_or(0);
        let version = delivery.version.as_u64().unwrap_or(0);
        prop_assert!(version >= newest, "N5: version {version} after {newest}: {delivery:?}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_story_loses_or_reorders_a_state(story in prop::collection::vec(happening(), 1..80)) {
        let mut world = World::new();
        let mut truth = Truth::default();
        for happening in &story {
            match happening {
                Happening::Put { name, value } => {
                    truth.put(&mut world, &format!("n{name}"), (*value).into(), false);
                }
                Happening::Recreated { name } => truth.put(&mut world, &format!("n{name}"), 9, true),
                Happening::Deleted { name } => truth.goes(&mut world, &format!("n{name}"), true),
                Happening::Vanished { name } => truth.goes(&mut world, &format!("n{name}"), false),
                Happening::Listed => truth.listed(&mut world),
                Happening::Time(seconds) => world.pass((*seconds).into()),
                Happening::Send(answers) => {
                    // The write before a send includes all earlier acknowledgements.
                    truth.written();
                    truth.send(&mut world, answers)?;
                }
                Happening::DiskFull => {
                    let sent = world.outbox.due(world.now, 16);
                    let changes: Vec<LedgerChange> = world.outbox.take_changes();
                    sent.iter().for_each(|delivery| world.outbox.not_sent(&delivery.key));
                    world.outbox.not_written(&changes);
                }
                Happening::Crash => truth.crash(&mut world),
            }
        }
        // The faults end.
        for _ in 0..12 {
            world.pass(700);
            truth.listed(&mut world);
            world.outbox.retry_dead(None);
            for _ in 0..4 {
                truth.written();
                truth.send(&mut world, &[Answer::Delivered; 8])?;
            }
        }
        world.write();
        prop_assert_eq!(world.outbox.pending().0, 0, "N4: something waits without end");
        prop_assert_eq!(world.outbox.footprint(), 0, "N8");
        for name in (0..3).map(|name| format!("n{name}")) {
            let last = truth.received.get(&name).and_then(|all| all.last());
            match (truth.cluster.get(&name), last) {
                (Some((uid, _, value)), last) => {
                    let last = last.map(|last| (last.uid.clone(), last.value));
                    prop_assert_eq!(last, Some((format!("u{uid}"), Some(*value))), "N4: {}", name);
                }
                (None, Some(last)) => prop_assert_eq!(last.kind, ChangeKind::Deleted, "N4: {}", name),
                (None, None) => {}
            }
            prop_assert!(world.disk.recorded.contains_key(&key(&name)) == truth.cluster.contains_key(&name));
        }
    }
}

//! Tests of the outbox: the outcome of each change, one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use skopos::{Limits, ObjectKey, RawObject, ResourceVersion};
use skopos_reflect::Time;

use super::content::ObjectContent;
use super::delivery::{ChangeKind, Delivery, DeliveryOutcome, EventKey};
use super::ledger::{LedgerChanges, LedgerContent};
use super::options::{Departure, OutboxOptions};
use super::outbox::Outbox;

/// An outbox, its clock, and its ledger on a working disk.
pub(super) struct World {
    pub(super) outbox: Outbox,
    pub(super) now: Time,
    pub(super) disk: LedgerChanges,
}

const CLUSTER: &str = "one";
pub(super) const RESOURCE: &str = "deployments.apps";

pub(super) fn key(name: &str) -> EventKey {
    EventKey { resource: RESOURCE.into(), object: ObjectKey::namespaced("shop", name) }
}

pub(super) fn object(name: &str, uid: &str, version: u64, value: u64) -> RawObject {
    let object = serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"value": value},
    });
    RawObject::from_value(&object, &Limits::default()).expect("an object")
}

impl World {
    pub(super) fn new() -> Self {
        let mut outbox = Outbox::new(OutboxOptions::default(), LedgerContent::default());
        outbox.saw_cluster(&CLUSTER.into());
        Self { outbox, now: Time::ORIGIN, disk: LedgerChanges::default() }
    }

    pub(super) fn put(&mut self, name: &str, uid: &str, version: u64, value: u64) {
        let object = object(name, uid, version, value);
        let digest = ObjectContent::new(&object, &[]).digest;
        self.outbox.present(self.now, key(name), object, digest);
    }

    pub(super) fn gone(&mut self, name: &str, version: u64, how: Departure) {
        self.outbox.gone(self.now, key(name), ResourceVersion::from(version), how);
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Writes the ledger, and returns the deliveries that are sent then.
    pub(super) fn send(&mut self) -> Vec<Delivery> {
        let deliveries = self.outbox.due(self.now, 16);
        self.write();
        deliveries
    }

    pub(super) fn write(&mut self) {
        self.outbox.take_changes().iter().for_each(|change| self.disk.apply_to_all(change));
    }

    /// Ends the process, and starts another one from the disk.
    pub(super) fn crash(&mut self) {
        self.outbox = Outbox::new(OutboxOptions::default(), self.disk.clone().content(false));
        self.outbox.saw_cluster(&CLUSTER.into());
    }

    fn sent(&mut self) -> Vec<(ChangeKind, u64)> {
        let deliveries = self.send();
        deliveries.iter().map(|delivery| (delivery.kind, delivery.version.as_u64().unwrap_or(0))).collect()
    }

    pub(super) fn answer(&mut self, name: &str, outcome: DeliveryOutcome) {
        self.outbox.outcome(self.now, &key(name), outcome);
    }

    fn delivered(&mut self, name: &str) {
        self.answer(name, DeliveryOutcome::Delivered);
    }

    /// Makes a world with one object that the receiver knows.
    fn known() -> Self {
        let mut world = Self::new();
        world.put("web", "a", 1, 1);
        assert_eq!(world.sent(), [(ChangeKind::Created, 1)]);
        world.delivered("web");
        world.write();
        world
    }
}

#[test]
fn sends_newest_state_once() {
    let mut world = World::known();
    assert_eq!(world.sent(), []);
    // A write without a change of content is not reported.
    world.put("web", "a", 2, 1);
    assert_eq!(world.sent(), []);
    world.put("web", "a", 3, 2);
    world.put("web", "a", 4, 3);
    assert_eq!(world.sent(), [(ChangeKind::Updated, 4)]);
    // While it is in flight, the next one waits.
    world.put("web", "a", 5, 4);
    assert_eq!(world.sent(), []);
    world.delivered("web");
    assert_eq!(world.sent(), [(ChangeKind::Updated, 5)]);
    world.delivered("web");
    assert_eq!(world.outbox.pending().0, 0);
}

#[test]
fn return_to_known_state_sends_nothing() {
    let mut world = World::known();
    world.put("web", "a", 2, 2);
    world.put("web", "a", 3, 1);
    assert_eq!(world.sent(), []);
    // This differs while the other state is in flight: the receiver may have it.
    world.put("web", "a", 4, 2);
    assert_eq!(world.sent(), [(ChangeKind::Updated, 4)]);
    world.put("web", "a", 5, 1);
    world.answer("web", DeliveryOutcome::Unknown("time-out".into()));
    world.pass(20);
    assert_eq!(world.sent(), [(ChangeKind::Updated, 5)]);
}

#[test]
fn unseen_deletion_waits_for_list() {
    let mut world = World::known();
    world.gone("web", 9, Departure::Deleted);
    assert_eq!(world.sent(), [(ChangeKind::Deleted, 9)]);
    world.delivered("web");
    assert_eq!((world.outbox.recorded(), world.outbox.pending().0), (0, 0));

    let mut world = World::known();
    world.gone("web", 9, Departure::Missing);
    world.pass(10);
    world.outbox.listed(RESOURCE, world.now);
    assert_eq!(world.sent(), [], "a list that was begun too soon confirms nothing");
    assert_eq!(world.outbox.list_from(RESOURCE), Some(Time::ORIGIN + Duration::from_secs(30)));
    world.pass(20);
    world.outbox.listed("pods", world.now);
    assert_eq!(world.sent(), [], "a list of another resource confirms nothing");
    world.outbox.listed(RESOURCE, world.now);
    assert_eq!(world.sent(), [(ChangeKind::Deleted, 9)]);

    let mut world = World::known();
    world.gone("web", 9, Departure::Missing);
    world.put("web", "a", 1, 1);
    world.pass(40);
    world.outbox.listed(RESOURCE, world.now);
    assert_eq!((world.sent(), world.outbox.pending().0), (vec![], 0), "it was there all the time");
}

#[test]
fn deleted_and_created_again_is_two_messages_in_order() {
    let mut world = World::known();
    world.put("web", "b", 5, 1);
    assert_eq!(world.sent(), [(ChangeKind::Deleted, 5)]);
    assert_eq!(world.sent(), []);
    world.delivered("web");
    assert_eq!(world.sent(), [(ChangeKind::Created, 5)]);
}

#[test]
fn message_id_survives_failure_and_crash() {
    let mut world = World::new();
    world.put("web", "a", 1, 1);
    let first = world.send().remove(0).id;
    world.answer("web", DeliveryOutcome::Failed { problem: "500".into(), retry_after: None });
    world.pass(5);
    assert_eq!(world.send().remove(0).id, first);
    world.crash();
    world.put("web", "a", 1, 1);
    let again = world.send().remove(0);
    assert_eq!((again.id, again.kind), (first, ChangeKind::Created));
}

#[test]
fn deletion_is_sent_after_unacknowledged_creation() {
    let mut world = World::new();
    world.put("web", "a", 1, 1);
    assert_eq!(world.sent(), [(ChangeKind::Created, 1)]);
    world.crash();
    // It was deleted while no process ran.
    world.outbox.synced(world.now, RESOURCE, &ResourceVersion::from(7), |_| false);
    world.pass(31);
    world.outbox.listed(RESOURCE, world.now);
    assert_eq!(world.sent(), [(ChangeKind::Deleted, 7)]);
}

#[test]
fn undelivered_creation_needs_no_deletion() {
    let mut world = World::new();
    world.put("web", "a", 1, 1);
    assert_eq!(world.sent(), [(ChangeKind::Created, 1)]);
    world.gone("web", 2, Departure::Deleted);
    world.answer("web", DeliveryOutcome::Unreachable("refused".into()));
    world.pass(60);
    assert_eq!((world.sent(), world.outbox.pending().0, world.outbox.footprint()), (vec![], 0, 0));
}

#[test]
fn failures_wait_longer_and_longer_up_to_ten_minutes() {
    let mut world = World::new();
    world.put("web", "a", 1, 1);
    let mut pauses = Vec::new();
    for _ in 0..16 {
        assert_eq!(world.send().len(), 1);
        world.answer("web", DeliveryOutcome::Failed { problem: "500".into(), retry_after: None });
        let next = world.outbox.wake_at().expect("a time");
        pauses.push(next.since(world.now).as_secs_f64());
        world.now = next;
    }
    assert!(pauses[0] < 1.3 && pauses[1] > pauses[0] && *pauses.last().unwrap() <= 750.0, "{pauses:?}");
    assert!(*pauses.last().unwrap() >= 450.0, "{pauses:?}");
}

#[test]
fn a_receiver_that_asks_for_a_pause_gets_it() {
    let mut world = World::new();
    (0..5).for_each(|index| world.put(&format!("web{index}"), "a", 1, 1));
    assert_eq!(world.send().len(), 5);
    let asked = Some(Duration::from_secs(100));
    world.answer("web0", DeliveryOutcome::Throttled { problem: "429".into(), retry_after: asked });
    (1..5).for_each(|index| world.delivered(&format!("web{index}")));
    world.put("other", "a", 1, 1);
    let wake = world.outbox.wake_at();
    // The successes meanwhile show that the receiver accepts messages again.
    assert!(wake.is_some_and(|at| at <= world.now), "{wake:?}");
    world.answer("web0", DeliveryOutcome::Delivered);

    let mut world = World::new();
    (0..3).for_each(|index| world.put(&format!("web{index}"), "a", 1, 1));
    assert_eq!(world.outbox.due(world.now, 1).len(), 1);
    world.answer("web0", DeliveryOutcome::Throttled { problem: "429".into(), retry_after: asked });
    world.pass(99);
    assert_eq!(world.send().len(), 0);
    world.pass(1);
    assert_eq!(world.send().len(), 1, "one message as a probe");
    assert_eq!(world.send().len(), 0);
}

#[test]
fn unreachable_receiver_gets_one_probe_per_10s() {
    let mut world = World::new();
    (0..100).for_each(|index| world.put(&format!("web{index}"), "a", 1, 1));
    let mut probes = 0;
    for _ in 0..3600 {
        for delivery in world.send() {
            probes += 1;
            world.outbox.outcome(world.now, &delivery.key, DeliveryOutcome::Unreachable("refused".into()));
        }
        world.pass(1);
    }
    assert!((350..=400).contains(&probes), "{probes}");
    world.pass(10);
    let mut rounds = 0;
    while world.outbox.pending().0 > 0 && rounds < 100 {
        rounds += 1;
        for delivery in world.send() {
            world.outbox.outcome(world.now, &delivery.key, DeliveryOutcome::Delivered);
        }
    }
    assert!(rounds <= 8, "{rounds}");
}

#[test]
fn silent_receiver_gets_one_probe_per_10s_however_few_messages_wait() {
    let silent = || DeliveryOutcome::Unknown("no answer".into());
    let behind_proxy = || DeliveryOutcome::Throttled { problem: "503".into(), retry_after: None };
    for outcome in [silent, behind_proxy] {
        let mut world = World::new();
        world.put("web", "a", 1, 1);
        let mut last = world.now;
        for _ in 0..100 {
            assert_eq!(world.send().len(), 1);
            last = world.now;
            world.answer("web", outcome());
            world.now = world.outbox.wake_at().expect("a time");
        }
        assert_eq!(world.now.since(last), Duration::from_secs(10));
    }
}

#[test]
fn nothing_is_due_while_answer_to_probe_is_awaited() {
    let mut world = World::new();
    (0..3).for_each(|index| world.put(&format!("web{index}"), "a", 1, 1));
    for delivery in world.send() {
        world.outbox.outcome(world.now, &delivery.key, DeliveryOutcome::Unknown("no answer".into()));
    }
    world.now = world.outbox.wake_at().expect("a time");
    assert_eq!(world.send().len(), 1);
    world.pass(3);
    assert_eq!(world.send().len(), 0);
    // A time in the past would keep the loop busy.
    assert_eq!(world.outbox.wake_at(), None);
}

#[test]
fn recovery_sends_failed_events_immediately() {
    let mut world = World::new();
    (0..10).for_each(|index| world.put(&format!("web{index}"), "a", 1, 1));
    for _ in 0..2_000 {
        for delivery in world.send() {
            let outcome = DeliveryOutcome::Failed { problem: "500".into(), retry_after: None };
            world.outbox.outcome(world.now, &delivery.key, outcome);
        }
        world.pass(5);
    }
    world.pass(10);
    // One of the ten is the probe, at the end of its pause of about ten minutes.
    let mut sent = world.send();
    for _ in 0..1_000 {
        if !sent.is_empty() {
            break;
        }
        world.pass(1);
        sent = world.send();
    }
    assert_eq!(sent.len(), 1);
    world.outbox.outcome(world.now, &sent[0].key, DeliveryOutcome::Delivered);
    // As soon as it has arrived, the others are due at once.
    assert_eq!(world.send().len(), 9);
}

#[test]
fn dead_letter_waits_for_retry_or_new_state() {
    let mut world = World::known();
    world.put("web", "a", 2, 2);
    let sent = world.send().remove(0);
    world.answer("web", DeliveryOutcome::Rejected("422".into()));
    world.write();
    world.pass(10_000);
    assert_eq!((world.sent(), world.outbox.dead().count()), (vec![], 1));
    // This survives a restart.
    world.crash();
    world.put("web", "a", 2, 2);
    assert_eq!((world.sent(), world.outbox.dead().count()), (vec![], 1));
    assert_eq!(world.outbox.retry_dead(Some("msg_other")), 0);
    assert_eq!(world.outbox.retry_dead(Some(&sent.id)), 1);
    assert_eq!(world.send().remove(0).id, sent.id);
    world.answer("web", DeliveryOutcome::Rejected("422".into()));
    world.put("web", "a", 3, 3);
    assert_eq!(world.sent(), [(ChangeKind::Updated, 3)]);
    world.delivered("web");
    world.write();
    assert_eq!((world.outbox.dead().count(), world.outbox.footprint()), (0, 0));
}

#[test]
fn a_receiver_that_wants_no_more_gets_no_more() {
    let mut world = World::known();
    world.put("web", "a", 2, 2);
    world.send();
    world.answer("web", DeliveryOutcome::Disabled("410".into()));
    world.write();
    world.pass(10_000);
    assert_eq!((world.sent(), world.outbox.disabled()), (vec![], Some("410")));
    world.crash();
    world.put("web", "a", 2, 2);
    assert_eq!((world.sent(), world.outbox.disabled()), (vec![], Some("410")));
    world.outbox.retry(world.now);
    assert_eq!(world.sent(), [(ChangeKind::Updated, 2)]);
}

#[test]
fn unsubscribed_changes_count_as_known() {
    let mut world = World::new();
    let told = BTreeSet::from([ChangeKind::Created, ChangeKind::Deleted]);
    let changes = BTreeMap::from([(RESOURCE.into(), told)]);
    let options = OutboxOptions { changes, ..OutboxOptions::default() };
    world.outbox = Outbox::new(options, LedgerContent::default());
    world.outbox.saw_cluster(&CLUSTER.into());
    world.put("web", "a", 1, 1);
    assert_eq!(world.sent(), [(ChangeKind::Created, 1)]);
    world.delivered("web");
    world.put("web", "a", 2, 2);
    assert_eq!((world.sent(), world.outbox.pending().0), (vec![], 0));
    world.put("web", "b", 3, 2);
    assert_eq!(world.sent(), [(ChangeKind::Deleted, 3)]);
}

#[test]
fn other_cluster_holds_outbox_until_accepted() {
    let mut world = World::new();
    world.put("web", "a", 1, 1);
    world.outbox.saw_cluster(&"two".into());
    assert_eq!((world.sent(), world.outbox.is_held()), (vec![], true));
    world.write();
    world.crash();
    world.outbox.saw_cluster(&"two".into());
    world.put("web", "b", 1, 1);
    assert_eq!(world.sent(), [], "it is remembered over a restart");
    world.outbox.accept_cluster("two".into());
    assert_eq!(world.sent(), [(ChangeKind::Created, 1)]);
}

#[test]
fn a_cluster_that_went_back_begins_an_epoch() {
    let mut world = World::new();
    let (deployments, pods) = (RESOURCE.into(), "pods".into());
    world.outbox.saw_version(&deployments, &ResourceVersion::from(50));
    world.outbox.saw_version(&pods, &ResourceVersion::from(90));
    world.put("web", "a", 50, 1);
    assert_eq!(world.send()[0].epoch, 0, "versions of two resources are not compared");
    world.delivered("web");
    world.write();
    world.crash();
    world.outbox.saw_version(&deployments, &ResourceVersion::from(40));
    world.outbox.saw_version(&pods, &ResourceVersion::from(40));
    world.put("web", "a", 40, 2);
    let sent = world.send().remove(0);
    assert_eq!((sent.kind, sent.epoch), (ChangeKind::Updated, 1));
}

#[test]
fn nothing_is_sent_that_could_not_be_remembered() {
    let mut world = World::new();
    world.put("web", "a", 1, 1);
    let sent = world.outbox.due(world.now, 16);
    // The disk is full.
    let changes = world.outbox.take_changes();
    sent.iter().for_each(|delivery| world.outbox.not_sent(&delivery.key));
    world.outbox.not_written(&changes);
    assert!(world.outbox.has_changes());
    assert_eq!(world.sent(), [(ChangeKind::Created, 1)]);
    assert_eq!(world.disk.recorded.len(), 1);
}

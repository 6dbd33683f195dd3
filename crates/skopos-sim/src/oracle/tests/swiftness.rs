//! I11, I12, I14.

use super::tale::{CLIENT, CLUSTER, PODS};
use super::{Invariant, Tale, broken, kept, live, secs, stale};
use crate::cluster::Resource;
use crate::fault::Part;
use crate::history::{ClusterId, Fact, Freshness, Look, Reason, Selection, Standing};

/// Makes a store that has been well for a long time.
fn well() -> Tale {
    let mut tale = Tale::new();
    tale.put("x/a");
    tale.see(live(0));
    tale.go(secs(200));
    tale
}

/// Makes a fault that hits; a change is missed, and the store reports this after `noticed` seconds.
fn missing(number: u8, detect: u64, noticed: u64) -> Tale {
    let mut tale = well();
    let before = tale.see(live(0));
    let fault = tale.fault_begins(CLUSTER, number, Some(secs(detect)), secs(5), false);
    tale.put("x/b");
    tale.go(secs(noticed));
    tale.saw(Look { freshness: Freshness::Live { age: secs(noticed) }, ..before.clone() });
    tale.saw(Look { freshness: stale(), ..before });
    tale.go(secs(30));
    tale.record(Fact::FaultHealed { fault });
    tale.go(secs(1));
    tale.see(live(0));
    tale.go(secs(100));
    tale.see(live(0));
    tale
}

#[test]
fn i11_flags_missing_change_noticed_late() {
    kept(&missing(1, 15, 15), Invariant::I11);
    broken(&missing(1, 15, 30), Invariant::I11);
    kept(&missing(8, 60, 30), Invariant::I11);
}

#[test]
fn i11_without_a_fault_everything_is_there_at_once() {
    let mut tale = well();
    let before = tale.see(live(0));
    tale.put("x/b");
    tale.go(secs(20));
    tale.saw(Look { freshness: live(20_000), ..before });
    broken(&tale, Invariant::I11);
}

#[test]
fn i11_lost_history_is_noticed_like_silent_stream() {
    let missed = |later, missed: u64| {
        let mut tale = well();
        let rv = tale.rv();
        let fault = tale.fault_begins(CLUSTER, 32, Some(secs(30)), secs(5), false);
        tale.roll_back(rv, &[]);
        tale.record(Fact::FaultHealed { fault });
        tale.go(secs(later));
        let before = tale.see(live(0));
        tale.put("x/b");
        tale.go(secs(missed));
        tale.saw(Look { freshness: live(missed * 1000), ..before });
        tale.see(live(0));
        tale
    };
    kept(&missed(200, 50), Invariant::I11);
    broken(&missed(200, 70), Invariant::I11);
    broken(&missed(700, 50), Invariant::I11);
}

/// Makes a fault that lasts for a while; all is well `recovered` seconds after its healing.
fn healed(recovered: u64, before: Freshness) -> Tale {
    healed_of(1, recovered, before)
}

fn healed_of(number: u8, recovered: u64, before: Freshness) -> Tale {
    let mut tale = well();
    let fault = tale.fault_begins(CLUSTER, number, Some(secs(15)), secs(2), false);
    tale.go(secs(40));
    let look = tale.look(PODS, before);
    tale.saw(look);
    tale.record(Fact::FaultHealed { fault });
    tale.go(secs(recovered));
    tale.see(live(0));
    tale.go(secs(100));
    tale.see(live(0));
    tale
}

#[test]
fn i12_flags_slow_recovery_after_healed_fault() {
    kept(&healed(2, stale()), Invariant::I12);
    broken(&healed(20, stale()), Invariant::I12);
    // The proof may take a probe.
    let unproven = Freshness::Stale { age: Some(secs(100)), reason: Reason::AgeBound };
    kept(&healed(40, unproven), Invariant::I12);
    broken(&healed(80, unproven), Invariant::I12);
}

#[test]
fn i12_undecodable_object_is_read_again_in_minutes() {
    let undecodable = Freshness::Stale { age: None, reason: Reason::Undecodable };
    kept(&healed_of(15, 300, undecodable), Invariant::I12);
    broken(&healed_of(15, 450, undecodable), Invariant::I12);
    // Without damage no object must be read again.
    broken(&healed_of(1, 300, undecodable), Invariant::I12);
}

#[test]
fn i12_a_change_is_still_missing() {
    let mut tale = well();
    let before = tale.see(live(0));
    let fault = tale.fault_begins(CLUSTER, 1, Some(secs(1)), secs(2), false);
    tale.put("x/b");
    tale.saw(Look { freshness: stale(), ..before.clone() });
    tale.go(secs(10));
    tale.record(Fact::FaultHealed { fault });
    let unproven = Freshness::Stale { age: Some(secs(100)), reason: Reason::AgeBound };
    tale.saw(Look { freshness: unproven, ..before });
    tale.go(secs(20));
    tale.see(live(0));
    tale.go(secs(100));
    tale.see(live(0));
    broken(&tale, Invariant::I12);
}

/// Makes a fault in another cluster.
fn beside(freshness: Freshness, late: u64) -> Tale {
    let mut tale = Tale::new();
    let other = tale.cluster();
    let there = tale.informer(other, Selection::all());
    tale.put("x/a");
    tale.see(live(0));
    let look = tale.look(there, live(0));
    tale.saw(look);
    tale.go(secs(200));
    let fault = tale.fault_begins(ClusterId(1), 1, Some(secs(15)), secs(2), false);
    let look = tale.look(there, stale());
    tale.saw(look);
    let before = tale.look(PODS, freshness);
    tale.saw(before);
    tale.go(secs(1));
    tale.put("x/b");
    tale.go(secs(late));
    tale.see(live(0));
    tale.go(secs(20));
    tale.record(Fact::FaultHealed { fault });
    let look = tale.look(there, live(0));
    tale.saw(look);
    tale
}

#[test]
fn i14_flags_effects_of_fault_in_other_cluster() {
    kept(&beside(live(0), 1), Invariant::I14);
    broken(&beside(stale(), 0), Invariant::I14);
    let verdict = beside(live(10_000), 10).judge();
    assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I14));
}

/// Makes a fault of this part. The store of all pods has this freshness, and a change arrives this late.
fn beside_a_part(part: Part, freshness: Freshness, late: u64) -> Tale {
    let mut tale = well();
    let fault = tale.fault_begins(CLUSTER, 19, Some(secs(1)), secs(39), false);
    tale.confine(|confined, _| *confined = part);
    let before = tale.look(PODS, freshness);
    tale.saw(before);
    tale.go(secs(1));
    tale.put("x/b");
    tale.go(secs(late));
    tale.see(live(0));
    tale.go(secs(100));
    tale.record(Fact::FaultHealed { fault });
    tale
}

#[test]
fn i14_flags_effects_of_fault_on_other_requests() {
    for part in [
        Part { namespace: Some(0), ..Part::WHOLE },
        Part { resource: Some(Resource::Nodes), ..Part::WHOLE },
        Part { resource: Some(Resource::Pods), namespace: Some(0) },
    ] {
        kept(&beside_a_part(part, live(0), 1), Invariant::I14);
        broken(&beside_a_part(part, stale(), 0), Invariant::I14);
        let verdict = beside_a_part(part, live(10_000), 10).judge();
        assert!(verdict.violations.iter().any(|violation| violation.invariant == Invariant::I14));
    }
    // The affected store may have a problem.
    let pods = Part { resource: Some(Resource::Pods), ..Part::WHOLE };
    assert_eq!(beside_a_part(pods, stale(), 0).judge().violations, []);
}

#[test]
fn i12_informer_started_in_fault_recovers() {
    let came = |recovered| {
        let mut tale = Tale::new();
        let fault = tale.fault_begins(CLUSTER, 19, Some(secs(1)), secs(39), false);
        tale.go(secs(10));
        let late = tale.informer(CLIENT, Selection::all());
        let nothing = Look { synced: false, ..tale.look(late, Freshness::NeverSynced) };
        tale.saw(Look { standing: Standing { failures: 1, ..Standing::default() }, ..nothing });
        tale.go(secs(50));
        tale.record(Fact::FaultHealed { fault });
        tale.see(live(0));
        tale.go(secs(recovered));
        let look = tale.look(late, live(0));
        tale.saw(look);
        tale.go(secs(100));
        tale.see(live(0));
        tale
    };
    kept(&came(60), Invariant::I12);
    broken(&came(80), Invariant::I12);
}

#[test]
fn i11_slow_path_does_not_hide_dead_one() {
    let died = |slow, noticed| {
        let mut tale = well();
        let before = tale.see(live(0));
        tale.fault_begins(CLUSTER, 9, None, secs(slow), false);
        tale.go(secs(10));
        tale.fault_begins(CLUSTER, 1, Some(secs(15)), secs(10), false);
        tale.put("x/b");
        tale.go(secs(noticed));
        tale.saw(Look { freshness: Freshness::Live { age: secs(noticed) }, ..before.clone() });
        tale.saw(Look { freshness: stale(), ..before });
        tale.go(secs(30));
        tale.see(stale());
        tale
    };
    let (late, crawling) = (39, 61);
    kept(&died(late, 20), Invariant::I11);
    broken(&died(late, 30), Invariant::I11);
    kept(&died(crawling, 30), Invariant::I11);
    broken(&died(crawling, 100), Invariant::I11);
}

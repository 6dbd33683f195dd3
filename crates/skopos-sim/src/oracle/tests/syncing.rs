//! First lists (I11, I12, I20), and related checks: sleeps (I10), shared connections (I14), dials and `Retry-After` (I15).

use std::time::Duration;

use super::tale::{CLUSTER, PODS};
use super::{Invariant, Tale, broken, kept, live, secs};
use crate::history::{CallKind, Fact, Freshness, Look, Outcome, Standing, Verb, View};

/// Makes a store without a list, in this fault and for this time.
fn unlisted(number: u8, detect: Option<Duration>, failures: u32, synced: bool) -> Tale {
    let mut tale = Tale::new();
    tale.fault_begins(CLUSTER, number, detect, secs(60), false);
    tale.confine(|_, spares_lists| *spares_lists = number == 35);
    let standing = Standing { failures, ..Standing::default() };
    let nothing = [View { rv: 0, ..tale.look(PODS, Freshness::NeverSynced).views[0] }].into();
    let look = tale.look(PODS, Freshness::NeverSynced);
    tale.saw(Look { synced: false, standing, views: nothing, ..look });
    tale.go(secs(20));
    if synced {
        tale.see(live(0));
    }
    tale.go(secs(60));
    tale.record(Fact::Quiet);
    tale
}

#[test]
fn i11_a_list_that_is_not_answered_fails() {
    kept(&unlisted(12, Some(secs(30)), 1, false), Invariant::I11);
    broken(&unlisted(12, Some(secs(30)), 0, false), Invariant::I11);
    // The same holds for any fault.
    kept(&unlisted(25, Some(secs(1)), 1, false), Invariant::I11);
    broken(&unlisted(25, Some(secs(1)), 0, false), Invariant::I11);
}

#[test]
fn i12_expects_list_when_streamed_one_never_ends() {
    kept(&unlisted(35, None, 0, true), Invariant::I12);
    broken(&unlisted(35, None, 1, false), Invariant::I12);
}

#[test]
fn i20_flags_wait_that_returns_before_list() {
    let waited = |synced| {
        let mut tale = Tale::new();
        let look = tale.look(PODS, Freshness::NeverSynced);
        tale.saw(Look { synced: false, ..look });
        let call = tale.call(CallKind::WaitSynced, secs(5));
        tale.go(secs(1));
        tale.returned(call, Outcome::Done);
        if synced {
            tale.see(live(0));
        }
        tale.go(secs(5));
        tale.record(Fact::Quiet);
        tale
    };
    kept(&waited(true), Invariant::I20);
    broken(&waited(false), Invariant::I20);
}

#[test]
fn i10_age_includes_machine_sleep() {
    let slept = |age| {
        let mut tale = Tale::new();
        tale.see(live(0));
        tale.go(secs(20));
        tale.fault_begins(CLUSTER, 31, Some(secs(2)), secs(10), false);
        tale.go(secs(1));
        tale.see(live(age));
        tale
    };
    kept(&slept(7_000), Invariant::I10);
    broken(&slept(1_500), Invariant::I10);
}

#[test]
fn i14_lists_and_watches_share_no_connection() {
    let mut tale = Tale::new();
    tale.see(live(0));
    let rv = tale.rv();
    tale.requested(Verb::Watch, Some(rv), false);
    assert_eq!(tale.judge().violations, []);
    let Some(Fact::Requested { connection, .. }) =
        tale.history.entries.last_mut().map(|entry| &mut entry.fact)
    else {
        panic!("a request")
    };
    *connection = 0;
    tale.relisted();
    broken(&tale, Invariant::I14);
}

#[test]
fn i15_flags_constant_dialling_of_down_server() {
    let dialled = |pause| {
        let mut tale = Tale::new();
        for _ in 0..20 {
            tale.record(Fact::DialFailed { cluster: CLUSTER, client: 0 });
            tale.go(pause);
        }
        tale
    };
    assert_eq!(dialled(secs(1)).judge().violations, []);
    broken(&dialled(Duration::from_millis(500)), Invariant::I15);
}

#[test]
fn i15_flags_ignored_retry_after() {
    let heeded = |after| {
        let mut tale = Tale::new();
        let rv = tale.rv();
        tale.see(live(0));
        tale.fault_begins(CLUSTER, 24, Some(secs(1)), secs(39), false);
        for entry in &mut tale.history.entries {
            if let Fact::FaultBegan { retry_after, .. } = &mut entry.fact {
                *retry_after = Some(secs(20));
            }
        }
        tale.go(secs(1));
        tale.requested(Verb::Watch, Some(rv), false);
        tale.go(secs(after));
        tale.requested(Verb::Watch, Some(rv), false);
        tale
    };
    kept(&heeded(20), Invariant::I15);
    broken(&heeded(5), Invariant::I15);
}

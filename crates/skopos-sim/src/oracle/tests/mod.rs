//! Manual tests of each invariant: a history that keeps it, and at least one that breaks it.

mod alarms;
mod causes;
mod ends;
mod outside;
mod queues;
mod requests;
mod shared;
mod stores;
mod stories;
mod swiftness;
mod syncing;
mod tale;
mod visits;
mod waits;
mod watched;

pub(super) use self::tale::{Tale, live, secs, stale};
pub(super) use super::Invariant;

#[test]
fn good_history_is_clean_and_checks_most_invariants() {
    let mut tale = Tale::new();
    tale.good_life();
    let verdict = tale.judge();
    assert_eq!(verdict.violations, []);
    let seldom = [
        Invariant::I14,
        Invariant::I19,
        Invariant::I21,
        Invariant::I22,
        // Needs a gateway.
        Invariant::I24,
        Invariant::I25,
        // The history is over before a minute has passed without a fault.
        Invariant::I26,
        // Needs notifiers.
        Invariant::N1,
        Invariant::N2,
        Invariant::N3,
        Invariant::N4,
        Invariant::N5,
        Invariant::N6,
        Invariant::N7,
        Invariant::N8,
    ];
    for invariant in Invariant::ALL.into_iter().filter(|invariant| !seldom.contains(invariant)) {
        assert!(verdict.counts(invariant).checked > 0, "{invariant} was not checked");
    }
}

/// Checks that this invariant, and no other, is broken.
#[track_caller]
pub(super) fn broken(tale: &Tale, invariant: Invariant) {
    let verdict = tale.judge();
    let found: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
    assert!(!found.is_empty(), "nothing was found, and {invariant} is broken");
    // A store that a test makes stale is a false alarm, too.
    let only = [invariant, Invariant::I26];
    assert!(verdict.violations.iter().all(|violation| only.contains(&violation.invariant)), "{found:#?}");
    assert!(verdict.violations.iter().any(|violation| violation.invariant == invariant), "{found:#?}");
}

/// Checks that nothing is broken, and that the invariant was exercised.
#[track_caller]
pub(super) fn kept(tale: &Tale, invariant: Invariant) {
    let mut verdict = tale.judge();
    verdict
        .violations
        .retain(|violation| invariant == Invariant::I26 || violation.invariant != Invariant::I26);
    assert_eq!(verdict.violations, []);
    assert!(
        verdict.counts(invariant).exercised > 0,
        "{invariant} was not exercised: {:?}",
        verdict.counts(invariant)
    );
}

//! Reasons for empty cells of the table. An empty cell without a reason here fails the gate.

use crate::fault::{Place, entry};
use crate::oracle::Invariant;

const MIXED_ONLY: &str = "needs a second cluster: see the row of mixed hours";
const NO_ROLLBACK: &str = "only history that goes back begins an epoch";
const SHORT: &str = "the fault is over before a minute has passed, or has no end that could be waited for";
const HARMLESS: &str = "content is never behind while it lasts, so there is nothing to be noticed";
const USERS: &str = "lies with the users: the link itself is well";
const ENDS: &str = "the client ends while the fault is in force, or before it";
const AUDITS: &str = "nothing but an audit finds it: see I23";
const LISTS_ONLY: &str = "concerns first lists alone, and is over with them";
const STARTING: &str = "met by informers that have just been started, whose first minute is their own";
const BOOKMARKS: &str = "exercised while nothing is wrong but that bookmarks are missing";
const NOTIFIERS: &str = "one run in ten has notifiers: see the row of mixed hours";
const NO_PANICS: &str = "all handlers of its runs are slow, and none panics";

/// Returns the reason for which this fault does not exercise this invariant; `None`: it must. `None` as the fault: mixed hours.
pub(super) fn reason(fault: Option<u8>, invariant: Invariant) -> Option<&'static str> {
    let number = fault?;
    if let Some(Place::NotHere(why)) = entry(number).map(|entry| entry.place) {
        return Some(why);
    }
    let of_users = matches!(number, 41 | 43 | 44 | 49);
    match invariant {
        Invariant::I26 if number != 36 => Some(BOOKMARKS),
        Invariant::I14 => Some(MIXED_ONLY),
        Invariant::N1 | Invariant::N2 | Invariant::N3 | Invariant::N4 => Some(NOTIFIERS),
        Invariant::N5 | Invariant::N6 | Invariant::N7 | Invariant::N8 => Some(NOTIFIERS),
        Invariant::I19 if number != 32 => Some(NO_ROLLBACK),
        Invariant::I15 if of_users => Some(USERS),
        Invariant::I15 if is_short(number) => Some(SHORT),
        Invariant::I15 if matches!(number, 11 | 12) => Some(STARTING),
        Invariant::I21 if number == 43 => Some(NO_PANICS),
        Invariant::I11 if of_users => Some(USERS),
        Invariant::I11 if is_harmless(number) => Some(HARMLESS),
        Invariant::I11 | Invariant::I12 if matches!(number, 48) => Some(ENDS),
        Invariant::I23 if matches!(number, 48 | 49) => Some(ENDS),
        Invariant::I12 if number == 47 => Some(AUDITS),
        Invariant::I11 | Invariant::I12 | Invariant::I15 if number == 35 => Some(LISTS_ONLY),
        _ => None,
    }
}

fn is_short(number: u8) -> bool {
    matches!(number, 3 | 4 | 6 | 22 | 23 | 30 | 31 | 32 | 46 | 47 | 48 | 52)
}

fn is_harmless(number: u8) -> bool {
    matches!(number, 6 | 7 | 10 | 11 | 23 | 30 | 31 | 36 | 51)
}

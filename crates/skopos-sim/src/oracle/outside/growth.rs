//! N8: a long fault of the outside causes no more requests a minute than a short one, and no more work afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Outside;
use crate::history::{At, AtOutside, KeyId, Trouble};
use crate::oracle::{Invariant, Verdict};

const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of attempts in a minute for a sink (`PROBE_INTERVAL`) or a receiver, and for a standby process.
const TRIES: usize = 6;
const STANDBY_TRIES: usize = 2;
/// Maximum number of writes of a name in the minute after a fault, beside those for each change: one, and those for changes by
/// others.
const WRITES: usize = 4;

pub(super) fn check(outside: &Outside<'_>, verdict: &mut Verdict) {
    let troubles = troubles(outside);
    let names = outside.wanted.names().count();
    let processes = outside.case.history.cast.processes.len();
    // Calls of the sink, and of the receiver.
    let mut calls = [Vec::new(), Vec::new()];
    let mut writes = BTreeMap::<KeyId, Vec<At>>::new();
    for (at, fact) in outside.facts() {
        match fact {
            AtOutside::Read { .. } => calls[0].push(at),
            AtOutside::Notified { .. } => calls[1].push(at),
            AtOutside::Sent { name, .. } => {
                calls[0].push(at);
                writes.entry(*name).or_default().push(at);
            }
            AtOutside::Reported { pending, wanted, outside: there, .. } => {
                if troubles.iter().any(|trouble| trouble.began <= at && trouble.ended.plus(MINUTE) > at) {
                    verdict.exercise(Invariant::N8);
                }
                verdict.demand(Invariant::N8, pending <= &(wanted + there), at, outside.focus(None), || {
                    format!("{pending} names wait, where {wanted} are wanted and {there} are outside")
                });
            }
            _ => {}
        }
    }
    let within = |times: &[At], from: At, to: At| times.iter().filter(|at| **at >= from && **at < to).count();
    for trouble in &troubles {
        let most = TRIES * (1 + names) + STANDBY_TRIES * processes;
        // Messages in flight at the beginning, and the first attempts, are in the first minute.
        let mut from = trouble.began.plus(MINUTE);
        while from.plus(MINUTE) <= trouble.ended {
            let count = calls.iter().map(|calls| within(calls, from, from.plus(MINUTE))).max().unwrap_or(0);
            verdict.exercise(Invariant::N8);
            verdict.demand(Invariant::N8, count <= most, from, outside.focus(None), || {
                format!("{count} calls in a minute of {:?}, where {most} are allowed", trouble.what)
            });
            from = from.plus(MINUTE);
        }
        if trouble.ended.since(trouble.began) < MINUTE {
            continue;
        }
        let to = trouble.ended.plus(MINUTE);
        for (name, times) in &writes {
            let (count, changes) =
                (within(times, trouble.ended, to), outside.wanted.changes(*name, trouble.began, to));
            let edits = outside.edits(*name, trouble.began, to);
            // One write brings all changes of the meantime.
            let most = WRITES + outside.wanted.changes(*name, trouble.ended, to) + 2 * edits;
            if changes > 0 {
                verdict.exercise(Invariant::N8);
            }
            verdict.demand(Invariant::N8, count <= most, trouble.ended, outside.focus(Some(*name)), || {
                let name = outside.case.key(*name);
                format!("{name} is written {count} times in the minute after {:?}", trouble.what)
            });
        }
    }
}

/// A fault from its beginning to its end.
struct Span {
    what: Trouble,
    began: At,
    ended: At,
}

fn troubles(outside: &Outside<'_>) -> Vec<Span> {
    let (mut open, mut spans) = (BTreeMap::new(), Vec::new());
    for (at, fact) in outside.facts() {
        match fact {
            AtOutside::TroubleBegan { what } => drop(open.insert(*what, at)),
            AtOutside::TroubleEnded { what } => {
                spans.extend(open.remove(what).map(|began| Span { what: *what, began, ended: at }));
            }
            _ => {}
        }
    }
    spans
}

impl Outside<'_> {
    /// Returns the number of manual changes of a name between two moments.
    fn edits(&self, name: KeyId, from: At, to: At) -> usize {
        let of_name =
            |fact: &AtOutside| matches!(fact, AtOutside::Edited { name: edited, .. } if *edited == name);
        self.facts().filter(|(at, fact)| *at >= from && *at <= to && of_name(fact)).count()
    }
}

//! N6: at most one process works, and only in its term.

use std::collections::BTreeMap;

use super::Outside;
use crate::history::{At, AtOutside, ProcessId};
use crate::oracle::{Invariant, Verdict};

pub(super) fn check(outside: &Outside<'_>, verdict: &mut Verdict) {
    let mut working: BTreeMap<ProcessId, u64> = BTreeMap::new();
    let of = outside.focus(None);
    let several = outside.case.history.cast.processes.len() > 1;
    let name = |process: ProcessId| &outside.case.history.cast.processes[process.index()].name;
    let alone = |verdict: &mut Verdict, at: At, who: ProcessId, others: Vec<ProcessId>, what: &str| {
        if several {
            verdict.exercise(Invariant::N6);
        }
        verdict.demand(Invariant::N6, others.is_empty(), at, of, || {
            let others: Vec<_> = others.iter().map(|other| name(*other)).collect();
            format!("{} {what} while {others:?} has a term", name(who))
        });
    };
    for (at, fact) in outside.facts() {
        let others =
            |who: &ProcessId| working.keys().copied().filter(|other| other != who).collect::<Vec<_>>();
        match fact {
            AtOutside::Began { process, term } => {
                alone(verdict, at, *process, others(process), "begins");
                working.insert(*process, *term);
            }
            AtOutside::Ended { process, .. } => drop(working.remove(process)),
            AtOutside::Sent { process, term, .. } | AtOutside::Notified { process, term, .. } => {
                alone(verdict, at, *process, others(process), "writes");
                let own = working.get(process);
                verdict.demand(Invariant::N6, own == Some(term), at, of, || {
                    format!("{} writes in term {term}, and has {own:?}", name(*process))
                });
            }
            _ => {}
        }
    }
}

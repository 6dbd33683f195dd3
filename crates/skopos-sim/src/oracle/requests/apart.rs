//! I14: lists and watches do not affect each other, because they share no connections.

use std::collections::HashMap;

use super::text;
use crate::history::{ClusterId, Fact, Verb};
use crate::oracle::{Case, Focus, Invariant, Verdict};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut carries_watches: HashMap<(ClusterId, u32), bool> = HashMap::new();
    for (at, fact) in case.facts() {
        let Fact::Requested { cluster, connection, verb, target, .. } = fact else { continue };
        let watch = *verb == Verb::Watch;
        let alike = *carries_watches.entry((*cluster, *connection)).or_insert(watch) == watch;
        let of = Focus { cluster: Some(*cluster), ..Focus::default() };
        verdict.demand(Invariant::I14, alike, at, of, || {
            let what = text(&case.history.names, *target);
            format!("connection {connection} carries watches, and other requests too: {verb:?} of {what}")
        });
    }
}

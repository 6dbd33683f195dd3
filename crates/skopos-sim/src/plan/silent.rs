//! Hours of silence: a kind without changes, of servers that send no bookmarks, while other kinds change.
//!
//! Events are such a kind, because kube-apiserver keeps no watch cache of them.

use std::time::Duration;

use super::generate::secs;
use super::{HandlerPlan, InformerPlan, Manner, Plan, ReaderKind, ReaderPlan, Strikes};
use crate::cluster::{Resource, WriteKind};
use crate::history::Selection;

/// The fault of servers that send no bookmarks.
const NO_BOOKMARKS: u8 = 36;

/// One plan of this fault in this number is silent.
const SELDOM: u64 = 4;

/// Duration of the silence.
const SILENCE: Duration = Duration::from_secs(3600);

/// Turns a plan of the fault into an hour of silence.
pub(super) fn add(plan: &mut Plan, number: u8) {
    if number != NO_BOOKMARKS || plan.seed % SELDOM != 1 {
        return;
    }
    let begins = secs(60);
    plan.length = begins + SILENCE + secs(60);
    plan.faults.truncate(1);
    for fault in &mut plan.faults {
        (fault.strikes, fault.lasts) = (Strikes::At(begins), SILENCE);
    }
    // Other kinds are written for the whole hour, and nodes only at first.
    let first = plan.bursts.iter().filter(|burst| burst.at.is_zero()).cloned().collect::<Vec<_>>();
    let mut later: Vec<_> = plan.bursts.drain(..).filter(|burst| !burst.at.is_zero()).collect();
    for burst in &mut later {
        burst
            .writes
            .retain(|write| write.resource != Resource::Nodes && !matches!(write.kind, WriteKind::Expire(_)));
    }
    plan.bursts = first;
    for round in 0..4 {
        plan.bursts.extend(later.iter().cloned().map(|mut burst| {
            burst.at += secs(900) * round;
            burst
        }));
    }
    if let Some(client) = plan.clients.first_mut() {
        (client.stops, client.restores) = (None, None);
        client.informers.push(nodes());
    }
}

/// Makes an informer of the unchanged kind.
fn nodes() -> InformerPlan {
    let handler = HandlerPlan {
        manner: Manner::Quick,
        added: Duration::ZERO,
        removed: None,
        capacity: 1000,
        resync: None,
    };
    let reader = ReaderPlan { what: ReaderKind::Snapshot, every: secs(60), limit: secs(1) };
    InformerPlan {
        resource: Resource::Nodes,
        selection: Selection::default(),
        metadata_only: false,
        shared: None,
        again: None,
        handlers: vec![handler],
        readers: vec![reader],
        queue: None,
    }
}

//! Queues: those of handlers (I17) and work queues (I22).

use std::collections::{BTreeMap, BTreeSet};

use super::{Case, Focus, Invariant, Verdict};
use crate::history::{At, Fact, KeyId, QueueId};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut works: BTreeMap<QueueId, Work> = BTreeMap::new();
    let mut settled = false;
    for (at, fact) in case.facts() {
        match fact {
            Fact::HandlerStats { handler, deepest, overflows, .. } => {
                let handler_id = *handler;
                let handler = &case.history.cast.handlers[handler_id.index()];
                let of = Focus { handler: Some(handler_id), ..case.focus(handler.informer) };
                if *overflows > 0 || *deepest as usize >= handler.capacity {
                    verdict.exercise(Invariant::I17);
                }
                let cluster = case.cluster_of(handler.informer);
                let steady = case.weather.on(cluster).all(|span| OF_USERS.contains(&span.number));
                let bound = handler.capacity.max(if steady { ONE_BATCH } else { CAUGHT_UP });
                verdict.demand(Invariant::I17, *deepest as usize <= bound, at, of, || {
                    format!("{}: {deepest} events waited in a queue of {}", handler.name, handler.capacity)
                });
            }
            Fact::QueueAdded { queue, key } => works.entry(*queue).or_default().added(*key),
            Fact::QueueTaken { queue, worker, key } => {
                works.entry(*queue).or_default().taken(case, verdict, at, *queue, (*key, *worker));
            }
            Fact::QueueDone { queue, worker, key, again } => {
                works.entry(*queue).or_default().done(*key, *worker, *again);
            }
            Fact::QueueClosed { queue, drains } => works.entry(*queue).or_default().closed = Some(*drains),
            Fact::QueueEnded { queue } => works.entry(*queue).or_default().ended(case, verdict, at, *queue),
            Fact::Settled => settled = true,
            _ => {}
        }
    }
    for (queue, work) in &works {
        if work.closed.is_some() {
            verdict.demand(Invariant::I22, work.ended, case.lives.end, Focus::default(), || {
                format!("{}: closed, and never ended", name(case, *queue))
            });
        } else if settled {
            work.nothing_lost(case, verdict, case.lives.end, *queue);
        }
    }
}

/// Maximum size of one batch, which is never split. While the link is healthy it is what fits into one HTTP/2 frame of 16 KiB with
/// small objects.
const ONE_BATCH: usize = 100;
/// Maximum number of events that arrive at once after an outage: 256 KiB of events of 400 bytes.
const CAUGHT_UP: usize = 650;
/// Faults that do not affect the link.
const OF_USERS: [u8; 4] = [41, 43, 44, 49];

/// Work of a work queue.
#[derive(Default)]
struct Work {
    waiting: BTreeSet<KeyId>,
    working: BTreeMap<KeyId, u16>,
    /// Keys given back that return when their delay is over, even if they were added and finished meanwhile.
    delayed: BTreeSet<KeyId>,
    closed: Option<bool>,
    ended: bool,
}

impl Work {
    fn added(&mut self, key: KeyId) {
        if self.closed.is_none() {
            self.waiting.insert(key);
        }
    }

    fn taken(
        &mut self,
        case: &Case<'_>,
        verdict: &mut Verdict,
        at: At,
        queue: QueueId,
        (key, worker): (KeyId, u16),
    ) {
        let of = Focus { key: Some(key), ..Focus::default() };
        let (name, object) = (name(case, queue), case.key(key));
        if let Some(other) = self.working.insert(key, worker) {
            let what = format!("{name}: {object} is in worker {other}, and was given to worker {worker}");
            verdict.violate(Invariant::I22, at, of, what);
        }
        let wanted = self.waiting.remove(&key) || self.delayed.remove(&key);
        verdict.demand(Invariant::I22, wanted, at, of, || {
            format!("{name}: {object} was handed out though nobody had added it")
        });
        verdict.demand(Invariant::I22, !self.ended, at, of, || {
            format!("{name}: {object} was handed out after the end")
        });
    }

    fn done(&mut self, key: KeyId, worker: u16, again: bool) {
        if self.working.get(&key) == Some(&worker) {
            self.working.remove(&key);
        }
        if again && self.closed.is_none() {
            self.waiting.insert(key);
            self.delayed.insert(key);
        }
    }

    fn ended(&mut self, case: &Case<'_>, verdict: &mut Verdict, at: At, queue: QueueId) {
        self.ended = true;
        if self.closed == Some(true) {
            self.nothing_lost(case, verdict, at, queue);
        }
    }

    fn nothing_lost(&self, case: &Case<'_>, verdict: &mut Verdict, at: At, queue: QueueId) {
        let left = self.waiting.iter().next().or(self.working.keys().next());
        let of = Focus { key: left.copied(), ..Focus::default() };
        verdict.exercise(Invariant::I22);
        verdict.demand(Invariant::I22, left.is_none(), at, of, || {
            format!(
                "{}: {} keys wait and {} are worked on, {} among them",
                name(case, queue),
                self.waiting.len(),
                self.working.len(),
                left.map_or_else(String::new, |key| case.key(*key).to_string())
            )
        });
    }
}

fn name<'a>(case: &'a Case<'_>, queue: QueueId) -> &'a str {
    &case.history.cast.queues[queue.index()].name
}

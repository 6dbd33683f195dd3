//! One list/watch of an informer: the driver's task, and what it writes on its way into the store.

use std::sync::Arc;

use skopos_reflect::{Change, Commit, LinkState, Sink, Target, Time};
use skopos_wire::{Limits, ObjectKey, RawObject, ResourceVersion};

use crate::freshness::FreshnessCell;
use crate::options::Transform;
use crate::stats::TroubleLog;
use crate::store::{LinkObserver, StoreWriter};

/// One list/watch of an informer.
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) handle: skopos_reflect::DriverHandle,
    pub(crate) troubles: Arc<TroubleLog>,
}

/// Publishes what the link says of itself as freshness.
pub(crate) struct Observer {
    pub(crate) part: usize,
    pub(crate) cell: Arc<FreshnessCell>,
    pub(crate) clock: skopos_reflect::Clock,
    pub(crate) troubles: Arc<TroubleLog>,
}

impl LinkObserver for Observer {
    fn fresh_as_of(&mut self, at: Time) {
        self.cell.prove(self.part, self.clock.instant(at));
    }

    fn state(&mut self, state: &LinkState) {
        self.troubles.state(state);
        let state = Arc::new(state.clone());
        self.cell.update(self.part, |part| part.link = state.clone());
    }
}

/// The way from the driver into the store: applies the transform, and notes complete lists.
pub(crate) struct Intake {
    pub(crate) part: usize,
    pub(crate) writer: StoreWriter,
    pub(crate) cell: Arc<FreshnessCell>,
    pub(crate) troubles: Arc<TroubleLog>,
    pub(crate) transform: Transform,
}

impl Intake {
    fn refine(&self, object: RawObject) -> RawObject {
        if self.transform.keeps() {
            return object;
        }
        let refined = RawObject::scan(self.transform.apply(object.bytes().clone()), &Limits::default());
        match refined {
            Ok(refined) if same_identity(&refined, &object) => refined,
            _ => {
                let key = object.key();
                tracing::error!(%key, transform = ?self.transform, "a transform broke an object: it is kept as it was");
                object
            }
        }
    }
}

fn same_identity(a: &RawObject, b: &RawObject) -> bool {
    (a.key(), a.uid(), a.resource_version()) == (b.key(), b.uid(), b.resource_version())
}

impl Sink for Intake {
    fn begin_replace(&mut self) {
        self.writer.begin_replace();
    }

    fn stage(&mut self, object: RawObject) {
        let object = self.refine(object);
        self.writer.stage(object);
    }

    fn unstage(&mut self, key: &ObjectKey) {
        self.writer.unstage(key);
    }

    fn stage_unreadable(&mut self, key: &ObjectKey) {
        self.writer.stage_unreadable(key);
    }

    fn commit_replace(&mut self, commit: Commit) {
        let cause = commit.cause;
        self.writer.commit_replace(commit);
        self.troubles.relisted(cause);
        self.cell.update(self.part, |part| {
            part.synced = true;
            part.audit = None;
        });
    }

    fn abort_replace(&mut self) {
        self.writer.abort_replace();
    }

    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion) {
        if !self.transform.keeps() {
            for change in changes.iter_mut() {
                if let Change::Put(object) | Change::Deleted(object) = change {
                    *object = self.refine(object.clone());
                }
            }
        }
        self.writer.apply(changes, resource_version);
    }

    fn advance(&mut self, resource_version: &ResourceVersion) {
        self.writer.advance(resource_version);
    }

    fn fresh_as_of(&mut self, at: Time) {
        self.writer.fresh_as_of(at);
    }

    fn state(&mut self, state: &LinkState) {
        self.writer.state(state);
    }
}


//! History: compaction, by age or on demand, and rollback.

use std::sync::Arc;

use skopos_serve::Compacted;
use tokio::time::Instant;

use super::{HistoryLimits, ResourceKey, State, Storage};

/// Version that was replaced or deleted by revision `by`.
#[derive(Debug)]
pub(super) struct Superseded {
    pub(super) by: u64,
    pub(super) resource: ResourceKey,
    pub(super) key: Arc<str>,
    pub(super) bytes: usize,
}

impl Storage {
    /// Forgets all versions but the newest, and all events: reads of older revisions and watches from them get 410.
    pub(crate) fn compact(&self) {
        let mut state = self.inner.state.write();
        let revision = state.revision;
        state.compact_to(revision);
        self.windows().iter().for_each(|window| window.forget(revision));
    }

    /// Forgets the versions older than the newest, but no events: the effect of a compaction in etcd on an API server whose watch
    /// cache reaches further back.
    pub(crate) fn compact_versions(&self) {
        let mut state = self.inner.state.write();
        let revision = state.revision;
        state.compact_to(revision);
    }

    /// Forgets all events but no versions: the effect of a restart on the watch cache of an API server.
    pub(crate) fn forget_events(&self) {
        let state = self.inner.state.write();
        self.windows().iter().for_each(|window| window.forget(state.revision));
    }

    /// Rolls back content and revision to `revision`, as a restored etcd does. Open watches get no event.
    ///
    /// # Errors
    /// When that revision is compacted or in the future.
    pub(crate) fn roll_back(&self, revision: u64) -> Result<(), Compacted> {
        let mut state = self.inner.state.write();
        let state = &mut *state;
        state.check_compaction(revision)?;
        if revision > state.revision {
            return Err(Compacted { requested: revision, oldest: state.revision });
        }
        state.tables.values_mut().for_each(|table| table.roll_back(revision));
        self.windows().iter().for_each(|window| window.roll_back(revision));
        state.revision = revision;
        state.timeline.roll_back(revision);
        while state.superseded.back().is_some_and(|s| s.by > revision) {
            if let Some(s) = state.superseded.pop_back() {
                state.superseded_bytes -= s.bytes;
            }
        }
        Ok(())
    }
}

impl State {
    pub(super) fn check_compaction(&self, revision: u64) -> Result<(), Compacted> {
        if revision < self.compacted {
            return Err(Compacted { requested: revision, oldest: self.compacted });
        }
        Ok(())
    }

    pub(super) fn compact_when_due(&mut self, now: Instant, limits: &HistoryLimits) {
        if now >= self.next_compaction {
            self.next_compaction = now + limits.compaction_interval;
            if let Some(before) = now.checked_sub(limits.compaction_interval) {
                self.compact_to(self.timeline.at(before));
            }
        }
        while self.superseded_bytes > limits.max_superseded_bytes {
            let Some(oldest) = self.superseded.front() else { break };
            self.compact_to(oldest.by);
        }
    }

    fn compact_to(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
        while self.superseded.front().is_some_and(|s| s.by <= revision) {
            let Some(superseded) = self.superseded.pop_front() else { break };
            self.superseded_bytes -= superseded.bytes;
            if let Some(table) = self.tables.get_mut(&superseded.resource) {
                table.compact_key(&superseded.key, revision);
            }
        }
        self.timeline.forget_before(revision);
    }
}

//! Comparison of the content with a list of metadata, for servers that send no bookmarks.
//!
//! A list that shows the same objects as the content proves its age, although its RV is higher than ours: changes that
//! undid each other between the two RVs may still be on their way. When such changes come, the content after them is
//! what the server had before the list. The proof is then taken back until our RV has reached the list's.

use super::*;

/// A comparison that proved our content. Changes older than its list invalidate it.
#[derive(Debug)]
pub(super) struct ComparisonProof {
    pub(super) sent_at: Time,
    /// The RV of the list.
    pub(super) resource_version: ResourceVersion,
    /// The proof of our content by its RV alone.
    pub(super) fallback: Option<Time>,
}

/// A comparison with a list of metadata in progress.
#[derive(Debug)]
pub(super) struct Comparison {
    /// The deadline of the comparison.
    pub(super) deadline: Time,
    /// The RV of a list that shows a change. The stream has until the deadline to deliver it.
    pub(super) missing: Option<ResourceVersion>,
}

/// The timeout of a comparison with a list of metadata.
const COMPARISON_TIMEOUT: Duration = Duration::from_secs(30);

impl StallDetector {
    /// Records a proof of our content by its RV.
    pub(in crate::machine) fn record_proof(&mut self, at: Time) {
        if let Some(proof) = &mut self.comparison_proof {
            proof.fallback = proof.fallback.max(Some(at));
        }
    }
}

impl Machine {
    /// Starts a comparison of the content with a list of metadata, if there is a probe to prove and the sink supports
    /// it. Returns whether it is in progress, or will start as soon as a request is affordable.
    pub(super) fn compare(&mut self, sink: &mut dyn Sink) -> bool {
        if self.stall.probes.is_empty() {
            return false;
        }
        let affordable_at = self.affordable_at(1);
        if affordable_at > self.now {
            self.stall.not_before = affordable_at;
            return true;
        }
        if !sink.compare() {
            return false;
        }
        self.requests.spend(self.now);
        self.stall.comparison = Some(Comparison { deadline: self.now + COMPARISON_TIMEOUT, missing: None });
        true
    }

    /// Handles a list of a later RV than ours that shows changes that the content lacks. The stream may be about to bring them.
    pub(in crate::machine) fn on_differs(&mut self, resource_version: ResourceVersion) {
        if self.resource_version().is_none_or(|ours| *ours >= resource_version) {
            return;
        }
        if let Some(comparison) = &mut self.stall.comparison {
            comparison.deadline = comparison.deadline.min(self.now + DELIVERY_GRACE);
            comparison.missing = Some(resource_version);
        }
    }

    /// Handles a comparison: the content equals a consistent list sent at `sent_at`, so it has everything committed
    /// before. Changes that undid each other may still be on their way, so the RV stays.
    pub(in crate::machine) fn on_compared(
        &mut self,
        sent_at: Time,
        compared_at: Time,
        resource_version: &ResourceVersion,
        sink: &mut dyn Sink,
    ) {
        let replaced = self.stall.listed_at >= compared_at;
        if replaced || self.rollback_candidate.is_some() || !matches!(self.state, State::Watching(_)) {
            return;
        }
        let is_ahead = self.resource_version().is_some_and(|ours| ours <= resource_version);
        self.stall.comparison = None;
        if is_ahead && self.stall.changed_at >= compared_at {
            // The content has changed since: the list proves only what a probe would.
            let (seen_at, resource_version) = (self.now, resource_version.clone());
            return self.stall.push_probe(Probe { sent_at, seen_at, resource_version });
        }
        self.stall.confirmed_at = Some(self.now);
        self.stall.probes.retain(|probe| probe.resource_version > *resource_version);
        self.stall.inconclusive = 0;
        self.stall.inconclusive_lists = 0;
        self.stall.not_before = self.now;
        if self.stall.probes.is_empty() {
            self.deferred_relist.take_if(|relist| relist.cause == ReplaceCause::Unproven);
        }
        // A second stream brought nothing either, and nothing is missing: the first is not held back.
        if self.stall.sends_no_bookmarks && std::mem::take(&mut self.stall.held_back) {
            self.settle();
            self.set_watching();
        }
        let fallback = self.stall.comparison_proof.take().map_or(self.fresh, |before| before.fallback);
        let resource_version = resource_version.clone();
        self.stall.comparison_proof = Some(ComparisonProof { sent_at, resource_version, fallback });
        self.report_proof(sent_at, sink);
    }

    /// Takes back the proof of a comparison if the changes up to `reached`, which are about to be applied, are older than its
    /// list: the content after them is what the server had before. From the list's RV on the proof counts again.
    pub(in crate::machine) fn retract_comparison(&mut self, reached: &ResourceVersion, sink: &mut dyn Sink) {
        self.stall.changed_at = self.now;
        let Some(ComparisonProof { sent_at, resource_version, fallback }) =
            self.stall.comparison_proof.take()
        else {
            return;
        };
        if resource_version < *reached {
            return;
        }
        if fallback < self.fresh {
            self.fresh = fallback;
            sink.fresh_only_as_of(fallback);
        }
        self.stall.push_probe(Probe { sent_at, seen_at: self.now, resource_version });
    }
}

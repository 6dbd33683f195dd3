//! The notifiers' actions outside: N1 to N8.
//!
//! ```text
//!  Service, Slice, RolledBack ──▶ wanted: what each name was to have, when ──┬──▶ steps   N1 N2 N7
//!  Applied, Edited ─────────────▶ what each name had ────────────────────────┼──▶ ends    N3 N4
//!  Notified, Received, Answered ▶ what the receiver has acknowledged ────────┼──▶ states  N2 N5
//!  Began, Ended, Sent, Notified ─────────────────────────────────────────────┼──▶ terms   N6
//!  Trouble*, Sent, Read, Reported ───────────────────────────────────────────┴──▶ growth  N8
//! ```
//!
//! A removal is judged at the moment of its send. A frozen server's later execution of it is no decision of the notifier.

mod acknowledged;
mod ends;
mod growth;
mod states;
mod steps;
mod terms;
mod wanted;

use std::time::Duration;

use self::wanted::Wanted;
use super::{Case, Focus, Verdict};
use crate::history::{At, AtOutside, ClusterId, Fact, KeyId};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(process) = case.history.cast.processes.first() else { return };
    let outside =
        Outside { case, cluster: process.cluster, wanted: Wanted::of(case.history, process.cluster) };
    steps::check(&outside, verdict);
    states::check(&outside, verdict);
    ends::check(&outside, verdict);
    terms::check(&outside, verdict);
    growth::check(&outside, verdict);
}

/// Input of the predicates.
struct Outside<'a> {
    case: &'a Case<'a>,
    /// The cluster of the notifiers.
    cluster: ClusterId,
    wanted: Wanted,
}

/// Maximum age of the view for a removal (`PlanOptions::max_age`), plus a moment.
const VIEW: Duration = Duration::from_secs(31);
/// Time that an unseen removal waits for a list that agrees (`PlanOptions::confirm`).
const CONFIRM: Duration = Duration::from_secs(30);
/// Time within which a rollback is detected: two probes, and the lists.
const NEW_HISTORY: Duration = Duration::from_secs(90);

/// Returns the moment of the oldest view that a decision may rest on.
fn oldest_view(at: At) -> At {
    At(at.0.saturating_sub(At::after_start(VIEW).0))
}

impl Outside<'_> {
    fn facts(&self) -> impl Iterator<Item = (At, &AtOutside)> {
        self.case.facts().filter_map(|(at, fact)| match fact {
            Fact::Outside(fact) => Some((at, fact)),
            _ => None,
        })
    }

    fn focus(&self, name: Option<KeyId>) -> Focus {
        Focus { cluster: Some(self.cluster), key: name, is_outside: true, ..Focus::default() }
    }

    /// Returns whether the notifier cannot know better: history went back, or the server loses changes without a trace.
    fn is_excused(&self, at: At) -> bool {
        let recent = |rollback: At| rollback <= at && at.since(rollback) < NEW_HISTORY;
        let mut rollbacks = self.case.truth.rollbacks(self.cluster);
        rollbacks.any(recent) || self.case.weather.felt(self.cluster, at, at).any(|span| span.lies)
    }
}

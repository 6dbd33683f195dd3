//! Excuses: facts that the client cannot know.
//!
//! * A fault that *lies* loses events without a trace, which only an audit can detect. From its beginning a store of the cluster
//!   is excused from being right, until it is seen to be right after the fault was healed. The excuse ends at the latest when an
//!   audit without disturbance by another fault has had time to repair it.
//! * When history goes *back*, a store is of the old line until a probe shows it. If the new line overtakes the old one before
//!   that, only an audit detects it. A store is excused until it is seen to be right on the new line, or an audit had its time.
//! * *Damaged* objects cannot be decoded. A store may lack them while it reports this: it must not be live then. That ends
//!   when the store is live and is seen to be right after the fault was healed.
//! * Of several changes that share the newest RV the last may be *on their way*, and no RV shows that content lacks them. If no
//!   stream is silent, they arrive within a moment, or the stream ends, which the client notices. If one may be silent, only a
//!   change of a later RV shows it.
//!
//! Events for handlers may be on their way for a while after a store is right again.

use std::time::Duration;

use super::Case;
use super::truth::{Event, Truth};
use super::weather::{FaultSpan, Weather};
use crate::history::{At, ClusterId, Entry, Fact, History, InformerId, Look, Walk};

/// Times for which stores are excused from being right.
pub(super) struct Excuses {
    by_informer: Vec<Vec<Excuse>>,
    damaged: Vec<Vec<Excuse>>,
}

/// One period of excuse.
#[derive(Clone, Copy, Debug)]
struct Excuse {
    from: At,
    /// The excuse cannot end before this, because the fault is still in force.
    seriously: At,
    /// Minimum RV of content that can end the excuse: the lost events may be later than older content.
    beyond: u64,
    until: At,
}

impl Excuse {
    /// Returns whether it covers a moment. The end is included, because a store seen to be right may have been seen earlier at
    /// the same moment.
    fn covers(&self, at: At) -> bool {
        self.from <= at && at <= self.until
    }
}

/// Maximum duration of an audit, beside its interval: its own time limit, the wait for the store, and the relist.
const AUDIT: Duration = Duration::from_secs(150);

/// Maximum delay until the slowest handler has got the events of its store.
const TOLD_LATER: Duration = Duration::from_secs(120);

impl Excuses {
    pub(super) fn of(history: &History, truth: &Truth, weather: &Weather) -> Self {
        let cast = &history.cast;
        let mut by_informer = Vec::new();
        let mut damaged = Vec::new();
        for informer in &cast.informers {
            let client = &cast.clients[informer.client.index()];
            let cluster = client.cluster;
            let audited = |from: At, own: &dyn Fn(&FaultSpan) -> bool| {
                let interval = client.audit_interval;
                interval.map_or(NEVER, |interval| undisturbed(weather, cluster, from, interval, own))
            };
            let lies = weather.on(cluster).filter(|span| span.lies).map(|span| {
                let healed = span.healed.unwrap_or(NEVER);
                // The recovery from the fault itself is not another fault.
                let until = audited(healed, &|other| other.fault == span.fault);
                let beyond = truth.newest(cluster, healed);
                Excuse { from: span.began, seriously: healed, beyond, until }
            });
            let rollbacks = truth.rollbacks(cluster).map(|at| {
                let until = audited(at, &|other| other.is_rollback() && other.began == at);
                Excuse { from: at, seriously: at, beyond: 0, until }
            });
            by_informer.push(lies.chain(rollbacks).collect::<Vec<_>>());
            let damages = weather.on(cluster).filter(|span| span.damages()).map(|span| {
                let healed = span.healed.unwrap_or(NEVER);
                Excuse { from: span.began, seriously: healed, beyond: 0, until: NEVER }
            });
            damaged.push(damages.collect::<Vec<_>>());
        }
        let mut excuses = Self { by_informer, damaged };
        for Entry { at, fact } in &history.entries {
            if let Fact::Looked(look) = fact
                && !matches!(look.walk, Walk::Live(_))
                && is_right(truth, look, truth.newest(cluster_of(history, look.informer), *at), *at)
            {
                let reached = look.views.iter().map(|view| view.rv).min().unwrap_or(0);
                right(&mut excuses.by_informer[look.informer.index()], *at, reached);
                if look.freshness.is_live() {
                    right(&mut excuses.damaged[look.informer.index()], *at, reached);
                }
            }
        }
        excuses
    }

    /// Returns whether a store may be wrong at a moment.
    pub(super) fn may_be_wrong(&self, informer: InformerId, at: At) -> bool {
        self.by_informer[informer.index()].iter().any(|excuse| excuse.covers(at))
    }

    /// Returns whether a store may have been wrong at any time up to a moment, so that its events may still be on their way.
    pub(super) fn may_have_been_wrong(&self, informer: InformerId, at: At) -> bool {
        let mut all = self.by_informer[informer.index()].iter().chain(&self.damaged[informer.index()]);
        all.any(|excuse| excuse.from <= at && at < excuse.until.plus(TOLD_LATER))
    }

    /// Returns whether a damaged object may be missing.
    pub(super) fn may_lack_something(&self, informer: InformerId, at: At) -> bool {
        self.damaged[informer.index()].iter().any(|excuse| excuse.covers(at))
    }
}

/// Returns the time at which an audit is certainly complete: the first one without disturbance by a fault.
fn undisturbed(
    weather: &Weather,
    cluster: ClusterId,
    from: At,
    interval: Duration,
    own: &dyn Fn(&FaultSpan) -> bool,
) -> At {
    let mut begins = from;
    let mut needed = interval + AUDIT;
    // In the order of their beginnings.
    for span in weather.on(cluster).filter(|span| !own(span) && !span.is_of_the_users()) {
        let disturbs = span.began <= begins.plus(needed);
        let over = span.over().unwrap_or(NEVER);
        if disturbs && over >= begins {
            begins = over;
            // A disturbed audit may still have to complete.
            needed = interval + AUDIT * 2;
        }
    }
    begins.plus(needed)
}

const NEVER: At = At(u64::MAX);
/// Returns the part of the time for which a store lacks an event that the client cannot know of, because other events of its RV
/// are there.
pub(super) fn on_its_way(case: &Case<'_>, cluster: ClusterId, missing: &Event, at: At) -> Duration {
    let holds_back = |span: &FaultSpan| span.detect.is_none_or(|bound| bound > ON_ITS_WAY);
    if !case.weather.felt(cluster, missing.at, at).any(holds_back) {
        return ON_ITS_WAY;
    }
    let passed = case.truth.passed(cluster, missing.object.rv, at).unwrap_or(at);
    passed.since(missing.at).max(ON_ITS_WAY)
}

/// Time within which changes that share an RV are sent.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// Ends excuses because a store was seen to be right.
fn right(excuses: &mut [Excuse], at: At, reached: u64) {
    for excuse in excuses {
        if at > excuse.seriously && at < excuse.until && reached >= excuse.beyond {
            excuse.until = at;
        }
    }
}

fn cluster_of(history: &History, informer: InformerId) -> ClusterId {
    history.cast.clients[history.cast.informers[informer.index()].client.index()].cluster
}

/// Returns whether all observed content is the server's at that RV, on the valid line, and that line has reached the RV.
fn is_right(truth: &Truth, look: &Look, newest: u64, at: At) -> bool {
    let stories = truth.stories(look.informer);
    look.synced
        && stories.len() == look.views.len()
        && look.views.iter().all(|view| view.rv <= newest)
        && stories
            .iter()
            .zip(&look.views)
            .all(|(story, view)| story.line_at(at).content(view.rv) == view.content)
}

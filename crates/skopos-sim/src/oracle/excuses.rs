//! What the client cannot know.
//!
//! * A fault that *lies* loses events without a trace. Only an audit finds that out. From its beginning on a store of the
//!   cluster is excused from being right, until it is seen to be right after the fault was healed; and no longer than an audit
//!   may take to mend it that no other fault disturbs.
//! * When history goes *back*, a store is of the old line until a probe shows it; if the new line overtakes the old before that,
//!   only an audit finds it out. A store is excused until it is seen to be right on the new line, or an audit had its time.
//! * What was sent *damaged* cannot be read. A store may lack it as long as it says so: it must not call itself live then. That ends
//!   when the store calls itself live and is seen to be right after the fault was healed.
//! * Of several changes that share the newest RV the last may be *on their way*, and no RV tells that content lacks them. Where no
//!   stream is silent they are there within a moment, or the stream has ended, of which the client knows; where one may be, only a
//!   change of a later RV shows it.
//!
//! What handlers are told may be on its way for a while after a store is right again.

use std::time::Duration;

use crate::history::{At, ClusterId, Entry, Fact, History, InformerId, Look, Walk};

use super::Case;
use super::truth::{Event, Truth};
use super::weather::{FaultSpan, Weather};

/// When a store is excused from being right.
pub(super) struct Excuses {
    by_informer: Vec<Vec<Excuse>>,
    damaged: Vec<Vec<Excuse>>,
}

/// From when to when.
#[derive(Clone, Copy, Debug)]
struct Excuse {
    from: At,
    /// Not right before this: the fault is still in force.
    seriously: At,
    /// Only content that has come so far can tell: what was lost may lie ahead of it.
    beyond: u64,
    until: At,
}

impl Excuse {
    /// The last moment is part of it: a store that is seen to be right may have been seen before in the same moment.
    fn covers(&self, at: At) -> bool {
        self.from <= at && at <= self.until
    }
}

/// How long an audit may take, beside its interval: its own time limit, the wait for the store, and the relist.
const AUDIT: Duration = Duration::from_secs(150);

/// How long it may take until the slowest handler was told what its store has.
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
                // Its own recovery is not another fault.
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

    /// Whether a store may be wrong at a moment.
    pub(super) fn may_be_wrong(&self, informer: InformerId, at: At) -> bool {
        self.by_informer[informer.index()].iter().any(|excuse| excuse.covers(at))
    }

    /// Whether a store may have been wrong at any time up to a moment, and what it told then be on its way still.
    pub(super) fn may_have_been_wrong(&self, informer: InformerId, at: At) -> bool {
        let mut all = self.by_informer[informer.index()].iter().chain(&self.damaged[informer.index()]);
        all.any(|excuse| excuse.from <= at && at < excuse.until.plus(TOLD_LATER))
    }

    /// Whether something that was sent damaged may be missing.
    pub(super) fn may_lack_something(&self, informer: InformerId, at: At) -> bool {
        self.damaged[informer.index()].iter().any(|excuse| excuse.covers(at))
    }
}

/// When an audit has had its time for certain: the first that no fault disturbs.
fn undisturbed(
    weather: &Weather,
    cluster: ClusterId,
    from: At,
    interval: Duration,
    own: &dyn Fn(&FaultSpan) -> bool,
) -> At {
    let mut begins = from;
    let mut needed = interval + AUDIT;
    // In the order in which they began.
    for span in weather.on(cluster).filter(|span| !own(span) && !span.is_of_the_users()) {
        let disturbs = span.began <= begins.plus(needed);
        let over = span.over().unwrap_or(NEVER);
        if disturbs && over >= begins {
            begins = over;
            // One that was disturbed may still have to come to its end.
            needed = interval + AUDIT * 2;
        }
    }
    begins.plus(needed)
}

const NEVER: At = At(u64::MAX);
/// How much of the time for which a store lacks this the client cannot know of: others of its RV are there.
pub(super) fn on_its_way(case: &Case<'_>, cluster: ClusterId, missing: &Event, at: At) -> Duration {
    let holds_back = |span: &FaultSpan| span.detect.is_none_or(|bound| bound > ON_ITS_WAY);
    if !case.weather.felt(cluster, missing.at, at).any(holds_back) {
        return ON_ITS_WAY;
    }
    let passed = case.truth.passed(cluster, missing.object.rv, at).unwrap_or(at);
    passed.since(missing.at).max(ON_ITS_WAY)
}

/// What shares an RV is sent one after the other, within this.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A store was seen to be right.
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

/// Whether all of what was seen is what the server had at that RV, on the line that counts, and that line has come so far.
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

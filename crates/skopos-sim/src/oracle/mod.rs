//! Judges a history: I1 to I26 and N1 to N8, each a predicate that is checked and counted wherever it applies.
//!
//! ```text
//!  history ──▶ truth    what each store should have held at each RV, line by line (a rollback begins a new line)
//!          ──▶ weather  when which fault was in force
//!          ──▶ lives    lifetimes of the participants
//!                 │
//!                 └──▶ stories (I1 I2 I4 I7 I8 I18 I20 I21)   stores (I3 I6 I7 I9 I10 I19)   requests (I5 I14 I15)
//!                      waits (I9 I13 I16 I19 I20)   swiftness (I11 I12 I14)   syncing (I11 I12 I20)   queues (I17 I22)
//!                      ends (I21 I23)   causes (I4 I15)   watched (raw watches: I1 I4 to I6 I11 I12 I16 I19 I23)
//!                      visits (the gateway: I24 I25)   alarms (I26)   outside (notifiers: N1 to N8)
//! ```
//!
//! A predicate has two counts: *checked*, the number of evaluations, and *exercised*, the number of evaluations in a situation
//! that could have broken it. Only what the client cannot know is excused: see `excuses`, and `watched` for raw watches.

mod alarms;
mod causes;
mod ends;
mod excuses;
mod invariant;
mod lives;
mod outside;
mod queues;
mod requests;
mod stores;
mod stories;
mod swiftness;
mod syncing;
mod truth;
mod visits;
mod waits;
mod watched;
mod weather;

#[cfg(test)]
mod tests;

use self::excuses::Excuses;
pub use self::invariant::{Invariant, PerInvariant};
use self::lives::Lives;
use self::truth::Truth;
pub use self::weather::{FaultSpan, Weather};
use crate::history::{
    At, ClusterId, Entry, Fact, HandlerId, History, InformerId, KeyId, VisitorId, WatcherId,
};

/// Verdict on a run.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The violations, in the order of their detection.
    pub violations: Vec<Violation>,
    /// Number of further violations, which are not kept.
    pub more: u64,
    /// Number of looks at content with a part of the changes of its RV.
    pub parted: u64,
    counts: PerInvariant<Counts>,
}

/// Numbers of a predicate's evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All evaluations.
    pub checked: u64,
    /// Evaluations in a situation that could have broken it.
    pub exercised: u64,
}

/// A violation of a predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Time at which it showed.
    pub at: At,
    /// The expected and the actual state, in one line.
    pub what: String,
    /// The subject.
    pub of: Focus,
}

/// Subject of a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Focus {
    /// The cluster.
    pub cluster: Option<ClusterId>,
    /// The store.
    pub informer: Option<InformerId>,
    /// The handler.
    pub handler: Option<HandlerId>,
    /// The object.
    pub key: Option<KeyId>,
    /// The raw watch.
    pub watcher: Option<WatcherId>,
    /// The visitor of the gateway.
    pub visitor: Option<VisitorId>,
    /// True if it is about the notifiers' actions; then the key determines the name outside.
    pub is_outside: bool,
}

/// Judges a history.
pub fn judge(history: &History) -> Verdict {
    let truth = Truth::of(history);
    let weather = Weather::of(history);
    let lives = Lives::of(history);
    let excuses = Excuses::of(history, &truth, &weather);
    let case = Case { history, truth, weather, lives, excuses };
    let mut verdict = Verdict::default();
    stories::check(&case, &mut verdict);
    stores::check(&case, &mut verdict);
    requests::check(&case, &mut verdict);
    causes::check(&case, &mut verdict);
    waits::check(&case, &mut verdict);
    swiftness::check(&case, &mut verdict);
    syncing::check(&case, &mut verdict);
    queues::check(&case, &mut verdict);
    watched::check(&case, &mut verdict);
    alarms::check(&case, &mut verdict);
    visits::check(&case, &mut verdict);
    outside::check(&case, &mut verdict);
    ends::check(&case, &mut verdict);
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict
}

/// Input of the predicates.
struct Case<'a> {
    history: &'a History,
    truth: Truth,
    weather: Weather,
    lives: Lives,
    excuses: Excuses,
}

impl Case<'_> {
    fn facts(&self) -> impl Iterator<Item = (At, &Fact)> {
        self.history.entries.iter().map(|Entry { at, fact }| (*at, fact))
    }

    fn cluster_of(&self, informer: InformerId) -> ClusterId {
        let client = self.history.cast.informers[informer.index()].client;
        self.history.cast.clients[client.index()].cluster
    }

    fn client_of(&self, informer: InformerId) -> &crate::history::Client {
        &self.history.cast.clients[self.history.cast.informers[informer.index()].client.index()]
    }

    /// Returns the faults that were in force, or not recovered from, at any time from `from` to `to`. Only faults of its cluster
    /// that strike the requests of a store, or of one view of it, count.
    fn felt_by(
        &self,
        informer: InformerId,
        view: Option<usize>,
        from: At,
        to: At,
    ) -> impl Iterator<Item = &FaultSpan> {
        let felt = self.weather.felt(self.cluster_of(informer), from, to);
        felt.filter(move |span| self.strikes(span, informer, view))
    }

    /// Returns whether a fault strikes the requests of a store, or of one view of it.
    fn strikes(&self, span: &FaultSpan, informer: InformerId, view: Option<usize>) -> bool {
        let informer = &self.history.cast.informers[informer.index()];
        let resource = &self.history.names.resources[informer.resource.index()];
        let here = span
            .cluster
            .is_none_or(|cluster| cluster == self.history.cast.clients[informer.client.index()].cluster);
        let mut views = truth::views(&informer.selection).into_iter().enumerate();
        here && views.any(|(at, of)| {
            let asked = view.is_none_or(|view| view == at);
            asked && span.part.has(resource, of.namespaces.first().map(String::as_str))
        })
    }

    fn focus(&self, informer: InformerId) -> Focus {
        Focus { cluster: Some(self.cluster_of(informer)), informer: Some(informer), ..Focus::default() }
    }

    fn name(&self, informer: InformerId) -> &str {
        &self.history.cast.informers[informer.index()].name
    }

    fn key(&self, key: KeyId) -> &skopos_wire::ObjectKey {
        &self.history.names.keys[key.index()]
    }
}

/// Maximum number of violations kept. Repeated violations show nothing new.
const KEPT: usize = 100;

impl Verdict {
    /// Returns whether there are no violations.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns the numbers of a predicate's evaluations.
    pub fn counts(&self, invariant: Invariant) -> Counts {
        self.counts[invariant]
    }

    /// Counts an evaluation of a predicate.
    fn count(&mut self, invariant: Invariant, exercised: bool) {
        let counts = &mut self.counts[invariant];
        counts.checked += 1;
        counts.exercised += u64::from(exercised);
    }

    /// Counts that the last evaluation was in a situation that could have broken the predicate.
    fn exercise(&mut self, invariant: Invariant) {
        self.counts[invariant].exercised += 1;
    }

    /// Counts an evaluation, and a violation unless `holds`.
    fn demand(
        &mut self,
        invariant: Invariant,
        holds: bool,
        at: At,
        of: Focus,
        what: impl FnOnce() -> String,
    ) {
        self.counts[invariant].checked += 1;
        if !holds {
            self.violate(invariant, at, of, what());
        }
    }

    /// Adds a violation.
    fn violate(&mut self, invariant: Invariant, at: At, of: Focus, what: String) {
        if self.violations.len() < KEPT {
            self.violations.push(Violation { invariant, at, what, of });
        } else {
            self.more += 1;
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.invariant, self.at, self.what)
    }
}

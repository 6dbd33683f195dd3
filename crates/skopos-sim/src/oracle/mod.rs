//! Judges a history: I1 to I26 and N1 to N8, each a predicate that is checked wherever it applies, and counted.
//!
//! ```text
//!  history ──▶ truth    what each store should have held at each RV, line by line (a rollback begins a new line)
//!          ──▶ weather  when which fault was in force
//!          ──▶ lives    who was there when
//!                 │
//!                 └──▶ stories (I1 I2 I4 I7 I8 I18 I20 I21)   stores (I3 I6 I7 I9 I10 I19)   requests (I5 I14 I15)
//!                      waits (I9 I13 I16 I19 I20)   swiftness (I11 I12 I14)   syncing (I11 I12 I20)   queues (I17 I22)
//!                      ends (I21 I23)   causes (I4 I15)   watched (raw watches: I1 I4 to I6 I11 I12 I16 I19 I23)
//!                      visits (the gateway: I24 I25)   alarms (I26)   outside (notifiers: N1 to N3, N6 to N8)
//! ```
//!
//! A predicate counts twice: *checked*, how often it was evaluated, and *exercised*, how often in a situation that could have
//! broken it. What the client cannot know is excused, and nothing else: see `excuses`, and `watched` for raw watches.

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

/// What the oracle has to say about a run.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What was broken, in the order in which it was found.
    pub violations: Vec<Violation>,
    /// Violations beyond those, which are not kept.
    pub more: u64,
    /// How often content was seen that had some of the changes of its RV, and not yet the others.
    pub parted: u64,
    counts: PerInvariant<Counts>,
}

/// How often a predicate was evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In all.
    pub checked: u64,
    /// In a situation that could have broken it.
    pub exercised: u64,
}

/// A predicate that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When it showed.
    pub at: At,
    /// What should have been, and what was, in one line.
    pub what: String,
    /// Of whom.
    pub of: Focus,
}

/// What a violation is about.
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
    /// Whether it is about what notifiers do; then the object gives the name outside.
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

/// What the predicates look at.
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

    /// The faults of its cluster that strike what a store, or one view of it, asks for, or had to be recovered from, at any
    /// time from `from` to `to`.
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

    /// Whether a fault strikes what a store, or one view of it, asks for.
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

/// One that breaks again and again says nothing new.
const KEPT: usize = 100;

impl Verdict {
    /// Whether everything held.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// How often a predicate was evaluated.
    pub fn counts(&self, invariant: Invariant) -> Counts {
        self.counts[invariant]
    }

    /// A predicate was evaluated.
    fn count(&mut self, invariant: Invariant, exercised: bool) {
        let counts = &mut self.counts[invariant];
        counts.checked += 1;
        counts.exercised += u64::from(exercised);
    }

    /// A predicate was evaluated before, and this was a situation that could have broken it.
    fn exercise(&mut self, invariant: Invariant) {
        self.counts[invariant].exercised += 1;
    }

    /// A predicate was evaluated, and does not hold unless `holds`.
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

    /// A predicate does not hold.
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

//! Events of handlers: I1, I2, I4, I7, I8, I8b, I18, I20, I21.
//!
//! Each handler's calls are summed up. Before each unmarked call (no gap, not coalesced, no resync, not initial) the
//! sum must be exactly the server's content just before the event. That alone shows that nothing was lost, duplicated or
//! invented, wherever gaps lie between. A wrong sum is reported once, and checked again as soon as it is right.

use std::collections::{HashMap, HashSet};

use super::excuses::Excuses;
use super::truth::{Chapter, Event, Story};
use super::{Case, Focus, Invariant, Verdict};
use crate::history::{At, Content, Fact, Flags, HandlerId, InformerId, KeyId, Kind, Seen, Walk};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut listeners: Vec<Listener> = (0..)
        .map(HandlerId)
        .zip(&case.history.cast.handlers)
        .map(|(id, handler)| Listener::new(id, handler.informer, case.truth.stories(handler.informer).len()))
        .collect();
    let mut rvs: HashMap<InformerId, Vec<u64>> = HashMap::new();
    let mut first: HashMap<InformerId, Vec<u64>> = HashMap::new();
    let mut started: HashMap<InformerId, At> = HashMap::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::Callback { handler, kind, flags, object, old } => {
                let call = Call { at, kind: *kind, flags: *flags, object: *object, old: *old };
                listeners[handler.index()].called(case, verdict, &call);
            }
            Fact::CallbackEnded { handler, panicked } => {
                listeners[handler.index()].ended(*panicked);
                let informer = listeners[handler.index()].informer;
                let others = listeners.iter_mut().filter(|l| *panicked && l.informer == informer);
                others.for_each(|other| other.beside_a_panic |= other.handler != *handler);
            }
            Fact::InformerStarted { informer } => {
                started.entry(*informer).or_insert(at);
            }
            Fact::InformerStopped { informer } => {
                started.remove(informer);
            }
            Fact::HandlerAdded { handler } => {
                let listener = &mut listeners[handler.index()];
                listener.from = rvs.get(&listener.informer).cloned();
            }
            Fact::HandlerSynced { handler } => {
                let listener = &mut listeners[handler.index()];
                let informer = listener.informer;
                // The first look may show events after the list, and the handler may have got the first of them already. But a
                // consistent list is not older than the informer.
                let at_start =
                    started.get(&informer).filter(|_| listener.last_flags.is_unmarked()).map(|at| {
                        let newest = case.truth.newest(case.cluster_of(informer), *at);
                        vec![newest; listener.parts.len()]
                    });
                let first = listener.from.clone().or(at_start).or_else(|| first.get(&informer).cloned());
                listener.synced(case, verdict, at, first);
            }
            Fact::Looked(look) if look.synced && !matches!(look.walk, Walk::Live(_)) => {
                let seen: Vec<u64> = look.views.iter().map(|view| view.rv).collect();
                first.entry(look.informer).or_insert_with(|| seen.clone());
                rvs.insert(look.informer, seen);
            }
            _ => {}
        }
    }
}

/// One call of a handler.
struct Call {
    at: At,
    kind: Kind,
    flags: Flags,
    object: Seen,
    old: Option<Seen>,
}

/// State of one handler's events so far.
struct Listener {
    handler: HandlerId,
    informer: InformerId,
    /// Its last object of each key.
    known: HashMap<KeyId, Seen>,
    /// The RV of a key's last event, and the number of marked calls by then.
    floors: HashMap<KeyId, (u64, u64)>,
    /// Number of calls that were marked as a gap.
    gaps: u64,
    told: HashSet<(KeyId, u32, u64, Kind)>,
    /// The last deleted object of each key.
    gone: HashMap<KeyId, Seen>,
    parts: Vec<Part>,
    last: Option<(Kind, Seen, Option<Seen>)>,
    last_flags: Flags,
    panicked: bool,
    attempts: u32,
    /// The RVs of the store when it was added, if there was content.
    from: Option<Vec<u64>>,
    /// True if another handler of the same store has panicked.
    beside_a_panic: bool,
}

/// One view of the store.
struct Part {
    sum: Content,
    /// The RV of the last unmarked call, and the time of its event.
    floor: (u64, At),
    /// True if the sum is wrong, and this was reported.
    astray: bool,
}

impl Listener {
    fn new(handler: HandlerId, informer: InformerId, views: usize) -> Self {
        let part = || Part { sum: Content::EMPTY, floor: (0, At::ZERO), astray: false };
        Self {
            handler,
            informer,
            known: HashMap::new(),
            floors: HashMap::new(),
            gaps: 0,
            told: HashSet::new(),
            gone: HashMap::new(),
            parts: (0..views).map(|_| part()).collect(),
            last: None,
            last_flags: Flags::default(),
            panicked: false,
            attempts: 1,
            from: None,
            beside_a_panic: false,
        }
    }

    fn called(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        if self.is_retry(case, verdict, call) {
            return;
        }
        self.uid(case, verdict, call);
        self.previous(case, verdict, call);
        self.ordered(case, verdict, call);
        self.unique(case, verdict, call);
        self.filtered(case, verdict, call);
        self.reliable(case, verdict, call);
        self.last_flags = call.flags;
    }

    /// Checks I21: a handler that panicked gets the same event again, until the maximum number of attempts.
    fn is_retry(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) -> bool {
        let this = (call.kind, call.object, call.old);
        let retries = case.history.cast.handlers[self.handler.index()].retries;
        let given_up = self.attempts > retries;
        // The next resync repeats the same event for a store of one object without changes.
        let next_round = given_up && call.flags.resync;
        let again = self.panicked && self.last == Some(this) && !next_round;
        if self.panicked {
            let key = self.last.map_or(call.object.key, |(_, object, _)| object.key);
            verdict.exercise(Invariant::I21);
            verdict.demand(Invariant::I21, again != given_up, call.at, self.of(case, key), || {
                let what = if again { "was tried once more" } else { "was not tried again" };
                format!("{}: {} {what} after {} attempts", self.name(case), case.key(key), self.attempts)
            });
        }
        self.panicked = false;
        self.attempts = if again { self.attempts + 1 } else { 1 };
        self.last = Some(this);
        again
    }

    fn ended(&mut self, panicked: bool) {
        self.panicked = panicked;
    }

    /// Checks I18.
    fn uid(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        let key = call.object.key;
        match call.kind {
            Kind::Updated => {
                let one = call.old.is_some_and(|old| old.uid == call.object.uid);
                verdict.demand(Invariant::I18, one, call.at, self.of(case, key), || {
                    format!("{}: the update of {} spans two uids", self.name(case), case.key(key))
                });
            }
            Kind::Deleted => {
                self.gone.insert(key, call.object);
            }
            Kind::Added => {
                if self.gone.remove(&key).is_some_and(|gone| gone.uid != call.object.uid) {
                    // Another object took the name over, and the events showed it.
                    verdict.count(Invariant::I18, true);
                }
            }
        }
    }

    /// Checks I8.
    fn previous(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        let key = call.object.key;
        let known = self.known.get(&key).copied();
        let right = match call.kind {
            Kind::Added => known.is_none(),
            Kind::Updated => known.is_some() && known == call.old,
            Kind::Deleted => known.is_some_and(|known| known.uid == call.object.uid),
        };
        if call.flags.gap || call.flags.coalesced || call.kind == Kind::Deleted {
            verdict.exercise(Invariant::I8);
        }
        verdict.demand(Invariant::I8, right, call.at, self.of(case, key), || {
            format!(
                "{}: {:?} of {} with old {:?}, but it was given {known:?} last",
                self.name(case),
                call.kind,
                case.key(key),
                call.old
            )
        });
    }

    /// Checks I1.
    fn ordered(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        if call.flags.resync {
            return;
        }
        let key = call.object.key;
        self.gaps += u64::from(call.flags.gap);
        let went_back = case.truth.rollbacks(case.cluster_of(self.informer)).any(|at| at <= call.at);
        let rv = call.object.rv;
        let floor = self.floors.insert(key, (rv, self.gaps)).unwrap_or_default();
        // History may have gone back, and the handler gets a gap then. An object that was gone by then, or is deleted in that
        // gap with its last RV of the old history, begins again in the new one. The log shows whether it did (I4).
        let begins_anew = call.kind == Kind::Added && !self.known.contains_key(&key);
        let may_go_back = went_back && (self.gaps > floor.1 || begins_anew);
        let strictly = !(call.kind == Kind::Deleted && call.flags.last_state_unknown);
        // A list that repairs a lie restores the object as it was.
        let brought_back =
            call.flags.gap && rv == floor.0 && case.excuses.may_have_been_wrong(self.informer, call.at);
        let grows = rv > floor.0 || (rv == floor.0 && !strictly) || may_go_back || brought_back;
        if floor.0 > 0 {
            verdict.exercise(Invariant::I1);
        }
        verdict.demand(Invariant::I1, grows, call.at, self.of(case, key), || {
            format!("{}: {} at RV {rv} after RV {}", self.name(case), case.key(key), floor.0)
        });
        let Some(view) = self.part_of(case, key) else { return };
        let (story, part) = (&case.truth.stories(self.informer)[view], &mut self.parts[view]);
        if call.flags.gap || call.flags.coalesced {
            // A new list: later events are newer than it, and its own RVs are in no order.
            if went_back {
                part.floor = (0, call.at);
            }
        } else if !call.flags.initial && !call.flags.last_state_unknown {
            // An event in flight when history went back belongs to the old history.
            let happened =
                events(story, call).find(|event| is_as_told(event, call)).map_or(call.at, |event| event.at);
            let (floor, since) = std::mem::replace(&mut part.floor, (rv, happened));
            // A rollback that changed no object here causes no call.
            let undone =
                story.lines.iter().skip(1).filter(|line| since <= line.began && line.began <= call.at);
            let floor = undone.map(|line| line.cut).fold(floor, u64::min);
            verdict.demand(Invariant::I1, rv >= floor, call.at, self.of(case, key), || {
                format!("{}: RV {rv} ({}) after RV {floor} of another object", self.name(case), case.key(key))
            });
        }
    }

    /// Checks I2.
    fn unique(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        if call.flags.gap && case.truth.rollbacks(case.cluster_of(self.informer)).any(|at| at <= call.at) {
            // The same RVs may occur again with another meaning.
            self.told.clear();
        }
        if call.flags.resync || call.flags.gap {
            return;
        }
        let key = call.object.key;
        let new = self.told.insert((key, call.object.stamp, call.object.rv, call.kind));
        verdict.count(Invariant::I2, !call.flags.initial);
        if !new {
            verdict.violate(Invariant::I2, call.at, self.of(case, key), {
                let name = self.name(case);
                format!("{name}: told twice: {:?} of {} at RV {}", call.kind, case.key(key), call.object.rv)
            });
        }
    }

    /// Checks I7.
    fn filtered(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        if call.kind == Kind::Deleted {
            return;
        }
        let Some(shape) = case.truth.shape(call.object.stamp) else { return };
        let selection = &case.history.cast.informers[self.informer.index()].selection;
        let key = call.object.key;
        let wanted = selection.matches(case.key(key), &case.history.names.shapes[shape.index()]);
        let selective = !(selection.labels.is_empty() && selection.fields.is_empty());
        if selective {
            verdict.exercise(Invariant::I7);
        }
        verdict.demand(Invariant::I7, wanted, call.at, self.of(case, key), || {
            format!("{}: {} at RV {} is not of {selection}", self.name(case), case.key(key), call.object.rv)
        });
    }

    /// Checks I4 and I8b, and adds the call to the sum.
    fn reliable(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call) {
        let key = call.object.key;
        let part = self.part_of(case, key);
        if let Some(part) = part
            && call.flags.is_unmarked()
        {
            self.as_in_the_log(case, verdict, call, part);
        }
        let known = match call.kind {
            Kind::Deleted => self.known.remove(&key),
            Kind::Added | Kind::Updated => self.known.insert(key, call.object),
        };
        let Some(part) = part else { return };
        let sum = &mut self.parts[part].sum;
        if let Some(known) = known {
            sum.remove(&known);
        }
        if call.kind != Kind::Deleted {
            sum.add(&call.object);
        }
    }

    fn as_in_the_log(&mut self, case: &Case<'_>, verdict: &mut Verdict, call: &Call, part: usize) {
        let key = call.object.key;
        let story = &case.truth.stories(self.informer)[part];
        let sum = self.parts[part].sum;
        let events: Vec<&Event> = events(story, call).collect();
        let fits = events.iter().any(|event| event.before == sum && is_as_told(event, call));
        if self.beside_a_panic {
            verdict.count(Invariant::I21, true);
        }
        if fits {
            verdict.count(Invariant::I4, true);
            self.parts[part].astray = false;
            if call.kind != Kind::Deleted {
                verdict.count(Invariant::I8b, call.kind == Kind::Added);
            }
            return;
        }
        let excused = |excuses: &Excuses| excuses.may_have_been_wrong(self.informer, call.at);
        if std::mem::replace(&mut self.parts[part].astray, true) || excused(&case.excuses) {
            return;
        }
        verdict.count(Invariant::I4, true);
        let told = || format!("{:?} of {} at RV {}", call.kind, case.key(key), call.object.rv);
        let name = self.name(case);
        let (invariant, what) = match events.first() {
            None => (Invariant::I4, format!("{name}: told {}, which is not in the log", told())),
            Some(event) if event.kind != call.kind && call.kind == Kind::Added => {
                (Invariant::I8b, format!("{name}: told {}, which was {:?} in the log", told(), event.kind))
            }
            Some(event) if !is_as_told(event, call) => (
                Invariant::I4,
                format!("{name}: told {}, but the log has {:?} {:?}", told(), event.kind, event.object),
            ),
            Some(event) => (
                Invariant::I4,
                format!(
                    "{name}: told {} with {} objects told before; the log had {} then: changes were left out or made up",
                    told(),
                    sum.objects,
                    event.before.objects
                ),
            ),
        };
        verdict.violate(invariant, call.at, self.of(case, key), what);
    }

    /// Checks I20: the events add up to a state of the server that is not older than the first list.
    fn synced(&mut self, case: &Case<'_>, verdict: &mut Verdict, at: At, first: Option<Vec<u64>>) {
        // In the middle of a difference the sum belongs to no RV.
        if self.last_flags.gap || self.last_flags.coalesced || self.last_flags.resync {
            return;
        }
        if case.excuses.may_have_been_wrong(self.informer, at) {
            return;
        }
        let stories = case.truth.stories(self.informer);
        let went_back = case.truth.rollbacks(case.cluster_of(self.informer)).any(|went| went <= at);
        // RVs of different histories are not comparable.
        let first = first.filter(|_| !went_back);
        for (view, part) in self.parts.iter().enumerate() {
            let from = first.as_ref().and_then(|rvs| rvs.get(view)).copied().unwrap_or(0);
            let whole = stories[view].lines_at(at).any(|(_, line)| line.was_told_from(from, part.sum));
            if part.sum.objects > 0 {
                verdict.exercise(Invariant::I20);
            }
            let of = Focus { handler: Some(self.handler), ..case.focus(self.informer) };
            verdict.demand(Invariant::I20, whole, at, of, || {
                format!(
                    "{}: synced, but what it was told ({} objects) is no state of the server since RV {from}",
                    self.name(case),
                    part.sum.objects
                )
            });
        }
    }

    /// Returns the view of a key.
    fn part_of(&self, case: &Case<'_>, key: KeyId) -> Option<usize> {
        let namespaces = &case.history.cast.informers[self.informer.index()].selection.namespaces;
        if namespaces.is_empty() {
            return Some(0);
        }
        namespaces.iter().position(|namespace| case.key(key).namespace() == Some(namespace))
    }

    fn name<'a>(&self, case: &'a Case<'_>) -> &'a str {
        &case.history.cast.handlers[self.handler.index()].name
    }

    fn of(&self, case: &Case<'_>, key: KeyId) -> Focus {
        Focus { handler: Some(self.handler), key: Some(key), ..case.focus(self.informer) }
    }
}

impl Flags {
    /// Returns whether the call claims to be exactly an event of the server's log.
    pub(super) fn is_unmarked(self) -> bool {
        !(self.gap || self.coalesced || self.resync || self.initial)
    }
}

/// Returns the possible events of a call, on the newest line first.
fn events<'a>(story: &'a Story, call: &Call) -> impl Iterator<Item = &'a Event> {
    let (rv, key) = (call.object.rv, call.object.key);
    let of = move |(_, line): (usize, &'a Chapter)| line.event(rv, key);
    story.lines_at(call.at).filter_map(of)
}

fn is_as_told(event: &Event, call: &Call) -> bool {
    event.kind == call.kind && event.object == call.object
}

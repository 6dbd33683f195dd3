//! Reads from stores: I3, I6, I7, I9, I10, I19.

use std::collections::HashMap;
use std::time::Duration;

use super::excuses::on_its_way;
use super::truth::{Chapter, Event, Story};
use super::{Case, Focus, Invariant, Verdict};
use crate::history::{
    At, CallId, CallKind, Fact, Freshness, InformerId, KeyId, Look, Outcome, Reason, Seen, View, Walk,
};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut readers: Vec<Reader> =
        (0..).map(InformerId).zip(&case.history.cast.informers).map(|(id, _)| Reader::new(id)).collect();
    let mut calls = Calls::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::Looked(look) => readers[look.informer.index()].looked(case, verdict, at, look, &calls),
            Fact::Got { informer, rv, epoch: _, key, object } => {
                got(case, verdict, at, *informer, *rv, *key, *object);
            }
            Fact::Listed { informer, objects } => listed(case, verdict, at, *informer, objects),
            Fact::Called { call, kind, informer: Some(informer), .. } => {
                calls.insert(*call, (*kind, *informer, at));
            }
            Fact::Returned { call, outcome: Outcome::Found { object, age } } => {
                if let Some((CallKind::ReadOne { max_age, key }, informer, made)) = calls.get(call) {
                    let oldest = (*max_age).max(at.since(*made));
                    found(case, verdict, at, *informer, (*key, *object), (*age, oldest));
                }
            }
            _ => {}
        }
    }
    readers.iter().for_each(|reader| reader.told_of_rollbacks(case, verdict));
}

/// The calls, with their informers and times.
type Calls = HashMap<CallId, (CallKind, InformerId, At)>;

/// Looks at one store so far.
struct Reader {
    informer: InformerId,
    last: Option<(At, Look)>,
    /// Time at which each epoch was first seen.
    epochs: Vec<(At, u32)>,
    /// The looks before each rollback.
    before_rollback: Vec<(At, Look)>,
}

impl Reader {
    fn new(informer: InformerId) -> Self {
        Self { informer, last: None, epochs: Vec::new(), before_rollback: Vec::new() }
    }

    fn looked(&mut self, case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look, calls: &Calls) {
        let live = matches!(look.walk, Walk::Live(_));
        let right = self.atomic(case, verdict, at, look, live);
        self.honest(case, verdict, at, look, live);
        fresh_enough(case, verdict, at, look, calls, right);
        if live || !look.synced {
            return;
        }
        self.bookmarkable(case, verdict, at, look);
        self.epoch(case, verdict, at, look);
        let earlier = self.last.take();
        if let Some((before, earlier)) = earlier {
            let went_back = |went: &At| *went > before && *went <= at;
            if let Some(went) = case.truth.rollbacks(case.cluster_of(self.informer)).find(went_back) {
                self.before_rollback.push((went, earlier));
            }
        }
        self.last = Some((at, look.clone()));
    }

    /// Checks I3. Returns whether all of the content is a state of the server.
    fn atomic(&self, case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look, live: bool) -> bool {
        let stories = case.truth.stories(self.informer);
        let mut right = stories.len() == look.views.len();
        for (story, view) in stories.iter().zip(&look.views) {
            // A part of a set that has not been listed yet.
            if view.rv == 0 && view.content.objects == 0 {
                continue;
            }
            let fits = |line: &Chapter| {
                match live {
                    // A list of a set has the lowest RV of its parts.
                    true if look.views.len() > 1 => line.was_listed_from(view.rv, view.content),
                    // A list is complete.
                    true => line.content(view.rv) == view.content,
                    false => line.place(view.rv, view.content).is_some(),
                }
            };
            let single = look.views.len() == 1;
            // Each new epoch is of a newer line.
            let of_epoch = |line: usize| live || !single || line >= look.epoch as usize;
            let is_state = story.lines_at(at).any(|(line, chapter)| of_epoch(line) && fits(chapter));
            right &= is_state;
            let whole = |(_, chapter): (usize, &Chapter)| chapter.content(view.rv) == view.content;
            verdict.parted += u64::from(is_state && !live && !story.lines_at(at).any(whole));
            if self.excused(case, at, look) && !is_state {
                continue;
            }
            verdict
                .count(Invariant::I3, self.last.as_ref().is_some_and(|(_, last)| last.views != look.views));
            if !is_state {
                let server = story.line_at(at).content(view.rv);
                let what = format!(
                    "{}: {} objects at RV {} in epoch {}, {}; the server had {} there (sums {:x} and {:x})",
                    case.name(self.informer),
                    view.content.objects,
                    view.rv,
                    look.epoch,
                    word(&look.freshness),
                    server.objects,
                    view.content.sum,
                    server.sum
                );
                verdict.violate(Invariant::I3, at, case.focus(self.informer), what);
            }
        }
        right
    }

    fn excused(&self, case: &Case<'_>, at: At, look: &Look) -> bool {
        let says_so = !look.freshness.is_live() && case.excuses.may_lack_something(self.informer, at);
        says_so || case.excuses.may_be_wrong(self.informer, at)
    }

    /// Checks I6.
    fn bookmarkable(&self, case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look) {
        let Some((_, last)) = &self.last else { return };
        let of = case.focus(self.informer);
        let name = case.name(self.informer);
        verdict.demand(Invariant::I6, look.epoch >= last.epoch, at, of, || {
            format!("{name}: epoch {} after epoch {}", look.epoch, last.epoch)
        });
        if look.epoch != last.epoch {
            return;
        }
        let stories = case.truth.stories(self.informer);
        for ((now, before), story) in look.views.iter().zip(&last.views).zip(stories) {
            verdict.exercise(Invariant::I6);
            verdict.demand(Invariant::I6, now.rv >= before.rv, at, of, || {
                format!("{name}: RV {} after RV {} in epoch {}", now.rv, before.rv, look.epoch)
            });
            let same = now.rv != before.rv || now.content == before.content;
            // Further changes that share the RV may come.
            let goes_on = || {
                story.lines_at(at).any(|(_, line)| {
                    let places = [before, now].map(|view| line.place(view.rv, view.content));
                    places[0].is_some() && places[0] < places[1]
                })
            };
            let excused = self.excused(case, at, look) || case.excuses.may_have_been_wrong(self.informer, at);
            verdict.demand(Invariant::I6, same || excused || goes_on(), at, of, || {
                format!("{name}: what RV {} stands for has changed", now.rv)
            });
        }
    }

    /// Checks I10.
    fn honest(&self, case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look, live: bool) {
        let of = case.focus(self.informer);
        let name = case.name(self.informer);
        let Some(age) = look.freshness.age() else { return };
        if !look.synced {
            let what = format!("{name}: never synced, and yet at most {age:?} old");
            verdict.demand(Invariant::I10, false, at, of, || what);
            return;
        }
        self.counts_sleep(case, verdict, at, age);
        if case.excuses.may_be_wrong(self.informer, at) || (live && look.views.len() > 1) {
            return;
        }
        let lacks = !look.freshness.is_live() && case.excuses.may_lack_something(self.informer, at);
        for (story, view) in case.truth.stories(self.informer).iter().zip(&look.views) {
            let Some(truly) = true_age(story, view, at) else { continue };
            if lacks && story.line_at(at).place(view.rv, view.content).is_none() {
                // It may coincide with the content of another history at that RV.
                continue;
            }
            let rest = story.line_at(at).rest(view.rv, view.content);
            let unknown = rest.map(|rest| on_its_way(case, case.cluster_of(self.informer), rest, at));
            let truly = truly.saturating_sub(unknown.unwrap_or_default());
            if truly > Duration::ZERO {
                verdict.exercise(Invariant::I10);
            }
            verdict.demand(Invariant::I10, age >= truly, at, of, || {
                format!("{name}: RV {}, {}, in truth {truly:?} old", view.rv, word(&look.freshness))
            });
        }
    }

    /// Checks I10: content proven before the machine slept is older by the duration of the sleep.
    fn counts_sleep(&self, case: &Case<'_>, verdict: &mut Verdict, at: At, age: Duration) {
        let spans = || case.weather.on(case.cluster_of(self.informer)).filter(|span| span.began < at);
        // A backward jump of the wall clock shortens the sleep.
        if spans().any(|span| span.number == CLOCK_JUMPS) {
            return;
        }
        let Some(woke) = spans().filter(|span| span.number == SUSPENDED).map(|span| span.began).max() else {
            return;
        };
        let awake = at.since(woke);
        if age <= awake {
            return;
        }
        verdict.exercise(Invariant::I10);
        // Content proven after the sleep, but before its detection, counts as old as content proven before.
        verdict.demand(Invariant::I10, age >= SHORTEST_SLEEP, at, case.focus(self.informer), || {
            let name = case.name(self.informer);
            format!("{name}: at most {age:?} old, as if the machine had not slept {awake:?} ago")
        });
    }

    /// Checks one half of I19: no epoch without a rollback.
    fn epoch(&mut self, case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look) {
        if self.epochs.last().is_none_or(|(_, epoch)| *epoch != look.epoch) {
            self.epochs.push((at, look.epoch));
        }
        let rollbacks =
            case.truth.rollbacks(case.cluster_of(self.informer)).filter(|went| *went <= at).count();
        let possible = rollbacks * look.views.len();
        verdict.demand(
            Invariant::I19,
            look.epoch as usize <= possible,
            at,
            case.focus(self.informer),
            || format!("{}: epoch {} after {rollbacks} rollbacks", case.name(self.informer), look.epoch),
        );
    }

    /// Checks the other half of I19: a rollback that a probe can detect begins an epoch.
    fn told_of_rollbacks(&self, case: &Case<'_>, verdict: &mut Verdict) {
        let cluster = case.cluster_of(self.informer);
        for (went, before) in &self.before_rollback {
            let within = case.client_of(self.informer).probe_interval + REACTION;
            let until = went.plus(within);
            let there = case.lives.informer(self.informer).covers(*went, until) && until <= case.lives.end;
            let highest = before.views.iter().map(|view| view.rv).max().unwrap_or(0);
            let visible = case.truth.newest(cluster, until) < highest;
            let others = || {
                // The rollback itself is a fault too.
                case.weather.felt(cluster, *went, until).any(|span| span.number != ROLLBACK)
            };
            if !there || !visible || others() {
                continue;
            }
            let told =
                self.epochs.iter().any(|(at, epoch)| *at >= *went && *at <= until && *epoch > before.epoch);
            verdict.exercise(Invariant::I19);
            verdict.demand(Invariant::I19, told, until, case.focus(self.informer), || {
                format!(
                    "{}: at RV {highest} when history went back at {went}, and no new epoch within {within:?}",
                    case.name(self.informer)
                )
            });
        }
    }
}

/// The catalogue number of a rollback.
const ROLLBACK: u8 = 32;

/// Time to react to a rollback: a probe that detects it is confirmed by a list, and stores are looked at only at intervals.
const REACTION: Duration = Duration::from_secs(10);

const CLOCK_JUMPS: u8 = 30;
const SUSPENDED: u8 = 31;
/// The shortest sleep of the catalogue.
const SHORTEST_SLEEP: Duration = Duration::from_secs(6);

/// Returns the time since which the content is no longer the server's; `None`: it never was the server's.
fn true_age(story: &Story, view: &View, at: At) -> Option<Duration> {
    let now = story.line_at(at);
    if now.content_at(at) == view.content {
        return Some(Duration::ZERO);
    }
    let is_of = |chapter: &Chapter| chapter.place(view.rv, view.content).is_some();
    let (line, chapter) = story.lines_at(at).find(|(_, chapter)| is_of(chapter))?;
    let changed = chapter.ceased(view.rv, view.content, at).map(|event| event.at);
    let undone = story.lines.get(line + 1).map(|next| next.began);
    let since = [changed, undone].into_iter().flatten().filter(|since| *since <= at).min();
    Some(since.map_or(Duration::ZERO, |since| at.since(since)))
}

/// Checks I9: a call returns what was requested.
fn fresh_enough(case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look, calls: &Calls, right: bool) {
    let of = case.focus(look.informer);
    let name = case.name(look.informer);
    let (call, live) = match look.walk {
        Walk::Answer(call) => (call, false),
        Walk::Live(call) => (call, true),
        _ => return,
    };
    match calls.get(&call).map(|(kind, _, made)| (kind, *made)) {
        Some((CallKind::WaitFor { rv }, _)) => {
            let reached = look.views.iter().all(|view| view.rv >= *rv);
            verdict.exercise(Invariant::I9);
            verdict.demand(Invariant::I9, reached, at, of, || {
                format!("{name}: waited for RV {rv}, and was given {:?}", look.views)
            });
        }
        // The machine slept between the request and the answer: the answer is as old as that sleep, whatever its source.
        Some((CallKind::Read { .. }, made)) if slept(case, look.informer, made, at) => {}
        Some((CallKind::Read { max_age }, made)) => {
            // An answer from the server can only contain what was true after the request.
            let oldest = if live { (*max_age).max(at.since(made)) } else { *max_age };
            let age = look.freshness.age();
            // The clocks that measure a sleep may drift by some nanoseconds.
            let young = age.is_some_and(|age| age <= oldest + Duration::from_millis(1));
            verdict.exercise(Invariant::I9);
            verdict.demand(Invariant::I9, young && look.freshness.is_live(), at, of, || {
                format!("{name}: asked for at most {max_age:?}, and was given {}", word(&look.freshness))
            });
        }
        _ => {}
    }
    if live && !case.excuses.may_lack_something(look.informer, at) {
        verdict.demand(Invariant::I9, right, at, of, || {
            format!("{name}: what the server was asked for is no state of the server: {:?}", look.views)
        });
    }
}

/// Returns whether the machine slept, or seems to have slept, between two moments.
fn slept(case: &Case<'_>, informer: InformerId, from: At, to: At) -> bool {
    let mut spans = case.weather.on(case.cluster_of(informer));
    spans.any(|span| {
        matches!(span.number, CLOCK_JUMPS | SUSPENDED)
            && span.began.plus(UNNOTICED) >= from
            && span.began <= to
    })
}

/// Maximum time from the end of a sleep to its detection.
const UNNOTICED: Duration = Duration::from_secs(2);

/// Checks I9 and I10 for a read of one object.
fn found(
    case: &Case<'_>,
    verdict: &mut Verdict,
    at: At,
    informer: InformerId,
    (key, object): (KeyId, Option<Seen>),
    (age, max_age): (Duration, Duration),
) {
    let of = Focus { key: Some(key), ..case.focus(informer) };
    let name = case.name(informer);
    verdict.exercise(Invariant::I9);
    verdict.demand(Invariant::I9, age <= max_age + Duration::from_millis(1), at, of, || {
        format!("{name}: asked for {} at most {max_age:?} old, and was given one of {age:?}", case.key(key))
    });
    let excused = case.excuses.may_be_wrong(informer, at) || case.excuses.may_lack_something(informer, at);
    if excused || case.truth.lines(case.cluster_of(informer)).len() > 1 {
        return;
    }
    let from = At(at.0.saturating_sub(At::after_start(age).0));
    let was = |story: &Story| {
        let line = story.line_at(at);
        let on_its_way = |event: &Event| on_its_way(case, case.cluster_of(informer), event, at);
        let late =
            line.lacking(key, object, at).is_some_and(|event| event.at.plus(on_its_way(event)) >= from);
        late || line.was(key, object, from, at)
    };
    let was = case.truth.stories(informer).iter().any(was);
    verdict.exercise(Invariant::I10);
    verdict.demand(Invariant::I10, was, at, of, || {
        format!("{name}: {} was never {object:?} in the last {age:?}", case.key(key))
    });
}

/// Checks I3 for a read of one object.
fn got(
    case: &Case<'_>,
    verdict: &mut Verdict,
    at: At,
    informer: InformerId,
    rv: u64,
    key: KeyId,
    object: Option<Seen>,
) {
    if case.excuses.may_be_wrong(informer, at) || case.excuses.may_lack_something(informer, at) || rv == 0 {
        return;
    }
    let stories = case.truth.stories(informer);
    // A set has the lowest RV of its parts: a part may be newer.
    if stories.len() > 1 {
        return;
    }
    let is = stories.iter().any(|story| story.lines_at(at).any(|(_, line)| line.may_have(key, rv, object)));
    verdict.count(Invariant::I3, true);
    if !is {
        let of = Focus { key: Some(key), ..case.focus(informer) };
        let what =
            format!("{}: {} is {object:?} at RV {rv}, and never was", case.name(informer), case.key(key));
        verdict.violate(Invariant::I3, at, of, what);
    }
}

/// Checks I7 for a whole store.
fn listed(case: &Case<'_>, verdict: &mut Verdict, at: At, informer: InformerId, objects: &[Seen]) {
    let selection = &case.history.cast.informers[informer.index()].selection;
    for object in objects {
        let Some(shape) = case.truth.shape(object.stamp) else { continue };
        let wanted = selection.matches(case.key(object.key), &case.history.names.shapes[shape.index()]);
        let of = Focus { key: Some(object.key), ..case.focus(informer) };
        verdict.demand(Invariant::I7, wanted, at, of, || {
            format!(
                "{}: {} at RV {} is not of {selection}",
                case.name(informer),
                case.key(object.key),
                object.rv
            )
        });
    }
}

/// Returns a freshness as text.
pub(super) fn word(freshness: &Freshness) -> String {
    match freshness {
        Freshness::Live { age } => format!("live, at most {age:.1?} old"),
        Freshness::Stale { age, reason } => {
            let reason = match reason {
                Reason::Link => "link",
                Reason::Undecodable => "undecodable",
                Reason::AuditMismatch => "audit mismatch",
                Reason::AgeBound => "age bound",
                Reason::Slept => "slept",
                Reason::Other => "other",
            };
            format!(
                "stale ({reason}), {}",
                age.map_or("of unknown age".to_owned(), |age| format!("at most {age:.1?} old"))
            )
        }
        Freshness::NeverSynced => "never synced".to_owned(),
        Freshness::Stopped { .. } => "stopped".to_owned(),
    }
}

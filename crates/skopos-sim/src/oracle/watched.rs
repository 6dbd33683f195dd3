//! Items of raw watches: I1, I4 and I6 by the log, I11 and I12 in time, I16, I19 and I23 in the end.
//!
//! A raw watch gets the same events as a handler, but has no content to compare with, no audits and no age. It follows the story of
//! its selector, change by change. Each change that it does not get is lost, unless it is reported as skipped.
//!
//! ```text
//!   story    1 ── 2 ── 3 ── 4 ── 5 ── 6 ── 7       each is returned, in this order,
//!                      ▲              ▲            until something is skipped: from here to there
//!                      └── Skipped ───┘
//! ```
//!
//! What it cannot know is excused until the next skip: a stream that lies, until a later event arrives, and a rollback that
//! passed its RV again before it could be detected. If a probe must have shown it, it must be detected.

use std::collections::HashMap;
use std::time::Duration;

use super::causes::{AT_ONCE, PUT_OFF};
use super::requests::targets;
use super::truth::{Chapter, Event};
use super::{Case, FaultSpan, Focus, Invariant, Verdict};
use crate::history::{At, ClientId, ClusterId, Fact, Heard, Kind, Seen, TargetId, Watcher, WatcherId};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut courses: HashMap<WatcherId, Course<'_>> = HashMap::new();
    let mut refused: HashMap<(ClusterId, TargetId), At> = HashMap::new();
    for (at, fact) in case.facts() {
        match fact {
            Fact::WatcherStarted { watcher } => {
                courses.insert(*watcher, Course::new(case, *watcher, at));
            }
            Fact::WatcherTold { watcher, heard } => {
                if let Some(course) = courses.get_mut(watcher) {
                    course.heard(verdict, at, *heard, &refused);
                }
            }
            Fact::WatcherStands { watcher, well } => {
                if let Some(course) = courses.get_mut(watcher) {
                    course.well.push((at, *well));
                }
            }
            Fact::WatcherEnded { watcher, by_itself } => {
                if let Some(mut course) = courses.remove(watcher) {
                    course.ended(verdict, at, *by_itself);
                }
            }
            Fact::WatchEnded { cluster, target, stood } if *stood < AT_ONCE => {
                refused.insert((*cluster, *target), at);
            }
            Fact::Settled => courses.values_mut().for_each(|course| course.settled(verdict, at)),
            _ => {}
        }
    }
}

/// Time within which a change arrives without faults.
const SOON: Duration = Duration::from_secs(3);
/// Maximum backoff after failures. Unlike an informer, which its factory notifies, a raw watch gets no hint that its server is
/// back.
const BACKOFF: Duration = Duration::from_secs(30);
/// Time to detect a rollback: a probe is made each half minute, and a stream has 15 s to catch up with it.
const NOTICED: Duration = Duration::from_secs(65);

/// Progress of one raw watch in its story.
struct Course<'a> {
    case: &'a Case<'a>,
    id: WatcherId,
    watcher: &'a Watcher,
    client: ClientId,
    cluster: ClusterId,
    began: At,
    /// Index of its line of the story...
    line: usize,
    /// ... index of the next change...
    next: usize,
    /// ... and the RV of its last item; `None`: nothing yet.
    rv: Option<u64>,
    /// Time of the last skip.
    skipped: At,
    /// Nothing that was changed before this is still to come: the time of the last skip, or of the last item's change.
    sure: At,
    /// Time of the last item.
    told: At,
    /// The last line for which the detection was judged.
    judged: usize,
    /// Times at which its link became healthy, or unhealthy.
    well: Vec<(At, bool)>,
}

impl<'a> Course<'a> {
    fn new(case: &'a Case<'a>, id: WatcherId, began: At) -> Self {
        let watcher = &case.history.cast.watchers[id.index()];
        let client = watcher.client;
        let cluster = case.history.cast.clients[client.index()].cluster;
        let (skipped, sure, told, well) = (began, began, began, Vec::new());
        let (line, next, judged, rv) = (0, 0, 0, None);
        Self { case, id, watcher, client, cluster, began, line, next, rv, skipped, sure, told, judged, well }
    }

    fn heard(
        &mut self,
        verdict: &mut Verdict,
        at: At,
        heard: Heard,
        refused: &HashMap<(ClusterId, TargetId), At>,
    ) {
        self.notices(verdict, at);
        self.told = at;
        match heard {
            Heard::Bookmark { rv } => match self.rv {
                Some(_) => self.bookmark(verdict, at, rv),
                None => self.begins(verdict, at, rv),
            },
            Heard::Change(kind, object) => self.change(verdict, at, kind, object),
            Heard::Unreadable { key, rv } => {
                self.damaged(verdict, at);
                self.passes(verdict, at, rv, |event| event.object.key == key);
            }
            Heard::Gone { key, rv } => {
                self.damaged(verdict, at);
                self.passes(verdict, at, rv, |event| event.object.key == key && event.kind == Kind::Deleted);
            }
            Heard::Skipped { since, to } => self.skips(verdict, at, since, to, refused),
            Heard::Other => verdict.violate(Invariant::I4, at, self.of(), self.text("told what is no item")),
        }
    }

    /// Notes the beginning: after the content of that moment.
    fn begins(&mut self, verdict: &mut Verdict, at: At, rv: u64) {
        // A write at exactly that moment may come after.
        let newest = self.case.truth.newest(self.cluster, At(self.began.0.saturating_sub(1)));
        let went_back = self.case.truth.rollbacks(self.cluster).any(|went| went >= self.began && went <= at);
        verdict.demand(Invariant::I5, rv >= newest || went_back, at, self.of(), || {
            self.text(&format!("begins after RV {rv}, though the server was at {newest} then"))
        });
        self.stand_at(at, rv);
    }

    /// Moves right behind an RV. It uses the newest line, or the one before if they are equal up to there, or if the newest has
    /// not reached the RV: that item was in flight when history went back.
    fn stand_at(&mut self, at: At, rv: u64) {
        let line = self.newest_with(at, rv).unwrap_or_else(|| self.newest(at).0.saturating_sub(1));
        (self.line, self.next, self.rv) = (line, self.story()[line].until(rv), Some(rv));
        (self.skipped, self.sure) = (at, at);
    }

    /// Returns the newest line, if it has reached this RV with its own commits.
    fn newest_with(&self, at: At, rv: u64) -> Option<usize> {
        let (newest, chapter) = self.newest(at);
        (chapter.cut < rv && rv <= self.case.truth.newest(self.cluster, at)).then_some(newest)
    }

    /// Judges a change, which must be the next of the story.
    fn change(&mut self, verdict: &mut Verdict, at: At, kind: Kind, object: Seen) {
        // An object that was read because its event was damaged may be new, and a reader without content cannot tell.
        let read = kind == Kind::Updated && self.was_damaged(at);
        self.passes(verdict, at, object.rv, |event| {
            event.object == object && (event.kind == kind || read && event.kind == Kind::Added)
        });
    }

    /// Judges an item that must be the next of the story.
    fn passes(&mut self, verdict: &mut Verdict, at: At, rv: u64, is_this: impl Fn(&Event) -> bool) {
        let excused = self.is_excused(at);
        if let Some((line, event)) = self.next_if(at, &is_this) {
            self.line = line;
            self.sure = self.sure.max(event.at);
            self.next += 1;
            if !excused {
                verdict.count(Invariant::I4, true);
                verdict.count(Invariant::I1, true);
            }
            if !excused && self.is_quick() {
                self.in_time(verdict, at, event);
                self.honestly(verdict, at, event);
            }
        } else {
            let found = self.find(at, rv, &is_this);
            if !excused {
                self.breaks(verdict, at, rv, found);
            }
            if let Some((line, place)) = found {
                (self.line, self.next) = (line, place + 1);
                self.sure = self.sure.max(self.story()[line].events[place].at);
            }
        }
        self.rv = Some(rv);
    }

    /// Returns the next change, if it matches.
    fn next_if(&self, at: At, is_this: &impl Fn(&Event) -> bool) -> Option<(usize, &'a Event)> {
        let mut next =
            self.lines(at).filter_map(|(line, chapter)| Some((line, chapter.events.get(self.next)?)));
        next.find(|(_, event)| is_this(event))
    }

    /// Returns its line, and the later ones that are equal up to here: an item in flight when history goes back belongs to the
    /// old line.
    fn lines(&self, at: At) -> impl Iterator<Item = (usize, &'a Chapter)> {
        let (own, rv) = (self.line, self.rv);
        let all = self.story().iter().enumerate().skip(own);
        all.filter(move |(line, chapter)| {
            *line == own || chapter.began <= at && rv.is_none_or(|rv| rv <= chapter.cut)
        })
    }

    /// Returns the place of an item in the story, on any line.
    fn find(&self, at: At, rv: u64, is_this: &impl Fn(&Event) -> bool) -> Option<(usize, usize)> {
        let lines = self.story().iter().enumerate().rev().filter(|(_, chapter)| chapter.began <= at);
        let place = |(line, chapter): (usize, &Chapter)| {
            let until = chapter.until(rv);
            let at_rv = (0..until).rev().take_while(|place| chapter.events[*place].object.rv == rv);
            at_rv.into_iter().find(|place| is_this(&chapter.events[*place])).map(|place| (line, place))
        };
        lines.filter_map(place).next()
    }

    fn breaks(&self, verdict: &mut Verdict, at: At, rv: u64, found: Option<(usize, usize)>) {
        let (invariant, what) = match found {
            None => (Invariant::I4, format!("told of RV {rv} what is not in the log")),
            Some((line, place)) if line == self.line && place < self.next => {
                (Invariant::I1, format!("told of RV {rv} again, or too late: after {:?}", self.rv))
            }
            Some((_, place)) => {
                let lost = place.saturating_sub(self.next);
                (Invariant::I4, format!("told of RV {rv}, and not of {lost} changes before it"))
            }
        };
        verdict.violate(invariant, at, self.of(), self.text(&what));
    }

    /// Judges a bookmark: all changes up to this RV were returned, except those that share the RV with a returned one.
    fn bookmark(&mut self, verdict: &mut Verdict, at: At, rv: u64) {
        let told = |chapter: &Chapter| {
            let next = chapter.events.get(self.next);
            next.is_none_or(|next| next.object.rv > rv || next.object.rv == rv && next.shares)
        };
        let lines: Vec<usize> =
            self.lines(at).filter(|(_, chapter)| told(chapter)).map(|(line, _)| line).collect();
        let newest = self.newest_with(at, rv).filter(|newest| lines.contains(newest));
        let line = newest.or(lines.first().copied());
        if !self.is_excused(at) {
            let before = self.rv.unwrap_or(0);
            verdict.exercise(Invariant::I6);
            verdict.demand(Invariant::I6, line.is_some() && rv >= before, at, self.of(), || {
                let next = self.story()[self.line].events.get(self.next);
                self.text(&format!("told all up to RV {rv} after {before}, and not of {next:?}"))
            });
        }
        match line {
            Some(line) => self.line = line,
            None => self.next = self.story()[self.line].until(rv),
        }
        self.rv = Some(rv);
    }

    /// Judges a skip, by which changes are reported as unknown.
    fn skips(
        &mut self,
        verdict: &mut Verdict,
        at: At,
        since: u64,
        to: u64,
        refused: &HashMap<(ClusterId, TargetId), At>,
    ) {
        verdict.demand(Invariant::I6, self.rv == Some(since), at, self.of(), || {
            self.text(&format!("said to skip from RV {since}, having told of {:?} last", self.rv))
        });
        if self.is_quick() && self.case.weather.is_forgotten(self.cluster, at) {
            let target = self.target();
            let last = target.and_then(|target| refused.get(&(self.cluster, target)));
            verdict.exercise(Invariant::I4);
            verdict.demand(
                Invariant::I4,
                last.is_some_and(|last| last.plus(PUT_OFF) >= at),
                at,
                self.of(),
                || self.text(&format!("skips from RV {since} to {to}, and nothing was refused")),
            );
        }
        if self.has_gone_back(at) {
            verdict.count(Invariant::I19, true);
        }
        self.stand_at(at, to);
    }

    /// Checks I19: a rollback is detected as soon as a probe must have shown it.
    fn notices(&mut self, verdict: &mut Verdict, at: At) {
        let lines = self.story().iter().enumerate().skip(self.line.max(self.judged) + 1);
        for (line, chapter) in lines {
            let until = chapter.began.max(self.told).plus(NOTICED);
            if until >= at {
                break;
            }
            self.judged = line;
            let Some(rv) = self.rv.filter(|rv| *rv > chapter.cut && self.is_seen(chapter, *rv, until)) else {
                continue;
            };
            verdict.count(Invariant::I19, true);
            let what = format!("stands at RV {rv}, though history went back at {}", chapter.began);
            verdict.violate(Invariant::I19, until, self.of(), self.text(&what));
        }
    }

    /// Returns whether a probe must have shown the rollback by then: the server has not reached this RV again, there was no other
    /// fault, and no item waits for the user.
    fn is_seen(&self, chapter: &Chapter, rv: u64, until: At) -> bool {
        let lately = At(chapter.began.0.saturating_sub(At::after_start(BACKOFF).0));
        let mut wrong = self.case.weather.felt(self.cluster, lately, until);
        self.is_quick()
            && self.case.truth.newest(self.cluster, until) < rv
            && wrong.all(|span| span.is_rollback() || span.is_of_the_users())
            && !self.case.lives.is_leaving(self.client, until)
    }

    /// Checks that an object is undecodable only if it was damaged.
    fn damaged(&self, verdict: &mut Verdict, at: At) {
        verdict.demand(Invariant::I4, self.was_damaged(at), at, self.of(), || {
            self.text("says that a change cannot be read, and nothing was damaged")
        });
    }

    fn was_damaged(&self, at: At) -> bool {
        self.case.weather.on(self.cluster).any(|span| span.damages() && span.began <= at)
    }

    /// Checks I12: a change arrives soon, or soon after a fault is over.
    fn in_time(&self, verdict: &mut Verdict, at: At, event: &Event) {
        let (due, troubled) = self.due(event.at);
        if troubled {
            verdict.exercise(Invariant::I12);
        }
        verdict.demand(Invariant::I12, at <= due.plus(SOON), at, self.of(), || {
            self.text(&format!(
                "told of RV {} of {} only now; it was due at {due}",
                event.object.rv, event.at
            ))
        });
    }

    /// Checks I11: a link that has not delivered an event for so long does not count as healthy. A probe, which is a list, shows
    /// the event.
    fn honestly(&self, verdict: &mut Verdict, at: At, event: &Event) {
        let since = event.at.max(self.began).max(self.skipped);
        let mut felt = self.case.weather.felt(self.cluster, since, at).peekable();
        if felt.peek().is_none() {
            return;
        }
        let bound = felt.try_fold(Duration::ZERO, |bound, span| {
            span.spares_lists.then(|| bound.max(span.detect.unwrap_or_default()))
        });
        let Some(bound) = bound else { return };
        let from = since.plus(bound.max(NOTICED));
        if from >= at {
            return;
        }
        let believed = self.was_well(from, at);
        verdict.exercise(Invariant::I11);
        verdict.demand(Invariant::I11, believed <= SOON, at, self.of(), || {
            let rv = event.object.rv;
            self.text(&format!(
                "RV {rv} of {} is told only now, and all was said to be well for {believed:?}",
                event.at
            ))
        });
    }

    /// Returns the time between two moments for which the link was reported healthy.
    fn was_well(&self, from: At, to: At) -> Duration {
        let ends = self.well.iter().skip(1).map(|(at, _)| *at).chain([to]);
        let spans = self.well.iter().zip(ends).filter(|((_, well), _)| *well);
        spans.map(|((began, _), end)| end.min(to).since((*began).max(from))).sum()
    }

    /// Returns the time at which an event of this moment must arrive, which is when there was no fault for a while; and whether
    /// there was one.
    fn due(&self, at: At) -> (At, bool) {
        let began = self.began.max(self.skipped);
        let mut due = at.max(began);
        let first = due;
        loop {
            let lately = At(due.0.saturating_sub(At::after_start(BACKOFF).0));
            let wrong = self.case.weather.felt(self.cluster, lately, due.plus(SOON));
            let wrong = wrong.filter(|span| !span.is_of_the_users());
            let over = wrong.map(|span| span.over().map_or(At(u64::MAX), |over| over.plus(BACKOFF))).max();
            match over {
                Some(over) if over > due => due = over,
                _ => return (due, due > first),
            }
        }
    }

    /// Checks I23: no event is left when nothing has happened for long.
    fn settled(&mut self, verdict: &mut Verdict, at: At) {
        self.notices(verdict, at);
        let (line, chapter) = self.newest(at);
        let of = self.of();
        if self.is_excused(at) {
            // A rollback whose history has not reached the RV again is detected.
            let noticed =
                line == self.line || self.rv.is_none_or(|rv| rv <= self.case.truth.newest(self.cluster, at));
            verdict.demand(Invariant::I19, noticed, at, of, || {
                self.text(&format!("stands at RV {:?} of a history that is no more", self.rv))
            });
            return;
        }
        let left = chapter.events.get(self.next).filter(|event| event.at < at);
        verdict.exercise(Invariant::I23);
        verdict.demand(Invariant::I23, self.rv.is_some() && left.is_none(), at, of, || {
            self.text(&format!("stands at RV {:?}, and was not told of {left:?}", self.rv))
        });
    }

    /// Checks I16: it ends when its transport is shut down, and not otherwise.
    fn ended(&mut self, verdict: &mut Verdict, at: At, by_itself: bool) {
        self.notices(verdict, at);
        let shut = self.case.lives.shut(self.client);
        verdict.exercise(Invariant::I16);
        let right = match by_itself {
            // The shutdown may not have returned yet.
            true => self.case.lives.is_leaving(self.client, at),
            false => shut.is_none_or(|shut| shut.plus(SOON) >= at),
        };
        verdict.demand(Invariant::I16, right, at, self.of(), || {
            let how = if by_itself { "ended" } else { "had not ended" };
            self.text(&format!("{how}; its transport was shut down at {shut:?}"))
        });
    }

    /// Returns whether it may have missed an event that it cannot know of.
    fn is_excused(&self, at: At) -> bool {
        let lied = self.case.weather.on(self.cluster).any(|span| span.lies && self.may_lack_of(span, at));
        lied || self.has_gone_back(at)
    }

    /// Returns whether its RV belongs to an undone history.
    fn has_gone_back(&self, at: At) -> bool {
        let mut later = self.story()[self.line + 1..].iter().filter(|chapter| chapter.began <= at);
        later.any(|chapter| self.rv.is_some_and(|rv| rv > chapter.cut))
    }

    fn may_lack_of(&self, lie: &FaultSpan, at: At) -> bool {
        lie.began <= at && lie.healed.is_none_or(|healed| healed.plus(SOON) >= self.sure)
    }

    /// Returns whether it processes items at once.
    fn is_quick(&self) -> bool {
        self.watcher.slowness.is_zero()
    }

    fn newest(&self, at: At) -> (usize, &'a Chapter) {
        let story = self.case.truth.watched(self.id);
        story.lines_at(at).next().unwrap_or((0, &story.lines[0]))
    }

    fn story(&self) -> &'a [Chapter] {
        &self.case.truth.watched(self.id).lines
    }

    fn target(&self) -> Option<TargetId> {
        let names = &self.case.history.names;
        let resource = &names.resources[self.watcher.resource.index()];
        let wanted = targets(resource, &self.watcher.selection);
        let at = names.targets.iter().position(|target| wanted.contains(target))?;
        u16::try_from(at).ok().map(TargetId)
    }

    fn text(&self, what: &str) -> String {
        format!("{}: {what}", self.watcher.name)
    }

    fn of(&self) -> Focus {
        Focus { cluster: Some(self.cluster), watcher: Some(self.id), ..Focus::default() }
    }
}

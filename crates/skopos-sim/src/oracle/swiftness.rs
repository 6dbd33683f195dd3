//! How soon things happen: I11, I12, I14.
//!
//! A store is as it looked last until it looks otherwise: looks are regular, and those that show nothing new are not recorded.

use std::time::Duration;

use super::excuses::on_its_way;
use super::stores::word;
use super::weather::FaultSpan;
use super::{Case, Invariant, Verdict};
use crate::history::{At, ClusterId, Fact, Freshness, InformerId, Look, Reason, Standing, Walk};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut looks: Vec<Vec<(At, &Look)>> = vec![Vec::new(); case.history.cast.informers.len()];
    for (at, fact) in case.facts() {
        if let Fact::Looked(look) = fact
            && !matches!(look.walk, Walk::Live(_) | Walk::Answer(_))
        {
            looks[look.informer.index()].push((at, look));
        }
    }
    for (id, looks) in (0..).map(InformerId).zip(&looks) {
        let watcher = Watcher { case, informer: id, cluster: case.cluster_of(id), looks };
        watcher.detection(verdict);
        watcher.recovery(verdict);
    }
}

/// What one store looked like when.
struct Watcher<'a> {
    case: &'a Case<'a>,
    informer: InformerId,
    cluster: ClusterId,
    looks: &'a [(At, &'a Look)],
}

/// Without any fault, a change is there within this.
const AT_ONCE: Duration = Duration::from_secs(2);
/// What is added to a bound: the way of a change, and the time until the next look.
const SLACK: Duration = Duration::from_secs(3);
/// A request that was made while the fault was in force may fail so much later, and only then its wait begins.
const FAILING: Duration = Duration::from_secs(10);
/// After an outage a quiet store is called live again when the next probe is answered and the stream has shown that it is
/// up to it: probe interval, grace and a second look. If it has to be opened again for that, what the last minute of the
/// fault has spent (I15) may be missing.
const PROVEN_AGAIN: Duration = Duration::from_secs(65);
/// Within what time a probe and a look find a stream that is silent.
const STALLED: Duration = Duration::from_secs(60);
/// Within what time what streams do not bring is listed: a probe sees it, it is doubted for 90 s, looked for once more, and what a
/// minute allows may have been spent on that.
const LISTED: Duration = Duration::from_secs(300);
/// The longest time for which a watch is asked.
const LONGEST_WATCH: Duration = Duration::from_secs(600);
/// Bytes that come slowly.
const SLOW: u8 = 9;
/// So much later is noticed what befalls a path that is slow: a PING waits for what is on its way before it.
const SLOWED: Duration = Duration::from_secs(5);
/// What was spent on lists and requests in the last minute is missing for a recovery (I15), whoever was to blame.
const MINUTE: Duration = Duration::from_secs(61);
/// An object that could be read neither in a watch nor by itself is read again every 5 minutes and a tenth at most, and then
/// listed, for which there may be no request left in that minute. Until then its store says what it lacks.
const READ_AGAIN: Duration = Duration::from_secs(330 + 61 + 10);
/// So long after a store was started or a fault was over, all has to be well.
const SETTLING: Duration = Duration::from_secs(60);

impl Watcher<'_> {
    /// I11, and I14 as far as it is about content: how long something is missing while the store is called live.
    fn detection(&self, verdict: &mut Verdict) {
        let Case { truth, excuses, lives, .. } = self.case;
        let mut noticed = None;
        for (i, (at, look)) in self.looks.iter().enumerate() {
            let next = self.looks.get(i + 1).map_or(lives.end, |(next, _)| *next);
            // It was so at least until the look before the next.
            let until =
                At(next.0.saturating_sub(At::after_start(self.case.history.cast.look_interval).0)).max(*at);
            if !look.freshness.is_live() {
                noticed = Some(until);
            }
            let life = lives.informer(self.informer);
            let until = life.to.map_or(until, |to| until.min(to));
            if !look.synced || until < *at || excuses.may_be_wrong(self.informer, until) {
                continue;
            }
            for (part, (story, view)) in truth.stories(self.informer).iter().zip(&look.views).enumerate() {
                let Some(missing) = story.line_at(until).ceased(view.rv, view.content, until) else {
                    verdict.count(Invariant::I11, false);
                    continue;
                };
                let missed_for = until.since(missing.at.max(*at));
                let rest = missing.object.rv == view.rv;
                let unknown = rest.then(|| on_its_way(self.case, self.cluster, missing, until));
                let age = until.since(missing.at).saturating_sub(unknown.unwrap_or_default());
                let felt: Vec<&FaultSpan> =
                    self.case.felt_by(self.informer, Some(part), missing.at, until).collect();
                self.listed_instead(verdict, &felt, missing.at, until, look);
                let settled = life.from.is_some_and(|from| from.plus(SETTLING) < missing.at);
                let stalled = self.may_be_of_a_lost_history(missing.at);
                if felt.is_empty() && settled && !stalled {
                    self.isolation(verdict, missing.at, until, look, part);
                }
                if !look.freshness.is_live() {
                    if !felt.is_empty() {
                        // It was noticed.
                        verdict.count(Invariant::I11, true);
                    }
                    continue;
                }
                // Who was told that it is missing is told its age from then on, also while the link stands for a moment.
                let told = noticed.is_some_and(|noticed| missing.at <= noticed);
                let bound = match told {
                    true => self.case.client_of(self.informer).stale_after,
                    false if stalled => self.bound(&felt).max(STALLED),
                    false => self.bound(&felt),
                };
                verdict.exercise(Invariant::I11);
                verdict.demand(Invariant::I11, age <= bound + SLACK, until, self.case.focus(self.informer), || {
                    format!(
                        "{}: {} at RV {}, though a change of {} (RV {}) is missing for {missed_for:?}, and {bound:?} is the bound of {}",
                        self.case.name(self.informer),
                        word(&look.freshness),
                        view.rv,
                        missing.at,
                        missing.object.rv,
                        numbers(&felt)
                    )
                });
            }
        }
    }

    /// I12: what streams do not bring, be they silent or not answered, comes by a list.
    fn listed_instead(
        &self,
        verdict: &mut Verdict,
        felt: &[&FaultSpan],
        missing: At,
        until: At,
        look: &Look,
    ) {
        let [span] = felt else { return };
        let silent = span.spares_lists && !span.lies && span.detect.is_some_and(|detect| detect >= STALLED);
        let missed_for = until.since(missing.max(span.began));
        if !silent || missed_for < STALLED {
            return;
        }
        verdict.exercise(Invariant::I12);
        verdict.demand(Invariant::I12, missed_for <= LISTED + SLACK, until, self.case.focus(self.informer), || {
            format!(
                "{}: {}, and a change of {missing} is missing for {missed_for:?} under fault {}, which spares lists",
                self.case.name(self.informer),
                word(&look.freshness),
                span.number
            )
        });
    }

    /// Whether the stream may have been opened before history went back, and be silent for ever: where the store stood below, nothing
    /// tells its client, and looks at another stream take it along as long as nothing happens.
    fn may_be_of_a_lost_history(&self, at: At) -> bool {
        let mut spans = self.case.weather.on(self.cluster);
        spans.any(|span| span.is_rollback() && span.began <= at && at <= span.began.plus(LONGEST_WATCH))
    }

    /// Within what time it is to be noticed that something is missing.
    fn bound(&self, felt: &[&FaultSpan]) -> Duration {
        let stale_after = self.case.client_of(self.informer).stale_after;
        let others: Vec<_> = felt.iter().filter(|span| span.number != SLOW).collect();
        // Some bytes a second, which take longer to recover from.
        let crawls = |span: &&FaultSpan| span.number == SLOW && span.recover >= MINUTE;
        match (felt, others.as_slice()) {
            ([], _) => AT_ONCE,
            ([one], _) => one.detect.unwrap_or(stale_after),
            // What is late hides nothing for long.
            (_, [one]) if !felt.iter().any(crawls) => {
                one.detect.map_or(stale_after, |detect| detect + SLOWED)
            }
            // Each may hide the signs of the other.
            _ => stale_after,
        }
    }

    /// I14: this part of this cluster is well, and another is not.
    fn isolation(&self, verdict: &mut Verdict, missing: At, until: At, look: &Look, part: usize) {
        let others = self.case.weather.spans().iter();
        let others = others.filter(|span| !self.case.strikes(span, self.informer, Some(part)));
        let elsewhere = others.filter(|span| span.is_in_force(missing)).count();
        if elsewhere == 0 {
            return;
        }
        let late = until.since(missing);
        verdict.exercise(Invariant::I14);
        verdict.demand(Invariant::I14, late <= AT_ONCE, until, self.case.focus(self.informer), || {
            format!(
                "{}: no fault here, {elsewhere} elsewhere, and a change of {missing} is missing for {late:?} ({})",
                self.case.name(self.informer),
                word(&look.freshness)
            )
        });
    }

    /// I12: after each fault that was the only one; and I14 again, for stores that nothing happened to.
    fn recovery(&self, verdict: &mut Verdict) {
        let weather = &self.case.weather;
        for span in weather.on(self.cluster) {
            let (Some(healed), Some(over)) = (span.healed, span.over()) else { continue };
            let struck = !span.hits.is_empty() && self.case.strikes(span, self.informer, None);
            let mut due = over.plus(FAILING);
            if self.case.lives.informer(self.informer).from.is_some_and(|from| from.plus(MINUTE) > span.began)
            {
                // What its first minute allows may have been spent on first lists.
                due = due.max(healed.plus(PROVEN_AGAIN));
            }
            if span.lies || !struck || !self.is_alone(span, due) {
                continue;
            }
            self.recovered(verdict, span, due, healed, false);
            let proven = due.max(healed.plus(PROVEN_AGAIN));
            if self.is_alone(span, proven) {
                self.recovered(verdict, span, proven, healed, true);
            }
            let read_again = due.max(healed.plus(READ_AGAIN));
            if span.damages() && self.is_alone(span, read_again) {
                self.recovered(verdict, span, read_again, healed, true);
            }
        }
        for span in weather.spans().iter().filter(|span| !self.case.strikes(span, self.informer, None)) {
            let from = At(span.began.0.saturating_sub(At::after_start(SETTLING).0));
            let to = span.healed.unwrap_or(self.case.lives.end);
            if self.case.felt_by(self.informer, None, from, to).next().is_some()
                || !self.case.lives.informer(self.informer).covers(from, to)
            {
                continue;
            }
            let troubled = self
                .looks
                .iter()
                .filter(|(at, _)| *at >= span.began && *at <= to)
                .find(|(at, look)| !(look.freshness.is_live() || self.waits_for_a_read(*at, look)));
            verdict.exercise(Invariant::I14);
            let at = troubled.map_or(to, |(at, _)| *at);
            verdict.demand(Invariant::I14, troubled.is_none(), at, self.case.focus(self.informer), || {
                let seen = troubled.map(|(_, look)| word(&look.freshness)).unwrap_or_default();
                format!(
                    "{}: {seen}, though only others have a fault ({}{})",
                    self.case.name(self.informer),
                    span.number,
                    span.part
                )
            });
        }
    }

    /// Whether nothing else happened to this store from the fault on until it is judged.
    fn is_alone(&self, span: &FaultSpan, until: At) -> bool {
        let case = self.case;
        let until = until.plus(case.history.cast.look_interval);
        let life = case.lives.informer(self.informer);
        // Who comes while it is in force has to recover from it as well.
        let met = life.from.is_some_and(|from| span.healed.is_some_and(|healed| from <= healed));
        until <= case.lives.end
            && met
            && life.to.is_none_or(|to| to >= until)
            && case.weather.on(self.cluster).all(|other| {
                let long_before = other.healed.is_some_and(|healed| healed.plus(MINUTE) < span.began);
                other.fault == span.fault || other.began > until || long_before
            })
            && !case.excuses.may_be_wrong(self.informer, until)
    }

    /// Whether what was sent damaged may not have been read again yet.
    fn waits_for_a_read(&self, at: At, look: &Look) -> bool {
        let lately = |span: &FaultSpan| {
            span.began <= at && span.healed.is_none_or(|healed| at < healed.plus(READ_AGAIN))
        };
        matches!(look.freshness, Freshness::Stale { reason: Reason::Undecodable, .. })
            && self.case.weather.on(self.cluster).any(|span| span.damages() && lately(span))
    }

    /// Whether what could not be read is listed by now: a moment ago the store still said what it lacks.
    fn lists_instead(&self, at: At) -> bool {
        let before = self.looks.partition_point(|(seen, _)| *seen <= at);
        let lately = self.looks[..before].iter().rev().take_while(|(seen, _)| seen.plus(MINUTE) >= at);
        lately.take(2).any(|(seen, look)| self.waits_for_a_read(*seen, look))
    }

    fn recovered(&self, verdict: &mut Verdict, span: &FaultSpan, due: At, healed: At, proven: bool) {
        let case = self.case;
        let seen = self.looks.partition_point(|(at, _)| *at <= due.plus(case.history.cast.look_interval));
        let Some((_, look)) = seen.checked_sub(1).map(|last| self.looks[last]) else { return };
        let live = match look.freshness {
            Freshness::Live { .. } => true,
            // The link is well; only the proof is still to come.
            Freshness::Stale { reason: Reason::AgeBound | Reason::Slept, .. } => !proven,
            Freshness::Stale { reason: Reason::Link, .. } => {
                !proven && look.standing.is_watching()
                    || due < healed.plus(READ_AGAIN) && self.lists_instead(due)
            }
            _ => self.waits_for_a_read(due, look),
        };
        let stories = case.truth.stories(self.informer).iter().zip(&look.views);
        let late = stories
            .filter_map(|(story, view)| {
                story.line_at(due).missing(view.rv, view.content).map(|event| event.at)
            })
            .filter(|missing| missing.plus(SLACK) <= due)
            .min();
        let missing = look.synced.then_some(late).flatten();
        verdict.exercise(Invariant::I12);
        let well = live && look.synced && missing.is_none();
        verdict.demand(Invariant::I12, well, due, case.focus(self.informer), || {
            let lacks = missing.map_or(String::new(), |at| format!(", and a change of {at} is missing"));
            format!(
                "{}: {} ({}, {} failed in a row) {:?} after fault {} was healed{lacks}",
                case.name(self.informer),
                word(&look.freshness),
                look.standing.condition,
                look.standing.attempts,
                due.since(healed),
                span.number
            )
        });
    }
}

impl Standing {
    /// Whether a watch stands, whatever it brings.
    fn is_watching(&self) -> bool {
        matches!(self.condition, "watching" | "degraded")
    }
}

fn numbers(felt: &[&FaultSpan]) -> String {
    if felt.is_empty() {
        return "no fault".to_owned();
    }
    let numbers: Vec<String> = felt.iter().map(|span| span.number.to_string()).collect();
    format!("fault {}", numbers.join(", "))
}

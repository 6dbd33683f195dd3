//! Speed of reactions: I11, I12, I14.
//!
//! A store keeps its last look until the next one: looks are regular, and those without a change are not recorded.

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

/// Looks at one store, with their times.
struct Watcher<'a> {
    case: &'a Case<'a>,
    informer: InformerId,
    cluster: ClusterId,
    looks: &'a [(At, &'a Look)],
}

/// Time within which a change arrives without any fault.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Slack of a bound: the latency of a change, and the time until the next look.
const SLACK: Duration = Duration::from_secs(3);
/// Time after which a request made during the fault may still fail, and only then its backoff begins.
const FAILING: Duration = Duration::from_secs(10);
/// Time after an outage within which a quiet store is live again: the next probe is answered and the stream has shown that it is
/// up to it, that is probe interval, grace and a verification watch. If the stream must be reopened for that, the budget of the
/// fault's last minute (I15) may be missing.
const PROVEN_AGAIN: Duration = Duration::from_secs(65);
/// Time within which a probe and a verification watch detect a silent stream.
const STALLED: Duration = Duration::from_secs(60);
/// Time within which content that streams do not bring is listed: a probe detects it, 90 s of doubt follow, it is verified again,
/// and a minute's budget may have been used for that.
const LISTED: Duration = Duration::from_secs(300);
/// The longest timeout of a watch.
const LONGEST_WATCH: Duration = Duration::from_secs(600);
/// Catalogue number of slow bytes.
const SLOW: u8 = 9;
/// Additional detection time on a slow path: a PING waits behind the bytes in flight.
const SLOWED: Duration = Duration::from_secs(5);
/// The budget of the last minute for lists and requests may be missing for a recovery (I15), whatever used it.
const MINUTE: Duration = Duration::from_secs(61);
/// Interval of the retries for an object that neither a watch nor a single read could decode: 5 minutes plus a tenth at most.
/// Then it is listed, for which that minute's budget may be used up. Until then its store reports what it lacks.
const READ_AGAIN: Duration = Duration::from_secs(330 + 61 + 10);
/// Time after a store's start or a fault's end within which all must be well.
const SETTLING: Duration = Duration::from_secs(60);

impl Watcher<'_> {
    /// Checks I11, and I14 for content: the time for which an event is missing while the store is live.
    fn detection(&self, verdict: &mut Verdict) {
        let Case { truth, excuses, lives, .. } = self.case;
        let mut noticed = None;
        for (i, (at, look)) in self.looks.iter().enumerate() {
            let next = self.looks.get(i + 1).map_or(lives.end, |(next, _)| *next);
            // The look is valid at least until the look before the next.
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
                        // It was detected.
                        verdict.count(Invariant::I11, true);
                    }
                    continue;
                }
                // After a reported gap the reader knows the content's age, even if the link recovers for a moment.
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

    /// Checks I12: a list brings what streams do not bring, whether they are silent or unanswered.
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

    /// Returns whether the stream may have been opened before history went back, and be silent permanently. If the store's RV was
    /// below the rollback, the client cannot detect it, and verification watches move it along while nothing happens.
    fn may_be_of_a_lost_history(&self, at: At) -> bool {
        let mut spans = self.case.weather.on(self.cluster);
        spans.any(|span| span.is_rollback() && span.began <= at && at <= span.began.plus(LONGEST_WATCH))
    }

    /// Returns the time within which a missing event must be detected.
    fn bound(&self, felt: &[&FaultSpan]) -> Duration {
        let stale_after = self.case.client_of(self.informer).stale_after;
        let others: Vec<_> = felt.iter().filter(|span| span.number != SLOW).collect();
        // Some bytes a second, from which recovery takes longer.
        let crawls = |span: &&FaultSpan| span.number == SLOW && span.recover >= MINUTE;
        match (felt, others.as_slice()) {
            ([], _) => AT_ONCE,
            ([one], _) => one.detect.unwrap_or(stale_after),
            // Slow bytes hide nothing for long.
            (_, [one]) if !felt.iter().any(crawls) => {
                one.detect.map_or(stale_after, |detect| detect + SLOWED)
            }
            // Each fault may hide the symptoms of the other.
            _ => stale_after,
        }
    }

    /// Checks I14: this part of this cluster is well, and another is not.
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

    /// Checks I12 after each fault that was the only one, and I14 again for unaffected stores.
    fn recovery(&self, verdict: &mut Verdict) {
        let weather = &self.case.weather;
        for span in weather.on(self.cluster) {
            let (Some(healed), Some(over)) = (span.healed, span.over()) else { continue };
            let struck = !span.hits.is_empty() && self.case.strikes(span, self.informer, None);
            let mut due = over.plus(FAILING);
            if self.case.lives.informer(self.informer).from.is_some_and(|from| from.plus(MINUTE) > span.began)
            {
                // Its first minute's budget may have been used for first lists.
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

    /// Returns whether no other event affected this store from the fault until the judgement.
    fn is_alone(&self, span: &FaultSpan, until: At) -> bool {
        let case = self.case;
        let until = until.plus(case.history.cast.look_interval);
        let life = case.lives.informer(self.informer);
        // A store that starts during the fault must recover from it too.
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

    /// Returns whether a damaged object may not have been read again yet.
    fn waits_for_a_read(&self, at: At, look: &Look) -> bool {
        let lately = |span: &FaultSpan| {
            span.began <= at && span.healed.is_none_or(|healed| at < healed.plus(READ_AGAIN))
        };
        matches!(look.freshness, Freshness::Stale { reason: Reason::Undecodable, .. })
            && self.case.weather.on(self.cluster).any(|span| span.damages() && lately(span))
    }

    /// Returns whether an undecodable object is being listed by now: a moment ago the store still reported what it lacks.
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
            // The link is healthy; only the proof is missing.
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
    /// Returns whether a watch is open, whatever it brings.
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

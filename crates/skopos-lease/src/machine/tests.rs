use serde_json::json;

use super::*;

/// A candidate `us` whose Lease lasts 15 s: 12 s of a term, requests of 3 s, a renewal each 2 s.
struct Desk {
    machine: Machine,
    now: Time,
    version: u64,
}

impl Desk {
    /// Runs for a minute in which each request is answered at once; returns their number.
    fn minute_of(&mut self, answer: impl Fn(&Action) -> Outcome) -> usize {
        let mut requests = 0;
        for second in 0..60 {
            self.at(second);
            while let Some(action) = self.machine.poll_action() {
                requests += 1;
                assert!(requests < 1_000, "a storm in second {second}");
                let outcome = answer(&action);
                let (Action::Read { id, .. } | Action::Write { id, .. }) = action;
                self.give(Input::Answered { id, outcome });
            }
        }
        requests
    }

    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Timing)) -> Self {
        let mut timing = Timing {
            duration: secs(15),
            valid: secs(12),
            request_timeout: secs(3),
            renew_interval: secs(2),
            unfit_limit: secs(60),
            acquire_on_create: false,
        };
        change(&mut timing);
        let machine = Machine::new("us".into(), timing, 1, Time::ORIGIN);
        Self { machine, now: Time::ORIGIN, version: 10 }
    }

    /// Leads from second 0 on.
    fn leading() -> Self {
        let mut desk = Self::with(|timing| timing.acquire_on_create = true);
        desk.give(Input::Timeout);
        desk.reads(Outcome::Missing);
        desk.stores();
        assert_eq!(desk.machine.status(), Status::Leader { number: 1 });
        desk
    }

    fn give(&mut self, input: Input) {
        self.machine.handle(self.now, Timestamp::UNIX_EPOCH, input);
    }

    fn at(&mut self, seconds: u64) {
        self.now = at(seconds);
        self.give(Input::Timeout);
    }

    fn reads(&mut self, outcome: Outcome) {
        let Some(Action::Read { id, .. }) = self.machine.poll_action() else { panic!("no read") };
        self.give(Input::Answered { id, outcome });
    }

    /// Returns the next write and its number.
    fn writes(&mut self) -> (u64, Option<Record>, Spec) {
        match self.machine.poll_action() {
            Some(Action::Write { id, base, spec, .. }) => (id, base, spec),
            other => panic!("{other:?}"),
        }
    }

    /// Stores the next write.
    fn stores(&mut self) -> Spec {
        let (id, base, spec) = self.writes();
        let outcome = Outcome::Is(self.record(base, &spec));
        self.give(Input::Answered { id, outcome });
        spec
    }

    fn record(&mut self, base: Option<Record>, spec: &Spec) -> Record {
        self.version += 1;
        let mut object =
            base.map_or_else(|| crate::record::new_lease("a", "b", spec), |base| base.with(spec));
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        Record::read(object).unwrap()
    }

    /// Returns the Lease of another candidate.
    fn of(&mut self, holder: &str, renewed: &str) -> Record {
        let spec = Spec {
            holder: Some(holder.to_owned()),
            duration: Some(secs(15)),
            renewed: Some(renewed.to_owned()),
            transitions: 7,
            ..Spec::default()
        };
        self.record(None, &spec)
    }

    /// Reports that no work runs, before and after the end of the term was published.
    fn idle(&mut self) {
        self.give(Input::Idle);
        assert!(self.is_quiet(), "some may have begun");
        self.give(Input::Idle);
    }

    fn is_quiet(&mut self) -> bool {
        self.machine.poll_action().is_none()
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: u64) -> Time {
    Time::ORIGIN + secs(seconds)
}

#[test]
fn missing_lease_waits_out_deleted_holder() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    desk.reads(Outcome::Missing);
    let claim = desk.stores();
    assert_eq!((claim.holder.as_deref(), claim.transitions), (Some("us"), 1));
    assert_eq!(claim.duration, Some(secs(30)), "nobody takes it before us");
    assert!(!matches!(desk.machine.status(), Status::Leader { .. }));
    assert_eq!(desk.machine.poll_timeout(), Some(at(15)));
    desk.at(15);
    let spec = desk.stores();
    assert_eq!(spec.duration, Some(secs(15)));
    assert_eq!(desk.machine.status(), Status::Leader { number: 2 });
    // Counted from the sending of the write.
    assert_eq!(desk.machine.term(), Some((2, at(27))));
}

#[test]
fn claim_with_lost_answer_still_counts() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    desk.reads(Outcome::Missing);
    let (id, base, spec) = desk.writes();
    let stored = desk.record(base, &spec);
    desk.now = at(3);
    desk.give(Input::Answered { id, outcome: Outcome::Failed("no answer".into()) });
    desk.now = desk.machine.poll_timeout().unwrap();
    desk.give(Input::Timeout);
    let (id, ..) = desk.writes();
    desk.give(Input::Answered { id, outcome: Outcome::Conflict });
    desk.reads(Outcome::Is(stored));
    assert_eq!(desk.machine.poll_timeout(), Some(desk.now + secs(15)));
}

#[test]
fn takes_lease_one_duration_after_last_renewal() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    let theirs = desk.of("them", "a");
    desk.reads(Outcome::Is(theirs));
    assert_eq!(desk.machine.status(), Status::Standby { holder: Some("them".into()) });
    desk.at(10);
    let renewed = desk.of("them", "b");
    desk.give(Input::Observed(renewed.clone()));
    assert_eq!(desk.machine.poll_timeout(), Some(at(25)));
    // An annotation is no renewal, but makes the version that has to be replaced.
    desk.at(20);
    let annotated = desk.record(Some(renewed.clone()), &renewed.spec);
    desk.give(Input::Observed(annotated.clone()));
    assert_eq!(desk.machine.poll_timeout(), Some(at(25)));
    desk.at(25);
    let (_, base, spec) = desk.writes();
    assert_eq!(base.unwrap().resource_version, annotated.resource_version);
    assert_eq!(spec.transitions, 8, "a new term");
}

#[test]
fn watch_ends_pause_after_failures() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    let held = desk.of("them", "one");
    desk.reads(Outcome::Is(held));
    // The server is away for so long that the Lease counts as free, and the pause has grown.
    desk.at(15);
    for _ in 0..8 {
        let (id, ..) = desk.writes();
        desk.give(Input::Answered { id, outcome: Outcome::Failed("refused".into()) });
        desk.now = desk.machine.poll_timeout().expect("again");
        desk.give(Input::Timeout);
    }
    let (id, ..) = desk.writes();
    desk.give(Input::Answered { id, outcome: Outcome::Failed("refused".into()) });
    assert!(desk.machine.poll_timeout().is_some_and(|next| next.since(desk.now) > secs(3)));
    // It is back: the watch shows that another took the Lease, and then releases it.
    let held = desk.of("others", "two");
    desk.give(Input::Observed(held));
    assert!(desk.is_quiet());
    let released = desk.record(None, &Spec { renewed: Some("three".into()), ..Spec::default() });
    desk.give(Input::Observed(released));
    assert_eq!(desk.stores().holder.as_deref(), Some("us"));
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    let theirs = desk.of("them", "a");
    desk.reads(Outcome::Is(theirs.clone()));
    desk.at(3);
    let free = desk.record(Some(theirs), &Spec { holder: None, transitions: 7, ..Spec::default() });
    desk.give(Input::Observed(free));
    desk.stores();
    assert_eq!(desk.machine.status(), Status::Leader { number: 8 });
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut desk = Desk::leading();
    desk.at(2);
    let (id, base, spec) = desk.writes();
    desk.now = at(4);
    let outcome = Outcome::Is(desk.record(base, &spec));
    desk.give(Input::Answered { id, outcome });
    assert_eq!(desk.machine.term(), Some((1, at(14))));
    assert_eq!(spec.transitions, 1, "the same term");
}

#[test]
fn unacknowledged_renewals_end_term() {
    let mut desk = Desk::leading();
    desk.at(2);
    let mut failed = 0;
    while matches!(desk.machine.status(), Status::Leader { .. }) {
        while let Some(action) = desk.machine.poll_action() {
            let Action::Write { id, .. } = action else { panic!("{action:?}") };
            desk.now = desk.now + secs(3);
            desk.give(Input::Answered { id, outcome: Outcome::Failed("no answer".into()) });
            failed += 1;
        }
        desk.now = desk.machine.poll_timeout().unwrap_or(desk.now);
        desk.give(Input::Timeout);
    }
    assert!(failed >= 3, "a stalled request leaves time for others: {failed}");
    assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason: EndReason::Expired });
    desk.idle();
    while desk.is_quiet() {
        desk.now = desk.machine.poll_timeout().expect("it stands again");
        desk.give(Input::Timeout);
    }
    assert!(desk.now < at(20), "nobody else has it, so nothing is waited for: {}", desk.now);
}

#[test]
fn release_waits_for_work() {
    let mut desk = Desk::leading();
    desk.at(1);
    desk.give(Input::Stop);
    assert!(desk.is_quiet());
    assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason: EndReason::Stopped });
    assert_eq!(desk.machine.term(), Some((1, at(12))), "work that finishes has its time");
    desk.idle();
    assert_eq!(desk.machine.term(), Some((1, at(1))), "no work begins beside the release");
    let spec = desk.stores();
    assert_eq!((spec.holder, spec.transitions, spec.duration), (None, 1, Some(secs(1))));
    assert!(desk.machine.is_stopped());
}

#[test]
fn other_holder_or_deletion_ends_term_immediately() {
    let mut desk = Desk::leading();
    desk.at(1);
    let theirs = desk.of("them", "a");
    desk.give(Input::Observed(theirs));
    let lost = EndReason::Lost { holder: Some("them".into()) };
    assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason: lost });
    assert_eq!(desk.machine.term(), Some((1, at(1))), "not a moment more");
    let mut desk = Desk::leading();
    desk.at(1);
    desk.give(Input::Deleted(99.into()));
    assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason: EndReason::Deleted });
}

#[test]
fn a_namesake_is_another_candidate() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    let theirs = desk.of("us", "of an earlier process");
    desk.reads(Outcome::Is(theirs));
    assert_eq!(desk.machine.poll_timeout(), Some(at(15)));
}

#[test]
fn write_with_lost_answer_leads_after_next_write() {
    let mut desk = Desk::with(|timing| timing.acquire_on_create = true);
    desk.give(Input::Timeout);
    desk.reads(Outcome::Missing);
    let (id, base, spec) = desk.writes();
    let stored = desk.record(base, &spec);
    desk.now = at(3);
    desk.give(Input::Answered { id, outcome: Outcome::Failed("no answer".into()) });
    desk.give(Input::Observed(stored));
    assert!(!matches!(desk.machine.status(), Status::Leader { .. }), "nothing was acknowledged");
    // The watch shows that the server answers, so there is no pause.
    desk.stores();
    assert_eq!(desk.machine.status(), Status::Leader { number: 2 });
}

#[test]
fn own_late_renewal_does_not_end_term() {
    let mut desk = Desk::leading();
    desk.at(2);
    let (id, base, spec) = desk.writes();
    let late = desk.record(base, &spec);
    desk.now = at(5);
    desk.give(Input::Answered { id, outcome: Outcome::Failed("no answer".into()) });
    desk.at(6);
    let (id, ..) = desk.writes();
    desk.give(Input::Answered { id, outcome: Outcome::Conflict });
    desk.reads(Outcome::Is(late));
    desk.stores();
    assert_eq!(desk.machine.term(), Some((1, at(18))));
}

#[test]
fn yields_one_duration_to_preferred_candidate() {
    let mut desk = Desk::leading();
    desk.at(1);
    let lease = desk.machine.lease().cloned().unwrap();
    let wanted = Spec { preferred: Some("them".into()), ..lease.spec.clone() };
    let wanted = desk.record(Some(lease), &wanted);
    desk.give(Input::Observed(wanted));
    let reason = EndReason::Preferred { holder: "them".into() };
    assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason });
    desk.idle();
    assert_eq!(desk.stores().preferred.as_deref(), Some("them"), "they are to see it");
    assert_eq!(desk.machine.poll_timeout(), Some(at(16)));
    desk.at(16);
    assert_eq!(desk.stores().preferred, None, "they did not come");
    assert_eq!(desk.machine.status(), Status::Leader { number: 2 });
}

#[test]
fn unfit_leader_steps_down_and_returns_if_alone() {
    let mut desk = Desk::leading();
    desk.give(Input::Fit(false));
    let mut seconds = 0;
    while matches!(desk.machine.status(), Status::Leader { .. }) {
        seconds += 1;
        desk.at(seconds);
        if desk.machine.pending.is_some() {
            desk.stores();
        }
    }
    assert_eq!(
        (seconds, desk.machine.status()),
        (60, Status::Ending { number: 1, reason: EndReason::Unfit })
    );
    desk.idle();
    desk.stores();
    assert_eq!(desk.machine.poll_timeout(), Some(at(90)), "others have two durations");
    desk.at(90);
    desk.stores();
    assert_eq!(desk.machine.status(), Status::Leader { number: 2 });
    assert_eq!(desk.machine.unfit_at(), Some(at(690)));
}

#[test]
fn reports_no_leader_after_two_durations() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    let theirs = desk.of("them", "a");
    desk.reads(Outcome::Is(theirs));
    desk.at(15);
    let (id, ..) = desk.writes();
    desk.give(Input::Answered { id, outcome: Outcome::Failed("no answer".into()) });
    assert_eq!(desk.machine.status(), Status::Standby { holder: Some("them".into()) });
    desk.now = at(31);
    assert!(matches!(desk.machine.status(), Status::Standby { .. }), "it is of the last step");
    desk.give(Input::Stale);
    assert_eq!(desk.machine.status(), Status::NoLeader);
}

#[test]
fn late_observations_are_ignored() {
    let mut desk = Desk::leading();
    let old = Record::read(json!({"metadata": {"resourceVersion": "3"}, "spec": {"holderIdentity": "them"}}))
        .unwrap();
    desk.give(Input::Observed(old));
    desk.give(Input::Deleted(4.into()));
    assert_eq!(desk.machine.status(), Status::Leader { number: 1 });
}

#[test]
fn restored_lease_ends_term_and_is_awaited() {
    for holder in ["", "us", "other"] {
        let mut desk = Desk::leading();
        let mut past = desk.of("other", "then");
        past.spec.holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        past.resource_version = "1".parse().unwrap();
        desk.at(2);
        let (id, ..) = desk.writes();
        desk.give(Input::Answered { id, outcome: Outcome::Conflict });
        desk.reads(Outcome::Is(past.clone()));
        let reason = EndReason::Restored;
        assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason }, "{holder:?}");
        desk.idle();
        // The holder at the time of the restore may lead for the rest of a term.
        assert_eq!(desk.machine.poll_timeout(), Some(at(17)), "{holder:?}");
        desk.at(17);
        let (id, base, spec) = desk.writes();
        assert_eq!(base.unwrap().resource_version, past.resource_version);
        desk.version = 1;
        let outcome = Outcome::Is(desk.record(None, &spec));
        desk.give(Input::Answered { id, outcome });
        assert_eq!(desk.machine.status(), Status::Leader { number: 8 }, "{holder:?}");
    }
}

#[test]
fn older_read_in_flight_proves_no_restore() {
    let mut desk = Desk::leading();
    let older = desk.of("other", "then");
    let newer = desk.of("other", "later");
    desk.give(Input::Stale);
    let Some(Action::Read { id, .. }) = desk.machine.poll_action() else { panic!("no read") };
    desk.give(Input::Observed(newer));
    desk.give(Input::Answered { id, outcome: Outcome::Is(older) });
    let reason = EndReason::Lost { holder: Some("other".into()) };
    assert_eq!(desk.machine.status(), Status::Ending { number: 1, reason });
}

#[test]
fn conflicts_without_a_newer_version_are_no_storm() {
    let mut desk = Desk::new();
    desk.give(Input::Timeout);
    let mut free = desk.of("other", "then");
    free.spec.holder = None;
    desk.reads(Outcome::Is(free.clone()));
    let requests = desk.minute_of(|action| match action {
        Action::Read { .. } => Outcome::Is(free.clone()),
        Action::Write { .. } => Outcome::Conflict,
    });
    assert!((10..80).contains(&requests), "{requests}");
}

#[test]
fn missing_namespace_is_reported_without_storm() {
    let mut desk = Desk::new();
    let requests = desk.minute_of(|_| Outcome::Missing);
    assert!((10..60).contains(&requests), "{requests}");
    assert!(desk.machine.last_error().is_some_and(|problem| problem.contains("namespace")));
    desk.at(120);
    desk.stores();
    assert_eq!(desk.machine.last_error(), None);
}

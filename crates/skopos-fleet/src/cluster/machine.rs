//! State machine of a cluster: pure, from observations to states. No clock, no I/O.

use std::sync::Arc;
use std::time::Duration;

use skopos::ResourceId;
use tokio::time::Instant;

use super::state::{ClusterState, Condition};
use crate::incident::IncidentStep;
use crate::pause::Paused;

/// Input of the machine.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// An observation of the connections and lists/watches.
    Observed(Observation),
    /// The cluster is known to be switched off.
    Paused(Paused),
    /// The cluster is switched on again. With `ready`, its server is known to serve.
    Resumed { ready: bool },
    /// The cluster left the fleet.
    Removed(Arc<str>),
    /// The address or the credentials changed, for this reason: earlier observations no longer apply.
    Redirected(&'static str),
}

/// Result of one check of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Set while there is a connection.
    pub(crate) connected: bool,
    /// The time of the server's last response.
    pub(crate) answered_at: Option<Instant>,
    /// Set while there is no connection, or no answer.
    pub(crate) failing: Option<Failure>,
    /// A problem of a cluster whose server answers, or whose connection is in doubt.
    pub(crate) trouble: Option<Trouble>,
}

/// Failure to connect, inability to try, or silence of a server.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) since: Instant,
    pub(crate) reason: Arc<str>,
    /// The reason's label in metrics.
    pub(crate) cause: &'static str,
}

/// Problem of a cluster whose server answers.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) reason: Arc<str>,
    /// The reason's label in metrics.
    pub(crate) cause: &'static str,
    /// The age of what may be wrong, if that is not the time since the last answer.
    pub(crate) unseen: Option<Duration>,
    /// The resource that has the problem, if not the whole cluster.
    pub(crate) kind: Option<ResourceId>,
}

impl Trouble {
    pub(crate) fn new(cause: &'static str, reason: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), cause, unseen: None, kind: None }
    }
}

/// State machine of a cluster.
#[derive(Debug)]
pub(crate) struct Machine {
    state: ClusterState,
    /// Time for which a live cluster may fail before it becomes unreachable.
    unreachable_after: Duration,
    /// Set if the server has answered since the cluster was connected, resumed or redirected.
    answered: bool,
    /// Set if the cluster was switched on and is known not to serve yet.
    starting: bool,
    incident: Option<Incident>,
    /// The step of an incident that the last input caused.
    incident_step: Option<IncidentStep>,
}

/// Trouble of a cluster that was live.
#[derive(Debug)]
struct Incident {
    cause: &'static str,
    detected_at: Instant,
}

const READY: &str = "resumed; connecting";
const STARTING: &str = "resumed; waiting for its server to start";

impl Machine {
    pub(crate) fn new(now: Instant, unreachable_after: Duration) -> Self {
        let state = ClusterState {
            condition: Condition::Connecting,
            since: now,
            reason: Some("nothing was asked of it yet".into()),
            kind: None,
            paused: None,
            answered_at: None,
        };
        Self {
            state,
            unreachable_after,
            answered: false,
            starting: false,
            incident: None,
            incident_step: None,
        }
    }

    pub(crate) fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Takes the step of an incident that the last input caused.
    pub(crate) fn take_incident_step(&mut self) -> Option<IncidentStep> {
        self.incident_step.take()
    }

    /// Applies an input; returns whether the state changed.
    pub(crate) fn step(&mut self, now: Instant, input: Input) -> bool {
        if self.state.condition == Condition::Removed {
            return false;
        }
        match input {
            Input::Removed(reason) => {
                self.incident = None;
                self.set_condition(now, Condition::Removed, Some(reason))
            }
            Input::Paused(paused) => {
                self.incident = None;
                let is_new = self.state.paused.as_ref() != Some(&paused);
                let reason = Some(paused.to_string().into());
                self.state.paused = Some(paused);
                self.set_condition(now, Condition::Paused, reason) || is_new
            }
            Input::Resumed { ready } if self.state.condition == Condition::Paused => {
                self.reset();
                self.starting = !ready;
                self.set_condition(
                    now,
                    Condition::Connecting,
                    Some(if ready { READY } else { STARTING }.into()),
                )
            }
            Input::Resumed { ready } if self.starting && ready => {
                self.starting = false;
                self.set_condition(now, Condition::Connecting, Some(READY.into()))
            }
            Input::Resumed { .. } => false,
            Input::Redirected(_) if self.state.condition == Condition::Paused => false,
            Input::Redirected(why) => {
                self.reset();
                self.set_condition(now, Condition::Connecting, Some(format!("{why}; connecting").into()))
            }
            Input::Observed(_) if self.state.condition == Condition::Paused => false,
            Input::Observed(observation) => self.observe(now, observation),
        }
    }

    fn observe(&mut self, now: Instant, observation: Observation) -> bool {
        let answered_before = self.state.answered_at;
        self.state.answered_at = observation.answered_at.max(answered_before);
        self.answered |= observation.connected && observation.answered_at.is_some();
        self.starting &= !self.answered;
        if let Some(Failure { since, reason, cause }) = observation.failing {
            if self.starting {
                return false;
            }
            self.detect(now, cause, answered_before);
            // A cluster that was live a moment ago may recover in a moment: a restart, a new leader.
            let moment = now.saturating_duration_since(since) < self.unreachable_after;
            let condition = match self.state.condition {
                Condition::Live | Condition::Degraded if moment => Condition::Degraded,
                _ => Condition::Unreachable,
            };
            return self.set_condition(now, condition, Some(reason));
        }
        match (self.answered, observation.connected, observation.trouble) {
            (true, true, Some(Trouble { reason, cause, unseen, kind })) => {
                let well_at = unseen.and_then(|unseen| now.checked_sub(unseen)).or(answered_before);
                self.detect(now, cause, well_at);
                self.transition(now, Condition::Degraded, Some(reason), kind)
            }
            (true, true, None) => {
                self.heal(now);
                self.set_condition(now, Condition::Live, None)
            }
            // Connected without an answer yet: a slow server. Neither connected nor failing: there was no request for a
            // while.
            _ => false,
        }
    }

    /// Begins an incident if the cluster was live. `well_at` is the time of the last proof that all was well.
    fn detect(&mut self, now: Instant, cause: &'static str, well_at: Option<Instant>) {
        if self.state.condition != Condition::Live {
            return;
        }
        let unseen = well_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.incident = Some(Incident { cause, detected_at: now });
        self.incident_step = Some(IncidentStep::Detected { cause, unseen });
    }

    fn heal(&mut self, now: Instant) {
        if let Some(Incident { cause, detected_at }) = self.incident.take() {
            let lasted = now.saturating_duration_since(detected_at);
            self.incident_step = Some(IncidentStep::Healed { cause, lasted });
        }
    }

    fn reset(&mut self) {
        self.incident = None;
        self.answered = false;
        self.starting = false;
        self.state.paused = None;
    }

    fn set_condition(&mut self, now: Instant, condition: Condition, reason: Option<Arc<str>>) -> bool {
        self.transition(now, condition, reason, None)
    }

    fn transition(
        &mut self,
        now: Instant,
        condition: Condition,
        reason: Option<Arc<str>>,
        kind: Option<ResourceId>,
    ) -> bool {
        let state = &mut self.state;
        if state.condition == condition && state.reason == reason {
            return false;
        }
        state.kind = kind;
        if state.condition != condition {
            state.since = now;
        }
        state.condition = condition;
        state.reason = reason;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::PausedBy;

    struct Bench {
        machine: Machine,
        begin: Instant,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let now = Instant::now();
            Self { machine: Machine::new(now, Duration::from_secs(5)), begin: now, now }
        }

        fn after(&mut self, seconds: u64, input: Input) -> Condition {
            self.now += Duration::from_secs(seconds);
            self.machine.step(self.now, input);
            self.machine.state().condition
        }

        fn since(&self) -> u64 {
            (self.machine.state().since - self.begin).as_secs()
        }

        fn well(&self) -> Input {
            Input::Observed(Observation {
                connected: true,
                answered_at: Some(self.now),
                ..Observation::default()
            })
        }

        fn failing(&self, since: u64) -> Input {
            let since = self.begin + Duration::from_secs(since);
            let failing = Some(Failure { since, reason: "refused".into(), cause: "refused" });
            Input::Observed(Observation { failing, ..Observation::default() })
        }
    }

    fn paused() -> Input {
        Input::Paused(Paused { by: PausedBy::ScaledDown, since: None })
    }

    fn idle() -> Input {
        Input::Observed(Observation::default())
    }

    #[test]
    fn an_incident_begins_when_a_live_cluster_fails_and_ends_when_it_is_live() {
        let mut bench = Bench::new();
        let failing = bench.failing(1);
        bench.after(1, failing);
        assert_eq!(bench.machine.take_incident_step(), None, "it was never live");
        let well = bench.well();
        bench.after(1, well);
        let failing = bench.failing(9);
        bench.after(10, failing.clone());
        let detected = IncidentStep::Detected { cause: "refused", unseen: Duration::from_secs(11) };
        assert_eq!(bench.machine.take_incident_step(), Some(detected));
        bench.after(10, failing);
        assert_eq!(bench.machine.take_incident_step(), None, "it is known");
        let well = bench.well();
        bench.after(5, well.clone());
        let healed = IncidentStep::Healed { cause: "refused", lasted: Duration::from_secs(15) };
        assert_eq!(bench.machine.take_incident_step(), Some(healed));
        bench.after(1, bench.failing(30));
        bench.after(1, paused());
        bench.after(1, Input::Resumed { ready: true });
        bench.machine.take_incident_step();
        bench.after(1, well);
        assert_eq!(bench.machine.take_incident_step(), None, "a pause is no healing");
    }

    #[test]
    fn first_failure_before_any_answer_is_unreachable() {
        let mut bench = Bench::new();
        assert_eq!(bench.after(1, idle()), Condition::Connecting);
        let connected = Observation { connected: true, ..Observation::default() };
        assert_eq!(bench.after(1, Input::Observed(connected)), Condition::Connecting, "a slow server");
        assert_eq!(bench.after(1, bench.failing(2)), Condition::Unreachable);
        assert_eq!(bench.since(), 3);
        assert_eq!(bench.after(60, bench.failing(2)), Condition::Unreachable);
        assert_eq!(bench.since(), 3, "without interruption");
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
    }

    #[test]
    fn live_cluster_degrades_before_unreachable() {
        let mut bench = Bench::new();
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
        assert_eq!(bench.after(9, idle()), Condition::Live, "idle is not dead");
        assert_eq!(bench.after(1, bench.failing(10)), Condition::Degraded);
        assert_eq!(bench.after(3, bench.failing(10)), Condition::Degraded);
        assert_eq!(bench.after(1, bench.failing(10)), Condition::Unreachable);
        assert_eq!(bench.machine.state().reason.as_deref(), Some("refused"));
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
        assert_eq!(bench.machine.state().reason, None);
    }

    #[test]
    fn trouble_of_a_kind_degrades_and_says_which() {
        let mut bench = Bench::new();
        bench.after(1, bench.well());
        let trouble = Observation {
            connected: true,
            answered_at: Some(bench.now),
            trouble: Some(Trouble::new("kind", "pods: forbidden")),
            failing: None,
        };
        assert_eq!(bench.after(1, Input::Observed(trouble)), Condition::Degraded);
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
    }

    #[test]
    fn pause_hides_observations_until_resume() {
        let mut bench = Bench::new();
        bench.after(1, bench.well());
        assert_eq!(bench.after(1, paused()), Condition::Paused);
        assert!(!bench.machine.step(bench.now, paused()), "the same news are none");
        assert_eq!(bench.after(10, bench.failing(3)), Condition::Paused, "not an error");
        assert_eq!(bench.after(1, Input::Redirected("moved")), Condition::Paused);
        assert_eq!(bench.after(1, Input::Resumed { ready: false }), Condition::Connecting);
        assert!(bench.machine.state().paused.is_none());
        let connected = Observation { connected: true, ..Observation::default() };
        assert_eq!(
            bench.after(1, Input::Observed(connected)),
            Condition::Connecting,
            "what it answered before counts no more"
        );
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
        assert!(!bench.machine.step(bench.now, Input::Resumed { ready: true }));
    }

    #[test]
    fn starting_cluster_stays_connecting_until_ready() {
        let mut bench = Bench::new();
        bench.after(1, paused());
        assert_eq!(bench.after(1, Input::Resumed { ready: false }), Condition::Connecting);
        assert_eq!(
            bench.after(60, bench.failing(3)),
            Condition::Connecting,
            "its server is known not to serve yet"
        );
        assert!(bench.machine.step(bench.now, Input::Resumed { ready: true }));
        assert_eq!(bench.after(1, bench.failing(3)), Condition::Unreachable);
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
    }

    #[test]
    fn removed_is_terminal_state() {
        let mut bench = Bench::new();
        bench.after(1, Input::Removed("its Secret was deleted".into()));
        for input in
            [bench.well(), paused(), Input::Resumed { ready: true }, Input::Redirected("moved"), idle()]
        {
            assert_eq!(bench.after(1, input), Condition::Removed);
        }
    }
}

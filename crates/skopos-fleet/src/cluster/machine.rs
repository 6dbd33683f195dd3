//! State machine of a cluster: pure, from observations to states. No clock, no I/O.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use skopos::ResourceId;
use tokio::time::Instant;

/// State of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The condition.
    pub condition: Condition,
    /// Start of the condition, without interruption, as far as this process has observed.
    pub since: Instant,
    /// The reason, as a sentence for users; `None` while the cluster is healthy.
    pub reason: Option<Arc<str>>,
    /// The resource whose list/watch fails, if it alone is the reason. The state says nothing about other resources.
    pub kind: Option<ResourceId>,
    /// The origin of the pause, while [`Condition::Paused`].
    pub paused: Option<Paused>,
    /// The time of the server's last response.
    pub answered_at: Option<Instant>,
}

/// Condition of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// No response yet: there was no request, or a connection is being made.
    Connecting,
    /// The server answers.
    Live,
    /// The server answers with problems, or has been failing for a moment only.
    Degraded,
    /// The server does not answer.
    Unreachable,
    /// The cluster is known to be switched off: no requests are sent to it.
    Paused,
    /// The cluster left the fleet. Its data can be read for a while.
    Removed,
}

/// A pause, as the host cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The evidence of the pause.
    pub by: PausedBy,
    /// Start of the pause, if it is recorded.
    pub since: Option<SystemTime>,
}

/// Evidence of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PausedBy {
    /// The vcluster CLI's annotation (`loft.sh/paused`).
    Annotation,
    /// The platform put it to sleep (`loft.sh/sleep-mode`).
    Sleep,
    /// Scaled to zero without an annotation.
    ScaledDown,
    /// An operator paused it.
    Operator,
}

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
    /// Start and reason of a failure to connect, or of being unable to try.
    pub(crate) failing: Option<(Instant, Arc<str>)>,
    /// A problem of a cluster whose server answers, or whose connection is in doubt.
    pub(crate) trouble: Option<Trouble>,
}

/// Problem of a cluster whose server answers.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) reason: Arc<str>,
    /// The resource that has the problem, if not the whole cluster.
    pub(crate) kind: Option<ResourceId>,
}

impl Trouble {
    pub(crate) fn of_cluster(reason: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), kind: None }
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
        Self { state, unreachable_after, answered: false, starting: false }
    }

    pub(crate) fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Applies an input; returns whether the state changed.
    pub(crate) fn step(&mut self, now: Instant, input: Input) -> bool {
        if self.state.condition == Condition::Removed {
            return false;
        }
        match input {
            Input::Removed(reason) => self.to(now, Condition::Removed, Some(reason)),
            Input::Paused(paused) => {
                let news = self.state.paused.as_ref() != Some(&paused);
                let reason = Some(paused.to_string().into());
                self.state.paused = Some(paused);
                self.to(now, Condition::Paused, reason) || news
            }
            Input::Resumed { ready } if self.state.condition == Condition::Paused => {
                self.begin_anew();
                self.starting = !ready;
                self.to(now, Condition::Connecting, Some(if ready { READY } else { STARTING }.into()))
            }
            Input::Resumed { ready } if self.starting && ready => {
                self.starting = false;
                self.to(now, Condition::Connecting, Some(READY.into()))
            }
            Input::Resumed { .. } => false,
            Input::Redirected(_) if self.state.condition == Condition::Paused => false,
            Input::Redirected(why) => {
                self.begin_anew();
                self.to(now, Condition::Connecting, Some(format!("{why}; connecting").into()))
            }
            Input::Observed(_) if self.state.condition == Condition::Paused => false,
            Input::Observed(observation) => self.observe(now, observation),
        }
    }

    fn observe(&mut self, now: Instant, observation: Observation) -> bool {
        let heard = observation.answered_at.max(self.state.answered_at);
        self.state.answered_at = heard;
        self.answered |= observation.connected && observation.answered_at.is_some();
        self.starting &= !self.answered;
        if let Some((since, reason)) = observation.failing {
            if self.starting {
                return false;
            }
            // A cluster that was live a moment ago may recover in a moment: a restart, a new leader.
            let moment = now.saturating_duration_since(since) < self.unreachable_after;
            let condition = match self.state.condition {
                Condition::Live | Condition::Degraded if moment => Condition::Degraded,
                _ => Condition::Unreachable,
            };
            return self.to(now, condition, Some(reason));
        }
        match (self.answered, observation.connected, observation.trouble) {
            (true, true, Some(Trouble { reason, kind })) => {
                self.enter(now, Condition::Degraded, Some(reason), kind)
            }
            (true, true, None) => self.to(now, Condition::Live, None),
            // Connected without an answer yet: a slow server. Neither connected nor failing: there was no request for a
            // while.
            _ => false,
        }
    }

    fn begin_anew(&mut self) {
        self.answered = false;
        self.starting = false;
        self.state.paused = None;
    }

    fn to(&mut self, now: Instant, condition: Condition, reason: Option<Arc<str>>) -> bool {
        self.enter(now, condition, reason, None)
    }

    fn enter(
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

impl ClusterState {
    /// Returns whether condition, reason and pause are the same.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.condition == other.condition && self.reason == other.reason && self.paused == other.paused
    }

    /// Returns the start of the condition by the current wall clock. For a recorded pause, returns the recorded time.
    pub fn since_wall(&self) -> SystemTime {
        let written = self.paused.as_ref().and_then(|paused| paused.since);
        written.unwrap_or_else(|| {
            let now = SystemTime::now();
            now.checked_sub(self.since.elapsed()).unwrap_or(now)
        })
    }
}

impl Condition {
    /// All conditions.
    pub const ALL: [Condition; 6] =
        [Self::Connecting, Self::Live, Self::Degraded, Self::Unreachable, Self::Paused, Self::Removed];

    /// Returns whether a cluster in this condition may answer, so that it is worth waiting for.
    pub fn is_asked(self) -> bool {
        matches!(self, Self::Connecting | Self::Live | Self::Degraded)
    }

    /// Returns one word in lower case.
    pub fn word(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
            Self::Paused => "paused",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:.0?}", self.condition, self.since.elapsed())?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            PausedBy::Annotation => "by the vcluster CLI's annotation",
            PausedBy::Sleep => "put to sleep by its platform",
            PausedBy::ScaledDown => "scaled to zero",
            PausedBy::Operator => "by an operator",
        })?;
        let since = self.since.and_then(|since| jiff::Timestamp::try_from(since).ok());
        match since {
            Some(since) => write!(f, " at {}", since.round(jiff::Unit::Second).unwrap_or(since)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let failing = Some((self.begin + Duration::from_secs(since), "refused".into()));
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
    fn what_never_answered_is_unreachable_at_the_first_failure() {
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
    fn what_was_live_is_degraded_for_a_moment_first() {
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
            trouble: Some(Trouble::of_cluster("pods: forbidden")),
            failing: None,
        };
        assert_eq!(bench.after(1, Input::Observed(trouble)), Condition::Degraded);
        assert_eq!(bench.after(1, bench.well()), Condition::Live);
    }

    #[test]
    fn a_pause_hides_what_is_observed_until_it_ends() {
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
    fn what_starts_is_not_unreachable_until_it_should_serve() {
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
    fn removed_is_the_end() {
        let mut bench = Bench::new();
        bench.after(1, Input::Removed("its Secret was deleted".into()));
        for input in
            [bench.well(), paused(), Input::Resumed { ready: true }, Input::Redirected("moved"), idle()]
        {
            assert_eq!(bench.after(1, input), Condition::Removed);
        }
    }
}

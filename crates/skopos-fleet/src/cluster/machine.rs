//! How a cluster stands: a pure machine from what is observed to what is said. No clock, no I/O.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use skopos::ResourceId;
use tokio::time::Instant;

/// How a cluster stands.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// What is the case.
    pub condition: Condition,
    /// Since when, without interruption, as far as this process has seen.
    pub since: Instant,
    /// Why, as a sentence for people; none while all is well.
    pub reason: Option<Arc<str>>,
    /// The kind whose list/watch is in trouble, where that alone is the reason: it says nothing of other kinds.
    pub kind: Option<ResourceId>,
    /// Who paused it, while [`Condition::Paused`].
    pub paused: Option<Paused>,
    /// When the server last answered anything.
    pub answered_at: Option<Instant>,
}

/// What is the case with a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// Nothing has been answered yet: nobody has asked, or a connection is being made.
    Connecting,
    /// It answers.
    Live,
    /// It answers, but not everything is well; or it has been failing for a moment only.
    Degraded,
    /// It does not answer.
    Unreachable,
    /// It is switched off, and that is known: nothing is asked of it.
    Paused,
    /// It left the fleet. Its data can be read for a while.
    Removed,
}

/// A pause, as the host cluster tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// How it is known.
    pub by: PausedBy,
    /// Since when, where that is written down.
    pub since: Option<SystemTime>,
}

/// How a pause is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PausedBy {
    /// The vcluster CLI's annotation (`loft.sh/paused`).
    Annotation,
    /// The platform put it to sleep (`loft.sh/sleep-mode`).
    Sleep,
    /// Scaled to zero without a word.
    ScaledDown,
    /// Somebody said so.
    Operator,
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A look at the connections and lists/watches.
    Observed(Observation),
    /// It is known to be switched off.
    Paused(Paused),
    /// It is switched on again. `ready`: and known to serve.
    Resumed { ready: bool },
    /// It left the fleet.
    Removed(Arc<str>),
    /// It is reached another way from now on, for this reason: what was observed says nothing any more.
    Redirected(&'static str),
}

/// What a look found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// A connection stands.
    pub(crate) connected: bool,
    /// When the server last answered.
    pub(crate) answered_at: Option<Instant>,
    /// No connection can be made, or it cannot be tried: since when, and why.
    pub(crate) failing: Option<(Instant, Arc<str>)>,
    /// Something is wrong although the server answers, or is in doubt.
    pub(crate) trouble: Option<Trouble>,
}

/// What is wrong with a cluster whose server answers.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) reason: Arc<str>,
    /// The kind that it is of, if not of the cluster.
    pub(crate) kind: Option<ResourceId>,
}

impl Trouble {
    pub(crate) fn of_cluster(reason: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), kind: None }
    }
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    state: ClusterState,
    /// How long a cluster that was live may fail before it is called unreachable.
    unreachable_after: Duration,
    /// It has answered since it was connected to, or resumed, or redirected.
    answered: bool,
    /// It was switched on, and is known not to serve yet.
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

    /// Takes something in; tells whether the state changed.
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
            // What was live a moment ago may be so again in a moment: a restart, a new leader.
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
            // Connected, and no answer yet: a slow server. Not connected and not failing: nobody has asked for a while.
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
    /// Whether the same is the case for the same reason.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.condition == other.condition && self.reason == other.reason && self.paused == other.paused
    }

    /// When the condition began, by the wall clock as it is now; for a pause that is written down, since when it says.
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

    /// One word in lower case.
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

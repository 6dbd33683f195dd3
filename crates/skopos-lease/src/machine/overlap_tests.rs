//! Candidates, a server and a network that delays, loses and reorders, clocks of different rates, suspended machines. At any
//! time at most one term is valid, and after the faults end there is a leader.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::record::new_lease;

const SECOND: u64 = 1_000;
/// The duration of the faults; `CALM` is the time after it in which a leader has to come.
const CHAOS: u64 = 240 * SECOND;
const CALM: u64 = 90 * SECOND;

struct World {
    rng: fastrand::Rng,
    /// The true time in milliseconds.
    now: u64,
    lease: Option<Record>,
    version: u64,
    candidates: Vec<Member>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Option<Happens>>,
    /// The highest number of a term.
    highest: u64,
    /// True if the Lease was ever deleted: numbers may begin again.
    deleted: bool,
    terms: usize,
}

struct Member {
    machine: Machine,
    /// The rate of its clock, per thousand true milliseconds.
    rate: u64,
    /// The time until which it does nothing.
    asleep_until: u64,
    /// True if its work uses all the time that it has.
    lingers: bool,
    number: u64,
}

enum Happens {
    Tick(usize),
    Arrives(usize, Action),
    Gives(usize, Input),
    Deletes,
    Annotates,
    Prefers(String),
}

impl World {
    fn new(seed: u64, candidates: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let duration = Duration::from_secs(15);
        let valid = duration * 4 / 5;
        let timing = Timing {
            duration,
            valid,
            request_timeout: valid / 4,
            renew_interval: valid / 6,
            unfit_limit: Duration::from_secs(60),
            acquire_on_create: false,
        };
        let member = |number: usize| Member {
            machine: Machine::new(format!("candidate-{number}"), timing, number as u64, Time::ORIGIN),
            rate: rng.u64(900..=1100),
            asleep_until: 0,
            lingers: rng.bool(),
            number: 0,
        };
        let candidates = (0..candidates).map(member).collect();
        let mut world = Self {
            rng,
            now: 0,
            lease: None,
            version: 1,
            candidates,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            highest: 0,
            deleted: false,
            terms: 0,
        };
        for who in 0..world.candidates.len() {
            let first = world.rng.u64(0..20 * SECOND);
            world.at(first, Happens::Tick(who));
            world.at(CHAOS, Happens::Gives(who, Input::Fit(true)));
        }
        for _ in 0..world.rng.usize(0..12) {
            let (at, who) = (world.rng.u64(0..CHAOS), world.rng.usize(0..world.candidates.len()));
            let happens = match world.rng.u8(0..6) {
                0 => Happens::Deletes,
                1 => Happens::Annotates,
                2 => Happens::Prefers(format!("candidate-{who}")),
                3 => Happens::Gives(who, Input::Stale),
                _ => Happens::Gives(who, Input::Fit(world.rng.bool())),
            };
            world.at(at, happens);
        }
        world
    }

    fn at(&mut self, at: u64, happens: Happens) {
        self.queue.push(Reverse((at, self.events.len() as u64)));
        self.events.push(Some(happens));
    }

    fn is_calm(&self) -> bool {
        self.now >= CHAOS
    }

    fn play(&mut self) {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at > CHAOS + CALM {
                break;
            }
            self.now = at;
            match self.events[number as usize].take() {
                Some(Happens::Tick(who)) => self.give(who, Input::Timeout),
                Some(Happens::Gives(who, input)) => self.give(who, input),
                Some(Happens::Arrives(who, action)) => self.serve(who, action),
                Some(Happens::Deletes) => self.delete(),
                Some(Happens::Annotates) => self.change(|_| {}),
                Some(Happens::Prefers(who)) => self.change(|spec| spec.preferred = Some(who)),
                None => {}
            }
        }
        self.now = CHAOS + CALM;
        let leaders = (0..self.candidates.len()).filter(|who| self.may_write(*who)).count();
        assert_eq!(
            leaders,
            1,
            "{:?}",
            self.candidates.iter().map(|one| one.machine.status()).collect::<Vec<_>>()
        );
    }

    fn give(&mut self, who: usize, input: Input) {
        if self.candidates[who].asleep_until > self.now {
            let later = self.candidates[who].asleep_until;
            return self.at(later, Happens::Gives(who, input));
        }
        let now = self.local(who);
        let wall = Timestamp::from_second(1_000_000).unwrap();
        // The wall clock never advances: nothing depends on it.
        let machine = &mut self.candidates[who].machine;
        machine.handle(now, wall, input);
        let ending = matches!(machine.status(), Status::Ending { .. });
        let over = machine.term().is_some_and(|(_, until)| until <= now);
        if ending && (over || !self.candidates[who].lingers) {
            for _ in 0..2 {
                self.candidates[who].machine.handle(now, wall, Input::Idle);
            }
        }
        while let Some(action) = self.candidates[who].machine.poll_action() {
            self.request(who, action);
        }
        self.check(who);
        if !self.is_calm() && self.rng.u16(0..400) == 0 {
            self.candidates[who].asleep_until = self.now + self.rng.u64(0..40 * SECOND);
        }
        let due = self.candidates[who].machine.poll_timeout().unwrap_or(now + Duration::from_secs(1));
        let wait = due.since(now).as_millis() as u64 * 1000 / self.candidates[who].rate;
        self.at(self.now + wait.clamp(1, SECOND), Happens::Tick(who));
    }

    fn local(&self, who: usize) -> Time {
        Time::ORIGIN + Duration::from_millis(self.now * self.candidates[who].rate / 1000)
    }

    fn may_write(&self, who: usize) -> bool {
        self.candidates[who].machine.term().is_some_and(|(_, until)| until > self.local(who))
    }

    fn check(&mut self, who: usize) {
        let leaders: Vec<_> = (0..self.candidates.len()).filter(|who| self.may_write(*who)).collect();
        assert!(leaders.len() <= 1, "at {} ms {leaders:?} lead", self.now);
        if let Status::Leader { number } = self.candidates[who].machine.status()
            && self.candidates[who].number != number
        {
            assert!(number > self.highest || self.deleted, "term {number} after {}", self.highest);
            (self.candidates[who].number, self.highest) = (number, number);
            self.terms += 1;
        }
    }

    fn delay(&mut self) -> u64 {
        match self.rng.u8(0..10) {
            _ if self.is_calm() => self.rng.u64(1..50),
            0 => self.rng.u64(0..30 * SECOND),
            1 | 2 => self.rng.u64(0..5 * SECOND),
            _ => self.rng.u64(0..200),
        }
    }

    fn is_lost(&mut self) -> bool {
        !self.is_calm() && self.rng.u8(0..5) == 0
    }

    fn request(&mut self, who: usize, action: Action) {
        let (id, within) = match &action {
            Action::Read { id, within } | Action::Write { id, within, .. } => (*id, *within),
        };
        let limit = within.as_millis() as u64 * 1000 / self.candidates[who].rate;
        let given_up = Input::Answered { id, outcome: Outcome::Failed("no answer".into()) };
        self.at(self.now + limit, Happens::Gives(who, given_up));
        if !self.is_lost() {
            let arrives = self.now + self.delay();
            self.at(arrives, Happens::Arrives(who, action));
        }
    }

    fn serve(&mut self, who: usize, action: Action) {
        let known = self.lease.as_ref().map(|lease| lease.resource_version.clone());
        let (id, outcome) = match action {
            Action::Read { id, .. } => (id, self.lease.clone().map_or(Outcome::Missing, Outcome::Is)),
            Action::Write { id, base: None, spec, .. } => match known {
                Some(_) => (id, Outcome::Conflict),
                None => (id, Outcome::Is(self.store(new_lease("a", "b", &spec)))),
            },
            Action::Write { id, base: Some(base), spec, .. } => match known {
                None => (id, Outcome::Missing),
                Some(version) if version != base.resource_version => (id, Outcome::Conflict),
                Some(_) => (id, Outcome::Is(self.store(base.with(&spec)))),
            },
        };
        if !self.is_lost() {
            let back = self.now + self.delay();
            self.at(back, Happens::Gives(who, Input::Answered { id, outcome }));
        }
    }

    fn store(&mut self, mut object: Value) -> Record {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let record = Record::read(object).unwrap();
        self.lease = Some(record.clone());
        self.tell(|| Input::Observed(record.clone()));
        record
    }

    fn change(&mut self, change: impl FnOnce(&mut Spec)) {
        if let Some(lease) = self.lease.clone() {
            let mut spec = lease.spec.clone();
            change(&mut spec);
            self.store(lease.with(&spec));
        }
    }

    fn delete(&mut self) {
        if self.lease.take().is_some() {
            self.version += 1;
            self.deleted = true;
            let version = self.version;
            self.tell(|| Input::Deleted(version.into()));
        }
    }

    /// Sends an input to all watches; each watch may get it late or lose it.
    fn tell(&mut self, input: impl Fn() -> Input) {
        for who in 0..self.candidates.len() {
            if !self.is_lost() {
                let seen = self.now + self.delay();
                self.at(seen, Happens::Gives(who, input()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn two_terms_never_overlap_and_a_leader_comes_back(seed: u64, candidates in 1_usize..5) {
        World::new(seed, candidates).play();
    }
}

/// Checks that much happens in these worlds.
#[test]
fn simulated_worlds_have_many_terms() {
    let terms = |seed| {
        let mut world = World::new(seed, 3);
        world.play();
        world.terms
    };
    let all: usize = (0..50).map(terms).sum();
    assert!(all > 150, "{all} terms in 50 worlds");
}

//! What the demo shows, computed from plain numbers: no clock, no I/O, no terminal.
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::FaultName;
use crate::human;
use crate::reason;

/// What is known at one moment. Times count from the start of the demo.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// When
    pub(crate) at: Duration,
    /// The informers
    pub(crate) kinds: Vec<KindSample>,
    /// The server they watch
    pub(crate) server: ServerSample,
}

/// What one informer knows of itself.
#[derive(Debug, Clone)]
pub(crate) struct KindSample {
    /// Its resource
    pub(crate) kind: String,
    /// Objects held
    pub(crate) objects: u64,
    /// The resourceVersion that the content belongs to
    pub(crate) rv: String,
    /// Changes received since the start
    pub(crate) events: u64,
    /// How current it is
    pub(crate) health: Health,
    /// The last thing that went wrong
    pub(crate) trouble: Option<Trouble>,
}

/// How current an informer's content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// It follows the server; the content is at most this old
    Live { age: Duration },
    /// It may be behind
    Stale { reason: String, age: Option<Duration> },
    /// It never had a complete view
    Syncing { reason: String },
    /// It was told to stop
    Stopped,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// When it was noticed
    pub(crate) at: Duration,
    /// What it was
    pub(crate) what: String,
    /// When and by what it was over
    pub(crate) healed: Option<(Duration, String)>,
}

/// What the server knows of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSample {
    /// Connections that are open
    pub(crate) connections: usize,
    /// The newest resourceVersion
    pub(crate) rv: String,
    /// It does not listen
    pub(crate) paused: bool,
    /// What is broken about it at the moment
    pub(crate) broken: Option<String>,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// KIND OBJECTS RV AGE STATE EVENTS/S
    pub(crate) cells: [String; 6],
    /// The last trouble and how it healed
    pub(crate) trouble: String,
    /// How the state is to be seen
    pub(crate) mood: Mood,
}

/// The colour of a line, so to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// All is well
    Good,
    /// Under way
    Waiting,
    /// Something is broken
    Bad,
    /// A person did this
    Deed,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When
    pub(crate) at: Duration,
    /// What
    pub(crate) text: String,
    /// How it is to be seen
    pub(crate) mood: Mood,
}

/// The titles of a row's cells and its trouble.
pub(crate) const TITLES: [&str; 7] = ["KIND", "OBJECTS", "RV", "AGE ≤", "STATE", "EVENTS/S", "LAST TROUBLE"];

/// Over how long events per second are measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// How long the same trouble of several kinds is gathered into one line.
const GATHERING: Duration = Duration::from_millis(300);
/// How long those that are well again wait for the others, to be told in one line.
const CONVALESCENCE: Duration = Duration::from_secs(2);
/// Lines of the log that are kept.
const LOG_LENGTH: usize = 500;

/// Everything that the demo shows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    now: Sample,
    history: BTreeMap<String, VecDeque<(Duration, u64)>>,
    seen: BTreeMap<String, Seen>,
    /// Troubles that are not told yet, by what they have in common
    troubles: BTreeMap<String, Group>,
    /// Healings that are not told yet, by how they came about
    healings: BTreeMap<String, Group>,
    inflicted: Option<Inflicted>,
    log: VecDeque<Entry>,
    logged: u64,
    synced: bool,
}

/// What was already told of an informer.
#[derive(Debug, Default)]
struct Seen {
    /// The beginning of the last trouble that was told
    trouble: Option<(Duration, String)>,
    /// Its end was told too
    healed: bool,
}

/// Kinds to which the same happened at about the same time.
#[derive(Debug)]
struct Group {
    /// When the first was noticed
    since: Duration,
    /// What happened, in the words of the first
    what: String,
    /// To whom, and when
    members: Vec<(String, Duration)>,
}

impl Group {
    fn new(since: Duration) -> Self {
        Self { since, what: String::new(), members: Vec::new() }
    }

    fn add(&mut self, kind: &KindSample, what: &str, at: Duration) {
        if self.members.is_empty() {
            self.what = what.into();
        }
        self.members.push((kind.kind.clone(), at));
    }

    fn first(&self) -> Duration {
        self.members.iter().map(|(_, at)| *at).min().unwrap_or(self.since)
    }

    fn last(&self) -> Duration {
        self.members.iter().map(|(_, at)| *at).max().unwrap_or(self.since)
    }
}

#[derive(Debug)]
struct Inflicted {
    fault: FaultName,
    at: Duration,
    over: Option<Duration>,
}

impl Model {
    /// Takes what is known now, and writes down what is new in it.
    pub(crate) fn observe(&mut self, sample: Sample) {
        for kind in &sample.kinds {
            let history = self.history.entry(kind.kind.clone()).or_default();
            history.push_back((sample.at, kind.events));
            while history.len() > 2 && history[1].0 + RATE_WINDOW <= sample.at {
                history.pop_front();
            }
        }
        self.note_troubles(&sample);
        self.now = sample;
        self.tell_troubles();
        self.tell_healings();
        if !self.synced && self.all_live() {
            self.synced = true;
            let objects: u64 = self.now.kinds.iter().map(|kind| kind.objects).sum();
            let text = format!("everything synced: {}", human::count(objects, "object"));
            self.write(Entry { at: self.now.at, text, mood: Mood::Good });
        }
    }

    /// Notes that a person inflicted a fault.
    pub(crate) fn inflict(&mut self, at: Duration, fault: FaultName) {
        self.inflicted = Some(Inflicted { fault, at, over: None });
        self.write(Entry { at, text: fault.tale().into(), mood: Mood::Deed });
    }

    /// Notes that the inflicted fault is over, so that recovery counts from here.
    pub(crate) fn fault_over(&mut self, at: Duration, text: impl Into<String>) {
        if let Some(inflicted) = &mut self.inflicted {
            inflicted.over = Some(at);
        }
        self.write(Entry { at, text: text.into(), mood: Mood::Deed });
    }

    /// Notes something else.
    pub(crate) fn note(&mut self, at: Duration, text: impl Into<String>, mood: Mood) {
        self.write(Entry { at, text: text.into(), mood });
    }

    /// The table's lines.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.now.kinds.iter().map(|kind| self.row(kind)).collect()
    }

    /// The newest `n` lines of the log, oldest first.
    pub(crate) fn log(&self, n: usize) -> impl Iterator<Item = &Entry> {
        self.log.iter().skip(self.log.len().saturating_sub(n))
    }

    /// The lines of the log since a count that this returned before (0 at first), and the new count.
    pub(crate) fn log_since(&self, count: u64) -> (Vec<Entry>, u64) {
        let new = usize::try_from(self.logged - count).unwrap_or(usize::MAX);
        (self.log(new.min(LOG_LENGTH)).cloned().collect(), self.logged)
    }

    /// The newest sample.
    pub(crate) fn sample(&self) -> &Sample {
        &self.now
    }

    /// Whether every informer follows the server.
    pub(crate) fn all_live(&self) -> bool {
        !self.now.kinds.is_empty()
            && self.now.kinds.iter().all(|kind| matches!(kind.health, Health::Live { .. }))
    }

    /// Whether every informer has noticed a trouble since this moment and has got over it, and all of it is told.
    pub(crate) fn all_healed_since(&self, moment: Duration) -> bool {
        self.all_live()
            && self.troubles.is_empty()
            && self.healings.is_empty()
            && self.now.kinds.iter().all(|kind| {
                kind.trouble.as_ref().is_some_and(|trouble| trouble.at >= moment && trouble.healed.is_some())
            })
    }

    /// One line that sums it all up.
    pub(crate) fn summary(&self) -> String {
        let live = self.now.kinds.iter().filter(|kind| matches!(kind.health, Health::Live { .. })).count();
        let objects: u64 = self.now.kinds.iter().map(|kind| kind.objects).sum();
        let rate: f64 = self.now.kinds.iter().map(|kind| self.rate(&kind.kind)).sum();
        let ages = self.now.kinds.iter().map(|kind| match &kind.health {
            Health::Live { age } => Some(*age),
            Health::Stale { age, .. } => *age,
            _ => None,
        });
        let oldest = ages.collect::<Option<Vec<_>>>().and_then(|ages| ages.into_iter().max());
        let age = oldest.map_or("unknown age".into(), |age| format!("at most {} old", human::seconds(age)));
        format!(
            "{live} of {} live, {}, {age}, {rate:.0} events/s, server at RV {}{}",
            human::count(self.now.kinds.len() as u64, "kind"),
            human::count(objects, "object"),
            self.now.server.rv,
            if self.now.server.paused { ", paused" } else { "" }
        )
    }

    fn row(&self, kind: &KindSample) -> Row {
        let (age, state, mood) = match &kind.health {
            Health::Live { age } => (human::seconds(*age), "live".to_owned(), Mood::Good),
            Health::Stale { reason, age } => {
                let age = age.map_or("unknown".into(), human::seconds);
                (age, format!("stale: {}", human::one_line(reason::brief(reason), 24)), Mood::Bad)
            }
            Health::Syncing { reason } if reason.is_empty() => ("-".into(), "syncing".into(), Mood::Waiting),
            Health::Syncing { reason } => (
                "-".into(),
                format!("syncing: {}", human::one_line(reason::brief(reason), 24)),
                Mood::Waiting,
            ),
            Health::Stopped => ("-".into(), "stopped".into(), Mood::Waiting),
        };
        let trouble = match &kind.trouble {
            None => String::new(),
            Some(Trouble { at, what, healed: Some((end, how)) }) => {
                let took = human::seconds(end.saturating_sub(*at));
                let ago = human::age(self.now.at.saturating_sub(*end));
                let (what, how) = (reason::brief(what), reason::brief(how));
                format!("{ago} ago: {what}; after {took} {how}")
            }
            Some(Trouble { at, what, healed: None }) => {
                format!("for {}: {what}", human::seconds(self.now.at.saturating_sub(*at)))
            }
        };
        let rate = format!("{:.1}", self.rate(&kind.kind));
        let cells = [kind.kind.clone(), kind.objects.to_string(), kind.rv.clone(), age, state, rate];
        Row { cells, trouble, mood }
    }

    fn rate(&self, kind: &str) -> f64 {
        let Some(history) = self.history.get(kind) else { return 0.0 };
        let (Some((first, from)), Some((last, to))) = (history.front(), history.back()) else { return 0.0 };
        let seconds = last.saturating_sub(*first).as_secs_f64();
        if seconds == 0.0 { 0.0 } else { to.saturating_sub(*from) as f64 / seconds }
    }

    /// Notes troubles and healings that are new, so that those of several kinds can be told in one line.
    fn note_troubles(&mut self, sample: &Sample) {
        for kind in &sample.kinds {
            let Some(trouble) = &kind.trouble else { continue };
            let seen = self.seen.entry(kind.kind.clone()).or_default();
            let common = reason::brief(&trouble.what).to_owned();
            let identity = (trouble.at, common.clone());
            let is_new = seen.trouble.as_ref() != Some(&identity);
            if is_new {
                let same = seen.trouble.as_ref().is_some_and(|(at, _)| *at == trouble.at);
                // A trouble that turned into another one (closed, then refused) began when it turned.
                let at = if same { sample.at } else { trouble.at };
                *seen = Seen { trouble: Some(identity), healed: false };
                self.troubles.entry(common).or_insert_with(|| Group::new(sample.at)).add(
                    kind,
                    &trouble.what,
                    at,
                );
            }
            if let (Some((end, how)), false) = (&trouble.healed, seen.healed) {
                seen.healed = true;
                self.healings
                    .entry(how.clone())
                    .or_insert_with(|| Group::new(sample.at))
                    .add(kind, how, *end);
            }
        }
    }

    /// Tells of troubles, a moment after they came up first.
    fn tell_troubles(&mut self) {
        for (common, group) in self.ripe(|model| &mut model.troubles, GATHERING) {
            let after = self
                .since_fault(group.first(), |inflicted| inflicted.at)
                .map_or(String::new(), |took| format!("detected {} after the fault: ", human::seconds(took)));
            let what = if group.members.len() == 1 { &group.what } else { &common };
            let text = format!("{}: {after}{what}", self.names(&group.members));
            self.write(Entry { at: group.first(), text, mood: Mood::Bad });
        }
    }

    /// Tells of healings, once all are well or those who are have waited long enough for the others.
    fn tell_healings(&mut self) {
        let patience = if self.all_live() { Duration::ZERO } else { CONVALESCENCE };
        if !self.troubles.is_empty() {
            // What is healed already must have been told first.
            return;
        }
        for (how, group) in self.ripe(|model| &mut model.healings, patience) {
            let end = group.last();
            let over =
                self.inflicted.as_ref().and_then(|inflicted| inflicted.over).filter(|over| *over <= end);
            let took = self.since_fault(end, |inflicted| over.unwrap_or(inflicted.at));
            let text = match took {
                Some(took) => {
                    let since = if over.is_some() { "after the fault was over" } else { "after the fault" };
                    format!(
                        "{}: live again {} {since}: {how}",
                        self.names(&group.members),
                        human::seconds(took)
                    )
                }
                None => format!("{}: live again: {how}", self.names(&group.members)),
            };
            self.write(Entry { at: end, text, mood: Mood::Good });
        }
    }

    /// Takes out the groups that have gathered long enough.
    fn ripe(
        &mut self,
        groups: impl Fn(&mut Self) -> &mut BTreeMap<String, Group>,
        patience: Duration,
    ) -> Vec<(String, Group)> {
        let now = self.now.at;
        let groups = groups(self);
        let ripe = groups.iter().filter(|(_, group)| now.saturating_sub(group.since) >= patience);
        let names: Vec<String> = ripe.map(|(name, _)| name.clone()).collect();
        names.iter().filter_map(|name| groups.remove_entry(name)).collect()
    }

    /// How long after the last inflicted fault something happened, if it may be due to it.
    fn since_fault(&self, at: Duration, from: impl Fn(&Inflicted) -> Duration) -> Option<Duration> {
        const RELATED: Duration = Duration::from_secs(180);
        let inflicted = self.inflicted.as_ref().filter(|inflicted| inflicted.fault != FaultName::Heal)?;
        let took = at.checked_sub(from(inflicted))?;
        (took <= RELATED).then_some(took)
    }

    fn names(&self, members: &[(String, Duration)]) -> String {
        let kinds: Vec<&str> = members.iter().map(|(kind, _)| kind.as_str()).collect();
        match kinds.as_slice() {
            all if all.len() == self.now.kinds.len() && all.len() > 1 => format!("all {} kinds", all.len()),
            [first, second, rest @ ..] if rest.len() > 1 => {
                format!("{first}, {second} and {} more", rest.len())
            }
            few => few.join(", "),
        }
    }

    fn write(&mut self, entry: Entry) {
        self.logged += 1;
        self.log.push_back(entry);
        if self.log.len() > LOG_LENGTH {
            self.log.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn kind(name: &str, events: u64, trouble: Option<Trouble>) -> KindSample {
        KindSample {
            kind: name.into(),
            objects: 3,
            rv: "42".into(),
            events,
            health: match &trouble {
                Some(Trouble { healed: None, what, .. }) => {
                    Health::Stale { reason: what.clone(), age: Some(at(2000)) }
                }
                _ => Health::Live { age: at(1200) },
            },
            trouble,
        }
    }

    fn sample(millis: u64, kinds: Vec<KindSample>) -> Sample {
        Sample {
            at: at(millis),
            kinds,
            server: ServerSample { connections: 2, rv: "43".into(), ..ServerSample::default() },
        }
    }

    fn texts(model: &Model) -> Vec<String> {
        model.log(100).map(|entry| entry.text.clone()).collect()
    }

    #[test]
    fn a_fault_is_followed_from_infliction_to_recovery() {
        let mut model = Model::default();
        model.observe(sample(0, vec![kind("pods", 0, None), kind("nodes", 0, None)]));
        model.inflict(at(1000), FaultName::Reset);
        let trouble = Trouble { at: at(1100), what: "connection reset".into(), healed: None };
        let both = |trouble: &Trouble| {
            vec![kind("pods", 0, Some(trouble.clone())), kind("nodes", 0, Some(trouble.clone()))]
        };
        model.observe(sample(1200, both(&trouble)));
        model.observe(sample(1500, both(&trouble)));
        assert!(!model.all_live());
        let healed = Trouble { healed: Some((at(1550), "watch resumed".into())), ..trouble };
        model.observe(sample(1600, both(&healed)));
        model.observe(sample(1700, both(&healed)));
        assert!(model.all_healed_since(at(1000)));
        assert!(!model.all_healed_since(at(1200)));
        assert_eq!(
            texts(&model),
            [
                "everything synced: 6 objects",
                "RST: every connection is reset",
                "all 2 kinds: detected 100ms after the fault: connection reset",
                "all 2 kinds: live again 550ms after the fault: watch resumed",
            ]
        );
    }

    #[test]
    fn recovery_from_a_lasting_fault_counts_from_its_end() {
        let mut model = Model::default();
        model.inflict(at(0), FaultName::Pause);
        model.fault_over(at(9000), "resumed");
        let healed =
            Trouble { at: at(10), what: "refused".into(), healed: Some((at(9400), "watch resumed".into())) };
        let kinds = vec![kind("pods", 0, Some(healed)), kind("nodes", 0, None)];
        model.observe(sample(9500, kinds.clone()));
        model.observe(sample(9900, kinds));
        let told = "pods: live again 400ms after the fault was over: watch resumed".to_owned();
        assert!(texts(&model).contains(&told), "{:?}", texts(&model));
    }

    #[test]
    fn the_same_trouble_of_several_kinds_is_one_line() {
        let mut model = Model::default();
        let healthy = || kind("nodes", 0, None);
        model.observe(sample(0, vec![kind("pods", 0, None), kind("leases", 0, None), healthy()]));
        let stalled = |millis: u64, rv: u64| Trouble {
            at: at(millis),
            what: format!("stalled: it never brought {rv}"),
            healed: None,
        };
        model.observe(sample(
            100,
            vec![kind("pods", 0, Some(stalled(90, 7))), kind("leases", 0, None), healthy()],
        ));
        let both = || {
            vec![kind("pods", 0, Some(stalled(90, 7))), kind("leases", 0, Some(stalled(190, 9))), healthy()]
        };
        model.observe(sample(200, both()));
        model.observe(sample(400, both()));
        model.observe(sample(500, both()));
        assert_eq!(texts(&model)[1..], ["pods, leases: stalled".to_owned()]);
    }

    #[test]
    fn a_trouble_that_changes_is_told_anew() {
        let mut model = Model::default();
        let trouble = |what: &str| Some(Trouble { at: at(50), what: what.into(), healed: None });
        model.observe(sample(100, vec![kind("pods", 0, trouble("closed"))]));
        model.observe(sample(500, vec![kind("pods", 0, trouble("refused: again"))]));
        model.observe(sample(900, vec![kind("pods", 0, trouble("refused: and again"))]));
        model.observe(sample(1300, vec![kind("pods", 0, trouble("refused: and again"))]));
        assert_eq!(texts(&model), ["pods: closed", "pods: refused: again"]);
    }

    #[test]
    fn trouble_between_two_samples_is_not_missed() {
        let mut model = Model::default();
        model.observe(sample(0, vec![kind("pods", 0, None)]));
        let over =
            Trouble { at: at(100), what: "closed".into(), healed: Some((at(140), "watch resumed".into())) };
        model.observe(sample(250, vec![kind("pods", 0, Some(over.clone()))]));
        model.observe(sample(650, vec![kind("pods", 0, Some(over))]));
        assert_eq!(
            texts(&model)[1..],
            ["pods: closed".to_owned(), "pods: live again: watch resumed".to_owned()]
        );
    }

    #[test]
    fn rows_tell_state_rate_and_trouble() {
        let mut model = Model::default();
        model.observe(sample(0, vec![kind("pods", 0, None)]));
        let trouble = Trouble { at: at(1000), what: "refused".into(), healed: None };
        model.observe(sample(4000, vec![kind("pods", 100, Some(trouble))]));
        let rows = model.rows();
        assert_eq!(rows[0].cells, ["pods", "3", "42", "2.0s", "stale: refused", "25.0"].map(String::from));
        assert_eq!(rows[0].trouble, "for 3.0s: refused");
        assert_eq!(rows[0].mood, Mood::Bad);
    }

    #[test]
    fn the_rate_forgets_what_is_long_ago() {
        let mut model = Model::default();
        for second in 0..60 {
            let events = if second < 30 { second * 100 } else { 3000 };
            model.observe(sample(second * 1000, vec![kind("pods", events, None)]));
        }
        assert_eq!(model.rows()[0].cells[5], "0.0");
    }

    #[test]
    fn the_log_is_bounded_and_can_be_followed() {
        let mut model = Model::default();
        let (_, count) = model.log_since(0);
        for i in 0..2 * LOG_LENGTH {
            model.note(at(i as u64), format!("{i}"), Mood::Good);
        }
        let (entries, count) = model.log_since(count);
        assert_eq!(entries.len(), LOG_LENGTH);
        model.note(at(0), "last", Mood::Good);
        let (entries, _) = model.log_since(count);
        assert_eq!(entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["last"]);
    }
}

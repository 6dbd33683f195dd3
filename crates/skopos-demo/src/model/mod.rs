//! Content of the demo's screen, computed from plain numbers: no clock, no I/O, no terminal.
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use skopos_console::{human, reason};
use skopos_fleet::Condition;

use crate::FaultName;
use crate::sample::{ClusterSample, Sample, Trouble};

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// As [`TITLES`], but for the last one
    pub(crate) cells: [String; 6],
    /// Further remark
    pub(crate) note: String,
    /// Mood of the state
    pub(crate) mood: Mood,
}

/// Mood of a line, which a terminal shows as its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// All is well
    Good,
    /// Under way, or meant to be so
    Waiting,
    /// Something is broken
    Bad,
    /// A person did this
    Deed,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Time since the start
    pub(crate) at: Duration,
    /// Text of the line
    pub(crate) text: String,
    /// Mood of the line
    pub(crate) mood: Mood,
}

/// The titles of a row's cells and its note.
pub(crate) const TITLES: [&str; 7] = ["CLUSTER", "STATE", "FOR", "AGE ≤", "OBJECTS", "EVENTS/S", "NOTE"];

/// Time over which events per second are measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Time over which the same trouble of several clusters is gathered into one line.
const GATHERING: Duration = Duration::from_millis(300);
/// Maximum time between a fault and a trouble that belongs to it.
const RELATED: Duration = Duration::from_secs(180);
/// Maximum number of log lines kept.
const LOG_LENGTH: usize = 500;

/// Everything that the demo shows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    now: Sample,
    known: BTreeMap<String, Known>,
    /// Troubles that are not reported yet, by what they have in common
    troubles: BTreeMap<String, Group>,
    /// Healings that are not reported yet, by how they came about
    healings: BTreeMap<String, Group>,
    /// Last fault that the user inflicted on each cluster
    inflicted: BTreeMap<String, Inflicted>,
    log: VecDeque<Entry>,
    logged: u64,
    synced: bool,
}

/// State of a cluster so far.
#[derive(Debug)]
struct Known {
    condition: Condition,
    history: VecDeque<(Duration, u64)>,
    /// Switched off, or on again and not live yet
    away: bool,
    /// Time at which it was switched on again
    switched_on: Option<Duration>,
    /// The trouble that it has now
    trouble: Option<Trouble>,
    /// The last trouble that is over
    over: Option<Trouble>,
    /// Troubles that were over by this time do not count any more
    well_since: Duration,
}

/// Clusters with the same trouble or healing at about the same time.
#[derive(Debug)]
struct Group {
    /// Time at which the first was seen
    since: Duration,
    /// Reason, in the words of the first
    what: String,
    /// Clusters, and the time of each
    members: Vec<(String, Duration)>,
}

#[derive(Debug)]
struct Inflicted {
    fault: FaultName,
    at: Duration,
    over: Option<Duration>,
    /// True once a trouble of this fault was seen
    detected: bool,
}

impl Model {
    /// Takes a sample, and writes what is new in it to the log.
    pub(crate) fn observe(&mut self, sample: Sample) {
        self.known.retain(|name, _| sample.clusters.iter().any(|cluster| cluster.name == *name));
        for cluster in &sample.clusters {
            self.note_condition(cluster, sample.at);
            self.note_troubles(cluster, sample.at);
            self.note_late_detection(cluster, sample.at);
        }
        self.now = sample;
        self.tell_troubles();
        self.tell_healings();
        if !self.synced && self.all_live() {
            self.synced = true;
            let count = human::count(self.now.clusters.len() as u64, "cluster");
            let text =
                format!("everything is in memory: {count}, {}", human::count(self.objects(), "object"));
            self.write(Entry { at: self.now.at, text, mood: Mood::Good });
        }
    }

    /// Notes that the user inflicted a fault on a cluster.
    pub(crate) fn inflict(&mut self, at: Duration, fault: FaultName, cluster: &str) {
        self.inflicted.insert(cluster.into(), Inflicted { fault, at, over: None, detected: false });
        self.write(Entry { at, text: format!("{cluster}: {}", fault.tale()), mood: Mood::Deed });
    }

    /// Notes that a fault of a cluster is over, so that recovery counts from here.
    pub(crate) fn fault_over(&mut self, at: Duration, cluster: &str, text: &str) {
        if let Some(inflicted) = self.inflicted.get_mut(cluster) {
            inflicted.over = Some(at);
        }
        self.write(Entry { at, text: format!("{cluster}: {text}"), mood: Mood::Deed });
    }

    /// Notes any other line.
    pub(crate) fn note(&mut self, at: Duration, text: impl Into<String>, mood: Mood) {
        self.write(Entry { at, text: text.into(), mood });
    }

    /// Returns the table's lines.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.now.clusters.iter().map(|cluster| self.row(cluster)).collect()
    }

    /// Returns the newest `n` lines of the log, oldest first.
    pub(crate) fn log(&self, n: usize) -> impl Iterator<Item = &Entry> {
        self.log.iter().skip(self.log.len().saturating_sub(n))
    }

    /// Returns the lines of the log since a count that this returned before (0 at first), and the new count.
    pub(crate) fn log_since(&self, count: u64) -> (Vec<Entry>, u64) {
        let new = usize::try_from(self.logged - count).unwrap_or(usize::MAX);
        (self.log(new.min(LOG_LENGTH)).cloned().collect(), self.logged)
    }

    /// Returns the newest sample.
    pub(crate) fn sample(&self) -> &Sample {
        &self.now
    }

    /// Returns whether all clusters are found, answer and are in memory.
    pub(crate) fn all_live(&self) -> bool {
        self.now.clusters.len() >= self.now.expected && self.now.clusters.iter().all(is_well)
    }

    /// Returns the clusters that are not in memory, and why, in one line.
    pub(crate) fn missing(&self) -> String {
        let missing = self.now.clusters.iter().filter(|cluster| !is_well(cluster));
        let tell = |cluster: &ClusterSample| {
            let why = cluster.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            format!("{} is {}{why}", cluster.name, cluster.condition)
        };
        let unfound = self.now.expected.saturating_sub(self.now.clusters.len()) as u64;
        let unfound = (unfound > 0).then(|| format!("{} not found yet", human::count(unfound, "cluster")));
        missing.map(tell).chain(unfound).collect::<Vec<_>>().join("; ")
    }

    /// Returns one line with the totals.
    pub(crate) fn summary(&self) -> String {
        let of = |condition| self.now.clusters.iter().filter(|c| c.condition == condition).count() as u64;
        let live = self.now.clusters.iter().filter(|cluster| cluster.condition == Condition::Live);
        let oldest = live.filter_map(|cluster| cluster.age).max();
        let age =
            oldest.map_or(String::new(), |age| format!(", live ones at most {} old", human::seconds(age)));
        let paused = match of(Condition::Paused) {
            0 => String::new(),
            paused => format!(", {paused} paused"),
        };
        let rate: f64 = self.known.values().map(Known::rate).sum();
        format!(
            "{} of {} live{paused}, {}{age}, {rate:.0} events/s",
            of(Condition::Live),
            human::count(self.now.clusters.len() as u64, "cluster"),
            human::count(self.objects(), "object"),
        )
    }

    fn objects(&self) -> u64 {
        self.now.clusters.iter().map(|cluster| cluster.objects).sum()
    }

    fn row(&self, cluster: &ClusterSample) -> Row {
        let mood = match cluster.condition {
            Condition::Live if cluster.synced => Mood::Good,
            Condition::Live | Condition::Connecting | Condition::Paused => Mood::Waiting,
            Condition::Degraded | Condition::Unreachable | Condition::Removed => Mood::Bad,
        };
        let known = self.known.get(&cluster.name);
        let cells = [
            cluster.name.clone(),
            cluster.condition.to_string(),
            human::age(self.now.at.saturating_sub(cluster.since)),
            cluster.age.map_or("-".into(), human::seconds),
            cluster.objects.to_string(),
            format!("{:.1}", known.map_or(0.0, Known::rate)),
        ];
        Row { cells, note: self.remark(cluster, known), mood }
    }

    /// Returns the fault in force, or the reason of the state, or the last trouble.
    fn remark(&self, cluster: &ClusterSample, known: Option<&Known>) -> String {
        if let Some(broken) = &cluster.broken {
            return broken.clone();
        }
        if let Some(why) = cluster.reason.as_ref().filter(|_| cluster.condition != Condition::Live) {
            return reason::plain(why);
        }
        let Some(Trouble { at, what, healed: Some((end, how)) }) =
            known.and_then(|known| known.over.as_ref())
        else {
            return String::new();
        };
        let took = human::seconds(end.saturating_sub(*at));
        let ago = human::age(self.now.at.saturating_sub(*end));
        format!("{ago} ago: {}; after {took} {}", reason::brief(what), reason::brief(how))
    }

    fn note_condition(&mut self, cluster: &ClusterSample, now: Duration) {
        let ClusterSample { name, condition, since, .. } = cluster;
        let is_new = !self.known.contains_key(name);
        let known = self.known.entry(name.clone()).or_insert_with(|| Known::new(cluster));
        known.count(now, cluster.events);
        let before = std::mem::replace(&mut known.condition, *condition);
        let off = matches!(condition, Condition::Paused | Condition::Removed);
        let back =
            *condition == Condition::Live && cluster.troubles.iter().all(|trouble| trouble.healed.is_some());
        let still = known.away && !back;
        let away = std::mem::replace(&mut known.away, off || still);
        let mut told = None;
        if is_new && self.synced {
            told = Some(("found".to_owned(), Mood::Good));
        }
        match condition {
            Condition::Paused if before != Condition::Paused || is_new => {
                let why = cluster.reason.as_deref().unwrap_or_default();
                told = Some((format!("paused: {why}"), Mood::Waiting));
                known.trouble = None;
            }
            Condition::Removed if before != Condition::Removed => {
                told = Some((
                    "it is gone; what was in memory can be read for a while".to_owned(),
                    Mood::Waiting,
                ));
            }
            Condition::Connecting if before == Condition::Paused => known.switched_on = Some(*since),
            Condition::Live if away && back => {
                let took = known.switched_on.take().map(|from| human::seconds(since.saturating_sub(from)));
                let after = took.map_or(String::new(), |took| format!(" {took} after it was switched on"));
                told = Some((format!("live again{after}"), Mood::Good));
                known.well_since = now;
            }
            _ => {}
        }
        if let Some((text, mood)) = told {
            self.write(Entry { at: (*since).min(now), text: format!("{name}: {text}"), mood });
        }
    }

    /// Notes new troubles and healings, so that those of several clusters can be reported in one line. A cluster that is
    /// switched off has no troubles.
    fn note_troubles(&mut self, cluster: &ClusterSample, now: Duration) {
        let Some(known) = self.known.get_mut(&cluster.name) else { return };
        if known.away {
            for groups in [&mut self.troubles, &mut self.healings] {
                groups.values_mut().for_each(|group| group.members.retain(|(name, _)| *name != cluster.name));
                groups.retain(|_, group| !group.members.is_empty());
            }
            return;
        }
        let (began, ended) = known.follow(&cluster.troubles, now);
        if let Some(Trouble { at, what, .. }) = began {
            let common = reason::brief(&what).to_owned();
            self.troubles.entry(common).or_insert_with(|| Group::new(now, &what)).add(cluster, at);
        }
        if let Some((at, how)) = ended {
            self.healings.entry(how.clone()).or_insert_with(|| Group::new(now, &how)).add(cluster, at);
        }
    }

    /// Reports troubles, a moment after the first of a group.
    fn tell_troubles(&mut self) {
        for (common, group) in self.ripe(|model| &mut model.troubles, GATHERING) {
            let detected = self.detect(&group);
            let after = detected
                .map_or(String::new(), |took| format!("detected {} after the fault: ", human::seconds(took)));
            let what = if group.members.len() == 1 { &group.what } else { &common };
            let text = format!("{}: {after}{what}", self.names(&group.members));
            self.write(Entry { at: group.first(), text, mood: Mood::Bad });
        }
    }

    /// Reports healings, after all troubles are reported.
    fn tell_healings(&mut self) {
        if !self.troubles.is_empty() {
            return;
        }
        for (how, group) in self.ripe(|model| &mut model.healings, Duration::ZERO) {
            let end = group.last();
            let since = match self.healed(&group, end) {
                None => String::new(),
                Some((took, false)) => format!(" {} after the fault", human::seconds(took)),
                Some((took, true)) => format!(" {} after the fault was over", human::seconds(took)),
            };
            let text = format!("{}: well again{since}: {how}", self.names(&group.members));
            self.write(Entry { at: end, text, mood: Mood::Good });
        }
    }

    /// Takes out the groups that have gathered long enough.
    fn ripe(
        &mut self,
        groups: impl Fn(&mut Self) -> &mut BTreeMap<String, Group>,
        limit: Duration,
    ) -> Vec<(String, Group)> {
        let now = self.now.at;
        let groups = groups(self);
        let ripe = groups.iter().filter(|(_, group)| now.saturating_sub(group.since) >= limit);
        let names: Vec<String> = ripe.map(|(name, _)| name.clone()).collect();
        names.iter().filter_map(|name| groups.remove_entry(name)).collect()
    }

    /// Returns the time from a fault to a trouble that belongs to it.
    fn detect(&mut self, group: &Group) -> Option<Duration> {
        group.members.iter().find_map(|(name, at)| {
            let inflicted = self.inflicted.get_mut(name).filter(|one| one.fault.explains(&group.what))?;
            let took = at.checked_sub(inflicted.at).filter(|took| *took <= RELATED)?;
            inflicted.detected = true;
            Some(took)
        })
    }

    /// Reports a fault that shows only while there is other trouble already, such as that of connections which it closed.
    fn note_late_detection(&mut self, cluster: &ClusterSample, now: Duration) {
        let is_told_soon = |groups: &BTreeMap<String, Group>| {
            groups.values().any(|group| group.members.iter().any(|(name, _)| *name == cluster.name))
        };
        if is_told_soon(&self.troubles) {
            return;
        }
        let Some(inflicted) = self.inflicted.get_mut(&cluster.name).filter(|one| !one.detected) else {
            return;
        };
        let ongoing = cluster.troubles.iter().filter(|trouble| trouble.healed.is_none());
        let reasons = ongoing.map(|trouble| reason::plain(&trouble.what));
        let state = cluster.reason.iter().filter(|_| cluster.condition != Condition::Live);
        let mut reasons = reasons.chain(state.map(|why| reason::plain(why)));
        let fault = inflicted.fault;
        let Some(what) = reasons.find(|what| fault.explains(what)) else { return };
        let Some(took) = now.checked_sub(inflicted.at).filter(|took| *took <= RELATED) else { return };
        inflicted.detected = true;
        let took = human::seconds(took);
        let text = format!("{}: detected {took} after the fault: {what}", cluster.name);
        self.write(Entry { at: now, text, mood: Mood::Bad });
    }

    /// Returns the time from a detected fault, or from its end, to the recovery, and whether it is the latter.
    fn healed(&self, group: &Group, end: Duration) -> Option<(Duration, bool)> {
        group.members.iter().find_map(|(name, _)| {
            let inflicted = self.inflicted.get(name).filter(|inflicted| inflicted.detected)?;
            let over = inflicted.over.filter(|over| *over <= end);
            let took = end.checked_sub(over.unwrap_or(inflicted.at)).filter(|took| *took <= RELATED)?;
            Some((took, over.is_some()))
        })
    }

    fn names(&self, members: &[(String, Duration)]) -> String {
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        match names.as_slice() {
            all if all.len() == self.now.clusters.len() && all.len() > 1 => {
                format!("all {} clusters", all.len())
            }
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

impl Known {
    fn new(cluster: &ClusterSample) -> Self {
        Self {
            condition: cluster.condition,
            history: VecDeque::new(),
            away: false,
            switched_on: None,
            trouble: None,
            over: None,
            well_since: Duration::ZERO,
        }
    }

    fn count(&mut self, now: Duration, events: u64) {
        self.history.push_back((now, events));
        while self.history.len() > 2 && self.history[1].0 + RATE_WINDOW <= now {
            self.history.pop_front();
        }
    }

    /// Returns the events per second.
    fn rate(&self) -> f64 {
        let (Some((first, from)), Some((last, to))) = (self.history.front(), self.history.back()) else {
            return 0.0;
        };
        let seconds = last.saturating_sub(*first).as_secs_f64();
        if seconds == 0.0 { 0.0 } else { to.saturating_sub(*from) as f64 / seconds }
    }

    /// Returns the beginning or the end of a trouble, if new. The kinds of a cluster share it: it begins with the first and
    /// ends with the last.
    fn follow(&mut self, kinds: &[Trouble], now: Duration) -> (Option<Trouble>, Option<(Duration, String)>) {
        let counts = |trouble: &&Trouble| trouble.healed.is_none() || trouble.at > self.well_since;
        let mut began = None;
        if self.trouble.is_none() {
            self.trouble = kinds.iter().filter(counts).min_by_key(|trouble| trouble.at).cloned();
            began = self.trouble.clone();
        }
        let Some(trouble) = self.trouble.clone() else { return (None, None) };
        if kinds.iter().any(|kind| kind.healed.is_none()) {
            return (began, None);
        }
        let last = kinds.iter().filter_map(|kind| kind.healed.clone()).max_by_key(|(at, _)| *at);
        // A kind that is no longer cached took its end with it.
        let end = last
            .filter(|(at, _)| *at >= trouble.at)
            .unwrap_or_else(|| (now, String::from("no trouble left")));
        self.well_since = end.0;
        self.trouble = None;
        self.over = Some(Trouble { healed: Some(end.clone()), ..trouble });
        (began, Some(end))
    }
}

impl Group {
    fn new(since: Duration, what: &str) -> Self {
        Self { since, what: what.into(), members: Vec::new() }
    }

    fn add(&mut self, cluster: &ClusterSample, at: Duration) {
        self.members.push((cluster.name.clone(), at));
    }

    fn first(&self) -> Duration {
        self.members.iter().map(|(_, at)| *at).min().unwrap_or(self.since)
    }

    fn last(&self) -> Duration {
        self.members.iter().map(|(_, at)| *at).max().unwrap_or(self.since)
    }
}

fn is_well(cluster: &ClusterSample) -> bool {
    cluster.condition == Condition::Live && cluster.synced
}

#[cfg(test)]
mod tests;

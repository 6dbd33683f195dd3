use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use skopos::{RawObject, ResourceVersion};
use skopos_reflect::{Time, exponential_delay};

use super::breaker::Breaker;
use super::delivery::{ChangeKind, DeadLetter, Delivery, DeliveryOutcome, EventKey, Recorded};
use super::ledger::{History, LedgerChange, LedgerContent};
use super::options::{Departure, OutboxOptions};
use super::waiting::{ObjectState, Waiting};

/// The states that the receiver has not acknowledged. A state machine without I/O: it gets the state of the cluster, and returns
/// deliveries.
///
/// Each object has at most one delivery in flight, and a newer state replaces one that waits. A deletion is reported if the watch
/// has shown it, or if a list confirms it.
pub struct Outbox {
    options: OutboxOptions,
    recorded: HashMap<EventKey, Recorded>,
    waiting: BTreeMap<EventKey, Waiting>,
    /// The keys of `waiting` that can be delivered, by due time.
    due: BTreeSet<(Time, EventKey)>,
    /// The keys of `waiting`, by the time since which they wait.
    by_age: BTreeSet<(Time, EventKey)>,
    /// The keys of `waiting` whose deletion waits for a list.
    unconfirmed: BTreeSet<EventKey>,
    in_flight: BTreeMap<EventKey, InFlight>,
    /// The keys whose ledger entries must be written.
    dirty: BTreeSet<EventKey>,
    dead: BTreeMap<EventKey, DeadLetter>,
    dead_dirty: BTreeSet<EventKey>,
    disabled: Option<String>,
    cluster: Option<Arc<str>>,
    history: History,
    /// True if `disabled`, `cluster` or the epoch must be written.
    meta_dirty: bool,
    breaker: Breaker,
    /// The keys of `waiting` that have a problem.
    failing: BTreeSet<EventKey>,
    /// True if another cluster than the receiver's answers, or it is unknown which one does.
    is_held: bool,
    random: fastrand::Rng,
}

/// A delivery without an outcome.
#[derive(Clone, Debug)]
struct InFlight {
    /// The ledger's entry before it.
    before: Option<Recorded>,
    /// The entry after the acknowledgement; `None` for a deletion.
    after: Option<Recorded>,
    kind: ChangeKind,
    id: Arc<str>,
}

impl Outbox {
    /// Makes an outbox that resumes from a ledger's content.
    pub fn new(options: OutboxOptions, ledger: LedgerContent) -> Self {
        Self {
            recorded: ledger.recorded.into_iter().collect(),
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            by_age: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            dirty: BTreeSet::new(),
            dead: ledger.dead.into_iter().collect(),
            dead_dirty: BTreeSet::new(),
            disabled: ledger.disabled,
            cluster: ledger.cluster,
            history: ledger.history,
            meta_dirty: false,
            breaker: Breaker::new(&options),
            failing: BTreeSet::new(),
            is_held: true,
            random: fastrand::Rng::with_seed(options.seed),
            options,
        }
    }

    /// Notes which cluster answers. Messages about a different one are held until it is [accepted](Self::accept_cluster).
    pub fn saw_cluster(&mut self, cluster: &Arc<str>) {
        if self.cluster.is_none() {
            self.accept_cluster(cluster.clone());
        }
        self.is_held = self.cluster.as_ref() != Some(cluster);
    }

    /// Makes another cluster the receiver's cluster.
    pub fn accept_cluster(&mut self, cluster: Arc<str>) {
        (self.cluster, self.meta_dirty, self.is_held) = (Some(cluster), true, false);
    }

    /// Returns the receiver's cluster.
    pub fn cluster(&self) -> Option<&Arc<str>> {
        self.cluster.as_ref()
    }

    /// Returns whether everything is held: another cluster answers, or it is unknown which one does.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns the objects with a state that is not acknowledged.
    pub fn waiting(&self) -> impl Iterator<Item = &EventKey> {
        self.waiting.keys()
    }

    /// Returns the next message of each object, and whether it waits for a list.
    pub fn plan(&self) -> impl Iterator<Item = (&EventKey, ChangeKind, bool)> {
        self.waiting.iter().filter_map(|(key, waiting)| {
            let kind = self.next(key)?.kind;
            self.is_told(key, kind).then(|| (key, kind, waiting.state.is_unconfirmed()))
        })
    }

    /// Takes the deletions of these objects as confirmed, without a list.
    pub fn confirm(&mut self, is_meant: impl Fn(&EventKey) -> bool) {
        let keys: Vec<_> = self.unconfirmed().filter(|key| is_meant(key)).cloned().collect();
        for key in keys {
            if let Some(Waiting { state: ObjectState::Gone { confirmed, .. }, .. }) =
                self.waiting.get_mut(&key)
            {
                *confirmed = true;
            }
            self.queue(&key);
        }
    }

    /// Notes the version of a complete view of a resource. A version that went back begins a new epoch: a cluster was restored
    /// from a backup.
    pub fn saw_version(&mut self, resource: &Arc<str>, version: &ResourceVersion) {
        self.meta_dirty |= self.history.saw(resource, version);
    }

    /// Notes the state of an object in the cluster.
    pub fn present(&mut self, now: Time, key: EventKey, object: RawObject, digest: [u8; 16]) {
        let is_known = self.recorded.get(&key).is_some_and(|recorded| {
            recorded.uid.as_ref() == object.uid() && recorded.digest == Some(digest) && !recorded.unsure
        });
        if is_known {
            return self.settled(&key);
        }
        self.wait(now, key, ObjectState::Present { object, digest });
    }

    /// Notes that an object is gone from the cluster, or no longer selected. The deletion is delivered if the watch has shown it, or once a list confirms it.
    pub fn gone(&mut self, now: Time, key: EventKey, version: ResourceVersion, how: Departure) {
        if !self.recorded.contains_key(&key) && !self.in_flight.contains_key(&key) {
            return self.settled(&key);
        }
        let state = ObjectState::Gone {
            version,
            deselected: how == Departure::Deselected,
            confirmed: how != Departure::Missing,
        };
        self.wait(now, key, state);
    }

    /// Notes that all objects of a resource were passed to [`present`](Self::present). Further objects in the ledger are missing.
    pub fn synced(
        &mut self,
        now: Time,
        resource: &str,
        version: &ResourceVersion,
        is_there: impl Fn(&EventKey) -> bool,
    ) {
        let missing: Vec<_> = self
            .recorded
            .keys()
            .filter(|key| &*key.resource == resource && !self.waiting.contains_key(*key) && !is_there(key))
            .cloned()
            .collect();
        for key in missing {
            self.gone(now, key, version.clone(), Departure::Missing);
        }
        let forgotten =
            |key: &EventKey| &*key.resource == resource && !self.waiting.contains_key(key) && !is_there(key);
        let forgotten: Vec<_> = self.dead.keys().filter(|key| forgotten(key)).cloned().collect();
        forgotten.iter().for_each(|key| self.settled(key));
    }

    /// Notes that a list of a resource, begun at `began`, agreed with the noted state.
    pub fn listed(&mut self, resource: &str, began: Time) {
        let confirm = self.options.confirm;
        let confirmed: BTreeSet<_> = self
            .unconfirmed()
            .filter(|key| {
                &*key.resource == resource
                    && self.waiting.get(*key).is_some_and(|waiting| waiting.since + confirm <= began)
            })
            .cloned()
            .collect();
        self.confirm(|key| confirmed.contains(key));
    }

    /// Returns the time from which a list may confirm deletions of a resource, if any wait for it.
    pub fn list_from(&self, resource: &str) -> Option<Time> {
        let of_resource = self.unconfirmed.iter().filter(|key| &*key.resource == resource);
        let waiting = of_resource.filter_map(|key| self.waiting.get(key));
        waiting.map(|waiting| waiting.since + self.options.confirm).min()
    }

    /// Returns up to `most` deliveries that are due, the oldest first. Each counts as in flight and needs an
    /// [`outcome`](Self::outcome). None may be sent before [`take_changes`](Self::take_changes) is on disk.
    pub fn due(&mut self, now: Time, most: usize) -> Vec<Delivery> {
        let most = self.breaker.allows(now, most, self.in_flight.len());
        if self.is_held || self.disabled.is_some() {
            return Vec::new();
        }
        let mut deliveries = Vec::new();
        let is_probe = self.breaker.is_probe();
        while deliveries.len() < most
            && let Some((at, key)) = self.due.first().cloned()
            && (at <= now || is_probe)
        {
            self.due.pop_first();
            if let Some(delivery) = self.begin(&key) {
                deliveries.push(delivery);
            }
        }
        deliveries
    }

    /// Notes the outcome of a delivery.
    pub fn outcome(&mut self, now: Time, key: &EventKey, outcome: DeliveryOutcome) {
        let Some(sent) = self.in_flight.remove(key) else { return };
        match outcome {
            DeliveryOutcome::Delivered => {
                self.record(key, sent.after);
                self.recovered(now, key);
            }
            DeliveryOutcome::Failed { problem, retry_after } => {
                self.pause(now, key, problem, retry_after);
                self.breaker.failed(now);
            }
            DeliveryOutcome::Throttled { problem, retry_after } => {
                self.pause(now, key, problem, None);
                self.breaker.trip(now, retry_after);
            }
            DeliveryOutcome::Unknown(problem) => {
                self.pause(now, key, problem, None);
                self.breaker.trip(now, None);
            }
            DeliveryOutcome::Unreachable(problem) => {
                // It did not arrive, so the ledger is unchanged.
                self.record(key, sent.before);
                self.breaker.trip(now, None);
                if let Some(waiting) = self.waiting.get_mut(key) {
                    (waiting.problem, waiting.not_before) = (Some(problem), now);
                    self.failing.insert(key.clone());
                }
            }
            DeliveryOutcome::Rejected(problem) => {
                self.record(key, sent.before);
                self.dead.insert(key.clone(), DeadLetter { id: sent.id, kind: sent.kind, problem });
                self.dead_dirty.insert(key.clone());
                self.recovered(now, key);
            }
            DeliveryOutcome::Disabled(problem) => {
                self.record(key, sent.before);
                (self.disabled, self.meta_dirty) = (Some(problem), true);
            }
        }
        self.go_on(key);
    }

    /// Returns the changes of the ledger since the last call.
    pub fn take_changes(&mut self) -> Vec<LedgerChange> {
        let recorded = std::mem::take(&mut self.dirty).into_iter().map(|key| {
            let recorded = self.recorded.get(&key).cloned();
            LedgerChange::Recorded(key, recorded)
        });
        let dead = std::mem::take(&mut self.dead_dirty).into_iter().map(|key| {
            let letter = self.dead.get(&key).cloned();
            LedgerChange::Dead(key, letter)
        });
        let mut changes: Vec<_> = recorded.chain(dead).collect();
        if !changes.is_empty() || self.meta_dirty {
            self.meta_dirty = false;
            changes.push(LedgerChange::Meta {
                disabled: self.disabled.clone(),
                cluster: self.cluster.clone(),
                history: self.history.clone(),
            });
        }
        changes
    }

    /// Notes that these changes could not be written, and must be written again.
    pub fn not_written(&mut self, changes: &[LedgerChange]) {
        for change in changes {
            match change {
                LedgerChange::Recorded(key, _) => drop(self.dirty.insert(key.clone())),
                LedgerChange::Dead(key, _) => drop(self.dead_dirty.insert(key.clone())),
                LedgerChange::Meta { .. } => self.meta_dirty = true,
            }
        }
    }

    /// Returns whether the ledger must be written.
    pub fn has_changes(&self) -> bool {
        !self.dirty.is_empty() || !self.dead_dirty.is_empty() || self.meta_dirty
    }

    /// Notes that a delivery was not sent after all.
    pub fn not_sent(&mut self, key: &EventKey) {
        let Some(sent) = self.in_flight.remove(key) else { return };
        self.record(key, sent.before);
        self.go_on(key);
    }

    /// Ends all pauses: failed messages are tried at once, also if the receiver had disabled the sink.
    pub fn retry(&mut self, now: Time) {
        self.meta_dirty |= self.disabled.take().is_some();
        self.hasten(now);
    }

    /// Tries a dead letter again, or all of them. Returns the number.
    pub fn retry_dead(&mut self, id: Option<&str>) -> usize {
        let keys: Vec<_> = self
            .dead
            .iter()
            .filter(|(_, letter)| id.is_none_or(|id| *id == *letter.id))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.dead.remove(key);
            self.dead_dirty.insert(key.clone());
            self.queue(key);
        }
        keys.len()
    }

    /// Returns the time of the next delivery, if any.
    pub fn wake_at(&self) -> Option<Time> {
        if self.is_held || self.disabled.is_some() {
            return None;
        }
        let next = self.due.first().map(|(at, _)| *at)?;
        self.breaker.opens_at(next, self.in_flight.len())
    }

    /// Returns the number of objects with a state that is not acknowledged, and the time since which the oldest waits.
    pub fn pending(&self) -> (usize, Option<Time>) {
        (self.waiting.len(), self.by_age.first().map(|(since, _)| *since))
    }

    /// Returns the deletions that wait for a list.
    pub fn unconfirmed(&self) -> impl Iterator<Item = &EventKey> {
        self.unconfirmed.iter()
    }

    /// Returns the objects whose last delivery failed, with the problem.
    pub fn problems(&self) -> impl Iterator<Item = (&EventKey, &str)> {
        self.failing.iter().filter_map(|key| Some((key, self.waiting.get(key)?.problem.as_deref()?)))
    }

    /// Returns the dead letters.
    pub fn dead(&self) -> impl Iterator<Item = (&EventKey, &DeadLetter)> {
        self.dead.iter()
    }

    /// Returns the reason for which the receiver wants no more messages, if any.
    pub fn disabled(&self) -> Option<&str> {
        self.disabled.as_deref()
    }

    /// Returns the number of objects with an acknowledged state.
    pub fn recorded(&self) -> usize {
        self.recorded.len()
    }

    /// Returns the number of items held in memory beyond the ledger.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> usize {
        self.waiting.len()
            + self.due.len()
            + self.by_age.len()
            + self.unconfirmed.len()
            + self.in_flight.len()
            + self.dirty.len()
            + self.dead.len()
            + self.failing.len()
    }

    /// Adds a waiting state, or replaces the older one of a key that waits already.
    fn wait(&mut self, now: Time, key: EventKey, state: ObjectState) {
        match self.waiting.get_mut(&key) {
            Some(waiting) => {
                let is_news = !waiting.state.is_same(&state);
                if is_news {
                    // The failure belongs to the previous message.
                    self.due.remove(&(waiting.not_before, key.clone()));
                    if waiting.failures > 0 {
                        (waiting.failures, waiting.not_before) = (0, now);
                    }
                }
                let is_departure = |state: &ObjectState| matches!(state, ObjectState::Gone { .. });
                if is_departure(&state) && !is_departure(&waiting.state) {
                    self.by_age.remove(&(waiting.since, key.clone()));
                    self.by_age.insert((now, key.clone()));
                    waiting.since = now;
                }
                waiting.state = waiting.state.clone().merge(state);
            }
            None => {
                let waiting = Waiting { state, since: now, failures: 0, not_before: now, problem: None };
                self.waiting.insert(key.clone(), waiting);
                self.by_age.insert((now, key.clone()));
            }
        }
        self.queue(&key);
    }

    /// Queues a key, if its state can be delivered.
    fn queue(&mut self, key: &EventKey) {
        let Some(waiting) = self.waiting.get(key) else { return };
        let entry = (waiting.not_before, key.clone());
        let is_sure = !waiting.state.is_unconfirmed();
        if is_sure {
            self.unconfirmed.remove(key);
        } else {
            self.unconfirmed.insert(key.clone());
        }
        let is_dead = || {
            self.dead.get(key).is_some_and(|letter| self.next(key).is_some_and(|next| next.id == letter.id))
        };
        if is_sure && !self.in_flight.contains_key(key) && !is_dead() {
            self.due.insert(entry);
        } else {
            self.due.remove(&entry);
        }
    }

    /// Begins the delivery of a key. A change of a kind that is not reported counts as acknowledged.
    fn begin(&mut self, key: &EventKey) -> Option<Delivery> {
        loop {
            let next = self.next(key)?;
            if self.dead.remove(key).is_some() {
                self.dead_dirty.insert(key.clone());
            }
            if !self.is_told(key, next.kind) {
                self.record(key, next.after);
                if self.is_settled(key) {
                    self.settled(key);
                    return None;
                }
                continue;
            }
            let before = self.recorded.get(key).cloned();
            // From here on the receiver may know of it. If this process ends before the answer, its deletion will still be
            // reported.
            let unsure = match &before {
                Some(before) => Recorded { unsure: true, ..before.clone() },
                None => Recorded {
                    uid: next.uid.clone(),
                    version: ResourceVersion::ZERO,
                    digest: None,
                    unsure: true,
                },
            };
            self.record(key, Some(unsure));
            let sent = InFlight { before, after: next.after, kind: next.kind, id: next.id.clone() };
            self.in_flight.insert(key.clone(), sent);
            let waiting = self.waiting.get(key)?;
            let (object, deselected) = match &waiting.state {
                ObjectState::Present { object, .. } if next.kind != ChangeKind::Deleted => {
                    (Some(object.clone()), false)
                }
                ObjectState::Present { .. } => (None, false),
                ObjectState::Gone { deselected, .. } => (None, *deselected),
            };
            return Some(Delivery {
                id: next.id,
                key: key.clone(),
                kind: next.kind,
                uid: next.uid,
                version: next.version,
                object,
                deselected,
                epoch: self.history.epoch,
            });
        }
    }

    /// Returns the next message of a key.
    fn next(&self, key: &EventKey) -> Option<NextMessage> {
        let waiting = self.waiting.get(key)?;
        let recorded = self.recorded.get(key);
        let message = |kind, uid: Arc<str>, version: ResourceVersion, of: (&ResourceVersion, _), after| {
            let scope = [self.cluster.as_deref().unwrap_or_default(), &self.options.sink];
            let id = Delivery::id(scope, key, &uid, of.0, of.1, kind);
            Some(NextMessage { id, kind, uid, version, after })
        };
        let deleted = |recorded: &Recorded, version: &ResourceVersion| {
            let of = (&recorded.version, recorded.digest);
            message(ChangeKind::Deleted, recorded.uid.clone(), version.clone(), of, None)
        };
        match (&waiting.state, recorded) {
            (ObjectState::Gone { version, .. }, Some(recorded)) => deleted(recorded, version),
            (ObjectState::Gone { .. }, None) => None,
            // It was deleted and created again: another object has the name.
            (ObjectState::Present { object, .. }, Some(recorded)) if *recorded.uid != *object.uid() => {
                deleted(recorded, object.resource_version())
            }
            (ObjectState::Present { object, digest }, recorded) => {
                let (uid, version) = (Arc::<str>::from(object.uid()), object.resource_version().clone());
                let is_known = recorded.is_some_and(|recorded| recorded.digest.is_some());
                let kind = if is_known { ChangeKind::Updated } else { ChangeKind::Created };
                let after = Recorded {
                    uid: uid.clone(),
                    version: version.clone(),
                    digest: Some(*digest),
                    unsure: false,
                };
                message(kind, uid, version.clone(), (&version, Some(*digest)), Some(after))
            }
        }
    }

    fn is_told(&self, key: &EventKey, kind: ChangeKind) -> bool {
        self.options.changes.get(&key.resource).is_none_or(|told| told.contains(&kind))
    }

    /// Writes an entry of the ledger.
    fn record(&mut self, key: &EventKey, recorded: Option<Recorded>) {
        match recorded {
            Some(recorded) => drop(self.recorded.insert(key.clone(), recorded)),
            None => drop(self.recorded.remove(key)),
        }
        self.dirty.insert(key.clone());
    }

    /// Ends the wait of a key whose state the receiver knows, or queues it.
    fn go_on(&mut self, key: &EventKey) {
        if self.is_settled(key) {
            self.settled(key);
        } else {
            self.queue(key);
        }
    }

    fn is_settled(&self, key: &EventKey) -> bool {
        let Some(waiting) = self.waiting.get(key) else { return true };
        match (&waiting.state, self.recorded.get(key)) {
            (ObjectState::Gone { .. }, None) => true,
            (ObjectState::Present { object, digest }, Some(recorded)) => {
                !recorded.unsure && *recorded.uid == *object.uid() && recorded.digest == Some(*digest)
            }
            _ => false,
        }
    }

    fn settled(&mut self, key: &EventKey) {
        if self.in_flight.contains_key(key) {
            return;
        }
        if let Some(waiting) = self.waiting.remove(key) {
            self.due.remove(&(waiting.not_before, key.clone()));
            self.by_age.remove(&(waiting.since, key.clone()));
        }
        self.unconfirmed.remove(key);
        self.failing.remove(key);
        if self.dead.remove(key).is_some() {
            self.dead_dirty.insert(key.clone());
        }
    }

    /// Notes that the receiver accepts messages. After a failure of the receiver everything that failed with it is due.
    fn recovered(&mut self, now: Time, key: &EventKey) {
        self.failing.remove(key);
        if let Some(waiting) = self.waiting.get_mut(key) {
            (waiting.failures, waiting.not_before, waiting.problem) = (0, now, None);
        }
        if self.breaker.succeeded() {
            self.hasten(now);
        }
    }

    /// Makes all failed deliveries due.
    fn hasten(&mut self, now: Time) {
        self.breaker.succeeded();
        for key in self.failing.clone() {
            if let Some(waiting) = self.waiting.get_mut(&key) {
                self.due.remove(&(waiting.not_before, key.clone()));
                waiting.not_before = waiting.not_before.min(now);
            }
            self.queue(&key);
        }
    }

    /// Delays a key after a failure: twice as long as the last time, with jitter, or as the receiver asked.
    fn pause(&mut self, now: Time, key: &EventKey, problem: String, asked: Option<Duration>) {
        let jitter = 0.75 + self.random.f64() / 2.0;
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        let pause = exponential_delay(self.options.first_pause, self.options.last_pause, waiting.failures);
        waiting.failures = waiting.failures.saturating_add(1);
        let pause = asked.map_or(pause.mul_f64(jitter), |asked| asked.min(self.options.most_asked));
        (waiting.problem, waiting.not_before) = (Some(problem), now + pause);
        self.failing.insert(key.clone());
    }
}

struct NextMessage {
    id: Arc<str>,
    kind: ChangeKind,
    uid: Arc<str>,
    version: ResourceVersion,
    after: Option<Recorded>,
}

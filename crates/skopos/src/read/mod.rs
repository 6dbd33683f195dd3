//! Reads with a bound on the age, and reads of the caller's own writes: each within its deadline, whatever the network
//! does.
//!
//! ```text
//!  read(max_age, deadline)
//!    1  the cache, if it is proven to be young enough                                          nanoseconds
//!    2  a probe (shared by concurrent callers), then the cache, once it has reached the probe    one round trip
//!    3  a list from the server, with the same selectors                                         the rest of the deadline
//!    4  an error that says why
//! ```

mod condition;
pub(crate) mod live;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use skopos_reflect::Target;
use skopos_wire::{FieldSelector, ObjectKey, RawObject, ResourceVersion};
use tokio::time::{Instant, timeout_at};

use crate::error::{LiveError, ReadError, ReadOneError, WaitError};
use crate::freshness::{Evidence, Freshness, FreshnessContext, PartEvidence, Proof};
use crate::informer::{Informer, InformerInner};
use crate::store::object::{Object, StoredObject};
use crate::store::{Closed, Digest, Snapshot, StoreContent, StoreIndex};
use crate::sync::deadline;

/// The result of a bounded read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Read<K> {
    /// The content: of the store, or of a list made for this read, with its age.
    pub snapshot: Snapshot<K>,
    /// The source of the content.
    pub source: Source,
}

/// The result of a bounded read of one object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReadOne<K> {
    /// The object; `None` if it does not exist.
    pub object: Option<Object<K>>,
    /// An upper bound on the age of the answer when it was returned.
    pub age: Duration,
    /// The source of the answer.
    pub source: Source,
}

/// The source of the answer to a bounded read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store.
    Cache,
    /// The server, with a request for this read.
    Live,
}

impl<K> Read<K> {
    /// Returns the freshness of the content.
    pub fn freshness(&self) -> Freshness {
        self.snapshot.freshness()
    }
}

impl<K> Informer<K> {
    /// Waits until the content has reached `revision`, for at most `limit`: then it holds the write that returned this
    /// revision. In a set of namespaces, waits for all of them.
    ///
    /// A revision does not identify its history. After the server was restored from a backup, content beyond the revision
    /// counts as having reached it until its list/watch has noticed, and a list/watch that is forbidden cannot notice:
    /// [`Informer::read`] is not misled by that.
    ///
    /// # Errors
    /// At the deadline, when the server's history was reset (the revision may never come), or at once when the factory is
    /// shut down.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example(
    /// #     maps: skopos::Informer<k8s_openapi::api::core::v1::ConfigMap>,
    /// #     client: kube::Client,
    /// #     map: k8s_openapi::api::core::v1::ConfigMap,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::api::{Api, PostParams};
    ///
    /// let written = Api::<ConfigMap>::default_namespaced(client).create(&PostParams::default(), &map).await?;
    /// let revision = written.metadata.resource_version.unwrap_or_default().parse()?;
    /// let snapshot = maps.wait_for(&revision, Duration::from_secs(10)).await?;
    /// println!("{} config maps, with the new one", snapshot.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for(
        &self,
        revision: &ResourceVersion,
        limit: Duration,
    ) -> Result<Snapshot<K>, WaitError> {
        let begun = Instant::now();
        self.shared.reach(revision, deadline::from(begun, limit), begun).await?;
        Ok(self.snapshot())
    }

    /// Returns the content within `limit`: from the cache if it is at most `max_age` old or can be proven to be, otherwise
    /// listed from the server for this read. A list that takes longer than `max_age` is as old as it took: the snapshot has
    /// its age.
    ///
    /// # Errors
    /// If neither was possible in time, with the reason of both; at once when the factory is shut down.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example(pods: skopos::Informer<k8s_openapi::api::core::v1::Pod>) -> Result<(), skopos::ReadError> {
    /// use std::time::Duration;
    ///
    /// // At most 5 s old, within 2 s: from memory if its age is proven, otherwise from the server.
    /// let read = pods.read(Duration::from_secs(5), Duration::from_secs(2)).await?;
    /// println!("{} pods, {}, from {:?}", read.snapshot.len(), read.freshness(), read.source);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(&self, max_age: Duration, limit: Duration) -> Result<Read<K>, ReadError> {
        self.all(Bound::MaxAge(max_age), limit).await
    }

    /// Returns the content as of `since` or later, within `limit`: from the cache if that is proven or can be, by a probe
    /// that all callers share, otherwise listed from the server for this read. With the present moment for `since` it is a
    /// consistent read, like an API server's answer to a list without a `resourceVersion`: it holds every write that was
    /// acknowledged before the call.
    ///
    /// # Errors
    /// As [`Informer::read`].
    ///
    /// # Example
    /// ```
    /// # async fn example(pods: skopos::Informer<skopos::RawObject>) -> Result<(), skopos::ReadError> {
    /// use std::time::Duration;
    ///
    /// let read = pods.read_since(tokio::time::Instant::now(), Duration::from_secs(3)).await?;
    /// println!("{} pods, {}", read.snapshot.len(), read.freshness());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read_since(&self, since: Instant, limit: Duration) -> Result<Read<K>, ReadError> {
        self.all(Bound::Since(since), limit).await
    }

    /// Returns one object within `limit`: from the cache if it is at most `max_age` old or can be proven to be, otherwise
    /// read from the server for this call, and then as old as that took.
    ///
    /// # Errors
    /// If the key is outside of the informer's namespaces, and as [`Informer::read`].
    pub async fn read_one(
        &self,
        key: &ObjectKey,
        max_age: Duration,
        limit: Duration,
    ) -> Result<ReadOne<K>, ReadOneError> {
        self.one(key, Bound::MaxAge(max_age), limit).await
    }

    /// Returns one object as of `since` or later, within `limit`: from the cache if that is proven or can be, by a probe
    /// that all callers share, otherwise read from the server for this call. With the present moment for `since` it is a
    /// consistent read, like an API server's answer to a GET without a `resourceVersion`.
    ///
    /// # Errors
    /// As [`Informer::read_one`].
    pub async fn read_one_since(
        &self,
        key: &ObjectKey,
        since: Instant,
        limit: Duration,
    ) -> Result<ReadOne<K>, ReadOneError> {
        self.one(key, Bound::Since(since), limit).await
    }

    async fn one(&self, key: &ObjectKey, bound: Bound, limit: Duration) -> Result<ReadOne<K>, ReadOneError> {
        let begun = Instant::now();
        let deadline = deadline::from(begun, limit);
        let Some(reflector) = self.shared.reflector_for(key) else {
            return Err(ReadOneError::OutOfScope { key: key.clone() });
        };
        if self.shared.is_closed() {
            return Err(ReadError::from(Closed).into());
        }
        let context = &self.shared.context.freshness;
        let read = async {
            let catch_up_timeout = Some(MIN_CATCH_UP_TIMEOUT);
            if let Some(snapshot) = self.shared.fresh_snapshot(bound, catch_up_timeout, begun, deadline).await
            {
                let age = snapshot.freshness().age().unwrap_or_else(|| bound.max_age(begun));
                return Ok(ReadOne {
                    object: snapshot.get(key).map(Object::cast),
                    age,
                    source: Source::Cache,
                });
            }
            let (object, age) = loop {
                let sent = Proof::now(context);
                let object = Box::pin(self.shared.get_live(&reflector.target, key, deadline)).await?;
                if !bound.expired_during_suspend(sent, context, deadline) {
                    break (object, sent.age_now(context));
                }
            };
            let object = object.map(|object| Object::new(self.shared.transform.refine(object)));
            Ok(ReadOne { object, age, source: Source::Live })
        };
        let result = self.shared.stop.run_until_cancelled(read).await.ok_or(ReadError::from(Closed))?;
        Ok(result.map_err(|live| self.shared.too_old(bound.max_age(begun), begun, live))?)
    }

    async fn all(&self, bound: Bound, limit: Duration) -> Result<Read<K>, ReadError> {
        let begun = Instant::now();
        let deadline = deadline::from(begun, limit);
        if self.shared.is_closed() {
            return Err(Closed.into());
        }
        let context = &self.shared.context.freshness;
        let read = async {
            if let Some(snapshot) = self.shared.fresh_snapshot(bound, None, begun, deadline).await {
                return Ok(Read { snapshot: snapshot.cast(), source: Source::Cache });
            }
            let snapshot = loop {
                let sent = Proof::now(context);
                let snapshot = Box::pin(self.shared.list_live(sent, deadline)).await?;
                if !bound.expired_during_suspend(sent, context, deadline) {
                    break snapshot;
                }
            };
            Ok(Read { snapshot: snapshot.cast(), source: Source::Live })
        };
        let result = self.shared.stop.run_until_cancelled(read).await.ok_or(Closed)?;
        result.map_err(|live| self.shared.too_old(bound.max_age(begun), begun, live))
    }
}

/// The required freshness of content.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// At most this old when it is returned.
    MaxAge(Duration),
    /// Proven by a read that was sent after this moment.
    Since(Instant),
}

impl Bound {
    fn is_met_by(self, snapshot: &Snapshot) -> bool {
        match self {
            Self::MaxAge(max_age) => snapshot.freshness().is_within(max_age),
            Self::Since(since) => snapshot.is_proven_after(since),
        }
    }

    /// Returns the moment after which a probe has to be sent, for a call that began at `begun`. If any probe will do, that
    /// is the call's begin, so that all callers share one.
    fn since(self, begun: Instant) -> Instant {
        match self {
            Self::MaxAge(_) => begun,
            Self::Since(since) => since,
        }
    }

    /// Returns the maximum age of content for a call that began at `begun`.
    fn max_age(self, begun: Instant) -> Duration {
        match self {
            Self::MaxAge(max_age) => max_age,
            Self::Since(since) => begun.saturating_duration_since(since),
        }
    }

    /// Returns whether the answer to the request sent at `sent` is too old because the machine was suspended meanwhile, and
    /// there is time to ask again.
    fn expired_during_suspend(self, sent: Proof, context: &FreshnessContext, deadline: Instant) -> bool {
        let Self::MaxAge(max_age) = self else { return false };
        sent.is_before_suspend(context) && sent.age_now(context) > max_age && Instant::now() < deadline
    }
}

impl InformerInner {
    /// Waits until the content has reached `revision`.
    async fn reach(
        &self,
        revision: &ResourceVersion,
        deadline: Instant,
        begun: Instant,
    ) -> Result<(), WaitError> {
        let mut progress = self.store.progress();
        let epoch = progress.borrow().epoch;
        let settled = progress.wait_for(|progress| {
            let there = progress.synced && progress.resource_version >= *revision;
            there || progress.closed || progress.epoch != epoch
        });
        let Ok(settled) = timeout_at(deadline, settled).await else {
            let content = self.store.current();
            return Err(WaitError::NotReached {
                wanted: revision.clone(),
                reached: content.synced.then(|| content.rv.clone()),
                waited: begun.elapsed(),
                freshness: self.freshness().freshness(),
            });
        };
        // The sender lives as long as the store.
        let settled = settled.map_err(|_| Closed)?;
        match (settled.closed, settled.epoch == epoch) {
            (true, _) => Err(Closed.into()),
            (_, false) => Err(WaitError::HistoryBroken { wanted: revision.clone() }),
            (false, true) => Ok(()),
        }
    }

    /// Returns the content of the store, if it meets the bound or can be proven to. Leaves time to ask the server: waits
    /// for the probe's revision for at most `catch_up_timeout`, or about as long as a list takes.
    async fn fresh_snapshot(
        &self,
        bound: Bound,
        catch_up_timeout: Option<Duration>,
        begun: Instant,
        deadline: Instant,
    ) -> Option<Snapshot> {
        let before: Snapshot = self.store.snapshot();
        if bound.is_met_by(&before) {
            return Some(before);
        }
        if !before.is_synced() {
            return None;
        }
        let whole = || {
            let evidence = self.freshness().evidence();
            evidence.is_whole() && evidence.parts.iter().all(PartEvidence::is_confirmed)
        };
        // An error is published before the content, and its end after it: so check both before and after.
        if !whole() {
            return None;
        }
        let latest = begun + deadline.saturating_duration_since(begun) / 3;
        let probe = timeout_at(latest, self.probes.prober().probe_after(bound.since(begun))).await.ok()?;
        let read = ConsistentRead { sent_at: probe.sent_at, revision: probe.result.ok()? };
        // The server's newest revision cannot be older than the content that we had before the probe, unless its history
        // went back: then the content belongs to another history. Each part separately: one may have noticed, and another
        // not.
        if (0..self.reflectors.len()).any(|part| read.revision < *before.content().rv_of(part)) {
            return None;
        }
        let latest =
            latest.min(deadline::after(catch_up_timeout.unwrap_or_else(|| self.expected_list_time())));
        let parts = (0..self.reflectors.len()).map(|part| self.holds(part, &read, latest));
        let held = futures::future::try_join_all(parts).await.ok()?;
        if !held.into_iter().all(|held| held) || !whole() {
            return None;
        }
        // Loaded after the revision was reached: it holds all that was committed before the probe was sent.
        let sent = Proof::new(&self.context.freshness, read.sent_at);
        let evidence = Evidence::from_single_read(self.context.freshness.clone(), sent);
        let after = Snapshot::new(self.store.current(), Arc::new(evidence));
        let same_history = after.epoch() == before.epoch();
        let new_enough = match bound {
            Bound::MaxAge(max_age) => after.freshness().is_within(max_age),
            // The probe was sent after `since`.
            Bound::Since(_) => after.freshness().is_live(),
        };
        (whole() && same_history && new_enough).then_some(after)
    }

    /// Returns about how long a list would take. The watch of a quiet resource reports a probe's revision only with its
    /// next bookmark: waiting for it longer than for a list would at best save half of the time.
    fn expected_list_time(&self) -> Duration {
        let objects = u32::try_from(self.store.peek().objects.len()).unwrap_or(u32::MAX);
        LIST_TIME_PER_OBJECT.saturating_mul(objects).max(MIN_CATCH_UP_TIMEOUT)
    }

    /// Returns the server's current content, by a list with the same selectors.
    async fn list_live(&self, sent: Proof, deadline: Instant) -> Result<Snapshot, LiveError> {
        let mut content = StoreContent::unsynced();
        content.indexes = self.store.peek().indexes.iter().map(StoreIndex::cleared).collect();
        let mut lists = Vec::with_capacity(self.reflectors.len());
        for reflector in &self.reflectors {
            lists.push(async move {
                let mut objects = Vec::new();
                let revision = self.context.live.list(&reflector.target, deadline, &mut objects).await?;
                Ok::<(ResourceVersion, Vec<RawObject>), LiveError>((revision, objects))
            });
        }
        let mut lowest = None;
        for (revision, objects) in futures::future::try_join_all(lists).await? {
            lowest = Some(lowest.map_or(revision.clone(), |lowest: ResourceVersion| lowest.min(revision)));
            for object in objects {
                content.put(StoredObject::new(self.transform.refine(object)));
            }
        }
        content.rv = lowest.unwrap_or(ResourceVersion::ZERO);
        content.epoch = self.store.peek().epoch;
        content.synced = true;
        let evidence = Evidence::from_single_read(self.context.freshness.clone(), sent);
        Ok(Snapshot::new(Arc::new(content), Arc::new(evidence)))
    }

    fn too_old(&self, max_age: Duration, begun: Instant, live: LiveError) -> ReadError {
        if self.is_closed() {
            return Closed.into();
        }
        ReadError::TooOld { max_age, waited: begun.elapsed(), cache: self.freshness().freshness(), live }
    }

    /// Returns the server's current version of one object, if the informer's selectors match it.
    async fn get_live(
        &self,
        target: &Target,
        key: &ObjectKey,
        deadline: Instant,
    ) -> Result<Option<RawObject>, LiveError> {
        let live = &self.context.live;
        if self.fields.is_empty() {
            let object = live.get(target, key, deadline).await?;
            return Ok(object.filter(|object| self.labels.matches(object)));
        }
        // Only the server knows the fields, and metadata alone lack most of them.
        let by_name = format!("{},metadata.name={}", self.fields, key.name());
        let by_name =
            FieldSelector::parse(&by_name).map_err(|error| LiveError::Malformed(error.to_string()))?;
        let mut target = target.clone().with_fields(&by_name);
        target.namespace = key.namespace().map(str::to_owned);
        let mut objects: Vec<RawObject> = Vec::new();
        live.list(&target, deadline, &mut objects).await?;
        Ok(objects.into_iter().find(|object| object.key() == key))
    }

    /// Waits until a part of the content holds all that the server had when a consistent read was sent. Returns false if it
    /// did not by the deadline, or its history was reset.
    ///
    /// Content past the read's revision does. Content at that revision may lack some of the changes that share it; its
    /// list/watch, which must be informed of the read, knows when it does not.
    async fn holds(&self, part: usize, read: &ConsistentRead, deadline: Instant) -> Result<bool, Closed> {
        let epoch = self.store.peek().epoch_of(part);
        let mut progress = self.store.progress();
        let settled = async {
            loop {
                // Proofs after this check wake us.
                let proven = self.freshness().next_proof();
                let is_proven = self.freshness().evidence().parts[part].is_proven_since(read.sent_at);
                let (closed, began_anew, order) = {
                    let closed = progress.borrow_and_update().closed;
                    let content = self.store.peek();
                    (closed, content.epoch_of(part) != epoch, content.rv_of(part).cmp(&read.revision))
                };
                match order {
                    _ if closed => return Err(Closed),
                    _ if began_anew => return Ok(false),
                    Ordering::Greater => return Ok(true),
                    Ordering::Equal if is_proven => return Ok(true),
                    _ => {}
                }
                tokio::select! {
                    biased;
                    changed = progress.changed() => changed.map_err(|_| Closed)?,
                    () = proven => {}
                }
            }
        };
        timeout_at(deadline, settled).await.unwrap_or(Ok(false))
    }

    /// Waits until a part of the content has reached `revision`, or is equal to a list with this digest. Returns whether it
    /// has reached `revision` by the deadline.
    pub(crate) async fn reach_part(
        &self,
        part: usize,
        revision: &ResourceVersion,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<bool, Closed> {
        let mut progress = self.store.progress();
        let has_reached = || self.store.peek().rv_of(part) >= revision;
        let settled = progress.wait_for(|progress| {
            progress.closed || has_reached() || self.has_digest(part, &self.store.peek(), digest)
        });
        match timeout_at(deadline, settled).await {
            Ok(Ok(progress)) if !progress.closed => Ok(has_reached()),
            Ok(_) => Err(Closed),
            Err(_) => Ok(false),
        }
    }

    /// Returns whether a part of this content has exactly the objects of a list with this digest.
    pub(crate) fn has_digest(&self, part: usize, content: &StoreContent, digest: &Digest) -> bool {
        if self.reflectors.len() == 1 {
            return content.digest == *digest;
        }
        let mut own = Digest::EMPTY;
        let objects =
            content.objects.iter().map(StoredObject::raw).filter(|object| content.is_of(part, object.key()));
        objects.for_each(|object| own.add(object.key(), object.uid(), object.resource_version()));
        own == *digest
    }
}

/// The approximate time that an API server takes for each object of a list.
const LIST_TIME_PER_OBJECT: Duration = Duration::from_micros(20);

/// The minimum wait for a probe's revision: a healthy stream brings it with the probe.
const MIN_CATCH_UP_TIMEOUT: Duration = Duration::from_millis(50);

/// A consistent read: the server had no newer revision than `revision` when it was sent.
struct ConsistentRead {
    sent_at: Instant,
    revision: ResourceVersion,
}

//! Audits: comparisons of the store with the server. A lost event heals even if its cause is unknown.
//!
//! An audit lists the metadata of all objects by a consistent read, waits until the store has reached the list's revision,
//! and compares keys, uids and resource versions (`compare` says how this avoids false alarms while events flow). A
//! difference makes the content stale until a relist has healed it; handlers receive it like any gap.

mod compare;
pub(crate) mod report;

use std::time::Duration;

use skopos_reflect::{Form, Target};
use skopos_wire::{ObjectKey, RawObject, ResourceVersion};
use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout_at};

use self::compare::Comparison;
pub use self::compare::{Difference, DifferenceKind};
pub use self::report::{AuditReport, NotCompared};
use crate::error::{AuditError, LiveError};
use crate::informer::{Informer, InformerInner};
use crate::read::live::Collect;
use crate::store::object::StoredObject;
use crate::store::{Closed, Digest, StoreContent};
use crate::sync::deadline;

impl<K> Informer<K> {
    /// Compares the content with the server's, within `limit`. If anything differs, it is counted, the content is stale,
    /// and everything is listed again. Concurrent audits of one informer run one after the other.
    ///
    /// Each namespace of a set is compared separately, a few at a time; the report names those that could not be.
    ///
    /// # Errors
    /// If no namespace could be compared; nothing is known of the content then.
    pub async fn audit(&self, limit: Duration) -> Result<AuditReport, AuditError> {
        let parts: Vec<usize> = (0..self.shared.reflectors.len()).collect();
        let deadline = deadline::after(limit);
        let audit = async {
            AuditPermit::acquire(&self.shared, deadline).await?.audit_and_heal(&parts, deadline).await
        };
        self.shared.stop.run_until_cancelled(audit).await.unwrap_or(Err(Closed.into()))
    }
}

impl<K> Informer<K> {
    /// Checks the content against a version of an object that the server has shown elsewhere, such as in the answer to a
    /// write. Returns whether a change was lost: the content is past that version and has an older object. Such a
    /// difference counts like an audit's: the content is stale until everything was listed again. A missing object may have
    /// been deleted, and is no difference.
    pub fn check(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let shared = &self.shared;
        let Some(part) = shared.part_of(key) else { return false };
        let content = shared.store.current();
        let is_older = |object: &StoredObject| object.raw().resource_version() < version;
        let lost = content.rv_of(part) > version && content.objects.get(key).is_some_and(is_older);
        // An object that could not be read is known to be older, and reported as such.
        if lost && !shared.reflectors[part].quarantine.unreadable().keys.contains(key) {
            tracing::warn!(resource = %shared.resource, %key, %version, "a change was lost: listing again");
            shared.audits.lock().mismatches += 1;
            mark_different(shared, part, 1);
        }
        lost
    }
}

/// Makes a part of the content stale until it was listed again.
fn mark_different(shared: &InformerInner, part: usize, differences: usize) {
    let now = Instant::now();
    shared.freshness().update(part, |part| part.audit = Some((now, differences)));
    shared.reflectors[part].handle.relist();
}

/// The permit to audit an informer: only one caller at a time has it.
pub(crate) struct AuditPermit<'a> {
    shared: &'a InformerInner,
    _lock: MutexGuard<'a, ()>,
}

impl<'a> AuditPermit<'a> {
    /// Waits while another audit is running.
    pub(crate) async fn acquire(shared: &'a InformerInner, deadline: Instant) -> Result<Self, AuditError> {
        let lock = timeout_at(deadline, shared.auditing.lock()).await.map_err(|_| AuditError::Busy)?;
        Ok(Self { shared, _lock: lock })
    }

    /// Audits these parts of the content, counts the result, and starts the relist that heals a difference.
    pub(crate) async fn audit_and_heal(
        self,
        parts: &[usize],
        deadline: Instant,
    ) -> Result<AuditReport, AuditError> {
        let shared = self.shared;
        let result = audit(shared, parts, deadline).await;
        let mut stats = shared.audits.lock();
        match &result {
            Ok(report) => {
                stats.completed += 1;
                stats.mismatches += u64::from(!report.is_clean());
                stats.last = Some(report.clone());
                tracing::debug!(%report, "audited");
            }
            Err(error) => {
                stats.failed += 1;
                tracing::debug!(resource = %shared.resource, %error, "an audit could not be made");
            }
        }
        result
    }
}

async fn audit(
    shared: &InformerInner,
    parts: &[usize],
    deadline: Instant,
) -> Result<AuditReport, AuditError> {
    let began = Instant::now();
    let lists = Semaphore::new(MAX_CONCURRENT_LISTS);
    let audits = parts.iter().map(|part| audit_part(shared, *part, &lists, deadline));
    let (mut compared, mut not_compared) = (Vec::new(), Vec::new());
    for (part, found) in parts.iter().zip(futures::future::join_all(audits).await) {
        match found {
            Ok(found) => compared.push(found),
            Err(error) => {
                let namespace = shared.reflectors[*part].target.namespace.clone();
                not_compared.push(NotCompared::new(namespace, error));
            }
        }
    }
    if let (true, Some(first)) = (compared.is_empty(), not_compared.first()) {
        return Err(first.error.clone());
    }
    not_compared.extend(parts_not_audited(shared, parts));
    let mut report = AuditReport {
        resource: shared.resource.clone(),
        began,
        took: began.elapsed(),
        resource_version: compared
            .iter()
            .map(|part| &part.revision)
            .min()
            .cloned()
            .unwrap_or(ResourceVersion::ZERO),
        listed: compared.iter().map(|part| part.listed).sum(),
        digest: Digest::EMPTY,
        differences: compared.iter().map(|part| part.differences).sum(),
        examples: Vec::new(),
        complete: not_compared.is_empty() && compared.iter().all(|part| part.complete),
        not_compared,
    };
    for part in compared {
        report.digest.merge(part.digest);
        report.examples.extend(part.examples);
    }
    Ok(report)
}

/// The maximum number of namespaces of a set that are listed concurrently: a server does not serve hundreds of lists at
/// once to one client.
const MAX_CONCURRENT_LISTS: usize = 8;

/// Returns the parts that an audit of these parts does not compare.
fn parts_not_audited(shared: &InformerInner, parts: &[usize]) -> impl Iterator<Item = NotCompared> {
    let evidence = shared.freshness().evidence();
    let others = shared.reflectors.iter().enumerate().filter(|(part, _)| !parts.contains(part));
    others.map(move |(part, reflector)| {
        let condition = evidence.parts[part].reflector.condition.clone();
        NotCompared::new(reflector.target.namespace.clone(), AuditError::LeftOut { condition })
    })
}

/// The result of the audit of one list/watch.
struct PartReport {
    revision: ResourceVersion,
    listed: usize,
    digest: Digest,
    differences: usize,
    examples: Vec<Difference>,
    complete: bool,
}

async fn audit_part(
    shared: &InformerInner,
    part: usize,
    lists: &Semaphore,
    deadline: Instant,
) -> Result<PartReport, AuditError> {
    let reflector = &shared.reflectors[part];
    if !shared.freshness().evidence().parts[part].synced {
        let namespace = &reflector.target.namespace;
        let who = shared.unsynced().into_iter().find(|who| who.namespace == *namespace);
        return Err(AuditError::NotSynced { reason: who.map(|who| who.to_string()).unwrap_or_default() });
    }
    let listing = acquire_list_permit(lists, deadline).await?;
    let unreadable = reflector.quarantine.unreadable();
    let before = shared.store.current();
    let sent_at = Instant::now();
    let target = Target { form: Form::MetadataOnly, ..reflector.target.clone() };
    let mut list =
        ListComparison { comparison: Comparison::new(before.rv_of(part).clone()), before: &before, part };
    let revision = shared.context.live.list(&target, deadline, &mut list).await?;
    drop(listing);
    // The list is as good as a probe; if it shows that history went back, the reflector must know.
    reflector.handle.probed(shared.context.freshness.clock.at(sent_at), revision.clone());
    if revision < *before.rv_of(part) {
        return Err(AuditError::WentBack { server: revision, content: before.rv_of(part).clone() });
    }
    let comparison = list.comparison;
    let compared = |after: &StoreContent, reached: bool| {
        let entries =
            after.objects.iter().map(StoredObject::raw).filter(|object| after.is_of(part, object.key()));
        comparison.differences(&revision, reached.then_some((after.rv_of(part), entries)))
    };
    let current = shared.store.current();
    let differs = !shared.has_digest(part, &current, &comparison.digest());
    if differs && *current.rv_of(part) < revision && unreadable.keys.is_empty() && unreadable.nameless == 0 {
        // The reflector may be waiting for this comparison; it need not wait for its end.
        reflector.handle.differs(revision.clone());
    }
    let until = deadline.min(Instant::now() + CATCH_UP_TIMEOUT);
    let mut reached = shared.reach_part(part, &revision, &comparison.digest(), until).await?;
    let mut after = shared.store.current();
    let same = shared.has_digest(part, &after, &comparison.digest());
    if same {
        let now = Instant::now();
        let clock = &shared.context.freshness.clock;
        reflector.handle.compared(clock.at(sent_at), clock.at(now), revision.clone());
    }
    let mut found = compared(&after, reached);
    if found.count() > 0 && reached && *after.rv_of(part) == revision {
        reached = has_received_revision(shared, part, deadline).await;
        after = shared.store.current();
        found = compared(&after, reached);
    }
    if after.epoch_of(part) != before.epoch_of(part) {
        return Err(AuditError::Replaced);
    }
    let known = found.are_known(&unreadable.or(reflector.quarantine.unreadable()));
    // Content that is equal by now lacks nothing, whatever it lacked before.
    let differences = if known || same { 0 } else { found.count() };
    if known && found.count() > 0 {
        // The audit could read them.
        reflector.handle.retry_now();
    }
    if differences > 0 {
        tracing::warn!(target = %reflector.target, differences, examples = ?found.examples, "an audit found differences: listing again");
        mark_different(shared, part, differences);
    } else if (reached || same) && shared.store.peek().is_restored(part) {
        // The restored content matches the server's: each object that has not changed since is the same.
        shared.freshness().prove(part, sent_at);
        shared.store.confirm(part);
    }
    Ok(PartReport {
        revision,
        listed: found.listed,
        digest: found.digest,
        differences,
        examples: if differences > 0 { found.examples } else { Vec::new() },
        complete: reached || same,
    })
}

/// Waits for a permit to list.
async fn acquire_list_permit(lists: &Semaphore, deadline: Instant) -> Result<SemaphorePermit<'_>, LiveError> {
    let begun = Instant::now();
    let permit = timeout_at(deadline, lists.acquire()).await.ok().and_then(Result::ok);
    permit.ok_or_else(|| LiveError::Deadline { waited: begun.elapsed() })
}

/// The time that the store may take to reach the list's revision, or to become equal to the list. A watch learns of
/// revisions that do not concern it only by bookmarks, or when a probe makes the reflector verify itself.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(25);

/// Waits for the last of several changes that share a revision, which may be in flight. Returns whether the stream stayed
/// open meanwhile, and so has delivered them; a stream that ended leaves them to the next one.
async fn has_received_revision(shared: &InformerInner, part: usize, deadline: Instant) -> bool {
    let now = shared.context.freshness.clock.at(Instant::now());
    let in_time = timeout_at(deadline, sleep(IN_FLIGHT_DELAY)).await.is_ok();
    let reflector = &shared.freshness().evidence().parts[part].reflector;
    in_time && reflector.condition.is_watching() && reflector.since <= now
}

/// The time within which a healthy server certainly sends the second of two changes of one revision after the first.
const IN_FLIGHT_DELAY: Duration = Duration::from_secs(1);

/// A list that is compared while it arrives.
struct ListComparison<'a> {
    comparison: Comparison,
    before: &'a StoreContent,
    part: usize,
}

impl Collect for ListComparison<'_> {
    fn add(&mut self, object: RawObject) {
        self.comparison.listed(&object, self.before.objects.get(object.key()).map(StoredObject::raw));
    }

    fn restart(&mut self) {
        self.comparison = Comparison::new(self.before.rv_of(self.part).clone());
    }
}

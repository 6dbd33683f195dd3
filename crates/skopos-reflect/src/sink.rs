use skopos_wire::{ObjectKey, RawObject, ResourceVersion, WatchEvent};

use crate::{ReflectorState, Time};

/// The destination of a list/watch reflector: a store.
///
/// # Order of calls
///
/// ```text
///             ┌── a list flows in ───────────────────────────────┐
///  state* ──▶ begin_replace  (stage | unstage | stage_unreadable)*  ──▶ commit_replace ──▶ fresh_as_of ─┐
///                   ▲                                        └──▶ abort_replace ──┐                     │
///                   └─────────────────────────────────────────────────────────────┘                     ▼
///                   ▲                              (apply | advance | fresh_as_of)*  while the watch is open
///                   └─────────────────────────────────────────────┘  a relist
/// ```
///
/// `state` and `fresh_as_of` may come at any time, even between `begin_replace` and `commit_replace`. `apply` and `advance`
/// never come there: while a list is being staged, no watch is applied. A reflector that resumes from a checkpoint
/// ([`Resume`](crate::Resume)) begins with `apply`, without a replace.
///
/// # What the calls promise
///
/// * RVs never go back inside an epoch: the `resource_version` of `commit_replace`, `apply` and `advance` never
///   decreases until a `commit_replace` carries a higher `epoch`.
/// * After each `commit_replace`, `apply` and `advance` the content is exactly the server's at that RV (of the objects
///   that could be read: see [`stage_unreadable`](Sink::stage_unreadable) and [`Condition::Degraded`](crate::Condition)).
///   So the content after each call may be made visible to readers, and nothing between two calls may be.
/// * The changes of one `apply` are in the order of the server's log, with non-decreasing RVs, and none of them was
///   delivered before.
///
/// # What the implementation promises
///
/// It must not block or wait: the socket is not read while a call runs. Slow receivers get queues of their own. Calls come
/// from one task at a time.
pub trait Sink: Send {
    /// Starts staging a list. The content that readers see stays as it is until [`commit_replace`](Sink::commit_replace).
    ///
    /// Never called twice without a `commit_replace` or `abort_replace` between.
    fn begin_replace(&mut self);

    /// Stages an object of the list, item by item as it is split from the stream. Usually each key comes once. When it
    /// comes again (a page requested twice, a change during a streamed list), the later one replaces the earlier.
    fn stage(&mut self, object: RawObject);

    /// Removes a staged object that was deleted while the list was streaming in. The key may not have been staged.
    fn unstage(&mut self, key: &ObjectKey);

    /// Reports that the list has an object of this key that cannot be decoded. Keep the object that readers see now, if
    /// there is one: it exists, only its current state is unknown.
    fn stage_unreadable(&mut self, key: &ObjectKey);

    /// Completes the list: make it visible at once, as one step.
    fn commit_replace(&mut self, commit: Commit);

    /// Discards the staged list: it will not be completed. The content that readers see stays as it is.
    fn abort_replace(&mut self);

    /// Applies one batch of changes: all the complete frames of one chunk from the network. After it, the content is
    /// the server's at `resource_version`. Where several changes bear this RV, some of them may come with the next
    /// batch, at the same RV. Take the changes out (`drain(..)`); the caller drops the rest and reuses the vector.
    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion);

    /// Moves the content to `resource_version` without a change (a bookmark). Changes that bear this RV may still be on
    /// their way.
    fn advance(&mut self, resource_version: &ResourceVersion);

    /// Reports a proof: the content holds every change that the server had committed by `at`. Never decreases inside an
    /// epoch, except by [`fresh_only_as_of`](Sink::fresh_only_as_of).
    ///
    /// The age of the content at time `t` is then at most `t - at`. Nothing else proves an age (I10): neither a live
    /// connection nor a bookmark excludes a server that lags behind.
    fn fresh_as_of(&mut self, at: Time);

    /// Takes a proof back, before the [`apply`](Sink::apply) that invalidates it: for the content that follows only
    /// `at` is proven, or nothing.
    ///
    /// A comparison with a list ([`compare`](Sink::compare)) proves content at an RV that is lower than the list's. Late
    /// changes between the two RVs make content that the server had *before* the comparison. Make the lower proof visible
    /// before the content: a reader that reads the proof before and after the content then never claims too young an age.
    fn fresh_only_as_of(&mut self, at: Option<Time>);

    /// Receives an event of the next [`apply`](Sink::apply), as the server sent it. It is for sinks that need to know
    /// whether the server sent `ADDED` or `MODIFIED`; the default does nothing.
    fn event(&mut self, _event: &WatchEvent) {}

    /// Reports that a change of this key could not be decoded and is skipped: the store's version of it is older than
    /// `resource_version`. The reflector's condition reports it too; the default does nothing more.
    fn skipped(&mut self, _key: &ObjectKey, _resource_version: &ResourceVersion) {}

    /// Reports that the server does not stream lists ([`InitialList::Streamed`](crate::InitialList)): it refused one,
    /// or one did not end. Called once at most; the default does nothing. Other reflectors to the same collection can skip
    /// the attempt with [`InitialList::Paged`](crate::InitialList).
    fn watch_list_unsupported(&mut self) {}

    /// Compares the content with a consistent list of metadata, soon. The server sends no bookmarks, so nothing else proves the
    /// age while nothing happens. If both are the same, call [`DriverHandle::compared`](crate::DriverHandle::compared); if they
    /// differ, request a [relist](crate::DriverHandle::relist). Returns whether it will be done; the default returns false.
    fn compare(&mut self) -> bool {
        false
    }

    /// Reports the reflector state. Called when the condition, the number of attempts or the reason has changed.
    fn state(&mut self, state: &ReflectorState);
}

/// One change of an object, as the watch delivered it.
#[derive(Clone, Debug)]
pub enum Change {
    /// The object was created or changed, or now matches the selectors. The store tells additions from updates, because
    /// it knows its content.
    Put(RawObject),
    /// The object was deleted, or no longer matches the selectors. Carries its last state, with the RV of the deletion.
    Deleted(RawObject),
    /// The object was deleted, and its last state is unknown: the deletion could not be decoded, and a live read found
    /// that the object is gone.
    Gone {
        /// The object.
        key: ObjectKey,
        /// The RV of the deletion.
        resource_version: ResourceVersion,
    },
}

/// The end of a list.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The RV of the whole list.
    pub resource_version: ResourceVersion,
    /// The number of the stretch of unbroken history, counted from 0. If it rises, the server's history was broken (an
    /// etcd restore): earlier RVs have lost their meaning, and this one may be lower.
    pub epoch: u64,
    /// True if there was content before, so that the changes between it and this list are unknown. Notifications to
    /// handlers because of this list must be marked as a gap.
    pub gap: bool,
    /// The cause of the list.
    pub cause: ReplaceCause,
    /// The time at which the list was requested: it contains everything that the server had by then.
    pub asked_at: Time,
    /// The number of objects in the list that can be neither decoded nor named. If it is not 0, the absence of a key
    /// from the list proves nothing, and objects that were not staged must be kept.
    pub nameless: usize,
}

/// The cause for which a list replaces the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplaceCause {
    /// The first list.
    Initial,
    /// The server no longer has the history from our RV on (410).
    Expired,
    /// The server keeps answering that our RV lies in its future, and so do servers that have had the time to catch up.
    TooLargeResourceVersion,
    /// Two consistent reads agree that the server's RV is lower than ours: its history was rolled back.
    Rollback,
    /// The stream is silent, and nothing proves that there are no changes.
    Unproven,
    /// A change that cannot be decoded, and that cannot be repaired by reading one object.
    Undecodable,
    /// The server cannot read one of its own objects, and ended the watch for it (`StorageReadError`).
    ServerReadError,
    /// A request: from an audit that found a difference, or from an operator.
    Requested,
}

impl Change {
    /// Returns the key of the object that changed.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Change::Put(object) | Change::Deleted(object) => object.key(),
            Change::Gone { key, .. } => key,
        }
    }
}

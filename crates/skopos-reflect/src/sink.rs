use skopos_wire::{ObjectKey, RawObject, ResourceVersion, WatchEvent};

use crate::{LinkState, Time};

/// Where a list/watch link writes what it learns: a store.
///
/// # Order of calls
///
/// ```text
///             ┌── a list flows in ───────────────────────────────┐
///  state* ──▶ begin_replace  (stage | unstage | stage_unreadable)*  ──▶ commit_replace ──▶ fresh_as_of ─┐
///                   ▲                                        └──▶ abort_replace ──┐                     │
///                   └─────────────────────────────────────────────────────────────┘                     ▼
///                   ▲                              (apply | advance | fresh_as_of)*  while the watch stands
///                   └─────────────────────────────────────────────┘  a relist
/// ```
///
/// `state` and `fresh_as_of` may come at any moment, also between `begin_replace` and `commit_replace`. `apply` and
/// `advance` never come there: while a list is being staged, no watch is applied. A link that resumes from a checkpoint
/// ([`Resume`](crate::Resume)) begins with `apply`, without a replace.
///
/// # What the calls promise
///
/// * RVs never go back inside an epoch: the `resource_version` of `commit_replace`, `apply` and `advance` never
///   decreases until a `commit_replace` carries a higher `epoch`.
/// * After each `commit_replace`, `apply` and `advance` the content is exactly the server's at that RV (of the objects
///   that could be read: see [`stage_unreadable`](Sink::stage_unreadable) and [`Condition::Degraded`](crate::Condition)).
///   So one call is one thing that readers may see, and nothing between two calls is.
/// * The changes of one `apply` are in the order of the server's log, with non-decreasing RVs, and none of them was
///   delivered before.
///
/// # What the implementation promises
///
/// Never to block and never to wait: the socket is not read while a call runs. Slow receivers get queues of their own.
/// Calls come from one task at a time.
pub trait Sink: Send {
    /// A list starts to flow in. What readers see stays as it is until [`commit_replace`](Sink::commit_replace).
    ///
    /// Never called twice without a `commit_replace` or `abort_replace` between.
    fn begin_replace(&mut self);

    /// An object of the list, item by item as it is split from the stream. Usually each key comes once; when it comes
    /// again (a page asked for a second time, a change during a streamed list), the later one replaces the earlier.
    fn stage(&mut self, object: RawObject);

    /// An object that was staged, or could have been, was deleted while the list was streaming in.
    fn unstage(&mut self, key: &ObjectKey);

    /// The list has an object of this key that cannot be decoded. Keep the object that readers see now, if there is one:
    /// it exists, only its present state is unknown.
    fn stage_unreadable(&mut self, key: &ObjectKey);

    /// The list is complete: make it visible at once, as one step.
    fn commit_replace(&mut self, commit: Commit);

    /// The list will not be completed: forget what was staged. What readers see stays as it is.
    fn abort_replace(&mut self);

    /// One batch of changes: all the complete frames of one chunk from the network. After it, the content is the server's
    /// at `resource_version`; but where several changes bear this RV, some of them may come with the next batch, at the same
    /// RV. Take the changes out (`drain(..)`); what is left in the vector is dropped by the caller,
    /// which uses the vector again.
    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion);

    /// Nothing changed up to `resource_version` (a bookmark): the content is the server's at that RV too, but for changes that
    /// bear this RV and are still on their way.
    fn advance(&mut self, resource_version: &ResourceVersion);

    /// Proven: the content holds every change that the server had committed by `at`. Never decreases inside an epoch, except by
    /// [`fresh_only_as_of`](Sink::fresh_only_as_of).
    ///
    /// The age of the content at time `t` is then at most `t - at`. Nothing else proves an age (I10): neither a live
    /// connection nor a bookmark says anything about a server that lags behind.
    fn fresh_as_of(&mut self, at: Time);

    /// Takes a proof back, before the [`apply`](Sink::apply) that makes it void: of the content that follows only `at` is proven,
    /// or nothing.
    ///
    /// A comparison with a list ([`compare`](Sink::compare)) proves content at an RV that is lower than the list's. Late changes
    /// between the two RVs make content that the server had *before* the comparison. Make the lower proof visible before the
    /// content: a reader that looks at the proof on both sides of the content then never claims too young an age.
    fn fresh_only_as_of(&mut self, at: Option<Time>);

    /// An event that is among the changes of the next [`apply`](Sink::apply), as the server sent it. For those who need to
    /// know whether the server said `ADDED` or `MODIFIED`; by default nothing is done with it.
    fn event(&mut self, _event: &WatchEvent) {}

    /// A change of this key could not be decoded and is passed over: what the store has of it is older than
    /// `resource_version`. The link's condition says so too; by default nothing more is done.
    fn passed_over(&mut self, _key: &ObjectKey, _resource_version: &ResourceVersion) {}

    /// The server has just shown that it streams no lists ([`InitialList::Streamed`](crate::InitialList)): it refused one, or
    /// one did not end. Called once at most; by default nothing is done. Whoever has other links to the same collection can
    /// spare them the attempt with [`InitialList::Paged`](crate::InitialList).
    fn streams_no_lists(&mut self) {}

    /// Compares the content with a consistent list of metadata, soon. The server sends no bookmarks, so nothing but that proves
    /// the age while nothing happens. [`DriverHandle::compared`](crate::DriverHandle::compared) tells that both are the same; where they differ, ask for a
    /// [relist](crate::DriverHandle::relist). Returns whether it will be done; by default it is not.
    fn compare(&mut self) -> bool {
        false
    }

    /// How the link stands. Called when the condition, the number of attempts or the reason has changed.
    fn state(&mut self, state: &LinkState);
}

/// One change of an object, as the watch delivered it.
#[derive(Clone, Debug)]
pub enum Change {
    /// The object was created or changed, or came into the selectors' reach. Whether it is an addition or an update is
    /// for the store to say, which knows what it had.
    Put(RawObject),
    /// The object was deleted, or left the selectors' reach. Carries its last state, with the RV of the deletion.
    Deleted(RawObject),
    /// The object was deleted, and its last state is unknown: the deletion could not be decoded, and a live read said
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
    /// The RV that the whole list belongs to.
    pub resource_version: ResourceVersion,
    /// The stretch of unbroken history, counted from 0. A higher one than before: the server's history was broken (an
    /// etcd restore), RVs of before mean nothing now, and this one may be lower.
    pub epoch: u64,
    /// Whether there was content before, so that the changes between it and this list are unknown. What handlers are
    /// told because of this list is to be marked as a gap.
    pub gap: bool,
    /// Why the list was made.
    pub cause: ReplaceCause,
    /// When it was asked for: everything that the server had by then is in it.
    pub asked_at: Time,
    /// How many objects of the list can be neither decoded nor named. If it is not 0, the absence of a key from the
    /// list proves nothing, and objects that were not staged have to be kept.
    pub nameless: usize,
}

/// Why a list replaces the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplaceCause {
    /// The first list.
    Initial,
    /// The server no longer has the history from our RV on (410).
    Expired,
    /// The server keeps saying that our RV lies in its future, and so do servers that have had the time to catch up.
    TooLargeResourceVersion,
    /// Two consistent reads agree that the server's RV is lower than ours: its history was rolled back.
    Rollback,
    /// The stream says nothing, and nothing proves that there is nothing to say.
    Unproven,
    /// A change that cannot be decoded, and that cannot be repaired by reading one object.
    Undecodable,
    /// The server cannot read one of its own objects, and ended the watch for it (`StorageReadError`).
    ServerReadError,
    /// Somebody asked: an audit that found a difference, an operator.
    Requested,
}

impl Change {
    /// The key of the object that changed.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Change::Put(object) | Change::Deleted(object) => object.key(),
            Change::Gone { key, .. } => key,
        }
    }
}

//! The changes that a list makes, in an order and with RVs in which they can be sent one by one.
//!
//! A list at RV `L` that replaces content at RV `h` shows the differences, and not when each came about. A watch that
//! receives the differences needs RVs for them all the same: it resumes from them.
//!
//! * A new version has its own RV, which lies between `h` and `L`.
//! * A deletion is certain at `L` only, so it comes as late as possible: after all changes with an earlier RV, and
//!   at `L − 1` unless it is the last. Only if another object has taken the name, more is known: the deletion came before
//!   that.
//! * Every change but the last lies strictly between `h` and `L`, where no watch can start. So a watch that is cut off
//!   between two of them cannot resume as if it had received all.
//!
//! Everything else contradicts earlier changes, or the order of RVs: an object that differs although neither it nor the
//! list is newer, one with other content at the same RV, more than one change between two neighbouring RVs. Such a list
//! cannot be sent as changes.

use skopos_wire::ResourceVersion;

use super::change::ChangeRecord;
use crate::store::object::StoredObject;

/// An object before and after a list.
pub(crate) struct ListDifference {
    pub(crate) old: Option<StoredObject>,
    pub(crate) new: Option<StoredObject>,
}

/// A list that has replaced the content.
pub(crate) struct ListReplacement {
    /// The previous RV of the content; `None` if there was none.
    pub(crate) before: Option<ResourceVersion>,
    /// The RV of the list.
    pub(crate) now: ResourceVersion,
    /// True if both belong to the same history.
    pub(crate) same_epoch: bool,
    /// The differences that the list made; `None` if there were too many to store.
    pub(crate) differences: Option<Vec<ListDifference>>,
}

/// Returns the differences between the content at `after` and at `until` as records, in an order and with RVs in which they
/// can be sent. `None` if there is no such order.
pub(super) fn records(
    differences: Vec<ListDifference>,
    after: &ResourceVersion,
    until: &ResourceVersion,
) -> Option<Vec<ChangeRecord>> {
    if differences.is_empty() {
        return Some(Vec::new());
    }
    let (after, until) = (after.as_u64()?, until.as_u64()?);
    if until <= after {
        return None;
    }
    let mut records = Vec::with_capacity(differences.len() + 1);
    let mut gone = Vec::new();
    for ListDifference { old, new } in differences {
        let Some(new) = new else {
            gone.extend(old);
            continue;
        };
        let own = new.rv().as_u64()?;
        match old {
            Some(old) if old.uid() != new.uid() => {
                records.push(ChangeRecord::deleted(old, None, own.checked_sub(1)?.into()));
                records.push(ChangeRecord::put(None, new));
            }
            old => records.push(ChangeRecord::put(old, new)),
        }
    }
    records.sort_by(|a, b| a.resource_version.cmp(&b.resource_version));
    let at_the_end = records.partition_point(|record| record.resource_version < until.into());
    let gone = gone.into_iter().map(|old| ChangeRecord::deleted(old, None, (until - 1).into()));
    records.splice(at_the_end..at_the_end, gone.collect::<Vec<_>>());
    let last = records.last_mut()?;
    if last.new.is_none() {
        last.resource_version = until.into();
    }
    let (after, until) = (ResourceVersion::from(after), ResourceVersion::from(until));
    let (last, inside) = records.split_last()?;
    let fits = last.resource_version > after
        && last.resource_version <= until
        && inside.iter().all(|record| record.resource_version > after && record.resource_version < until);
    fits.then(|| records.into_iter().map(ChangeRecord::in_gap).collect())
}

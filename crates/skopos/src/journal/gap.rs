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

use super::change::Record;
use crate::object::Entry;

/// An object before and after a list.
pub(crate) struct Difference {
    pub(crate) old: Option<Entry>,
    pub(crate) new: Option<Entry>,
}

/// A list that has replaced the content.
pub(crate) struct Listed {
    /// The previous RV of the content; `None` if there was none.
    pub(crate) before: Option<ResourceVersion>,
    /// The RV of the list.
    pub(crate) now: ResourceVersion,
    /// True if both belong to the same history.
    pub(crate) same_epoch: bool,
    /// The differences that the list made; `None` if there were too many to store.
    pub(crate) differences: Option<Vec<Difference>>,
}

/// Returns the differences between the content at `after` and at `until` as records, in an order and with RVs in which they
/// can be sent. `None` if there is no such order.
pub(super) fn tell(
    differences: Vec<Difference>,
    after: &ResourceVersion,
    until: &ResourceVersion,
) -> Option<Vec<Record>> {
    if differences.is_empty() {
        return Some(Vec::new());
    }
    let (after, until) = (after.as_u64()?, until.as_u64()?);
    if until <= after {
        return None;
    }
    let mut told = Vec::with_capacity(differences.len() + 1);
    let mut gone = Vec::new();
    for Difference { old, new } in differences {
        let Some(new) = new else {
            gone.extend(old);
            continue;
        };
        let own = new.rv().as_u64()?;
        match old {
            Some(old) if old.uid() != new.uid() => {
                told.push(Record::deleted(old, None, own.checked_sub(1)?.into()));
                told.push(Record::put(None, new));
            }
            old => told.push(Record::put(old, new)),
        }
    }
    told.sort_by(|a, b| a.resource_version.cmp(&b.resource_version));
    let at_the_end = told.partition_point(|record| record.resource_version < until.into());
    let gone = gone.into_iter().map(|old| Record::deleted(old, None, (until - 1).into()));
    told.splice(at_the_end..at_the_end, gone.collect::<Vec<_>>());
    let last = told.last_mut()?;
    if last.new.is_none() {
        last.resource_version = until.into();
    }
    let (after, until) = (ResourceVersion::from(after), ResourceVersion::from(until));
    let (last, inside) = told.split_last()?;
    let fits = last.resource_version > after
        && last.resource_version <= until
        && inside.iter().all(|record| record.resource_version > after && record.resource_version < until);
    fits.then(|| told.into_iter().map(Record::in_gap).collect())
}

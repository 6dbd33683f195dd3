//! What a list has changed, as changes that can be told one by one.
//!
//! A list at RV `L` that replaces content at RV `h` says what is different, and not when each difference came about. A
//! watch that is told of the differences needs RVs for them all the same: it counts on them when it comes back.
//!
//! * A new version has its own RV, which lies between `h` and `L`.
//! * A deletion is certain at `L` only, so it comes as late as it can: after all that has an earlier RV, and at `L − 1` unless
//!   it is the last. Only where another object has taken the name is more known: the deletion came before that.
//! * Every change but the last lies strictly between `h` and `L`, where nobody can start. So whoever is cut off between two
//!   of them cannot come back as if he had been told all.
//!
//! Whatever does not fit into that contradicts what was told before, or the order of RVs: an object that differs although
//! neither it nor the list is newer, one that has another content at the RV that it had, more than one change between two
//! neighbouring RVs. It cannot be told.

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
    /// Where the content stood; `None` if there was none.
    pub(crate) before: Option<ResourceVersion>,
    /// Where it stands.
    pub(crate) now: ResourceVersion,
    /// Whether it is of the same history.
    pub(crate) same_epoch: bool,
    /// What the list changed; `None` if that was too much to remember.
    pub(crate) differences: Option<Vec<Difference>>,
}

/// The differences between the content at `after` and at `until`, in an order and with RVs in which they can be told.
/// `None` if there is none.
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

//! The fence of a zone: a record that decides whose writes the server accepts.
//!
//! ```text
//!  OWNER._skopos-fence.ZONE  TXT  "heritage=skopos,v=1,owner=…,lease=UID,term=42,by=…"
//! ```
//!
//! A leader takes over by one atomic message: if the record is still as it was read, it becomes the leader's own. Each write then
//! has the prerequisite that the record is the leader's. So the server always refuses a write of an earlier leader, such as one
//! that was paused or whose message was late.
//!
//! * Terms are compared within one Lease only. A Lease that was deleted counts from the beginning, so a fence of another Lease is taken over:
//!   otherwise the zone would be locked. That is safe because a sink takes over *once* in a term, and never takes back what it has lost. The
//!   earlier leader's own take-over compares with what it read, and between reading and sending its term is checked.
//! * `by` differs for each sink in each process: two terms with the same number, after the Lease was restored from a backup, are
//!   not the same.
//! * A writer without an election (`--once`, `release`) takes nothing over. It writes while the fence is as it was at its first
//!   write. So it works beside a leader, and a notifier without an election ends when one with an election begins.

use parking_lot::Mutex;

use super::records::FENCE;
use crate::sink::Fence;

/// State of the fence in one sink.
pub(super) struct FenceHolder {
    /// The name of the record.
    pub(super) at: String,
    owner: String,
    by: String,
    standing: Mutex<Standing>,
}

/// Relation of this sink to the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not written.
    Unclaimed,
    /// It writes while the record has this text on this server.
    Held {
        /// The term; `None` without an election.
        fence: Option<Fence>,
        /// The index of the server.
        server: usize,
        /// The record's text; `None`: there is none.
        text: Option<String>,
    },
    /// Another process has taken over in this term.
    Lost { fence: Fence, problem: String },
}

/// A fence, parsed from a record.
#[derive(Debug, PartialEq, Eq)]
struct FenceRecord<'a> {
    lease: &'a str,
    term: u64,
}

/// Consequence of a fence that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is ours.
    Ours,
    /// It is compared and set.
    TakeOver,
    /// A later term has it.
    Fenced(String),
}

impl FenceHolder {
    pub(super) fn new(zone: &str, owner: &str) -> Self {
        // A label has no dots. Owners that differ only in dots share a fence, and the owner in the record distinguishes them.
        let plain =
            |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
        let label: String = owner.chars().map(plain).collect();
        Self {
            at: format!("{label}.{FENCE}.{zone}"),
            owner: owner.to_owned(),
            by: format!("{:016x}", fastrand::u64(..)),
            standing: Mutex::new(Standing::Unclaimed),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    pub(super) fn set(&self, standing: Standing) {
        *self.standing.lock() = standing;
    }

    /// Returns the record of this sink in a term.
    pub(super) fn text(&self, fence: &Fence) -> String {
        let Self { owner, by, .. } = self;
        format!("heritage=skopos,v=1,owner={owner},lease={},term={},by={by}", fence.lease, fence.term)
    }

    /// Decides what a leader does with the record that it has read.
    ///
    /// # Errors
    /// When the record is not this owner's; the text says what to do.
    pub(super) fn judge(&self, ours: &Fence, found: Option<&str>) -> Result<Verdict, String> {
        let Some(text) = found else { return Ok(Verdict::TakeOver) };
        if text == self.text(ours) {
            return Ok(Verdict::Ours);
        }
        let found = self.parse(text).ok_or_else(|| self.foreign(text))?;
        match found.lease == &*ours.lease && found.term > ours.term {
            true => Ok(Verdict::Fenced(self.lost(ours, Some(text)))),
            false => Ok(Verdict::TakeOver),
        }
    }

    /// Returns the text that another process has taken over, and what to do.
    pub(super) fn lost(&self, ours: &Fence, found: Option<&str>) -> String {
        let Self { at, .. } = self;
        let Some(text) = found else {
            return format!(
                "the fence {at} was removed while term {} wrote: its Lease is given up, and the next term begins with a new fence",
                ours.term
            );
        };
        match self.parse(text) {
            Some(FenceRecord { lease, term }) if lease == &*ours.lease => format!(
                "fenced: term {term} writes the zone, and this process has term {}: it writes nothing more and gives its Lease up. If the Lease was restored from a backup, delete the record {at}",
                ours.term
            ),
            Some(FenceRecord { lease, .. }) => format!(
                "fenced: a leader by another Lease (uid {lease}) writes the zone as owner {:?}: this process writes nothing more and gives its Lease up. If two deployments write the zone, give each an `owner` of its own",
                self.owner
            ),
            None => self.foreign(text),
        }
    }

    /// Returns the text that a writer without an election writes nothing more, and what to do.
    pub(super) fn guest_lost(&self) -> String {
        format!(
            "fenced: a notifier with an election has begun to write the zone as owner {:?} ({}), and this one has no election: stop one of them, or give each an `owner` of its own; `skopos notify retry` writes on",
            self.owner, self.at
        )
    }

    fn foreign(&self, text: &str) -> String {
        format!(
            "the record {} is no fence of owner {:?} ({text:?}): choose another `owner`, or delete the record",
            self.at, self.owner
        )
    }

    fn parse<'a>(&self, text: &'a str) -> Option<FenceRecord<'a>> {
        let rest = text.strip_prefix("heritage=skopos,v=1,owner=")?.strip_prefix(self.owner.as_str())?;
        let (lease, rest) = rest.strip_prefix(",lease=")?.split_once(",term=")?;
        let (term, _) = rest.split_once(",by=")?;
        Some(FenceRecord { lease, term: term.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(lease: &str, term: u64) -> Fence {
        Fence { lease: lease.into(), term }
    }

    #[test]
    fn later_term_of_lease_is_not_overwritten() {
        let (old, new) = (FenceHolder::new("z.test", "us"), FenceHolder::new("z.test", "us"));
        assert_eq!(old.at, "us._skopos-fence.z.test");
        let (term_41, term_42) = (fence("uid", 41), fence("uid", 42));
        let record = new.text(&term_42);
        assert_eq!(new.judge(&term_42, Some(&record)), Ok(Verdict::Ours));
        assert!(
            matches!(old.judge(&term_41, Some(&record)), Ok(Verdict::Fenced(problem)) if problem.contains("term 42"))
        );
        assert_eq!(new.judge(&term_42, Some(&old.text(&term_41))), Ok(Verdict::TakeOver));
        assert_eq!(new.judge(&term_42, None), Ok(Verdict::TakeOver));
        // The same number from another process: the Lease was restored from a backup.
        assert_eq!(old.judge(&term_42, Some(&record)), Ok(Verdict::TakeOver));
    }

    #[test]
    fn terms_of_another_lease_are_not_compared() {
        let (old, new) = (FenceHolder::new("z.test", "us"), FenceHolder::new("z.test", "us"));
        assert_eq!(
            new.judge(&fence("second", 1), Some(&old.text(&fence("first", 42)))),
            Ok(Verdict::TakeOver)
        );
    }

    #[test]
    fn foreign_fence_record_is_left_alone() {
        let (ours, theirs) = (FenceHolder::new("z.test", "a/b"), FenceHolder::new("z.test", "a.b"));
        assert_eq!(ours.at, theirs.at);
        for text in [theirs.text(&fence("uid", 1)), "v=spf1".to_owned()] {
            let problem = ours.judge(&fence("uid", 2), Some(&text)).unwrap_err();
            assert!(problem.contains("choose another `owner`"), "{problem}");
        }
    }
}

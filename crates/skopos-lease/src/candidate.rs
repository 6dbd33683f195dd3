use std::sync::Arc;

use tokio::sync::watch;

use crate::term::{Term, TermShared};
use crate::{ElectionStopped, EndReason};

/// One of those who stand for a Lease: tells how it stands, and gives the terms. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Candidate {
    published: watch::Receiver<Published>,
    fit: Arc<watch::Sender<bool>>,
    shared: Arc<TermShared>,
}

/// How a candidate stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing is known of the Lease yet.
    Starting,
    /// Another one leads, or is about to.
    Standby {
        /// Who holds the Lease.
        holder: Option<String>,
    },
    /// For two durations nobody has led.
    NoLeader,
    /// This candidate leads.
    Leader {
        /// The number of its term. It rises with each term of any candidate, as long as the Lease is neither deleted nor restored from a backup
        /// (`leaseTransitions`).
        number: u64,
    },
    /// A term of this candidate has ended, and its work is about to.
    Ending {
        /// The number of the term.
        number: u64,
        /// Why.
        reason: EndReason,
    },
    /// The election has ended.
    Stopped,
}

/// What the driver tells of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) status: Status,
    /// The number of the term that work may begin in.
    pub(crate) term: Option<u64>,
    /// The UID of the Lease, if there is one.
    pub(crate) lease: Option<Arc<str>>,
    /// Why the last request failed, if it did.
    pub(crate) problem: Option<String>,
}

// === impl Candidate ===

impl Candidate {
    pub(crate) fn new(
        published: watch::Receiver<Published>,
        fit: Arc<watch::Sender<bool>>,
        shared: Arc<TermShared>,
    ) -> Self {
        Self { published, fit, shared }
    }

    /// How it stands now.
    pub fn status(&self) -> Status {
        self.published.borrow().status.clone()
    }

    /// Why the last request about the Lease failed, if it did: a right that is missing, a server that cannot be reached.
    pub fn problem(&self) -> Option<String> {
        self.published.borrow().problem.clone()
    }

    /// Waits until it stands otherwise than this clone has seen, and tells how. It waits for the next change without a bound of its own. Cancel safe.
    pub async fn changed(&mut self) -> Status {
        let before = self.published.borrow_and_update().status.clone();
        let changed = self.published.wait_for(|published| published.status != before).await;
        changed.map_or(Status::Stopped, |published| published.status.clone())
    }

    /// Waits for the present or next term of this candidate, without a bound: others may lead for ever. Cancel safe.
    ///
    /// # Errors
    /// When the election has ended.
    pub async fn term(&mut self) -> Result<Term, ElectionStopped> {
        loop {
            let published = self.published.borrow_and_update().clone();
            if published.status == Status::Stopped {
                return Err(ElectionStopped);
            }
            // One whose time is over is no term, also before the driver has noticed.
            let lease = published.lease.unwrap_or_default();
            let term = published.term.map(|number| Term::new(number, lease, self.shared.clone()));
            if let Some(term) = term.filter(|term| term.remaining().is_some()) {
                return Ok(term);
            }
            self.published.changed().await.map_err(|_| ElectionStopped)?;
        }
    }

    /// Says whether it can do its work. A leader that is unfit for [`LeaseOptions::unfit_limit`](crate::LeaseOptions::unfit_limit) steps down; an unfit
    /// candidate lets others go first, and leads only if there is no other.
    pub fn set_fit(&self, fit: bool) {
        self.fit.send_if_modified(|known| std::mem::replace(known, fit) != fit);
    }
}

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::ElectionStopped;
use crate::status::Status;
use crate::term::{Term, TermShared};

/// A candidate for a Lease, which reports its status and returns its terms. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Candidate {
    published: watch::Receiver<Published>,
    fit: Arc<watch::Sender<bool>>,
    shared: Arc<TermShared>,
}

/// The published state of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) status: Status,
    /// The number of the term in which work may begin.
    pub(crate) term: Option<u64>,
    /// The UID of the Lease, if there is one.
    pub(crate) lease: Option<Arc<str>>,
    /// The error of the last request, if it failed.
    pub(crate) problem: Option<String>,
}

impl Candidate {
    pub(crate) fn new(
        published: watch::Receiver<Published>,
        fit: Arc<watch::Sender<bool>>,
        shared: Arc<TermShared>,
    ) -> Self {
        Self { published, fit, shared }
    }

    /// Returns the current status.
    pub fn status(&self) -> Status {
        self.published.borrow().status.clone()
    }

    /// Returns the error of the last request about the Lease, if it failed: a missing right, an unreachable server.
    pub fn last_error(&self) -> Option<String> {
        self.published.borrow().problem.clone()
    }

    /// Waits until the status differs from the one this clone saw last, and returns it. It has no timeout of its own. Cancel
    /// safe.
    pub async fn changed(&mut self) -> Status {
        let before = self.published.borrow_and_update().status.clone();
        let changed = self.published.wait_for(|published| published.status != before).await;
        changed.map_or(Status::Stopped, |published| published.status.clone())
    }

    /// Waits for the current or next term of this candidate, without a timeout: others may lead for any time. Cancel safe.
    ///
    /// # Errors
    /// When the election has ended.
    pub async fn term(&mut self) -> Result<Term, ElectionStopped> {
        loop {
            let published = self.published.borrow_and_update().clone();
            if published.status == Status::Stopped {
                return Err(ElectionStopped);
            }
            // A term whose time is over is none, even before the driver has noticed.
            let lease = published.lease.unwrap_or_default();
            let term = published.term.map(|number| Term::new(number, lease, self.shared.clone()));
            if let Some(term) = term.filter(|term| term.remaining().is_some()) {
                return Ok(term);
            }
            self.published.changed().await.map_err(|_| ElectionStopped)?;
        }
    }

    /// Sets whether the candidate can do its work. A leader that is unfit for
    /// [`LeaseOptions::unfit_limit`](crate::LeaseOptions::unfit_limit) steps down. An unfit candidate gives way to others,
    /// and leads only if there is no other.
    pub fn set_fit(&self, fit: bool) {
        self.fit.send_if_modified(|known| std::mem::replace(known, fit) != fit);
    }
}

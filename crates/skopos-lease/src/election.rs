use std::sync::Arc;

use skopos_transport::{Transport, TransportOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::candidate::{Candidate, Published};
use crate::driver::Driver;
use crate::error::ElectionError;
use crate::lease_client::LeaseClient;
use crate::machine::Machine;
use crate::options::LeaseOptions;
use crate::status::Status;
use crate::term::TermShared;

/// A candidacy for a Lease, which runs until it is stopped.
///
/// # Example
/// ```no_run
/// # async fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use skopos_lease::{Election, LeaseOptions};
/// use tokio_util::sync::CancellationToken;
///
/// let election = Election::from_config(config, LeaseOptions::new("default", "the-one-that-acts"))?;
/// let (stop, mut candidate) = (CancellationToken::new(), election.candidate());
/// let act = async {
///     let Ok(term) = candidate.term().await else { return };
///     println!("leads in term {}, for {:?} without a renewal", term.number(), term.remaining());
///     // Releases the Lease and ends the election.
///     stop.cancel();
/// };
/// tokio::join!(election.run(stop.clone()), act);
/// # Ok(())
/// # }
/// ```
pub struct Election {
    driver: Driver,
    candidate: Candidate,
}

impl Election {
    /// Prepares to compete for a Lease, on separate connections: other requests of the process to the API server do not delay
    /// renewals.
    ///
    /// It needs the rights `get`, `watch`, `list`, `create` and `update` for `leases` of `coordination.k8s.io`.
    ///
    /// # Errors
    /// When the configuration or an option is invalid.
    pub fn from_config(config: kube::Config, options: LeaseOptions) -> Result<Self, ElectionError> {
        Self::with_transport(Transport::from_config(config, TransportOptions::default())?, options)
    }

    /// Prepares to compete for a Lease over this transport. A transport that other requests share may be slow when it
    /// matters.
    ///
    /// # Errors
    /// When an option is invalid.
    pub fn with_transport(transport: Transport, options: LeaseOptions) -> Result<Self, ElectionError> {
        let timing = options.timing()?;
        let LeaseOptions { namespace, name, identity, seed, clock, wall_clock, .. } = options;
        let machine = Machine::new(identity, timing, seed.unwrap_or_else(|| fastrand::u64(..)), clock.now());
        let published = watch::Sender::new(Published {
            status: Status::Starting,
            term: None,
            lease: None,
            problem: None,
        });
        let (fit, fit_seen) = watch::channel(true);
        let shared = Arc::new(TermShared::new(clock.clone()));
        let candidate = Candidate::new(published.subscribe(), Arc::new(fit), shared.clone());
        let client = LeaseClient { transport, namespace, name };
        Ok(Self {
            driver: Driver { machine, clock, wall_clock, client, published, fit: fit_seen, shared },
            candidate,
        })
    }

    /// Returns the candidate of this election.
    pub fn candidate(&self) -> Candidate {
        self.candidate.clone()
    }

    /// Competes for the Lease until `stop`. Work in [`Term::run`](crate::Term::run) is dropped then, and work in
    /// [`Term::finish`](crate::Term::finish) has until the end of the term. Then the Lease is released, with one attempt. So
    /// it ends within one duration.
    pub async fn run(self, stop: CancellationToken) {
        let Self { driver, candidate } = self;
        // The driver watches the fitness through a sender that must live.
        driver.run(stop).await;
        drop(candidate);
    }
}

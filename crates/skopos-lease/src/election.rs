use std::sync::Arc;

use skopos_transport::{Transport, TransportOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ElectionError;
use crate::candidate::{Candidate, Published, Status};
use crate::driver::Driver;
use crate::machine::Machine;
use crate::options::LeaseOptions;
use crate::requests::Requests;
use crate::term::TermShared;

/// A candidacy for a Lease, which runs until it is told to stop.
pub struct Election {
    driver: Driver,
    candidate: Candidate,
}

impl Election {
    /// Prepares to stand for a Lease, on connections of its own: whatever else the process asks of the API server does not delay renewals.
    ///
    /// It needs the rights `get`, `watch`, `list`, `create` and `update` for `leases` of `coordination.k8s.io`.
    ///
    /// # Errors
    /// When the configuration or an option cannot work.
    pub fn from_config(config: kube::Config, options: LeaseOptions) -> Result<Self, ElectionError> {
        Self::over(Transport::from_config(config, TransportOptions::default())?, options)
    }

    /// Prepares to stand for a Lease over this transport. One that is used for other things too may be slow when it counts.
    ///
    /// # Errors
    /// When an option cannot work.
    pub fn over(transport: Transport, options: LeaseOptions) -> Result<Self, ElectionError> {
        let timing = options.timing()?;
        let LeaseOptions { namespace, name, identity, seed, clock, renewal_clock, .. } = options;
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
        let requests = Requests { transport, namespace, name };
        Ok(Self {
            driver: Driver { machine, clock, renewal_clock, requests, published, fit: fit_seen, shared },
            candidate,
        })
    }

    /// The candidate that this election is about.
    pub fn candidate(&self) -> Candidate {
        self.candidate.clone()
    }

    /// Stands for the Lease until `stop`. Work in [`Term::run`](crate::Term::run) is dropped then, and work in [`Term::finish`](crate::Term::finish) has until the end of
    /// the term; after it the Lease is released, with one attempt. So it ends within one duration.
    pub async fn run(self, stop: CancellationToken) {
        let Self { driver, candidate } = self;
        // It watches the fitness through a sender that has to live.
        driver.run(stop).await;
        drop(candidate);
    }
}

//! Leader election by a Kubernetes Lease: of several candidates at most one has a [`Term`] at any moment.
//!
//! ```text
//!  Lease ◀── PUT with resourceVersion ── driver ◀── machine: pure ──▶ Candidate ──▶ Term ──▶ term.run(work)
//!        ──── watch ────────────────────▶                             status         ends before another begins
//! ```
//!
//! Guarantees:
//!
//! * A term is valid for 80 % of the Lease's duration, counted from when the renewal was *sent*, on a clock that counts
//!   suspension. Another candidate waits the whole duration, counted from when it *saw* the last renewal. So two terms do not
//!   overlap, unless the clocks of two machines run at rates that differ by more than a quarter.
//! * [`Term::run`] drops the work when the term ends, so work cannot outlive it. Threads that the work has started
//!   itself are not ended.
//! * Clocks of different machines are never compared: the times in a Lease are for people.
//! * The Lease is released only when no work runs any more, and a candidate takes a released Lease in one round trip.
//! * Losing a term does not end the process: the candidate waits for the next one.
//! * No request waits without a bound: each has a quarter of the time for which a term is valid.
//!
//! A client-go candidate can compete for the same Lease, which has the fields that client-go uses.
//!
//! ```no_run
//! # async fn f(config: kube::Config, stop: tokio_util::sync::CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! use skopos_lease::{Election, LeaseOptions};
//!
//! let election = Election::from_config(config, LeaseOptions::new("kube-system", "my-controller"))?;
//! let mut candidate = election.candidate();
//! let work = async {
//!     while let Ok(term) = candidate.term().await {
//!         // Ends with an error when the term does; then the next term is waited for.
//!         let _ = term.run(async { /* write to the cluster */ }).await;
//!     }
//! };
//! tokio::join!(election.run(stop), work);
//! # Ok(())
//! # }
//! ```

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod candidate;
mod clock;
mod driver;
mod election;
mod end_reason;
mod error;
mod lease_client;
mod machine;
mod options;
mod record;
mod status;
mod term;

pub use self::candidate::Candidate;
pub use self::clock::BootClock;
pub use self::election::Election;
pub use self::end_reason::EndReason;
pub use self::error::{ElectionError, ElectionStopped, TermOver};
pub use self::options::LeaseOptions;
pub use self::status::Status;
pub use self::term::Term;

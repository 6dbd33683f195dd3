//! Consistency of reads: the required recency of an answer to a read of the newest state.
//!
//! ```text
//!  a write's answer ─▶ Floors ──┐
//!  cache.reads, Cache-Control ──┼─▶ Requirement ─▶ met by memory? ─▶ yes: memory
//!  cache.maxAge ────────────────┘                                  └▶ no: the watch, a probe, or the member
//! ```
//!
//! * **Bounded** reads are at most `cache.maxAge` old.
//! * **Own writes**: every read contains all earlier writes through this gateway, whatever its age ([`Floors`]).
//! * **Consistent** reads contain everything committed before the request, as those of an API server do.

mod catch_up;
mod floors;
mod listings;
mod outcome;
mod requirement;
mod single_flight;

pub(crate) use self::catch_up::CatchUp;
pub(crate) use self::floors::{Floor, Floors, PendingWrite};
pub(crate) use self::listings::{Listing, Listings};
pub(crate) use self::outcome::Outcome;
pub(crate) use self::requirement::{Requirement, requested_age};

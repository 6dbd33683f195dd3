//! Consistency of reads: how new the answer to a read of the newest state has to be.
//!
//! ```text
//!  a write's answer ─▶ Floors ──┐
//!  cache.reads, Cache-Control ──┼─▶ Requirement ─▶ met by memory? ─▶ yes: memory
//!  cache.maxAge ────────────────┘                                  └▶ no: the watch, a probe, or the member
//! ```
//!
//! * **Bounded** reads are at most `cache.maxAge` old.
//! * **Own writes**: every read holds what was written through this gateway, whatever its age ([`Floors`]).
//! * **Consistent** reads hold all that was committed before the request, as an API server's do.

mod catch_up;
mod floors;
mod listings;
mod outcome;
mod requirement;
mod turns;

pub(crate) use self::catch_up::CatchUp;
pub(crate) use self::floors::{Floor, Floors, PendingWrite};
pub(crate) use self::listings::{Listing, Listings};
pub(crate) use self::outcome::Outcome;
pub(crate) use self::requirement::Requirement;

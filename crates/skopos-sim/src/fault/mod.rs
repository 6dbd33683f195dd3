//! Faults: the catalogue of all known ones, how each is inflicted and healed, and what counts as a hit.

mod active;
mod catalogue;
mod inflict;
mod rules;

pub use self::active::{Active, Harmed};
pub use self::catalogue::{CATALOGUE, Entry, Place, entry};
pub use self::inflict::{Bounds, Inflict};
pub use self::rules::{On, Part, Rule};

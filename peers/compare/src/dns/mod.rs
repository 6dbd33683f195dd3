//! A DNS server on loopback, and questions to it.

mod bind;
mod query;
mod watch;

pub(crate) use self::bind::{Bind, SECRET, ZONE, full};
pub(crate) use self::query::{Answer, Resolver};
pub(crate) use self::watch::Watch;

//! Tests of the whole gateway: hostile clients, secrecy, scale, and clients that do not know that it is a gateway.

mod hostile;
mod scale;
pub(crate) mod secrecy;
mod unchanged_clients;

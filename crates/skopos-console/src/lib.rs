//! Parts that the commands of `skopos` share: the error type, texts for people, tables, options, and the client of a gateway.

pub mod args;
pub mod aside;
pub mod columns;
pub mod error;
pub mod gateway;
pub mod human;
pub mod pace;
pub mod reason;

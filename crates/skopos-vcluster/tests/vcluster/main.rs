//! Lifecycle of virtual clusters, on a host whose virtual clusters' API servers come and go with their pods.
#![allow(unreachable_pub, reason = "the words of these tests are in a module of their own")]
#![allow(clippy::unwrap_used, reason = "a test fails where something is missing")]

mod create;
mod delete;
mod interrupted;
mod kubeconfig;
mod reach;
mod states;
mod support;

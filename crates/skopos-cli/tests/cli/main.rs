//! The command as people and scripts run it.
mod demo;
mod killed;
mod proxy;
mod serve;
mod support;
mod surface;
mod vc;
mod watch;

//! The command as people and scripts run it.
mod alerts;
#[cfg(target_os = "linux")]
mod browser;
#[cfg(feature = "demo")]
mod demo;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod fence;
mod killed;
#[cfg(unix)]
mod ledger;
mod notify;
mod proxy;
mod reference;
mod serve;
#[cfg(unix)]
mod service_manager;
mod support;
mod surface;
mod vc;
mod watch;

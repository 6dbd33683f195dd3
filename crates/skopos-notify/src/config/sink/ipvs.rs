//! IPVS sinks, as the file has them.

use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

use super::networks;
use crate::sink::ipvs::{Forward, IpvsOptions, IpvsSink};

/// The IPVS (LVS) of this machine's kernel, through the program `ipvsadm`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpvsConfig {
    /// The networks of the virtual addresses. All TCP and UDP services at these addresses are the notifier's; others are left alone.
    pub addresses: Vec<String>,
    /// The scheduler. Default `wlc`.
    pub scheduler: Option<String>,
    /// Forwarding of packets to the servers. Default `masq`.
    #[serde(default)]
    pub forward: Forward,
    /// Time that a draining server may keep its connections. Default 60s.
    pub drain: Option<Span>,
    /// The program. Default: `ipvsadm`, as `PATH` finds it.
    pub command: Option<PathBuf>,
}

impl IpvsConfig {
    pub(super) fn sink(&self) -> Result<IpvsSink, String> {
        let addresses: Vec<IpNet> = networks(&self.addresses)?;
        let mut options = IpvsOptions::at(addresses);
        options.forward = self.forward;
        options.scheduler = self.scheduler.clone().unwrap_or(options.scheduler);
        options.command = self.command.clone().unwrap_or(options.command);
        IpvsSink::new(options)
    }
}

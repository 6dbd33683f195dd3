//! HAProxy sinks, as the file has them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

use crate::sink::haproxy::{HaproxyOptions, HaproxySink};

/// A running HAProxy.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HaproxyConfig {
    /// The socket of `stats socket PATH level admin`.
    pub socket: PathBuf,
    /// The name of a backend, with `{service}`, `{namespace}` and `{port}`. Default `k8s_{namespace}_{service}_{port}`.
    pub backend: Option<String>,
    /// Health checks by HAProxy itself. Default true.
    pub check: Option<bool>,
    /// Time that a draining server may keep its connections. Default 60s.
    pub drain: Option<Span>,
}

impl HaproxyConfig {
    pub(super) fn sink(&self) -> HaproxySink {
        let mut options = HaproxyOptions::at(&self.socket);
        options.check = self.check.unwrap_or(options.check);
        HaproxySink::new(options)
    }
}

//! What goes on to a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use skopos_config::Span;

/// How requests go on to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Outbound {
    /// Send them in the caller's name, by impersonation headers: the member's admission and audit see the caller. The
    /// gateway's own user needs the right to impersonate there.
    pub impersonate: bool,
    /// Refuse everything that changes a cluster: writes, streams into pods, and virtual clusters that are made, paused or
    /// deleted.
    pub read_only: bool,
    /// How long a request that is no watch may take.
    pub deadline: Span,
    /// Whether streams into pods go through.
    pub connect: ConnectPolicy,
    /// What streams into pods may use up.
    pub streams: StreamLimits,
}

/// Whether streams into pods and other connections by way of the API server go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConnectPolicy {
    /// No logs, no exec, no attach, no port-forward, no proxy.
    #[default]
    Refused,
    /// `pods/log` only.
    Logs,
    /// Logs, and streams into pods: exec, attach, port-forward. No proxy.
    Streams,
}

/// What streams into pods (exec, attach, port-forward) may use up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreamLimits {
    /// Streams of one caller at the same time.
    #[schemars(range(min = 1, max = 100_000))]
    pub per_user: u32,
    /// How long a stream may live, whatever it does.
    pub lifetime: Span,
    /// A stream on which nothing came and went for so long is cut.
    pub idle: Span,
}

// === impl Outbound ===

impl Default for Outbound {
    fn default() -> Self {
        Self {
            impersonate: false,
            read_only: false,
            deadline: Span::seconds(60),
            connect: ConnectPolicy::Refused,
            streams: StreamLimits::default(),
        }
    }
}

// === impl StreamLimits ===

impl Default for StreamLimits {
    fn default() -> Self {
        Self { per_user: 100, lifetime: Span::seconds(4 * 3600), idle: Span::seconds(15 * 60) }
    }
}

//! Settings of requests to members.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::Span;

/// Forwarding of requests to clusters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Outbound {
    /// Send requests in the caller's name, by impersonation headers: the member's admission and audit see the caller. The
    /// gateway's own user needs the right to impersonate there.
    pub impersonate: bool,
    /// Refuse every change of a cluster: writes, streams into pods, and creating, pausing or deleting virtual clusters.
    pub read_only: bool,
    /// Deadline for a request that is not a watch.
    pub deadline: Span,
    /// Permitted streams into pods.
    pub connect: ConnectPolicy,
    /// Limits of streams into pods.
    pub streams: StreamLimits,
}

/// Permitted streams into pods, and other connections by way of the API server.
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

/// Limits of streams into pods (exec, attach, port-forward).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreamLimits {
    /// Concurrent streams of one caller.
    #[schemars(range(min = 1, max = 100_000))]
    pub per_user: u32,
    /// Maximum lifetime of a stream, even while it is in use.
    pub lifetime: Span,
    /// Time without data in either direction after which a stream is cut.
    pub idle: Span,
}

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

impl Default for StreamLimits {
    fn default() -> Self {
        Self { per_user: 100, lifetime: Span::seconds(4 * 3600), idle: Span::seconds(15 * 60) }
    }
}

//! One stream: from the switch to the last byte, or to an earlier end.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use skopos::transport::Tunnel;
use tokio::time::{Instant, sleep};

use super::pump::{Flow, PumpEnd, pump};
use super::{Switched, UpgradeRequest};
use crate::config::StreamLimits;
use crate::limits::per_user_limit::Permit;

/// A stream between a client and a member that have both switched.
pub(crate) struct Stream {
    client: OnUpgrade,
    member: Tunnel,
    limits: StreamLimits,
    /// Completes with the reason when the stream must end.
    end: BoxFuture<'static, &'static str>,
    audit: StreamAudit,
    _permit: Permit,
}

/// The audit record of a stream, written when it ends in any way.
struct StreamAudit {
    info: StreamInfo,
    begun: Instant,
    flow: Flow,
    why: &'static str,
}

/// The user and target of a stream, for the audit log.
pub(crate) struct StreamInfo {
    pub(crate) cluster: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) what: Arc<str>,
}

impl Stream {
    /// Creates a stream. `end` ends it, in addition to its limits, its two ends and the member's transport.
    pub(crate) fn new(
        upgrade: UpgradeRequest,
        member: Tunnel,
        limits: StreamLimits,
        end: BoxFuture<'static, &'static str>,
        info: StreamInfo,
        permit: Permit,
    ) -> Self {
        let audit = StreamAudit { info, begun: Instant::now(), flow: Flow::new(), why: "never begun" };
        Self { client: upgrade.into_client(), member, limits, end, audit, _permit: permit }
    }

    /// Makes the task for the connection that switches.
    pub(crate) fn switched(self) -> Switched {
        Switched::new(self.run().boxed())
    }

    async fn run(self) {
        let Self { client, member, limits, end, mut audit, _permit } = self;
        audit.why = "its connection was cut off";
        let withdrawn = member.withdrawn();
        let pumping = async {
            let Ok(client) = client.await else { return "never begun" };
            match pump(TokioIo::new(client), member, limits.idle.0, &audit.flow).await {
                PumpEnd::Finished => "done",
                PumpEnd::Idle => "idle",
            }
        };
        audit.why = tokio::select! {
            biased;
            why = end => why,
            () = withdrawn => "the cluster is paused, gone, or reached another way",
            () = sleep(limits.lifetime.0) => "its life is over",
            why = pumping => why,
        };
    }
}

impl Drop for StreamAudit {
    fn drop(&mut self) {
        let (to_member, to_client) = self.flow.bytes();
        tracing::info!(
            target: "skopos::audit",
            user = &*self.info.user,
            cluster = &*self.info.cluster,
            what = &*self.info.what,
            why = self.why,
            took = self.begun.elapsed().as_secs_f64(),
            to_member,
            to_client,
            "stream ended"
        );
    }
}

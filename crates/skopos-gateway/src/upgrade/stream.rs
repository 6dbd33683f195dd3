//! One stream: from the switch to the last byte, or to what ends it before.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use skopos::transport::Tunnel;
use tokio::time::{Instant, sleep};

use super::pump::{Flow, Ran, pump};
use super::{Switched, Wish};
use crate::config::StreamLimits;
use crate::places::Place;

/// A stream between a client and a member that have both switched.
pub(crate) struct Stream {
    client: OnUpgrade,
    member: Tunnel,
    limits: StreamLimits,
    /// Ends when it may no longer go on, with the reason.
    end: BoxFuture<'static, &'static str>,
    about: About,
    _place: Place,
}

/// Whose stream, and where to: for the audit log.
pub(crate) struct About {
    pub(crate) cluster: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) what: Arc<str>,
}

// === impl Stream ===

impl Stream {
    /// `end` is what ends it beside its limits, its two ends and the member's transport.
    pub(crate) fn new(
        wish: Wish,
        member: Tunnel,
        limits: StreamLimits,
        end: BoxFuture<'static, &'static str>,
        about: About,
        place: Place,
    ) -> Self {
        Self { client: wish.into_client(), member, limits, end, about, _place: place }
    }

    /// For the connection that switches.
    pub(crate) fn switched(self) -> Switched {
        Switched::new(self.run().boxed())
    }

    async fn run(self) {
        let Self { client, member, limits, end, about, _place } = self;
        let (begun, flow) = (Instant::now(), Flow::new());
        let withdrawn = member.withdrawn();
        let pumping = async {
            let Ok(client) = client.await else { return "never begun" };
            match pump(TokioIo::new(client), member, limits.idle.0, &flow).await {
                Ran::Dry => "done",
                Ran::Idle => "idle",
            }
        };
        let why = tokio::select! {
            biased;
            why = end => why,
            () = withdrawn => "the cluster is paused, gone, or reached another way",
            () = sleep(limits.lifetime.0) => "its life is over",
            why = pumping => why,
        };
        let (to_member, to_client) = flow.bytes();
        tracing::info!(
            target: "skopos::audit",
            user = &*about.user,
            cluster = &*about.cluster,
            what = &*about.what,
            why,
            took = begun.elapsed().as_secs_f64(),
            to_member,
            to_client,
            "stream ended"
        );
    }
}

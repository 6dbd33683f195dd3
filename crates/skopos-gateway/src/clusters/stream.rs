//! Streams into pods: each uses a connection of its own to the member, not shared with other requests.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, select_all};
use http::StatusCode;
use kube::client::Body;
use skopos::transport::{RequestClass, RequestOptions, Upgrade};
use skopos_wire::Status;

use super::proxy::forward_response;
use super::{Allowed, Clusters, status_of};
use crate::authz::Attributes;
use crate::gateway::route::Call;
use crate::response::{self, Response};
use crate::upgrade::{self, Stream, StreamInfo};

impl Clusters {
    /// Switches to the requested protocol, if the member does.
    pub(super) async fn switch(
        &self,
        allowed: Allowed,
        rights: Vec<Attributes>,
        what: &Arc<str>,
    ) -> Result<Response, Status> {
        let Allowed { cluster, mut call } = allowed;
        let upgrade = call.upgrade.take().ok_or_else(upgrade::required)?;
        let permit = self.services.streams.acquire(&call.identity)?;
        let outbound = &self.services.config.outbound;
        let mut request = self.head(&call, &call.query)?.map(|()| Body::empty());
        upgrade.ask(&call.headers, request.headers_mut());
        request.extensions_mut().insert(RequestOptions {
            class: Some(RequestClass::Write),
            deadline: Some(outbound.deadline.0),
            ..RequestOptions::default()
        });
        let asked = cluster.upgrade(request, outbound.deadline.0).await;
        match asked.map_err(|error| status_of(&error))? {
            Upgrade::Answered(answer) => {
                let (parts, body) = answer.into_parts();
                forward_response(&parts, response::whole(body))
            }
            Upgrade::Switched(answer) => {
                let (parts, member) = answer.into_parts();
                let mut response = http::Response::new(response::whole(Bytes::new()));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = upgrade.answer(&parts.headers);
                let cluster: Arc<str> = cluster.id().as_str().into();
                let end = self.end_of_stream(&call, cluster.clone(), rights);
                let info =
                    StreamInfo { cluster, user: call.identity.user.as_str().into(), what: what.clone() };
                let stream = Stream::new(upgrade, member, outbound.streams.clone(), end, info, permit);
                response.extensions_mut().insert(stream.switched());
                Ok(response)
            }
        }
    }

    /// Waits until the gateway stops, or a permission is revoked. Returns the reason.
    fn end_of_stream(
        &self,
        call: &Call,
        cluster: Arc<str>,
        rights: Vec<Attributes>,
    ) -> BoxFuture<'static, &'static str> {
        let (draining, identity) = (call.draining.clone(), self.reviewed(&call.identity).clone());
        let authorizer = self.services.authorizer.clone();
        async move {
            let revoked = rights.iter().map(|right| authorizer.revoked(&cluster, &identity, right).boxed());
            tokio::select! {
                biased;
                () = draining.cancelled() => "the gateway stops",
                (ended, ..) = select_all(revoked) => ended.end_reason(),
            }
        }
        .boxed()
    }
}

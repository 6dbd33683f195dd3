//! Streaming of requests to the member, and of answers back: headers by allow-lists, the caller's full identity, no
//! redirects.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, StatusCode, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use kube::client::Body;
use skopos::transport::{RequestClass, RequestOptions};
use skopos_fleet::FleetError;
use skopos_wire::Status;
use tokio::time::{sleep, timeout};

use super::{Allowed, Clusters, status_of};
use crate::consistency::{Outcome, PendingWrite};
use crate::gateway::route::{Call, WATCH_LIFETIME};
use crate::request::headers::{self, Stamp, stamp};
use crate::request::query::Query;
use crate::request::target::ResourceTarget;
use crate::response::terminating_body::{abort_when, end_when};
use crate::response::{self, BodyError, Response, ResponseBody};

impl Clusters {
    /// Returns the member's answer.
    pub(super) async fn forward(
        &self,
        allowed: Allowed,
        target: Option<ResourceTarget>,
    ) -> Result<Response, Status> {
        let Allowed { cluster, call } = allowed;
        let long = target.as_ref().and_then(LongRunning::from_target);
        let permit = match long {
            Some(_) => Some(self.services.watches.acquire(&call.identity)?),
            None => None,
        };
        let outbound = &self.services.config.outbound;
        let (draining, identity) = (call.draining.clone(), self.reviewed(&call.identity).clone());
        // A log that ends without the client counts as an answer in progress, and gets the same time.
        let drains = long == Some(LongRunning::Watch)
            || long == Some(LongRunning::Log) && call.query.flag("follow")?;
        let written = target.as_ref().filter(|target| is_write(target, &call));
        let written = written.map(|target| target.attributes.clone());
        let request = self.outbound(call, target.as_ref(), long).await?;
        let write = written.map(|what| self.services.begin_write(cluster.id(), &what));
        let answer = cluster.request(request, outbound.deadline.0).await;
        let answer = match (answer, write) {
            (Err(error), Some(write)) if was_not_sent(&error) => {
                write.cancel();
                return Err(status_of(&error));
            }
            // A write that is dropped here may have been done.
            (answer, write) => (answer.map_err(|error| status_of(&error))?, write),
        };
        let (answer, write) = answer;
        let (parts, body) = answer.into_parts();
        let body = body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync();
        let body = match (write, &target) {
            (Some(write), Some(target)) => {
                finish_write(write, target, &parts, body, outbound.deadline.0).await?
            }
            _ => body,
        };
        let (Some(long), Some(target)) = (long, target) else { return forward_response(&parts, body) };
        let (authorizer, name) = (self.services.authorizer.clone(), cluster.id().clone());
        let lifetime = match long {
            LongRunning::Watch => WATCH_LIFETIME,
            LongRunning::Log => outbound.streams.lifetime.0,
        };
        let end = async move {
            tokio::select! {
                () = sleep(lifetime) => "its time is over",
                () = draining.cancelled(), if drains => "the gateway stops",
                ended = authorizer.revoked(name.as_str(), &identity, &target.attributes) => ended.end_reason(),
            }
        };
        let body = match long {
            LongRunning::Watch => end_when(body, end.map(|_| None), permit),
            LongRunning::Log => abort_when(body, end, permit),
        };
        let mut response = forward_response(&parts, body)?;
        if long == LongRunning::Watch {
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        Ok(response)
    }

    async fn outbound(
        &self,
        call: Call,
        target: Option<&ResourceTarget>,
        long: Option<LongRunning>,
    ) -> Result<Request<Body>, Status> {
        let outbound = &self.services.config.outbound;
        let head = match long {
            Some(LongRunning::Watch) => self.head(&call, &within_lifetime(&call.query)?)?,
            _ => self.head(&call, &call.query)?,
        };
        // The complete body, within the limit, before the request goes to the member: a slow client must not occupy a
        // slot there.
        let body = match call.body.is_end_stream() {
            true => Bytes::new(),
            false => call.body.collect_all(outbound.deadline.0).await?,
        };
        let class = match target.map(|target| target.attributes.verb.as_str()) {
            _ if long.is_some() => RequestClass::Watch,
            Some("list") => RequestClass::List,
            Some("get") | None => RequestClass::Read,
            Some(_) => RequestClass::Write,
        };
        let mut request = head.map(|()| Body::from(body));
        let deadline = long.is_none().then_some(outbound.deadline.0);
        let options = RequestOptions { class: Some(class), deadline, ..RequestOptions::default() };
        request.extensions_mut().insert(options);
        Ok(request)
    }

    /// Returns the request to the member without its body: the authorized request, in the caller's name.
    pub(super) fn head(&self, call: &Call, query: &Query) -> Result<Request<()>, Status> {
        let uri = match query.to_string().as_str() {
            "" => call.path.to_string(),
            query => format!("{}?{query}", call.path),
        };
        let mut headers = headers::outbound(&call.headers);
        // The transport sets it.
        headers.remove(header::CONTENT_LENGTH);
        let in_own_name = match self.is_trusted(self.reviewed(&call.identity)) {
            true => call.identity.actor.is_none(),
            false => !self.services.config.outbound.impersonate,
        };
        if !in_own_name {
            headers::impersonate(&mut headers, &call.identity)?;
        }
        let mut request = Request::new(());
        *request.method_mut() = call.method.clone();
        *request.uri_mut() =
            uri.parse().map_err(|error| Status::bad_request(format!("the path: {error}")))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Returns whether a request changes stored objects if it succeeds.
fn is_write(target: &ResourceTarget, call: &Call) -> bool {
    !target.reads() && call.query.all("dryRun").next().is_none()
}

/// Returns whether the cluster cannot have received the request.
fn was_not_sent(error: &FleetError) -> bool {
    matches!(
        error,
        FleetError::UnknownCluster { .. }
            | FleetError::Config { .. }
            | FleetError::Paused { .. }
            | FleetError::Unreachable { .. }
            | FleetError::Removed { .. }
            | FleetError::Closed
    )
}

/// Records the outcome of a write before its caller gets the answer. An answer with one object is read completely for
/// that.
async fn finish_write(
    write: PendingWrite,
    target: &ResourceTarget,
    parts: &http::response::Parts,
    mut body: ResponseBody,
    limit: Duration,
) -> Result<ResponseBody, Status> {
    let what = &target.attributes;
    if let Some(outcome) = Outcome::from_status(parts.status, what) {
        write.settle(outcome);
        return Ok(body);
    }
    let mut read = BytesMut::new();
    let reading = async {
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                read.extend_from_slice(&data);
            }
            if read.len() > MAX_READ_ANSWER {
                return Ok(false);
            }
        }
        Ok::<bool, BodyError>(true)
    };
    let whole = match timeout(limit, reading).await {
        Ok(Ok(whole)) => whole,
        Ok(Err(error)) => return Err(write_interrupted(&error)),
        Err(_) => return Err(Status::timeout("the cluster's answer to the write did not come in time", 1)),
    };
    let read = read.freeze();
    if whole {
        write.settle(Outcome::from_answer(&parts.headers, &read, what));
        return Ok(response::whole(read));
    }
    write.settle(Outcome::Unknown);
    let begun = stream::iter([Ok::<_, BodyError>(Frame::data(read))]);
    Ok(StreamBody::new(begun.chain(BodyStream::new(body))).boxed_unsync())
}

/// Returns the error that tells the caller that the write may have been done.
fn write_interrupted(error: &BodyError) -> Status {
    let message = format!("the cluster's answer to the write broke off: it may have been done: {error}");
    Status::failure(502, "BadGateway".to_owned(), message)
}

/// Answers to writes up to this size are read whole: etcd keeps no object that is larger.
const MAX_READ_ANSWER: usize = 8 << 20;

/// A kind of answer that may take longer than others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LongRunning {
    /// A watch: it may end at any time, and the client resumes it.
    Watch,
    /// A log: no client resumes it, so a cut must not look like the end.
    Log,
}

impl LongRunning {
    fn from_target(target: &ResourceTarget) -> Option<Self> {
        match target.attributes.verb.as_str() {
            _ if target.reads_log() => Some(Self::Log),
            "watch" => Some(Self::Watch),
            _ => None,
        }
    }
}

/// Converts a member's answer, if it is one of the API.
pub(super) fn forward_response(
    parts: &http::response::Parts,
    body: ResponseBody,
) -> Result<Response, Status> {
    // The transport follows no redirects; no other answer that is not of the API reaches the client.
    if parts.status.is_informational()
        || parts.status.is_redirection() && parts.status != StatusCode::NOT_MODIFIED
    {
        return Err(Status::failure(
            502,
            "BadGateway".to_owned(),
            "the cluster's answer is not to be passed on",
        ));
    }
    let mut response = http::Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers::inbound_answer(&parts.headers);
    stamp(response.headers_mut(), &Stamp { source: "member", ..Stamp::default() });
    Ok(response)
}

/// Limits a watch, so that the member ends it before the gateway must.
fn within_lifetime(query: &Query) -> Result<Query, Status> {
    let most = (WATCH_LIFETIME - Duration::from_secs(5)).as_secs();
    let asked = query.single("timeoutSeconds")?.and_then(|seconds| seconds.parse::<u64>().ok());
    match asked {
        Some(seconds) if (1..=most).contains(&seconds) => Ok(query.clone()),
        // Random, so that not all of them end at once.
        _ => Ok(query
            .without(&["timeoutSeconds"])
            .with("timeoutSeconds", fastrand::u64(most / 2..=most).to_string())),
    }
}

//! Port-forwards to pods through the API server of a host, as `kubectl port-forward` makes them.
//!
//! ```text
//!  bytes ◀─▶ frames ◀─▶ WebSocket ◀─▶ upgraded connection ◀─▶ the host's API server ◀─▶ kubelet ◀─▶ pod
//! ```

mod error;
mod frames;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, future};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;
use skopos::transport::{Io, Tunnel, Upgrade, Via};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

pub use self::error::PortForwardError;
use self::frames::{Frame, FrameReader};
use crate::cluster::Cluster;

/// Port-forwards to one of the pods that a selector selects. Each stream leads to a pod that is ready when the stream begins.
#[derive(Clone)]
pub struct PortForward {
    host: Cluster,
    namespace: Arc<str>,
    selector: Arc<str>,
    port: u16,
}

/// Time limit of each of the two requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a list of pods. Pods of control planes have some 10 KiB each.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Maximum size of a message. The kubelet sends 32 KiB at a time.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

impl PortForward {
    /// Creates port-forwards to this port of pods with these labels (`app=vcluster,release=shop`) in a namespace of a host.
    pub fn new(
        host: Cluster,
        namespace: impl Into<Arc<str>>,
        selector: impl Into<Arc<str>>,
        port: u16,
    ) -> Self {
        Self { host, namespace: namespace.into(), selector: selector.into(), port }
    }

    /// Returns port-forwards to the API server of a virtual cluster. Its pods have these labels and this port in every chart of
    /// vcluster.
    pub fn to_vcluster(host: Cluster, namespace: &str, name: &str) -> Self {
        Self::new(host, namespace, format!("app=vcluster,release={name}"), 8443)
    }

    /// Returns them as a way to a server.
    pub fn into_via(self) -> Via {
        let (host, selector, namespace) = (self.host.id(), &self.selector, &self.namespace);
        let name = format!("port-forward by {host} to {selector} in {namespace}");
        Via::new(name, move || {
            let forward = self.clone();
            async move { forward.open().await.map_err(|error| error.to_string().into()) }
        })
    }

    /// Opens a stream. It ends when the pod ends it, when the pod goes, and when the host is paused, removed or reached in
    /// another way.
    ///
    /// # Errors
    /// If the host does not answer or does not permit it, or if no pod is ready.
    pub async fn open(&self) -> Result<Box<dyn Io>, PortForwardError> {
        let pod = self.ready_pod().await?;
        let tunnel = self.upgrade(&pod).await?;
        Ok(Box::new(byte_stream(tunnel).await))
    }

    async fn ready_pod(&self) -> Result<String, PortForwardError> {
        let selector =
            percent_encoding::utf8_percent_encode(&self.selector, percent_encoding::NON_ALPHANUMERIC);
        let path = format!("/api/v1/namespaces/{}/pods?labelSelector={selector}", self.namespace);
        let request = Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty());
        let request = request.map_err(protocol)?;
        let response = self.host.request(request, REQUEST_TIMEOUT).await.map_err(PortForwardError::Host)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_LIST_BYTES).collect();
        let body = tokio::time::timeout(REQUEST_TIMEOUT, body).await;
        let body = body.map_err(|_| protocol("the list of pods did not end in time"))?;
        let body = body.map_err(protocol)?.to_bytes();
        if status != StatusCode::OK {
            return Err(self.refused("list pods", status, &body));
        }
        let pods: Pods = serde_json::from_slice(&body).map_err(protocol)?;
        let (namespace, selector) = (self.namespace.clone(), self.selector.clone());
        if pods.items.is_empty() {
            return Err(PortForwardError::NoPod { namespace, selector });
        }
        let ready = pods.items.into_iter().find(Pod::is_ready).map(|pod| pod.metadata.name);
        ready.ok_or(PortForwardError::NotReady { namespace, selector })
    }

    async fn upgrade(&self, pod: &str) -> Result<Tunnel, PortForwardError> {
        let path =
            format!("/api/v1/namespaces/{}/pods/{pod}/portforward?ports={}", self.namespace, self.port);
        let key = STANDARD.encode(fastrand::u128(..).to_be_bytes());
        let request = Request::get(path)
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, frames::PROTOCOL)
            .body(Body::empty())
            .map_err(protocol)?;
        match self.host.upgrade(request, REQUEST_TIMEOUT).await.map_err(PortForwardError::Host)? {
            Upgrade::Switched(response) => switched(response, &key),
            Upgrade::Answered(answer) => {
                Err(self.refused(&format!("forward to pod {pod}"), answer.status(), answer.body()))
            }
        }
    }

    fn refused(&self, what: &str, status: StatusCode, body: &[u8]) -> PortForwardError {
        let said = skopos::Status::from_slice(body).map(|status| status.message);
        let message = said.filter(|message| !message.is_empty()).unwrap_or_else(|| status.to_string());
        PortForwardError::Refused { host: self.host.id().clone(), what: what.to_owned(), status, message }
    }
}

fn protocol(reason: impl std::fmt::Display) -> PortForwardError {
    PortForwardError::Protocol(reason.to_string())
}

#[derive(Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

#[derive(Deserialize)]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Pod {
    fn is_ready(&self) -> bool {
        let conditions = &self.status.conditions;
        self.metadata.deletion_timestamp.is_none()
            && conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

/// Checks that the server speaks WebSocket and the subprotocol (RFC 6455, section 4.1).
fn switched(response: Response<Tunnel>, key: &str) -> Result<Tunnel, PortForwardError> {
    let is = |headers: &HeaderMap, name, wanted: &str| {
        headers.get(name).is_some_and(|value: &http::HeaderValue| value.as_bytes() == wanted.as_bytes())
    };
    let headers = response.headers();
    if !is(headers, header::SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes())) {
        return Err(protocol("the answer is none to this WebSocket handshake"));
    }
    if !is(headers, header::SEC_WEBSOCKET_PROTOCOL, frames::PROTOCOL) {
        return Err(protocol(format_args!("the server does not speak {}", frames::PROTOCOL)));
    }
    Ok(response.into_body())
}

/// Returns the bytes that the messages carry, in both directions.
async fn byte_stream(tunnel: Tunnel) -> impl Io {
    let withdrawn = tunnel.withdrawn();
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(tunnel, Role::Client, Some(config)).await;
    let (sink, messages) = socket.split();
    let mut reader = FrameReader::default();
    let received = messages
        .take_until(withdrawn)
        .filter_map(move |message| future::ready(content(&mut reader, message).transpose()));
    let sent = sink
        .sink_map_err(io::Error::other)
        .with(|bytes: Bytes| future::ready(Ok::<_, io::Error>(Message::Binary(frames::data(&bytes)))));
    tokio::io::join(StreamReader::new(Box::pin(received)), SinkWriter::new(CopyToBytes::new(Box::pin(sent))))
}

fn content(reader: &mut FrameReader, message: Result<Message, Error>) -> io::Result<Option<Bytes>> {
    match message {
        Ok(Message::Binary(message)) => match reader.read(message).map_err(io::Error::other)? {
            Frame::Data(bytes) => Ok(Some(bytes)),
            Frame::Error(reason) => Err(io::Error::new(io::ErrorKind::ConnectionReset, reason)),
            Frame::Nothing => Ok(None),
        },
        Ok(_) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

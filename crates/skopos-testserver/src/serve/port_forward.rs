//! `pods/portforward` over WebSocket (`v4.channel.k8s.io`, one port), as the kubelet serves it.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use skopos_serve::respond::{self, Response};
use skopos_serve::{RequestInfo, RequestTarget};
use skopos_wire::{GroupResource, Status};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::open_connection::OpenConnection;
use crate::pod_ports::PodStream;
use crate::state::ServerState;
use crate::storage::ResourceKey;

const PROTOCOL: &str = "v4.channel.k8s.io";
const DATA: u8 = 0;
const ERROR: u8 = 1;

/// Largest message that is sent. The kubelet copies 32 KiB at a time.
const CHUNK_BYTES: usize = 32 * 1024;

/// Answers a request for a port-forward; `None` if it is another request.
pub(super) fn answer(
    connection: &Arc<OpenConnection>,
    info: &RequestInfo,
    parts: &Parts,
    upgrade: OnUpgrade,
) -> Option<Result<Response, Status>> {
    let target = info.target.as_ref()?;
    let is_it = target.resource.plural == "pods"
        && target.resource.group.is_empty()
        && target.subresource.as_deref() == Some("portforward")
        && info.method == Method::GET;
    is_it.then(|| accept(connection, info, target, parts, upgrade))
}

fn accept(
    connection: &Arc<OpenConnection>,
    info: &RequestInfo,
    target: &RequestTarget,
    parts: &Parts,
    upgrade: OnUpgrade,
) -> Result<Response, Status> {
    let (pod, name) = running_pod(&connection.state, target)?;
    let has = |header_name: header::HeaderName, wanted: &str| {
        parts
            .headers
            .get(header_name)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(wanted.as_bytes()))
    };
    let key = parts.headers.get(header::SEC_WEBSOCKET_KEY);
    let (true, true, Some(key)) =
        (has(header::UPGRADE, "websocket"), has(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL), key)
    else {
        return Err(Status::bad_request(format!(
            "the test server forwards ports over WebSocket with the subprotocol {PROTOCOL} only"
        )));
    };
    let port: u16 = info
        .query
        .get("ports")
        .and_then(|port| port.parse().ok())
        .ok_or_else(|| Status::bad_request("query parameter \"ports\" must be one port"))?;
    let connect = connection.state.pod_ports.read().connect(&pod, port);
    connection.spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            if let Err(error) = forward(socket, &name, port, connect).await {
                tracing::debug!(%error, name, port, "a port-forward ended");
            }
        }
    });
    let mut response = respond::text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.clear();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    if let Ok(accept) = HeaderValue::try_from(derive_accept_key(key.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    Ok(response)
}

/// Returns the pod and its name.
fn running_pod(state: &ServerState, target: &RequestTarget) -> Result<(Value, String), Status> {
    let name = target.name.clone().unwrap_or_default();
    let key = format!("{}/{name}", target.namespace.as_deref().unwrap_or_default());
    let stored = state.storage.get(&ResourceKey::new("", "pods"), &key);
    let pod = stored.ok_or_else(|| Status::not_found(GroupResource::new("", "pods"), &name))?.to_value();
    match pod["status"]["phase"].as_str() {
        Some("Running") => Ok((pod, name)),
        phase => Err(Status::bad_request(format!(
            "unable to forward port because pod is not running. Current status={}",
            phase.unwrap_or_default()
        ))),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Copies bytes until one side ends.
async fn forward<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
    pod: &str,
    port: u16,
    connect: BoxFuture<'static, io::Result<Box<dyn PodStream>>>,
) -> Result<(), BoxError> {
    for channel in [DATA, ERROR] {
        socket.send(message(channel, &port.to_le_bytes())).await?;
    }
    let mut stream = match connect.await {
        Ok(stream) => stream,
        Err(error) => {
            let reason = format!("error forwarding port {port} to pod {pod}: {error}");
            socket.send(message(ERROR, reason.as_bytes())).await?;
            return Ok(socket.close(None).await?);
        }
    };
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        tokio::select! {
            received = socket.next() => match received.transpose()? {
                Some(Message::Binary(bytes)) if bytes.first() == Some(&DATA) => stream.write_all(&bytes[1..]).await?,
                Some(Message::Close(_)) | None => return Ok(()),
                Some(_) => {}
            },
            read = stream.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return Ok(socket.close(None).await?),
                Ok(count) => socket.send(message(DATA, &buffer[..count])).await?,
            },
        }
    }
}

fn message(channel: u8, content: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(content.len() + 1);
    bytes.put_u8(channel);
    bytes.put_slice(content);
    Message::Binary(Bytes::from(bytes))
}

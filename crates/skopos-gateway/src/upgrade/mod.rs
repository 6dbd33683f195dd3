//! Connections that switch to another protocol: exec, attach and port-forward. The gateway does not parse their content. It
//! copies bytes in both directions.
//!
//! ```text
//!  request ─▶ UpgradeRequest ─▶ (authorized) ─▶ the member answers 101 ─▶ Switched, with the answer ─▶ the connection's task runs it
//!                                               anything else ─▶ a normal answer, and both connections are closed
//! ```

mod pump;
mod stream;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, request};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use skopos_wire::{GroupResource, Status};

pub(crate) use self::stream::{Stream, StreamInfo};
use crate::request::body::LimitedBody;
use crate::request::headers;

/// A request for another protocol, and the connection that it came on.
#[derive(Debug)]
pub struct UpgradeRequest {
    protocol: Protocol,
    client: OnUpgrade,
}

/// The protocols that clients of the Kubernetes API switch to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    WebSocket,
    Spdy,
}

/// The task of a switched connection. It is put into the extensions of a 101 answer, for the task that serves the connection.
#[derive(Clone)]
pub(crate) struct Switched(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// The headers passed to the member in addition to those of every request.
const OUTBOUND: [HeaderName; 5] = [
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
    STREAM_PROTOCOL,
];

/// The headers of the member's answer passed to the client.
const INBOUND: [HeaderName; 4] = [
    header::SEC_WEBSOCKET_ACCEPT,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
    STREAM_PROTOCOL,
];

impl UpgradeRequest {
    /// Reads a request with an `Upgrade` header.
    ///
    /// # Errors
    /// 400 if it cannot be granted: with HTTP/1.0 or HTTP/2, a method other than GET and POST, or a body. Also with a protocol
    /// that the Kubernetes API does not use, or a bearer token among the protocols of a WebSocket.
    pub fn from_request(parts: &mut request::Parts, body: &LimitedBody) -> Result<Self, Status> {
        let refused = |why: &str| Err(Status::bad_request(why));
        if parts.version != Version::HTTP_11 || ![Method::GET, Method::POST].contains(&parts.method) {
            return refused("a connection switches to another protocol by a GET or POST of HTTP/1.1");
        }
        if !body.is_end_stream() || parts.headers.contains_key(header::TRANSFER_ENCODING) {
            return refused("a request for another protocol has no body");
        }
        let Some(protocol) = Protocol::from_headers(&parts.headers) else {
            return refused("a connection switches to websocket or to SPDY/3.1, and nothing else");
        };
        if !parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().all(is_harmless) {
            return refused(
                "the protocols of a WebSocket are those of channels and ports, without credentials",
            );
        }
        match parts.extensions.remove::<OnUpgrade>() {
            Some(client) => Ok(Self { protocol, client }),
            None => refused("this connection does not switch to another protocol"),
        }
    }

    /// Adds the upgrade to a request to a member, with only the headers of the list.
    pub(crate) fn ask(&self, inbound: &HeaderMap, outbound: &mut HeaderMap) {
        headers::pass_on(inbound, outbound, &OUTBOUND);
        outbound.insert(header::UPGRADE, self.protocol.name());
    }

    /// Returns the headers of the answer to the client.
    pub(crate) fn answer(&self, from_member: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers::pass_on(from_member, &mut headers, &INBOUND);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, self.protocol.name());
        headers
    }

    pub(crate) fn into_client(self) -> OnUpgrade {
        self.client
    }
}

impl Protocol {
    /// Returns the requested protocol, if the headers name exactly one.
    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut asked = headers.get_all(header::UPGRADE).iter();
        let (Some(asked), None) = (asked.next(), asked.next()) else { return None };
        if !headers::has_token(headers, header::CONNECTION, "upgrade") {
            return None;
        }
        [Self::WebSocket, Self::Spdy]
            .into_iter()
            .find(|protocol| protocol.name().as_bytes().eq_ignore_ascii_case(asked.as_bytes()))
    }

    fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        })
    }
}

/// Returns whether the WebSocket protocols are those of streams into pods. The API server also accepts a bearer token as one,
/// and then acts for the owner of the token.
fn is_harmless(protocols: &HeaderValue) -> bool {
    let known = |protocol: &str| {
        ["channel.k8s.io", "portforward.k8s.io"].iter().any(|known| protocol.trim().ends_with(known))
            && !protocol.contains("bearer")
    };
    protocols.to_str().is_ok_and(|protocols| protocols.split(',').all(known))
}

impl Switched {
    pub(crate) fn new(stream: BoxFuture<'static, ()>) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    /// Takes the task, which can run only once.
    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().take()
    }
}

/// Returns the API server's answer to exec, attach and port-forward without an upgrade. HTTP/2 has no upgrades.
pub(crate) fn required() -> Status {
    Status::bad_request("Upgrade request required: of HTTP/1.1, to websocket or SPDY/3.1")
}

/// Returns the refusal of an upgrade for any other request.
pub(crate) fn only_into_pods() -> Status {
    let why =
        "connections switch to another protocol for exec, attach and portforward of pods, and nothing else";
    Status::forbidden(GroupResource::new("", ""), "", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &[(&str, &str)]) -> Result<UpgradeRequest, Status> {
        let mut builder = http::Request::get("/");
        for (name, value) in lines {
            builder = builder.header(*name, *value);
        }
        let (mut parts, ()) = builder.body(()).unwrap().into_parts();
        UpgradeRequest::from_request(&mut parts, &LimitedBody::whole(""))
    }

    /// Returns the refusal of a request. Valid ones fail because they came on no connection.
    fn refusal(lines: &[(&str, &str)]) -> String {
        let status = asked(lines).unwrap_err();
        assert_eq!(status.code, 400, "{lines:?}");
        status.message
    }

    #[test]
    fn two_protocols_are_switched_to_and_no_others() {
        for protocol in ["websocket", "WebSocket", "SPDY/3.1", "spdy/3.1"] {
            for connection in ["Upgrade", "keep-alive, upgrade"] {
                let said = refusal(&[("upgrade", protocol), ("connection", connection)]);
                assert!(said.contains("this connection"), "{protocol}: {said}");
            }
        }
        for (protocol, connection) in [
            ("h2c", "Upgrade"),
            ("TLS/1.3", "Upgrade"),
            ("websocket, h2c", "Upgrade"),
            ("SPDY/3.1, websocket", "Upgrade"),
            ("", "Upgrade"),
            ("websocket", "keep-alive"),
        ] {
            let said = refusal(&[("upgrade", protocol), ("connection", connection)]);
            assert!(said.contains("websocket or to SPDY/3.1"), "{protocol}: {said}");
        }
        let twice = [("upgrade", "websocket"), ("upgrade", "websocket"), ("connection", "Upgrade")];
        assert!(refusal(&twice).contains("websocket or to SPDY/3.1"));
    }

    #[test]
    fn rejects_bearer_token_in_websocket_protocols() {
        let asking = |protocols| {
            refusal(&[
                ("upgrade", "websocket"),
                ("connection", "Upgrade"),
                ("sec-websocket-protocol", protocols),
            ])
        };
        for protocols in [
            "v5.channel.k8s.io",
            "v5.channel.k8s.io, v4.channel.k8s.io,v4.base64.channel.k8s.io",
            "SPDY/3.1+portforward.k8s.io",
        ] {
            assert!(asking(protocols).contains("this connection"), "{protocols}");
        }
        for protocols in [
            "base64url.bearer.authorization.k8s.io.c2VjcmV0",
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
            "base64url.bearer.authorization.k8s.io.channel.k8s.io",
            "v5.channel.k8s.io,",
            "chat",
        ] {
            assert!(asking(protocols).contains("without credentials"), "{protocols}");
        }
    }

    #[test]
    fn upgrade_copies_only_listed_headers_both_ways() {
        let lines = [
            ("Sec-WebSocket-Key", "k"),
            ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
            ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
            ("X-Stream-Protocol-Version", "v3.channel.k8s.io"),
            ("Sec-WebSocket-Accept", "a"),
            ("Set-Cookie", "a=b"),
            ("Upgrade", "h2c"),
            ("Connection", "Impersonate-User"),
            ("Sec-Fetch-Mode", "x"),
        ];
        let mut inbound = HeaderMap::new();
        for (name, value) in lines {
            inbound.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_static(value));
        }
        let wish = |protocol| {
            let client = hyper::upgrade::on(http::Request::new(()));
            UpgradeRequest { protocol, client }
        };
        let mut outbound = HeaderMap::new();
        wish(Protocol::Spdy).ask(&inbound, &mut outbound);
        let listed = |headers: &HeaderMap| {
            let mut names: Vec<String> = headers.iter().map(|(name, _)| name.to_string()).collect();
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(
            listed(&outbound),
            "sec-websocket-key sec-websocket-protocol upgrade x-stream-protocol-version x-stream-protocol-version"
        );
        assert_eq!(outbound[header::UPGRADE], "SPDY/3.1");
        let back = wish(Protocol::WebSocket).answer(&inbound);
        assert_eq!(
            listed(&back),
            "connection sec-websocket-accept sec-websocket-protocol upgrade x-stream-protocol-version \
             x-stream-protocol-version"
        );
        assert!(back[header::UPGRADE] == "websocket" && back[header::CONNECTION] == "Upgrade");
    }
}

//! Handling of one request: log entry, faults, authentication and response.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, Version, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use jiff::fmt::rfc2822::DateTimePrinter;
use skopos_serve::respond::{self, BodyError, Response};
use skopos_serve::{RequestInfo, RequestVerb, deadline};
use skopos_wire::Status;
use skopos_wire::protobuf::MEDIA_TYPE;
use tokio::time::timeout;

use super::open_connection::OpenConnection;
use super::{host, port_forward, router};
use crate::faults::{Fault, FaultRule, FaultyBody, RequestAttributes, hostile_body};
use crate::log::{LogEntry, Outcome, RequestRecord};
use crate::openapi;
use crate::state::ServerState;

/// Answers a request. An error closes the connection or resets the stream.
pub(super) async fn answer(
    connection: Arc<OpenConnection>,
    mut request: Request<Incoming>,
) -> Result<http::Response<FaultyBody>, BodyError> {
    let state = &connection.state;
    let upgrade = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let http2 = parts.version == Version::HTTP_2;
    let find = |group: &str, version: &str, plural: &str| state.registry.resolve(group, version, plural);
    let info = RequestInfo::new(&parts, find);
    let attributes = Arc::new(attributes(&info, &parts, &connection));
    parts.extensions.insert(attributes.clone());
    let mut log = start_log_entry(state, &info, &parts, &attributes);

    let rules = state.faults.request_rules(&attributes);
    let mut response = match apply_faults(&connection, &attributes, &rules).await? {
        Some(response) => response,
        None => respond(&connection, &info, &parts, &attributes, body, upgrade).await,
    };
    // kube-apiserver closes the HTTP/2 connection of an unauthenticated client (UnauthenticatedHTTP2DOSMitigation).
    if response.status() == StatusCode::UNAUTHORIZED && http2 {
        connection.control.request_go_away();
    }
    log.streaming(response.status().as_u16());
    set_date(&mut response, state);
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let is_protobuf = content_type.is_some_and(|own| own.as_bytes().starts_with(MEDIA_TYPE.as_bytes()));
    let response = response.map(|body| FaultyBody::new(body, is_protobuf, &state.faults, attributes, log));
    if rules.iter().any(|rule| matches!(rule.fault(), Fault::HoldHeadersUntilData)) {
        return Ok(await_first_chunk(response).await);
    }
    Ok(response)
}

/// Sets the date from the server's clock; hyper would use the machine's.
fn set_date(response: &mut Response, state: &ServerState) {
    let now = DateTimePrinter::new().timestamp_to_rfc9110_string(&state.clock.now());
    if let Some(now) = now.ok().and_then(|now| HeaderValue::try_from(now).ok()) {
        response.headers_mut().insert(header::DATE, now);
    }
}

/// Applies the faults that precede a response; some are the response.
async fn apply_faults(
    connection: &OpenConnection,
    attributes: &RequestAttributes,
    rules: &[Arc<FaultRule>],
) -> Result<Option<Response>, BodyError> {
    for rule in rules {
        match rule.fault() {
            Fault::Status(status) => return Ok(Some(respond::status(status))),
            Fault::Answer { code, headers, body } => {
                let code = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let mut response = respond::text(code, body.clone());
                for (name, value) in headers {
                    response.headers_mut().insert(name, HeaderValue::from_str(value)?);
                }
                return Ok(Some(response));
            }
            Fault::Redirect(location) => {
                let mut response = respond::text(StatusCode::TEMPORARY_REDIRECT, "");
                response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(location)?);
                return Ok(Some(response));
            }
            Fault::WithholdHeaders => rule.ended().await,
            Fault::DelayHeaders(time) => tokio::time::sleep(*time).await,
            Fault::KillConnection(how) => {
                connection.control.kill(*how);
                return Err("injected close of the connection".into());
            }
            Fault::GoAway => connection.control.request_go_away(),
            fault => {
                if let Some(response) = hostile_body(fault, attributes) {
                    return Ok(Some(response));
                }
            }
        }
    }
    Ok(None)
}

async fn respond(
    connection: &Arc<OpenConnection>,
    info: &RequestInfo,
    parts: &Parts,
    attributes: &RequestAttributes,
    body: Incoming,
    upgrade: OnUpgrade,
) -> Response {
    let state = &*connection.state;
    let handled = async {
        if state.only_local_hosts {
            host::check_local(parts)?;
        }
        let user = state.auth.check(state, info, parts, attributes)?;
        let body = match parts.method {
            Method::GET | Method::HEAD => Bytes::new(),
            _ => openapi::to_json(&parts.headers, read_body(body).await?)?,
        };
        if let Some(target) = &info.target
            && let Some(review) = state.auth.review(state, info, target, &user, &body)
        {
            return review;
        }
        if let Some(forwarded) = port_forward::answer(connection, info, parts, upgrade) {
            return forwarded;
        }
        Ok(router::handle(state, info, parts, body).await)
    };
    // L12; a watch has its own timeout.
    let handled = match info.verb {
        RequestVerb::Watch => Ok(handled.await),
        _ => match deadline::from_query(&info.query, state.contract.request_timeout) {
            Ok(time) => timeout(time, handled).await,
            Err(status) => Ok(Err(status)),
        },
    };
    match handled {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => skopos_serve::error(&parts.headers, &status),
        Err(_) => {
            respond::status(&Status::timeout("request did not complete within the allotted timeout", 0))
        }
    }
}

/// Maximum body size of kube-apiserver.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

async fn read_body(body: Incoming) -> Result<Bytes, Status> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::request_entity_too_large(MAX_BODY_BYTES)),
        Err(error) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
    }
}

fn attributes(info: &RequestInfo, parts: &Parts, connection: &OpenConnection) -> RequestAttributes {
    let target = info.target.as_ref();
    let user_agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    RequestAttributes {
        connection: connection.control.id(),
        verb: info.verb,
        path: info.path.clone(),
        resource: target.map(|target| target.resource.plural.clone()),
        namespace: target.and_then(|target| target.namespace.clone()),
        name: target.and_then(|target| target.name.clone()),
        user_agent: user_agent.map(str::to_owned),
        query: info.query.clone(),
    }
}

fn start_log_entry(
    state: &ServerState,
    info: &RequestInfo,
    parts: &Parts,
    attributes: &RequestAttributes,
) -> LogEntry {
    state.log.begin(RequestRecord {
        id: 0,
        at: std::time::Duration::ZERO,
        connection: attributes.connection,
        verb: info.verb.as_str(),
        path: info.path.clone(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        resource: attributes.resource.clone(),
        user_agent: attributes.user_agent.clone(),
        accept: parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).map(str::to_owned),
        outcome: Outcome::Waiting,
    })
}

/// Reads the first chunk of the body before the headers are sent.
async fn await_first_chunk(response: http::Response<FaultyBody>) -> http::Response<FaultyBody> {
    let (parts, mut body) = response.into_parts();
    body.preload().await;
    http::Response::from_parts(parts, body)
}

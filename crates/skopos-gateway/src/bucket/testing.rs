//! An S3 server with only the features needed here, and faults on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::config::{BucketCredentials, BucketSource, Span};

/// The server. It ends when this is dropped.
pub(crate) struct S3 {
    address: SocketAddr,
    state: Arc<State>,
    tls: bool,
    _tasks: JoinSet<()>,
}

/// The behaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Requests are not answered.
    Hang,
    /// All requests are answered with this code, and with an echo of the request.
    Refuse(u16),
    /// Connections end in the middle of each object.
    Torn,
    /// Objects begin but never end.
    Stall,
    /// All requests are redirected.
    Elsewhere,
}

struct State {
    objects: Mutex<BTreeMap<String, Bytes>>,
    mood: Mutex<Mood>,
    requests: Mutex<Vec<(Method, String, HeaderMap)>>,
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The number of names on a page.
const PAGE: usize = 3;

pub(crate) const BUCKET: &str = "a-bucket";

impl S3 {
    pub(crate) async fn start() -> Self {
        Self::over(None).await
    }

    pub(crate) async fn over(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (objects, mood) = (Mutex::default(), Mutex::new(Mood::Well));
        let state = Arc::new(State { objects, mood, requests: Mutex::default() });
        let (serving, is_tls) = (state.clone(), tls.is_some());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (serving.clone(), tls.clone());
                connections.spawn(async move {
                    let answer = service_fn(move |request| answer(state.clone(), request));
                    match tls {
                        None => {
                            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await)
                        }
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
                        }
                    }
                });
            }
        });
        Self { address, state, tls: is_tls, _tasks: tasks }
    }

    /// Returns the configuration of this bucket, with keys in files in this folder.
    pub(crate) fn source(&self, keys: &Path) -> BucketSource {
        let file = |name: &str, word: &str| {
            let path = keys.join(name);
            std::fs::write(&path, format!("{word}\n")).unwrap();
            path
        };
        let scheme = if self.tls { "https" } else { "http" };
        BucketSource {
            url: format!("s3://{BUCKET}/some/prefix"),
            endpoint: Some(format!("{scheme}://{}", self.address)),
            region: Some("eu-central-1".into()),
            ca: None,
            credentials: Some(BucketCredentials {
                access_key: file("access", "AKID"),
                secret_key: file("secret", "hunter2"),
                session_token: Some(file("session", "hunter3")),
            }),
            allow_http: false,
            answer: Span::seconds(1),
            deadline: Span::seconds(5),
        }
    }

    pub(crate) fn feels(&self, mood: Mood) {
        *self.state.mood.lock() = mood;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state.objects.lock().keys().cloned().collect()
    }

    /// Changes an object without a request of the client.
    pub(crate) fn put(&self, name: &str, content: &'static [u8]) {
        self.state.objects.lock().insert(name.to_owned(), Bytes::from_static(content));
    }

    pub(crate) fn requests(&self) -> Vec<(Method, String, HeaderMap)> {
        std::mem::take(&mut self.state.requests.lock())
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let asked = parts.uri.to_string();
    state.requests.lock().push((parts.method.clone(), asked.clone(), parts.headers.clone()));
    let mood = *state.mood.lock();
    match mood {
        Mood::Hang => std::future::pending::<()>().await,
        Mood::Refuse(code) => {
            // The worst case: the error echoes the request.
            let said = format!("<Error><Code>SomeCode</Code><Message>{:?}</Message></Error>", parts.headers);
            return Ok(told(StatusCode::from_u16(code).unwrap(), said));
        }
        Mood::Elsewhere => {
            let mut elsewhere = told(StatusCode::TEMPORARY_REDIRECT, String::new());
            elsewhere.headers_mut().insert("location", "http://169.254.169.254/".parse().unwrap());
            return Ok(elsewhere);
        }
        Mood::Well | Mood::Torn | Mood::Stall => {}
    }
    let Some(content) = body.collect().await.ok().map(|body| body.to_bytes()) else {
        return Ok(told(StatusCode::BAD_REQUEST, String::new()));
    };
    let signed = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    if !signed.is_some_and(|signed| signed.starts_with("AWS4-HMAC-SHA256 Credential=AKID/")) {
        return Ok(told(StatusCode::FORBIDDEN, "<Error><Code>InvalidAccessKeyId</Code></Error>".into()));
    }
    let path = decoded(parts.uri.path());
    let Some(key) = path.strip_prefix(&format!("/{BUCKET}")).map(|key| key.trim_start_matches('/')) else {
        return Ok(told(StatusCode::NOT_FOUND, "<Error><Code>NoSuchBucket</Code></Error>".into()));
    };
    let mut objects = state.objects.lock();
    let found = match parts.method {
        Method::PUT => {
            let content = match parts.headers.get("x-amz-copy-source") {
                Some(source) => {
                    let source = decoded(source.to_str().unwrap_or_default());
                    objects.get(source.trim_start_matches(&format!("{BUCKET}/"))).cloned()
                }
                None => Some(content),
            };
            content.map(|content| {
                objects.insert(key.to_owned(), content);
                let said = "<CopyObjectResult><ETag>\"e\"</ETag></CopyObjectResult>";
                told(StatusCode::OK, said.into())
            })
        }
        Method::DELETE => {
            objects.remove(key);
            Some(told(StatusCode::NO_CONTENT, String::new()))
        }
        Method::GET if key.is_empty() => Some(list(&objects, parts.uri.query().unwrap_or_default())),
        Method::GET => objects.get(key).map(|object| get(object.clone(), mood)),
        _ => None,
    };
    Ok(found.unwrap_or_else(|| told(StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code></Error>".into())))
}

fn get(object: Bytes, mood: Mood) -> Response<Body> {
    let all = object.len();
    let half = Frame::data(object.slice(..all / 2));
    let body = match mood {
        Mood::Torn => {
            let parts = [Ok(half), Err(io::ErrorKind::ConnectionReset.into())];
            StreamBody::new(stream::iter(parts)).boxed_unsync()
        }
        Mood::Stall => {
            let parts = stream::iter([Ok(half)]).chain(stream::pending());
            StreamBody::new(parts).boxed_unsync()
        }
        _ => whole(object),
    };
    Response::builder()
        .header("content-length", all)
        .header("etag", "\"e\"")
        .header("last-modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        .body(body)
        .unwrap()
}

fn list(objects: &BTreeMap<String, Bytes>, query: &str) -> Response<Body> {
    let asked = |name: &str| {
        let of = |pair: &str| {
            pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| decoded(value))
        };
        query.split('&').find_map(of).unwrap_or_default()
    };
    let (prefix, after) = (asked("prefix"), asked("continuation-token"));
    let behind = objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let page: Vec<_> = behind.take(PAGE + 1).collect();
    let more = page.len() > PAGE;
    let content = page.iter().take(PAGE).map(|(key, object)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-22T10:00:00.000Z</LastModified><ETag>\"e\"</ETag>\
             <Size>{}</Size></Contents>",
            object.len()
        )
    });
    let content: String = content.collect();
    let token = page.get(PAGE - 1).filter(|_| more).map(|(key, _)| key.as_str()).unwrap_or_default();
    let token =
        if more { format!("<NextContinuationToken>{token}</NextContinuationToken>") } else { String::new() };
    told(
        StatusCode::OK,
        format!("<ListBucketResult><IsTruncated>{more}</IsTruncated>{content}{token}</ListBucketResult>"),
    )
}

fn told(status: StatusCode, said: String) -> Response<Body> {
    Response::builder().status(status).header("etag", "\"e\"").body(whole(said.into())).unwrap()
}

fn whole(content: Bytes) -> Body {
    Full::new(content).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the text with percent-encoding removed.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        plain.push(u8::from_str_radix(code, 16).unwrap());
        plain.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(plain).unwrap()
}

//! An S3 server with only the features that [`Bucket`](crate::Bucket) uses, and faults on demand, for tests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
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

use skopos_config::Span;

use crate::{BucketConfig, BucketCredentials};

/// The server. It ends when this is dropped.
pub struct S3 {
    address: SocketAddr,
    state: Arc<State>,
    tls: bool,
    _tasks: JoinSet<()>,
}

/// The behaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Requests are answered.
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
    /// Writes are done, and their answers are lost.
    Mute,
    /// `If-Match` is ignored, as by services that know `If-None-Match` alone.
    IgnoresIfMatch,
}

struct State {
    objects: Mutex<Objects>,
    mood: Mutex<Mood>,
    requests: Mutex<Vec<(Method, String, HeaderMap)>>,
}

/// The objects, each with its `ETag`.
#[derive(Default)]
struct Objects {
    all: BTreeMap<String, (Bytes, String)>,
    writes: u64,
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The number of names on a page.
const PAGE: usize = 3;

/// The name of its bucket.
pub const BUCKET: &str = "a-bucket";

impl S3 {
    /// Starts a server on loopback.
    ///
    /// # Errors
    /// If there is no port.
    pub async fn start() -> io::Result<Self> {
        Self::over(None).await
    }

    /// Starts a server on loopback, with TLS where there is an acceptor.
    ///
    /// # Errors
    /// If there is no port.
    pub async fn over(tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
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
        Ok(Self { address, state, tls: is_tls, _tasks: tasks })
    }

    /// Returns the configuration of this bucket, with keys in files in this folder.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn config(&self, keys: &Path) -> io::Result<BucketConfig> {
        let file = |name: &str, word: &str| {
            let path = keys.join(name);
            std::fs::write(&path, format!("{word}\n")).map(|()| path)
        };
        let scheme = if self.tls { "https" } else { "http" };
        Ok(BucketConfig {
            url: format!("s3://{BUCKET}/some/prefix"),
            endpoint: Some(format!("{scheme}://{}", self.address)),
            region: Some("eu-central-1".into()),
            ca: None,
            credentials: Some(BucketCredentials {
                access_key: file("access", "AKID")?,
                secret_key: file("secret", "hunter2")?,
                session_token: Some(file("session", "hunter3")?),
            }),
            allow_http: false,
            answer: Span::seconds(1),
            deadline: Span::seconds(5),
        })
    }

    /// Changes the behaviour.
    pub fn feels(&self, mood: Mood) {
        *self.state.mood.lock() = mood;
    }

    /// Returns the names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.state.objects.lock().all.keys().cloned().collect()
    }

    /// Changes an object without a request of the client.
    pub fn put(&self, name: &str, content: &'static [u8]) {
        self.state.objects.lock().put(name, Bytes::from_static(content));
    }

    /// Takes the requests since the last call.
    pub fn requests(&self) -> Vec<(Method, String, HeaderMap)> {
        std::mem::take(&mut self.state.requests.lock())
    }
}

impl Objects {
    fn put(&mut self, name: &str, content: Bytes) -> String {
        self.writes += 1;
        let etag = format!("\"{}\"", self.writes);
        self.all.insert(name.to_owned(), (content, etag.clone()));
        etag
    }

    /// Returns whether the conditions of a write hold.
    fn permits(&self, name: &str, headers: &HeaderMap, mood: Mood) -> bool {
        let etag = self.all.get(name).map(|(_, etag)| etag.as_str());
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        header("if-match").is_none_or(|wanted| etag == Some(wanted) || mood == Mood::IgnoresIfMatch)
            && header("if-none-match").is_none_or(|_| etag.is_none())
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    state.requests.lock().push((parts.method.clone(), parts.uri.to_string(), parts.headers.clone()));
    let mood = *state.mood.lock();
    match mood {
        Mood::Hang => std::future::pending::<()>().await,
        Mood::Refuse(code) => {
            // The worst case: the error echoes the request.
            let said = format!("<Error><Code>SomeCode</Code><Message>{:?}</Message></Error>", parts.headers);
            return Ok(told(StatusCode::from_u16(code).unwrap_or_default(), said));
        }
        Mood::Elsewhere => {
            let mut elsewhere = told(StatusCode::TEMPORARY_REDIRECT, String::new());
            elsewhere.headers_mut().insert("location", HeaderValue::from_static("http://169.254.169.254/"));
            return Ok(elsewhere);
        }
        Mood::Well | Mood::Torn | Mood::Stall | Mood::Mute | Mood::IgnoresIfMatch => {}
    }
    let Some(content) = body.collect().await.ok().map(|body| body.to_bytes()) else {
        return Ok(told(StatusCode::BAD_REQUEST, String::new()));
    };
    let is_write = parts.method == Method::PUT;
    let answer = done(&state, mood, &parts, content);
    if is_write && mood == Mood::Mute {
        std::future::pending::<()>().await;
    }
    Ok(answer)
}

fn done(state: &State, mood: Mood, parts: &Parts, content: Bytes) -> Response<Body> {
    let signed = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    if !signed.is_some_and(|signed| signed.starts_with("AWS4-HMAC-SHA256 Credential=AKID/")) {
        return error(StatusCode::FORBIDDEN, "InvalidAccessKeyId");
    }
    let path = decoded(parts.uri.path());
    let Some(key) = path.strip_prefix(&format!("/{BUCKET}")).map(|key| key.trim_start_matches('/')) else {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket");
    };
    let mut objects = state.objects.lock();
    let found = match parts.method {
        Method::PUT if !objects.permits(key, &parts.headers, mood) => {
            Some(error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"))
        }
        Method::PUT => {
            let content = match parts.headers.get("x-amz-copy-source") {
                Some(source) => {
                    let source = decoded(source.to_str().unwrap_or_default());
                    let source = source.trim_start_matches(&format!("{BUCKET}/"));
                    objects.all.get(source).map(|(content, _)| content.clone())
                }
                None => Some(content),
            };
            content.map(|content| {
                let etag = objects.put(key, content);
                let said = format!("<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>");
                with_etag(told(StatusCode::OK, said), &etag)
            })
        }
        Method::DELETE => {
            objects.all.remove(key);
            Some(told(StatusCode::NO_CONTENT, String::new()))
        }
        Method::GET if key.is_empty() => Some(list(&objects.all, parts.uri.query().unwrap_or_default())),
        Method::GET => objects.all.get(key).map(|(object, etag)| with_etag(get(object.clone(), mood), etag)),
        _ => None,
    };
    found.unwrap_or_else(|| error(StatusCode::NOT_FOUND, "NoSuchKey"))
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
    let mut answer = Response::new(body);
    answer.headers_mut().insert("content-length", all.into());
    let modified = HeaderValue::from_static("Sun, 22 Nov 2026 10:00:00 GMT");
    answer.headers_mut().insert("last-modified", modified);
    answer
}

fn list(objects: &BTreeMap<String, (Bytes, String)>, query: &str) -> Response<Body> {
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
    let content = page.iter().take(PAGE).map(|(key, (object, etag))| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-22T10:00:00.000Z</LastModified><ETag>{etag}</ETag>\
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

fn error(status: StatusCode, code: &str) -> Response<Body> {
    told(status, format!("<Error><Code>{code}</Code></Error>"))
}

fn told(status: StatusCode, said: String) -> Response<Body> {
    let mut answer = Response::new(whole(said.into()));
    *answer.status_mut() = status;
    answer
}

fn with_etag(mut answer: Response<Body>, etag: &str) -> Response<Body> {
    if let Ok(etag) = etag.parse() {
        answer.headers_mut().insert("etag", etag);
    }
    answer
}

fn whole(content: Bytes) -> Body {
    Full::new(content).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the text with percent-encoding removed.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        plain.extend(u8::from_str_radix(code, 16));
        plain.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&plain).into_owned()
}

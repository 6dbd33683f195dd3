//! Small HTTP client over in-memory connections, so that the tests run in virtual time.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use skopos_testserver::{ConnectionId, TestServer, TestServerBuilder};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub async fn start(builder: TestServerBuilder) -> TestServer {
    builder.clock_seed(1).start().await.expect("the server starts")
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

pub fn labelled(name: &str, value: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({"app": value});
    object
}

pub fn rv(object: &Value) -> u64 {
    let text =
        object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no version in {object}"));
    text.parse().expect("a decimal version")
}

pub fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items is an array");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Client with one connection.
pub struct Client {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    pub id: ConnectionId,
    tasks: JoinSet<()>,
}

pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in {:?}", self.body))
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.code, 200, "{:?}", self.body);
        self.json()
    }

    #[track_caller]
    pub fn failed(&self, code: u16, reason: &str, message: &str) -> Value {
        let status = self.json();
        assert_eq!((self.code, status["code"].as_u64()), (code, Some(code.into())), "{status}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{status}");
        assert_eq!(status["message"], message);
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
        status
    }
}

impl Client {
    pub async fn open(server: &TestServer) -> Self {
        let stream = server.connect().expect("the server is open");
        let id = stream.id();
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        Self { sender, id, tasks }
    }

    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> hyper::Result<http::Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).header("host", "test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.send_request(request.body(Full::new(body)).expect("a request")).await
    }

    pub async fn watch(self, path: &str) -> Watch {
        self.try_watch(path, &[]).await.unwrap_or_else(|e| panic!("{e}"))
    }

    pub async fn try_watch(mut self, path: &str, headers: &[(&str, &str)]) -> hyper::Result<Watch> {
        let response = self.send(Method::GET, path, headers, Bytes::new()).await?;
        assert_eq!(response.status(), StatusCode::OK);
        Ok(Watch { body: response.into_body(), buffer: Vec::new(), client: self })
    }
}

/// Sends a GET over a separate connection.
pub async fn get(server: &TestServer, path: &str) -> Answer {
    get_with(server, path, &[]).await
}

pub async fn get_with(server: &TestServer, path: &str, headers: &[(&str, &str)]) -> Answer {
    request(server, Method::GET, path, headers, Bytes::new()).await.expect("an answer")
}

pub async fn request(
    server: &TestServer,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> hyper::Result<Answer> {
    let mut client = Client::open(server).await;
    let response = client.send(method, path, headers, body).await?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
}

pub async fn watch(server: &TestServer, path: &str) -> Watch {
    let mut client = Client::open(server).await;
    client.sender.ready().await.expect("ready");
    client.watch(path).await
}

/// Open watch.
pub struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
    pub client: Client,
}

impl Watch {
    /// Returns the next line as sent; `None` is the end, `Err` a broken stream.
    pub async fn line(&mut self) -> Result<Option<String>, hyper::Error> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            match self.body.frame().await {
                Some(frame) => self.buffer.extend_from_slice(frame?.data_ref().expect("data")),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    let rest = std::mem::take(&mut self.buffer);
                    return Ok(Some(String::from_utf8_lossy(&rest).into_owned()));
                }
            }
        }
    }

    pub async fn next(&mut self) -> Option<Value> {
        let line = self.line().await.expect("the stream is whole")?;
        Some(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line}")))
    }

    /// Returns the next event, as `TYPE name`.
    pub async fn short(&mut self) -> String {
        match self.next().await {
            None => "END".to_owned(),
            Some(event) => {
                let kind = event["type"].as_str().expect("a type").to_owned();
                match event["object"]["metadata"]["name"].as_str() {
                    Some(name) => format!("{kind} {name}"),
                    None => kind,
                }
            }
        }
    }

    /// Returns whether nothing arrives for that time.
    pub async fn quiet(&mut self, time: Duration) -> bool {
        timeout(time, self.line()).await.is_err()
    }
}

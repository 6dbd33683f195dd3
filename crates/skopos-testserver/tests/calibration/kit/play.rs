//! Player of scripts on a server, which records what a client sees.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::client::{self, Answer};
use super::normal::Names;
use super::script::{Script, Step, media_type};
use super::target::Target;

/// Plays a script in its own namespace; returns its history. The history ends with an entry `failed` when the server does not
/// answer, or when a step fails that has to succeed.
pub(crate) async fn play<T: Target>(target: &T, script: &Script, namespace: &str) -> Vec<Value> {
    let mut player = Player {
        target,
        names: Names::new(namespace),
        page: String::new(),
        watches: BTreeMap::new(),
        history: Vec::new(),
    };
    if let Err(error) = player.make_namespace().await {
        player.history.push(json!({"failed": error.to_string()}));
        return player.history;
    }
    for step in &script.steps {
        if let Err(error) = player.step(step).await {
            player.history.push(json!({"failed": error.to_string(), "step": step.line}));
            break;
        }
    }
    player.history
}

/// Silence after which no more events are expected. The waits of real servers are shorter.
const QUIET_PERIOD: Duration = Duration::from_millis(1500);
/// Timeout of every expected response or event.
const STEP_TIMEOUT: Duration = Duration::from_secs(40);
/// Minimum duration of a request that the server delayed on purpose.
const MIN_WAIT: Duration = Duration::from_millis(2500);

struct Player<'a, T> {
    target: &'a T,
    names: Names,
    page: String,
    watches: BTreeMap<String, Watch>,
    history: Vec<Value>,
}

/// Open watch.
struct Watch {
    answer: Answer,
    buffer: BytesMut,
    framing: Framing,
    last_version: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Framing {
    Lines,
    /// Frames after a length of four bytes.
    Lengths,
}

/// Result of reading a stream.
enum Read {
    Event(Bytes),
    Quiet,
    End,
    Broken,
}

impl<T: Target> Player<'_, T> {
    async fn make_namespace(&mut self) -> io::Result<()> {
        let body = json!({"metadata": {"name": self.names.namespace}});
        let answer = self.request(Method::POST, "/api/v1/namespaces", &[], Some(&body)).await?;
        match answer.code {
            201 | 409 => Ok(()),
            code => Err(io::Error::other(format!("the namespace is not made: {code}"))),
        }
    }

    async fn step(&mut self, step: &Step) -> io::Result<()> {
        let words = step.words();
        let body = match &step.body {
            Some(body) => Some(self.fill(body).await?),
            None => None,
        };
        let body = body.as_ref();
        match words.as_slice() {
            ["COMPACT"] => self.target.compact().await,
            ["RESTART"] => {
                self.watches.clear();
                self.target.restart().await
            }
            ["MAKE", path] => self.quietly(Method::POST, path, body).await.map(drop),
            ["SET", path] => self.quietly(Method::PATCH, path, body).await.map(drop),
            ["DROP", path] => self.quietly(Method::DELETE, path, body).await.map(drop),
            ["EXPIRE", paths @ ..] => self.expire(paths).await,
            ["PAGE", path] => {
                let list = self.quietly(Method::GET, path, None).await?;
                let token = list["metadata"]["continue"].as_str();
                self.names.paged(&list);
                self.page = token.ok_or_else(|| io::Error::other("there is no next page"))?.to_owned();
                Ok(())
            }
            ["WATCH", name, path, types @ ..] => self.watch(name, path, types, &step.line).await,
            ["READ", name, "quiet"] => self.read(name, usize::MAX, Some(QUIET_PERIOD)).await,
            ["READ", name, "end"] => self.read(name, usize::MAX, None).await,
            ["READ", name, count] => {
                let count = count.parse().map_err(|_| io::Error::other("reads so many, quiet, or end"))?;
                self.read(name, count, None).await
            }
            ["CLOSE", name] => {
                self.watches.remove(*name);
                Ok(())
            }
            [verb @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS"), path, types @ ..] => {
                let method = verb.parse().map_err(io::Error::other)?;
                self.asked(method, path, types, body, &step.line).await
            }
            _ => Err(io::Error::other("there is no such step")),
        }
    }

    /// Sends a request that has to succeed and is not recorded.
    async fn quietly(&mut self, method: Method, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let path = self.path(path).await?;
        let reads = method == Method::GET;
        let answer = self.request(method, &path, &[], body).await?;
        let code = answer.code;
        let bytes = answer.whole().await?;
        if !(200..300).contains(&code) {
            return Err(io::Error::other(format!("{code}: {}", String::from_utf8_lossy(&bytes))));
        }
        let value: Value = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        if !reads {
            self.names.wrote(&value);
            self.settle(&path).await?;
        }
        self.names.answer(&value);
        Ok(value)
    }

    async fn expire(&mut self, paths: &[&str]) -> io::Result<()> {
        let mut keys = Vec::new();
        for path in paths {
            let (resource, name) =
                path.split_once('/').ok_or_else(|| io::Error::other("an object expires"))?;
            keys.push(format!("{resource}/{}/{name}", self.names.namespace));
        }
        let version = self.target.expire(&keys).await?;
        self.names.writes.push(version);
        for path in paths {
            let path = self.path(path).await?;
            self.settle(&path).await?;
        }
        Ok(())
    }

    /// Sends a request and records its response.
    async fn asked(
        &mut self,
        method: Method,
        path: &str,
        types: &[&str],
        body: Option<&Value>,
        line: &str,
    ) -> io::Result<()> {
        let path = self.path(path).await?;
        self.names.paging = path.contains("continue=");
        let writes = !matches!(method, Method::GET | Method::HEAD);
        let begin = Instant::now();
        let answer = self.request(method, &path, types, body).await?;
        let waited = begin.elapsed() > MIN_WAIT;
        let entry = self.entry(line, &answer, waited);
        let (code, protobuf) = (answer.code, is_protobuf(&answer));
        let bytes = answer.whole().await?;
        let value = serde_json::from_slice::<Value>(&bytes).ok();
        if let Some(value) = value.as_ref().filter(|_| writes && (200..300).contains(&code)) {
            self.names.wrote(value);
            self.settle(&path).await?;
        }
        self.note(entry, &bytes, value, protobuf);
        Ok(())
    }

    fn entry(&self, line: &str, answer: &Answer, waited: bool) -> Value {
        let mut entry = json!({"step": line, "code": answer.code, "type": answer.header("content-type")});
        if !answer.header("retry-after").is_empty() {
            entry["retry-after"] = answer.header("retry-after").into();
        }
        if !answer.header("warning").is_empty() {
            entry["warning"] = self.names.text(answer.header("warning"));
        }
        if waited {
            entry["waited"] = true.into();
        }
        entry
    }

    fn note(&mut self, mut entry: Value, bytes: &[u8], value: Option<Value>, protobuf: bool) {
        entry["body"] = match value {
            Some(value) => self.names.answer(&value),
            None if protobuf => protobuf_kind(bytes).into(),
            None => self.names.text(&String::from_utf8_lossy(bytes)),
        };
        self.history.push(entry);
    }

    async fn watch(&mut self, name: &str, path: &str, types: &[&str], line: &str) -> io::Result<()> {
        let path = self.path(path).await?;
        let begin = Instant::now();
        let answer = self.request(Method::GET, &path, types, None).await?;
        let waited = begin.elapsed() > MIN_WAIT;
        let entry = self.entry(line, &answer, waited);
        let framing = if is_protobuf(&answer) { Framing::Lengths } else { Framing::Lines };
        if answer.code == 200 {
            self.history.push(entry);
            let watch = Watch { answer, buffer: BytesMut::new(), framing, last_version: String::new() };
            self.watches.insert(name.to_owned(), watch);
        } else {
            let bytes = answer.whole().await?;
            self.note(entry, &bytes, serde_json::from_slice(&bytes).ok(), false);
        }
        Ok(())
    }

    /// Reads up to `count` events; if `quiet` is given, only until nothing arrives for that time.
    async fn read(&mut self, name: &str, count: usize, quiet: Option<Duration>) -> io::Result<()> {
        // A refused watch has no events.
        let Some(watch) = self.watches.get_mut(name) else { return Ok(()) };
        let mut events: Vec<Value> = Vec::new();
        let mut then = None;
        let to_the_end = count == usize::MAX && quiet.is_none();
        while events.len() < count {
            match watch.next(quiet.unwrap_or(STEP_TIMEOUT)).await {
                Read::Event(frame) if watch.framing == Framing::Lengths => {
                    events.push(watch_event_type(&frame).into())
                }
                Read::Event(line) => {
                    let event: Value = serde_json::from_slice(&line).map_err(io::Error::other)?;
                    if let Some(version) = event["object"]["metadata"]["resourceVersion"].as_str() {
                        watch.last_version = version.to_owned();
                    }
                    let event = self.names.event(&event);
                    // Time and number of plain bookmarks are up to the server; only the last one has a fixed time.
                    if !is_plain_bookmark(&event) || to_the_end && events.last() != Some(&event) {
                        events.push(event);
                    }
                }
                Read::Quiet if quiet.is_some() => break,
                Read::Quiet => then = Some("nothing"),
                Read::End => then = Some("end"),
                Read::Broken => then = Some("broken"),
            }
            if then.is_some() {
                break;
            }
        }
        let mut entry = json!({"read": name, "events": events});
        if let Some(then) = then {
            entry["then"] = then.into();
        }
        self.history.push(entry);
        Ok(())
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        types: &[&str],
        body: Option<&Value>,
    ) -> io::Result<Answer> {
        let patch = method == Method::PATCH;
        let types: Vec<&str> = types.iter().map(|short| media_type(short)).collect();
        let content_type = match types.first() {
            Some(media_type) if body.is_some() => media_type,
            _ if patch => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut headers = vec![("user-agent", "calibration")];
        match types.first() {
            Some(media_type) if body.is_none() => headers.push(("accept", *media_type)),
            _ => headers.push(("accept", "application/json")),
        }
        let body = match body {
            // A text is sent unchanged.
            Some(Value::String(text)) => Bytes::from(text.clone()),
            Some(value) => Bytes::from(value.to_string()),
            None => Bytes::new(),
        };
        if !body.is_empty() {
            headers.push(("content-type", content_type));
        }
        let answer = client::send(self.target, method, path, &headers, body);
        timeout(STEP_TIMEOUT, answer).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Waits until the server's watch cache has the writes to a path. A read at version 0 and a watch may be served from a
    /// lagging cache (L2). The lag depends on the load of the machine, so no script can predict it.
    async fn settle(&self, path: &str) -> io::Result<()> {
        let Some(collection) = collection(path) else { return Ok(()) };
        let begin = Instant::now();
        let Some(newest) = self.version_of(&format!("{collection}?limit=1")).await? else { return Ok(()) };
        let fresh =
            format!("{collection}?limit=1&resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
        while self.version_of(&fresh).await?.is_none() {
            if begin.elapsed() > STEP_TIMEOUT {
                return Err(io::Error::other(format!("{collection} is not in the watch cache in time")));
            }
        }
        Ok(())
    }

    /// Returns the version of a list; `None` if the list is refused.
    async fn version_of(&self, path: &str) -> io::Result<Option<u64>> {
        let answer = self.request(Method::GET, path, &[], None).await?;
        let code = answer.code;
        let bytes = answer.whole().await?;
        if code != 200 {
            return Ok(None);
        }
        let list: Value = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        Ok(list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()))
    }

    /// Returns a path of the server from a step's path.
    async fn path(&mut self, path: &str) -> io::Result<String> {
        let path = self.fill_text(path).await?;
        if path.starts_with('/') {
            return Ok(path);
        }
        let resource = path.split(['/', '?']).next().unwrap_or_default();
        let namespace = &self.names.namespace;
        Ok(match resource {
            "namespaces" | "nodes" => format!("/api/v1/{path}"),
            "deployments" | "replicasets" | "statefulsets" | "daemonsets" => {
                format!("/apis/apps/v1/namespaces/{namespace}/{path}")
            }
            _ => format!("/api/v1/namespaces/{namespace}/{path}"),
        })
    }

    async fn fill(&mut self, value: &Value) -> io::Result<Value> {
        let text = value.to_string();
        if !text.contains('$') {
            return Ok(value.clone());
        }
        serde_json::from_str(&self.fill_text(&text).await?).map_err(io::Error::other)
    }

    /// Replaces variables with their values.
    async fn fill_text(&mut self, text: &str) -> io::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let end =
                after.find(|c: char| !(c.is_ascii_alphanumeric() || ".+".contains(c))).unwrap_or(after.len());
            let (variable, after) = after.split_at(end);
            out.push_str(&self.variable(variable).await?);
            rest = after;
        }
        Ok(out + rest)
    }

    async fn variable(&mut self, variable: &str) -> io::Result<String> {
        let unknown = || io::Error::other(format!("${variable} stands for nothing"));
        let (name, more) = variable.split_once('+').unwrap_or((variable, "0"));
        let more: u64 = more.parse().map_err(|_| unknown())?;
        if name == "ns" {
            return Ok(self.names.namespace.clone());
        }
        if name == "page" {
            return Ok(self.page.clone());
        }
        if let Some(of) = name.strip_prefix("uid.") {
            return self.names.uid(of).map(str::to_owned).ok_or_else(unknown);
        }
        let version = if name == "now" {
            self.newest().await?
        } else if let Ok(number) = name.parse::<usize>() {
            *self.names.writes.get(number.wrapping_sub(1)).ok_or_else(unknown)?
        } else {
            self.watches.get(name).and_then(|watch| watch.last_version.parse().ok()).ok_or_else(unknown)?
        };
        if more > 0 {
            self.names.asked.push((version + more, variable.to_owned()));
        }
        Ok((version + more).to_string())
    }

    async fn newest(&self) -> io::Result<u64> {
        let path = format!("/api/v1/namespaces/{}/configmaps?limit=1", self.names.namespace);
        self.version_of(&path).await?.ok_or_else(|| io::Error::other("a list without a version"))
    }
}

impl Watch {
    async fn next(&mut self, wait: Duration) -> Read {
        loop {
            if let Some(frame) = self.frame() {
                return Read::Event(frame);
            }
            match timeout(wait, self.answer.chunk()).await {
                Err(_) => return Read::Quiet,
                Ok(Err(_)) => return Read::Broken,
                Ok(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Ok(None)) if self.buffer.is_empty() => return Read::End,
                Ok(Ok(None)) => return Read::Event(self.buffer.split().freeze()),
            }
        }
    }

    fn frame(&mut self) -> Option<Bytes> {
        match self.framing {
            Framing::Lines => {
                let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
                Some(self.buffer.split_to(end + 1).freeze())
            }
            Framing::Lengths => {
                let length = self.buffer.get(..4)?.get_u32() as usize;
                (self.buffer.len() >= 4 + length).then(|| self.buffer.split_to(4 + length).freeze())
            }
        }
    }
}

/// Returns the path of the collection that a path belongs to; `None` outside of the API groups.
fn collection(path: &str) -> Option<String> {
    let path = path.split('?').next()?;
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let group = match *segments.first()? {
        "api" => 2,
        "apis" => 3,
        _ => return None,
    };
    let below = segments.get(group..)?;
    let depth = if below.first() == Some(&"namespaces") && below.len() > 2 { 3 } else { 1 };
    Some(format!("/{}", segments.get(..group + depth)?.join("/")))
}

/// Returns whether the event is a bookmark other than the one at the end of the initial events.
fn is_plain_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK"
        && event["object"].pointer("/metadata/annotations").is_none()
        && event["object"].pointer("/rows/0/object/metadata/annotations").is_none()
}

fn is_protobuf(answer: &Answer) -> bool {
    answer.header("content-type").starts_with("application/vnd.kubernetes.protobuf")
}

/// Returns the beginning of a message in Kubernetes' protobuf: its magic, apiVersion and kind.
fn protobuf_kind(bytes: &[u8]) -> String {
    let Some(message) = bytes.strip_prefix(b"k8s\0") else {
        return "no k8s\\0 before the message".to_owned();
    };
    // Field 1 is the TypeMeta: its field 1 the apiVersion, its field 2 the kind.
    let Some([0x0a, _, rest @ ..]) = message.get(..64.min(message.len())) else {
        return "no TypeMeta".to_owned();
    };
    let text = |rest: &[u8]| -> Option<String> {
        let (tag_and_length, rest) = rest.split_at_checked(2)?;
        Some(String::from_utf8_lossy(rest.get(..tag_and_length[1] as usize)?).into_owned())
    };
    let api_version = text(rest).unwrap_or_default();
    let kind = rest.get(2 + api_version.len()..).and_then(text).unwrap_or_default();
    format!("k8s\\0 {api_version} {kind}")
}

/// Returns the type of a WatchEvent, which has no magic and follows its length: field 1.
fn watch_event_type(frame: &[u8]) -> String {
    match frame.get(4..) {
        Some([0x0a, length, rest @ ..]) => {
            let kind = String::from_utf8_lossy(&rest[..(*length as usize).min(rest.len())]).into_owned();
            let marked = rest.windows(4).any(|window| window == b"k8s\0");
            format!("{kind}{}", if marked { ", the object marked k8s\\0" } else { "" })
        }
        _ => "no WatchEvent".to_owned(),
    }
}

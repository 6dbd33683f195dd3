//! Users of the gateway: each writes an object, reads it in various ways, and repeats this.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::BodyExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use skopos_fleet::ClusterId;
use skopos_gateway::{Gateway, LimitedBody, Peer};
use skopos_wire::ObjectKey;
use tokio::time::{Instant, timeout, timeout_at};

use super::answers::{HOME, Reading};
use super::{Named, Visited};
use crate::cluster::{NAMESPACES, VISITED};
use crate::history::{Answer, Asked, AtGateway, Fact, STAMP_LABEL, Visitor, VisitorId};
use crate::plan::VisitorPlan;
use crate::users::Scene;

/// A user of the gateway.
pub(super) struct Visiting {
    id: VisitorId,
    number: usize,
    gateway: Gateway,
    peer: Arc<Peer>,
    members: Arc<[Named]>,
    scene: Scene,
    plan: VisitorPlan,
    until: Duration,
    random: fastrand::Rng,
    /// The existing objects, as far as this visitor knows, each with the member's index.
    there: BTreeSet<(usize, ObjectKey)>,
}

/// A request to be sent.
struct Sending {
    /// The member, by its index; `None`: all members.
    member: Option<usize>,
    what: Asked,
    method: Method,
    path: String,
    body: Bytes,
    /// Time limit of the answer.
    limit: Duration,
}

/// Longer than the gateway takes for any answer.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Time for which a watch is read.
const WATCHED: Duration = Duration::from_secs(2);

/// Objects of a visitor in a namespace, and those that all share.
const OWN: u8 = 3;
const SHARED: u8 = 2;

impl Visiting {
    pub(super) fn new(
        visited: &Visited,
        scene: &Scene,
        number: usize,
        plan: &VisitorPlan,
        until: Duration,
        random: fastrand::Rng,
    ) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 1000 + u16::try_from(number).unwrap_or(0)));
        Self {
            id: scene.recorder.visitor(Visitor { name: format!("visitor-{number}") }),
            number,
            gateway: visited.gateway.clone(),
            peer: Arc::new(Peer::new(address, true, visited.draining.clone())),
            members: visited.members.clone(),
            scene: scene.clone(),
            plan: plan.clone(),
            until,
            random,
            there: BTreeSet::new(),
        }
    }

    /// Runs the visitor from the first write to the last read.
    pub(super) async fn run(mut self) {
        self.scene.until(self.plan.starts).await;
        let end = self.scene.origin + self.until;
        while Instant::now() < end {
            self.turn().await;
            let every = self.plan.every.as_millis() as u64;
            let pause = Duration::from_millis(self.random.u64(every / 2..=every * 3 / 2));
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes, and then reads.
    async fn turn(&mut self) {
        let member = self.random.usize(0..self.members.len());
        let key = self.some_key();
        self.write(member, &key).await;
        for _ in 0..self.random.usize(0..=3) {
            let most = self.plan.pause.as_millis() as u64;
            let pause = Duration::from_millis(self.random.u64(0..=most));
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            self.read(member, &key).await;
        }
    }

    fn some_key(&mut self) -> ObjectKey {
        let namespace = NAMESPACES[self.random.usize(0..NAMESPACES.len())];
        let name = match self.random.u8(0..OWN + SHARED) {
            own if own < OWN => format!("v{}-{own}", self.number),
            shared => format!("shared-{}", shared - OWN),
        };
        ObjectKey::namespaced(namespace, name)
    }

    async fn write(&mut self, member: usize, key: &ObjectKey) {
        let number = self.scene.recorder.key(key);
        let there = self.there.contains(&(member, key.clone()));
        let (within, name) = (path_in(key.namespace()), key.name());
        let (what, method, path, body) = match (there, self.random.u8(0..4)) {
            (false, _) => {
                let stamp = self.scene.recorder.next_stamp();
                let body = self.object(member, key, stamp);
                (Asked::Create { key: number, stamp }, Method::POST, within, body)
            }
            (true, 0) => {
                (Asked::Delete { key: number }, Method::DELETE, format!("{within}/{name}"), Bytes::new())
            }
            (true, _) => {
                let stamp = self.scene.recorder.next_stamp();
                let body = self.object(member, key, stamp);
                (Asked::Update { key: number, stamp }, Method::PUT, format!("{within}/{name}"), body)
            }
        };
        let limit = self.limit();
        let answer = self.send(Sending { member: Some(member), what, method, path, body, limit }).await;
        let place = (member, key.clone());
        match (what, answer.code) {
            (Asked::Create { .. } | Asked::Update { .. }, 200 | 201 | 409) => drop(self.there.insert(place)),
            (Asked::Update { .. } | Asked::Delete { .. }, 404) | (Asked::Delete { .. }, 200) => {
                self.there.remove(&place);
            }
            _ => {}
        }
    }

    async fn read(&mut self, member: usize, key: &ObjectKey) {
        let of = self.members[member].id;
        let number = self.scene.recorder.key(key);
        let get = Asked::Get { key: number, of };
        let namespace = NAMESPACES.iter().position(|namespace| Some(*namespace) == key.namespace());
        let namespace = namespace.and_then(|at| u8::try_from(at).ok()).filter(|_| self.random.bool());
        let within = path_in(namespace.and(key.namespace()));
        let one = format!("{}/{}", path_in(key.namespace()), key.name());
        let (list, watch) = (Asked::List { namespace }, Asked::Watch { namespace });
        let (member, what, path) = match self.random.u8(0..20) {
            0..6 => (Some(member), get, one),
            6..11 => (Some(member), list, within),
            11..14 => (Some(member), watch, format!("{within}?watch=true")),
            14..17 => (None, list, within),
            17 => (None, get, format!("{one}?clusters={}", self.selected(member))),
            _ => (None, watch, format!("{within}?watch=true")),
        };
        let limit = self.limit();
        let (method, body) = (Method::GET, Bytes::new());
        self.send(Sending { member, what, method, path, body, limit }).await;
    }

    /// Returns a member's name in `?clusters=`: its context, where that cannot be a member's name.
    fn selected(&self, member: usize) -> String {
        let Named { name, context, .. } = &self.members[member];
        let chosen = if ClusterId::new(context).is_err() { context } else { name };
        utf8_percent_encode(chosen, NON_ALPHANUMERIC).to_string()
    }

    fn limit(&mut self) -> Duration {
        match self.random.u32(0..self.plan.hasty.max(2)) {
            0 => Duration::from_millis(self.random.u64(0..100)),
            _ => TIMEOUT,
        }
    }

    fn object(&self, member: usize, key: &ObjectKey, stamp: u32) -> Bytes {
        let metadata = json!({
            "namespace": key.namespace(),
            "name": key.name(),
            "labels": {STAMP_LABEL: stamp.to_string()},
            "annotations": {HOME: self.members[member].name},
        });
        let object: Value = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata});
        object.to_string().into()
    }

    /// Sends a request, and records the request and the answer.
    async fn send(&self, sending: Sending) -> Answer {
        let recorder = &self.scene.recorder;
        let visit = recorder.next_visit();
        let member = sending.member.map(|member| self.members[member].id);
        let asked = AtGateway::Asked { visit, visitor: self.id, member, what: sending.what };
        recorder.record(Fact::Gateway(asked));
        let limit = sending.limit;
        let answer = timeout(limit, self.answer(sending)).await.unwrap_or_default();
        let told = AtGateway::Answered { visit, answer: Box::new(answer.clone()) };
        recorder.record(Fact::Gateway(told));
        answer
    }

    async fn answer(&self, sending: Sending) -> Answer {
        let place = match sending.member {
            Some(member) => format!("/clusters/{}", self.members[member].name),
            None => "/fleet".to_owned(),
        };
        let mut request = Request::new(LimitedBody::whole(sending.body));
        *request.method_mut() = sending.method;
        *request.uri_mut() = match format!("{place}{}", sending.path).parse() {
            Ok(uri) => uri,
            Err(_) => return Answer::default(),
        };
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (parts, mut body) = self.gateway.answer(self.peer.clone(), request).await.into_parts();
        let until = match sending.what {
            Asked::Watch { .. } => Instant::now() + WATCHED,
            _ => Instant::now() + TIMEOUT,
        };
        let mut read = Vec::new();
        while let Ok(Some(frame)) = timeout_at(until, body.frame()).await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => read.extend_from_slice(&data),
                Ok(Err(_trailers)) => {}
                // An answer that breaks off does not count.
                Err(_) => return Answer::default(),
            }
        }
        let reading = Reading { recorder: &self.scene.recorder, members: &self.members, what: sending.what };
        reading.read(sending.member.map(|member| self.members[member].id), &parts, &read)
    }
}

fn path_in(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/{VISITED}"),
        None => format!("/api/v1/{VISITED}"),
    }
}

//! Helpers of these tests: a server reached over in-memory pipes, and a sink that keeps a map.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos_reflect::{Change, Clock, Commit, ReflectorState, ReplaceCause, Sink, Time};
use skopos_testserver::TestServer;
use skopos_transport::{Dialed, Protocol, Transport, TransportErrorKind, TransportOptions, dialer_fn};
use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Makes an HTTP/2 transport over in-memory pipes.
pub fn transport_to(server: &Arc<TestServer>) -> Transport {
    transport_past(server, refused)
}

/// The result of a dial without a server.
pub type Away = fn() -> Result<Dialed, TransportErrorKind>;

pub fn refused() -> Result<Dialed, TransportErrorKind> {
    Err(TransportErrorKind::Refused { to: "memory".into(), reason: "paused".into() })
}

/// Accepts a connection and ends it, as a load balancer without backends does.
pub fn hung_up() -> Result<Dialed, TransportErrorKind> {
    Ok(Dialed::new(tokio::io::duplex(1).0, Protocol::Http2))
}

pub fn transport_past(server: &Arc<TestServer>, away: Away) -> Transport {
    let server = Arc::downgrade(server);
    let dialer = dialer_fn(move |_| {
        let connected = server.upgrade().map(|server| server.connect());
        async move {
            match connected {
                Some(Ok(stream)) => Ok(Dialed::new(stream, Protocol::Http2)),
                _ => away(),
            }
        }
    });
    let config = kube::Config::new("http://memory.test".parse().expect("a url"));
    let options = TransportOptions { seed: Some(7), wall_clock: None, ..TransportOptions::default() };
    Transport::with_dialer(config, options, dialer).expect("a transport")
}

pub fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": name, "labels": {"value": value}},
        "data": {"value": value},
    })
}

pub fn put(server: &TestServer, name: &str, value: &str) -> u64 {
    let object = config_map(name, value);
    let put = match server.get("configmaps", Some("default"), name) {
        Ok(_) => server.update(object),
        Err(_) => server.create(object),
    };
    let put = put.expect("put");
    put["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).expect("a resource version")
}

pub fn delete(server: &TestServer, name: &str) {
    server.delete("configmaps", Some("default"), name).expect("deleted");
}

/// Returns the server's content: key to (uid, rv).
pub fn truth(server: &TestServer) -> BTreeMap<String, (String, String)> {
    let (objects, _) = server.list("configmaps", None).expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    objects
        .iter()
        .map(|object| &object["metadata"])
        .map(|meta| {
            let key = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
            (key, (text(&meta["uid"]), text(&meta["resourceVersion"])))
        })
        .collect()
}

pub async fn eventually(limit: Duration, what: &str, mut reached: impl FnMut() -> bool) -> Duration {
    let begun = tokio::time::Instant::now();
    while !reached() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

/// A store: the staged and the visible content.
#[derive(Debug, Default)]
pub struct Map {
    pub seen: BTreeMap<String, (String, String)>,
    staged: BTreeMap<String, (String, String)>,
    pub causes: Vec<ReplaceCause>,
    pub epoch: u64,
    pub fresh: Option<Time>,
    pub states: Vec<ReflectorState>,
    pub watch_list_unsupported: bool,
}

/// A [`Map`] that a test can read while a driver writes it.
#[derive(Clone, Debug, Default)]
pub struct SharedMap(pub Arc<Mutex<Map>>);

fn entry(object: &RawObject) -> (String, (String, String)) {
    (object.key().to_string(), (object.uid().to_owned(), object.resource_version().to_string()))
}

impl SharedMap {
    pub fn equals(&self, server: &TestServer) -> bool {
        self.0.lock().seen == truth(server)
    }

    pub fn lists(&self) -> usize {
        self.0.lock().causes.len()
    }

    pub fn age(&self, clock: &Clock) -> Option<Duration> {
        self.0.lock().fresh.map(|fresh| clock.now().since(fresh))
    }
}

impl Sink for SharedMap {
    fn begin_replace(&mut self) {
        self.0.lock().staged.clear();
    }

    fn stage(&mut self, object: RawObject) {
        let (key, value) = entry(&object);
        self.0.lock().staged.insert(key, value);
    }

    fn unstage(&mut self, key: &ObjectKey) {
        self.0.lock().staged.remove(&key.to_string());
    }

    fn stage_unreadable(&mut self, key: &ObjectKey) {
        let map = &mut *self.0.lock();
        if let Some(old) = map.seen.get(&key.to_string()) {
            map.staged.insert(key.to_string(), old.clone());
        }
    }

    fn commit_replace(&mut self, commit: Commit) {
        let map = &mut *self.0.lock();
        map.seen = std::mem::take(&mut map.staged);
        map.causes.push(commit.cause);
        map.epoch = commit.epoch;
    }

    fn abort_replace(&mut self) {
        self.0.lock().staged.clear();
    }

    fn apply(&mut self, changes: &mut Vec<Change>, _resource_version: &ResourceVersion) {
        let map = &mut *self.0.lock();
        for change in changes.drain(..) {
            match change {
                Change::Put(object) => {
                    let (key, value) = entry(&object);
                    map.seen.insert(key, value);
                }
                other => {
                    map.seen.remove(&other.key().to_string());
                }
            }
        }
    }

    fn advance(&mut self, _resource_version: &ResourceVersion) {}

    fn fresh_as_of(&mut self, at: Time) {
        self.0.lock().fresh = Some(at);
    }

    fn fresh_only_as_of(&mut self, at: Option<Time>) {
        self.0.lock().fresh = at;
    }

    fn watch_list_unsupported(&mut self) {
        self.0.lock().watch_list_unsupported = true;
    }

    fn state(&mut self, state: &ReflectorState) {
        self.0.lock().states.push(state.clone());
    }
}

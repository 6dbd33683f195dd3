//! Requests of clients, recorded as they arrive.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos_testserver::{Outcome, RequestRecord};

use super::moments::{Moment, Moments};
use super::{GATEWAY, PROCESSES};
use crate::history::{At, AtGateway, AtOutside, ClusterId, Fact, Fnv, ProcessId, Recorder, Target, Verb};

/// The requests of one cluster.
pub(super) struct Requests {
    cluster: ClusterId,
    recorder: Recorder,
    moments: Arc<Moments>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Open watches by the numbers of their requests.
    watches: BTreeMap<u64, Watch>,
    /// The connections of guests.
    guests: BTreeMap<u64, Guest>,
    count: u64,
}

/// A user of the cluster that is not a client of the plan.
#[derive(Clone, Copy)]
enum Guest {
    Gateway,
    Process(ProcessId),
}

/// An open watch.
struct Watch {
    /// Its connection.
    connection: u64,
    since: At,
}

impl Requests {
    pub(super) fn new(cluster: ClusterId, recorder: Recorder, moments: Arc<Moments>) -> Self {
        Self { cluster, recorder, moments, open: Mutex::default() }
    }

    /// Notes the owner of a new connection.
    pub(super) fn connected(&self, owner: usize, connection: u64) {
        let process = owner.checked_sub(PROCESSES).and_then(|number| u8::try_from(number).ok());
        let guest = match process {
            _ if owner == GATEWAY => Guest::Gateway,
            Some(process) => Guest::Process(ProcessId(process)),
            None => return,
        };
        self.open.lock().guests.insert(connection, guest);
    }

    fn guest(&self, record: &RequestRecord) -> Option<Guest> {
        self.open.lock().guests.get(&record.connection.get()).copied()
    }

    /// Records a request that arrived, or a change of its outcome.
    pub(super) fn take(&self, record: &RequestRecord) {
        match record.outcome {
            Outcome::Waiting => self.came(record),
            Outcome::Streaming(200) if record.verb == "watch" => {
                let watch = Watch { connection: record.connection.get(), since: self.recorder.now() };
                self.open.lock().watches.insert(record.id, watch);
                self.moments.note(Moment::WatchOpened);
                if is_initial(record) {
                    self.moments.note(Moment::ListStreamed);
                }
            }
            Outcome::Answered(code) => {
                let watch = self.open.lock().watches.remove(&record.id);
                if let Some(watch) = watch.filter(|_| self.guest(record).is_none()) {
                    self.ended(record, &watch);
                }
                if record.verb == "list" && code == 200 && is_first_page(record) {
                    self.moments.note(Moment::Paged);
                }
            }
            Outcome::Dropped => {
                self.open.lock().watches.remove(&record.id);
            }
            Outcome::Streaming(_) => {}
        }
    }

    /// Returns the connections with open watches, and their numbers of watches.
    pub(super) fn watched(&self) -> BTreeMap<u64, usize> {
        let mut watched = BTreeMap::new();
        for watch in self.open.lock().watches.values() {
            *watched.entry(watch.connection).or_default() += 1;
        }
        watched
    }

    pub(super) fn count(&self) -> u64 {
        self.open.lock().count
    }

    fn came(&self, record: &RequestRecord) {
        self.open.lock().count += 1;
        let limit = param(record, "limit").and_then(|limit| limit.parse().ok());
        let verb = match record.verb {
            "list" if limit == Some(1) => Verb::Probe,
            "list" => Verb::List,
            "watch" => Verb::Watch,
            "get" => Verb::Get,
            _ => Verb::Other,
        };
        if verb == Verb::Probe {
            self.moments.note(Moment::Probed);
        }
        let (cluster, target) = (self.cluster, self.recorder.target(&target(record)));
        let connection = u32::try_from(record.connection.get()).unwrap_or(u32::MAX);
        if let Some(guest) = self.guest(record) {
            self.recorder.record(match guest {
                Guest::Gateway => Fact::Gateway(AtGateway::Forwarded { cluster, connection, verb, target }),
                Guest::Process(process) => {
                    Fact::Outside(AtOutside::Requested { process, connection, verb, target })
                }
            });
            return;
        }
        self.recorder.record(Fact::Requested {
            cluster,
            connection,
            verb,
            target,
            rv: param(record, "resourceVersion").and_then(|rv| rv.parse().ok()),
            limit,
            further: param(record, "continue").map(|token| number(&token)),
            timeout: param(record, "timeoutSeconds")
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            initial: is_initial(record),
            metadata: record.accept.as_ref().is_some_and(|form| form.contains("as=PartialObjectMetadata")),
        });
    }

    fn ended(&self, record: &RequestRecord, watch: &Watch) {
        self.recorder.record(Fact::WatchEnded {
            cluster: self.cluster,
            target: self.recorder.target(&target(record)),
            stood: self.recorder.now().since(watch.since),
        });
    }
}

/// Returns the target of a request.
fn target(record: &RequestRecord) -> Target {
    Target {
        resource: record.resource.clone().unwrap_or_default(),
        namespace: namespace_in(&record.path),
        labels: param(record, "labelSelector").unwrap_or_default(),
        fields: param(record, "fieldSelector").unwrap_or_default(),
    }
}

/// Returns a hash that is the same in every process.
fn number(text: &str) -> u64 {
    let mut hasher = Fnv::default();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns a parameter that is present and not empty.
fn param(record: &RequestRecord, name: &str) -> Option<String> {
    record.query_param(name).filter(|value| !value.is_empty())
}

fn is_initial(record: &RequestRecord) -> bool {
    param(record, "sendInitialEvents").as_deref() == Some("true")
}

fn is_first_page(record: &RequestRecord) -> bool {
    param(record, "continue").is_none() && param(record, "limit").is_some_and(|limit| limit != "1")
}

fn namespace_in(path: &str) -> Option<String> {
    let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(1);
    let namespace = parts.next()?;
    parts.next().map(|_| namespace.to_owned())
}

//! What clients ask, written down as it comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos_testserver::{Outcome, RequestRecord};

use super::moments::{Moment, Moments};
use crate::history::{ClusterId, Fact, Recorder, Target, Verb};

/// The requests of one cluster.
pub(super) struct Requests {
    cluster: ClusterId,
    recorder: Recorder,
    moments: Arc<Moments>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Open watches, and their connections.
    watches: BTreeMap<u64, u64>,
    count: u64,
}

impl Requests {
    pub(super) fn new(cluster: ClusterId, recorder: Recorder, moments: Arc<Moments>) -> Self {
        Self { cluster, recorder, moments, open: Mutex::default() }
    }

    /// A request came, or its outcome changed.
    pub(super) fn take(&self, record: &RequestRecord) {
        match record.outcome {
            Outcome::Waiting => self.came(record),
            Outcome::Streaming(200) if record.verb == "watch" => {
                self.open.lock().watches.insert(record.id, record.connection.get());
                self.moments.note(Moment::WatchOpened);
                if is_initial(record) {
                    self.moments.note(Moment::ListStreamed);
                }
            }
            Outcome::Answered(code) => {
                self.open.lock().watches.remove(&record.id);
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

    /// Connections with open watches, and how many.
    pub(super) fn watched(&self) -> BTreeMap<u64, usize> {
        let mut watched = BTreeMap::new();
        for connection in self.open.lock().watches.values() {
            *watched.entry(*connection).or_default() += 1;
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
        let target = Target {
            resource: record.resource.clone().unwrap_or_default(),
            namespace: namespace_in(&record.path),
            labels: param(record, "labelSelector").unwrap_or_default(),
            fields: param(record, "fieldSelector").unwrap_or_default(),
        };
        self.recorder.record(Fact::Requested {
            cluster: self.cluster,
            connection: u32::try_from(record.connection.get()).unwrap_or(u32::MAX),
            verb,
            target: self.recorder.target(&target),
            rv: param(record, "resourceVersion").and_then(|rv| rv.parse().ok()),
            limit,
            further: param(record, "continue").is_some(),
            initial: is_initial(record),
        });
    }
}

/// A parameter that is there and not empty.
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

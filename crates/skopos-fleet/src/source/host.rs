//! Objects of a host cluster, watched while the source runs.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SelectAll, Stream, StreamExt as _, select_all};
use kube::core::ApiResource;
use skopos::{Informer, InformerFactory, InformerOptions, RawObject, Snapshot, Transform};
use tokio::time::{Instant, sleep, timeout_at};

use super::publish::ClusterSink;
use crate::cluster::Cluster;

/// Delay for which changes are gathered before they are processed.
const GATHER_DELAY: Duration = Duration::from_millis(50);

/// Interval between attempts to reach the host's objects.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// A resource to watch.
#[derive(Clone)]
pub(super) struct Wanted {
    resource: ApiResource,
    /// A label selector in kubectl's notation.
    labels: &'static str,
    /// Set if the source cannot do without this resource. Otherwise the host may refuse it.
    needed: bool,
}

/// The content of each wanted resource, in their order; `None` if the host refuses one that is not needed.
pub(super) type View = Vec<Option<Snapshot<RawObject>>>;

/// Follower of a host's objects.
pub(super) struct Follower<'a> {
    host: &'a Cluster,
    namespaces: &'a [String],
    wanted: &'a [Wanted],
    sink: &'a ClusterSink,
    running: Option<Running>,
}

/// The informers on one connection to the host.
struct Running {
    factory: InformerFactory,
    informers: Vec<Informer<RawObject>>,
    /// A stream of change notifications.
    events: SelectAll<Pin<Box<dyn Stream<Item = ()> + Send>>>,
    changed: bool,
}

impl Wanted {
    pub(super) fn new(group: &str, kind: &str, plural: &str, labels: &'static str, needed: bool) -> Self {
        let version = "v1".to_owned();
        let api_version = if group.is_empty() { version.clone() } else { format!("{group}/v1") };
        let (group, kind, plural) = (group.to_owned(), kind.to_owned(), plural.to_owned());
        Self { resource: ApiResource { group, version, api_version, kind, plural }, labels, needed }
    }

    /// Sets another version than v1, for a resource of a group.
    #[must_use]
    pub(super) fn version(mut self, version: &str) -> Self {
        self.resource.api_version = format!("{}/{version}", self.resource.group);
        self.resource.version = version.to_owned();
        self
    }
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        host: &'a Cluster,
        namespaces: &'a [String],
        wanted: &'a [Wanted],
        sink: &'a ClusterSink,
    ) -> Self {
        Self { host, namespaces, wanted, sink, running: None }
    }

    /// Returns the content of the wanted resources: first when all are synced, then after each change. When the
    /// connection to the host changes, it starts again there.
    pub(super) async fn next(&mut self) -> View {
        loop {
            let running = match &mut self.running {
                Some(running) => running,
                none => match start(self.host, self.namespaces, self.wanted).await {
                    Ok(running) => none.insert(running),
                    Err(reason) => {
                        self.sink.trouble(Some(reason.into()));
                        sleep(RETRY_INTERVAL).await;
                        continue;
                    }
                },
            };
            self.sink.trouble(running.trouble(self.wanted));
            if let Some(view) = running.view(self.wanted).filter(|_| running.changed) {
                running.changed = false;
                return view;
            }
            if !running.settle().await {
                self.running = None;
                // The replacement factory will be available in a moment.
                sleep(GATHER_DELAY).await;
            }
        }
    }
}

async fn start(host: &Cluster, namespaces: &[String], wanted: &[Wanted]) -> Result<Running, String> {
    let factory = host.informers(RETRY_INTERVAL).await.map_err(|error| error.to_string())?;
    let inform = |wanted: &Wanted| {
        let options = match namespaces {
            [] => InformerOptions::all(),
            some => InformerOptions::namespaces(some.iter().cloned()),
        };
        let options = options.labels(wanted.labels).map_err(|error| error.to_string())?;
        let options = options.transform(Transform::DropManagedFields);
        factory.raw(&wanted.resource, options).map_err(|error| error.to_string())
    };
    let informers: Vec<Informer<RawObject>> = wanted.iter().map(inform).collect::<Result<_, _>>()?;
    let mut events: Vec<Pin<Box<dyn Stream<Item = ()> + Send>>> = Vec::new();
    for informer in &informers {
        events.push(Box::pin(informer.events().map_err(|error| error.to_string())?.map(drop)));
    }
    Ok(Running { factory, informers, events: select_all(events), changed: true })
}

impl Running {
    /// Returns the content once every needed resource is synced.
    fn view(&self, wanted: &[Wanted]) -> Option<View> {
        let of_one = |(informer, wanted): (&Informer<RawObject>, &Wanted)| match informer.has_synced() {
            true => Some(Some(informer.snapshot())),
            false if !wanted.needed && is_refused(informer) => Some(None),
            false => None,
        };
        self.informers.iter().zip(wanted).map(of_one).collect()
    }

    /// Returns the reason why the content may be outdated.
    fn trouble(&self, wanted: &[Wanted]) -> Option<Arc<str>> {
        let mut needed = self.informers.iter().zip(wanted).filter(|(_, wanted)| wanted.needed);
        needed.find_map(|(informer, _)| {
            let state = informer.state();
            let failing = state.condition.is_failing();
            failing.then(|| format!("{} of the host: {state}", informer.resource()).into())
        })
    }

    /// Waits for a change, and for more within [`GATHER_DELAY`]. The wait is bounded, because refusals and initial
    /// syncs send no event. Returns `false` if this connection to the host has ended.
    async fn settle(&mut self) -> bool {
        let synced = self.informers.iter().all(Informer::has_synced);
        let until = Instant::now() + if synced { RETRY_INTERVAL } else { GATHER_DELAY };
        match timeout_at(until, self.events.next()).await {
            Err(_) => {}
            Ok(None) => return false,
            Ok(Some(())) => {
                self.changed = true;
                let until = Instant::now() + GATHER_DELAY;
                while let Ok(Some(())) = timeout_at(until, self.events.next()).await {}
            }
        }
        !self.factory.is_closed()
    }
}

fn is_refused(informer: &Informer<RawObject>) -> bool {
    use skopos::Condition::{Forbidden, NotServed, Rejected};
    matches!(informer.state().condition, Forbidden | NotServed | Rejected)
}

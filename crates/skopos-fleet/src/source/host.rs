//! Objects of a host cluster, followed for as long as the source runs.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SelectAll, Stream, StreamExt as _, select_all};
use kube::core::ApiResource;
use skopos::{Informer, InformerFactory, InformerOptions, RawObject, Snapshot, Transform};
use tokio::time::{Instant, sleep, timeout_at};

use super::Roster;
use crate::cluster::Cluster;

/// How long changes are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(50);

/// How often it is looked whether the host's objects can be had.
const LOOK: Duration = Duration::from_secs(5);

/// Which objects.
#[derive(Clone)]
pub(super) struct Wanted {
    resource: ApiResource,
    /// In kubectl's notation.
    labels: &'static str,
    /// Without them nothing can be said; otherwise the host may refuse them.
    needed: bool,
}

/// The content of each wanted resource, in their order; `None` where the host refuses one that is not needed.
pub(super) type View = Vec<Option<Snapshot<RawObject>>>;

/// Follows what a host has.
pub(super) struct Follower<'a> {
    host: &'a Cluster,
    namespaces: &'a [String],
    wanted: &'a [Wanted],
    roster: &'a Roster,
    running: Option<Running>,
}

/// What is followed by one way to the host.
struct Running {
    factory: InformerFactory,
    informers: Vec<Informer<RawObject>>,
    /// That something changed.
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
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        host: &'a Cluster,
        namespaces: &'a [String],
        wanted: &'a [Wanted],
        roster: &'a Roster,
    ) -> Self {
        Self { host, namespaces, wanted, roster, running: None }
    }

    /// What the host has: once all of it is known, and then after each change. When the host is reached another way, it
    /// begins anew there.
    pub(super) async fn next(&mut self) -> View {
        loop {
            let running = match &mut self.running {
                Some(running) => running,
                none => match start(self.host, self.namespaces, self.wanted).await {
                    Ok(running) => none.insert(running),
                    Err(reason) => {
                        self.roster.trouble(Some(reason.into()));
                        sleep(LOOK).await;
                        continue;
                    }
                },
            };
            self.roster.trouble(running.trouble(self.wanted));
            if let Some(view) = running.view(self.wanted).filter(|_| running.changed) {
                running.changed = false;
                return view;
            }
            if !running.settle().await {
                self.running = None;
                // Another factory is a moment away.
                sleep(GATHER).await;
            }
        }
    }
}

async fn start(host: &Cluster, namespaces: &[String], wanted: &[Wanted]) -> Result<Running, String> {
    let factory = host.informers(LOOK).await.map_err(|error| error.to_string())?;
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
    /// What there is, once it is known of all that is needed.
    fn view(&self, wanted: &[Wanted]) -> Option<View> {
        let of_one = |(informer, wanted): (&Informer<RawObject>, &Wanted)| match informer.has_synced() {
            true => Some(Some(informer.snapshot())),
            false if !wanted.needed && is_refused(informer) => Some(None),
            false => None,
        };
        self.informers.iter().zip(wanted).map(of_one).collect()
    }

    /// Why what is known may not be what the host has.
    fn trouble(&self, wanted: &[Wanted]) -> Option<Arc<str>> {
        let mut needed = self.informers.iter().zip(wanted).filter(|(_, wanted)| wanted.needed);
        needed.find_map(|(informer, _)| {
            let state = informer.state();
            let failing = state.condition.is_failing();
            failing.then(|| format!("{} of the host: {state}", informer.resource()).into())
        })
    }

    /// Waits for changes, and until no more of them come at once; for a while only, as what is refused or begins to sync
    /// says nothing. `false`: this way to the host has ended.
    async fn settle(&mut self) -> bool {
        let synced = self.informers.iter().all(Informer::has_synced);
        let until = Instant::now() + if synced { LOOK } else { GATHER };
        match timeout_at(until, self.events.next()).await {
            Err(_) => {}
            Ok(None) => return false,
            Ok(Some(())) => {
                self.changed = true;
                let until = Instant::now() + GATHER;
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

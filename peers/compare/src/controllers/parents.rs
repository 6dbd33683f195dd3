//! The parents: made beforehand, and changed in a burst.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use peer_protocol::job;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Writes that are underway at the same time.
const WRITERS: usize = 16;
/// How long a writer waits after a request that failed.
const AGAIN: Duration = Duration::from_millis(50);

/// The parents as the server is to have them.
pub(super) struct Parents {
    api: Api<ConfigMap>,
    /// The first one is apart from the burst: it tells when a change after the restart arrives.
    parents: Vec<ConfigMap>,
    /// How often one was changed.
    changes: usize,
}

impl Parents {
    /// Makes so many.
    pub(super) async fn create(client: Client, count: usize) -> Result<Self> {
        let api: Api<ConfigMap> = Api::namespaced(client, job::NAMESPACE);
        let created = (0..count).map(|index| {
            let api = api.clone();
            async move { api.create(&PostParams::default(), &parent(index)).await }
        });
        let parents =
            stream::iter(created).buffered(WRITERS).try_collect().await.context("making parents")?;
        Ok(Self { api, parents, changes: 0 })
    }

    /// The children that they are to have, by name.
    pub(super) fn children(&self) -> BTreeMap<String, ConfigMap> {
        let named = |child: ConfigMap| Some((child.metadata.name.clone()?, child));
        self.parents.iter().filter_map(job::wanted).filter_map(named).collect()
    }

    /// How many states of parents there have been.
    pub(super) fn states(&self) -> usize {
        self.parents.len() + self.changes
    }

    /// Changes the first one. Returns its child as it is to be.
    pub(super) async fn change_first(&mut self) -> Result<ConfigMap> {
        let value = "after the restart";
        set(&self.api, &name_of(0), value).await;
        self.changes += 1;
        let parent = self.parents.first_mut().context("no parents")?;
        parent.data = data(value);
        job::wanted(parent).context("no child")
    }

    /// Begins to change all but the first, one after the other and again, so many times and as fast as the server takes it.
    pub(super) fn burst(&mut self, events: usize) -> Burst {
        let names: Arc<Vec<String>> = Arc::new((1..self.parents.len()).map(name_of).collect());
        for event in 0..events {
            let at = 1 + event % names.len();
            self.parents[at].data = data(&value(event));
        }
        self.changes += events;
        let done = Arc::new(AtomicUsize::new(0));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(self.api.clone(), names.clone(), writer, events, done.clone()));
        }
        Burst { writers, done }
    }
}

/// A burst that goes on.
pub(super) struct Burst {
    writers: JoinSet<()>,
    done: Arc<AtomicUsize>,
}

impl Burst {
    /// Waits until so many changes are made.
    pub(super) async fn reaches(&self, changes: usize) {
        while self.done.load(Ordering::Relaxed) < changes {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for its end.
    pub(super) async fn ends(mut self) -> Result<()> {
        while let Some(writer) = self.writers.join_next().await {
            writer?;
        }
        Ok(())
    }
}

/// Makes the changes of one writer. Each name has one writer, so that its changes are made in their order.
async fn write(
    api: Api<ConfigMap>,
    names: Arc<Vec<String>>,
    writer: usize,
    events: usize,
    done: Arc<AtomicUsize>,
) {
    let own = |event: &usize| (event % names.len()) % WRITERS == writer;
    for event in (0..events).filter(own) {
        set(&api, &names[event % names.len()], &value(event)).await;
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets the value of a parent, however often that needs to be tried.
async fn set(api: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {(job::VALUE): value}}));
    while api.patch(name, &PatchParams::default(), &patch).await.is_err() {
        sleep(AGAIN).await;
    }
}

fn parent(index: usize) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name_of(index)),
            labels: Some(BTreeMap::from([("job".into(), "parent".into())])),
            ..ObjectMeta::default()
        },
        data: data("from the beginning"),
        ..ConfigMap::default()
    }
}

fn name_of(index: usize) -> String {
    format!("parent-{index:05}")
}

fn value(event: usize) -> String {
    format!("change {event}")
}

fn data(value: &str) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([(job::VALUE.into(), value.into())]))
}

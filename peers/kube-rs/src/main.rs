//! kube-runtime's `watcher` with its default backoff into its `reflector`, as its documentation shows, behind the protocol
//! of the comparison.

use std::fmt::Debug;

use anyhow::Result;
use clap::Parser;
use futures::{StreamExt as _, pin_mut};
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use kube_runtime::reflector::Store;
use kube_runtime::{WatchStreamExt as _, reflector, watcher};
use peer_protocol::{Arguments, Change, EventLine, Reporter, Resource, WatchList, What, digest};
use serde::de::DeserializeOwned;

/// The allocator that Skopos's program has too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Command::parse().arguments;
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static("peer-kube-rs")));
    let reporter = Reporter::start("kube-rs", &arguments);
    let client = Client::try_from(config)?;
    match arguments.resource {
        Resource::Pods => run::<Pod>(client, &arguments, &reporter).await,
        Resource::Configmaps => run::<ConfigMap>(client, &arguments, &reporter).await,
    }
}

async fn run<K>(client: Client, arguments: &Arguments, reporter: &Reporter) -> Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let api: Api<K> = match &arguments.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let config = match arguments.watch_list {
        WatchList::On => watcher::Config::default().streaming_lists(),
        WatchList::Default | WatchList::Off => watcher::Config::default(),
    };
    let (store, writer) = reflector::store::<K>();
    let events = follow(watcher(api, config).default_backoff().reflect(writer), &store, reporter);
    let wait = async {
        if tokio::time::timeout(arguments.sync_timeout, store.wait_until_ready()).await.is_err() {
            // The store says nothing but that it is not ready.
            reporter.write(What::SyncTimeout { reason: String::new() });
        }
        std::future::pending().await
    };
    let commands = reporter.obey(|| {
        let objects = store.state();
        let parts: Vec<_> = objects.iter().map(|object| parts(object.as_ref())).collect();
        (parts.len(), digest(parts.iter().map(|(key, uid, rv)| (key.as_str(), *uid, *rv))))
    });
    tokio::select! {
        () = events => reporter.write(What::Told { state: "failing".into(), reason: "the stream ended".into() }),
        () = wait => {}
        () = reporter.report(arguments) => {}
        () = commands => {}
    }
    Ok(())
}

async fn follow<K>(
    events: impl futures::Stream<Item = watcher::Result<watcher::Event<K>>>,
    store: &Store<K>,
    reporter: &Reporter,
) where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let tell = |object: &K, change, initial| {
        let name = object.meta().name.as_deref().unwrap_or_default();
        reporter.event(name, initial, || {
            let (key, uid, rv) = parts(object);
            EventLine { change, initial, key, uid: uid.to_owned(), rv: rv.to_owned(), old: None }
        });
    };
    let mut synced = false;
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => reporter.write(What::Replacing),
            Ok(watcher::Event::InitApply(object)) => tell(&object, Change::Applied, true),
            Ok(watcher::Event::InitDone) => {
                reporter.write(What::Replaced);
                if !std::mem::replace(&mut synced, true) {
                    reporter.synced(store.len());
                }
            }
            Ok(watcher::Event::Apply(object)) => tell(&object, Change::Applied, false),
            Ok(watcher::Event::Delete(object)) => tell(&object, Change::Deleted, false),
            Err(error) => {
                reporter.write(What::Told { state: "failing".into(), reason: chain(&error) });
            }
        }
    }
}

fn parts<K: kube::Resource>(object: &K) -> (String, &str, &str) {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let key =
        meta.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
    (key, meta.uid.as_deref().unwrap_or_default(), meta.resource_version.as_deref().unwrap_or_default())
}

/// An error and what is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

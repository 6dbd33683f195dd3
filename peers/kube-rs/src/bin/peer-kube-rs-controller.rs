//! kube-runtime's `Controller` at the job that the compared controllers have. What it owns is a stream that fills a store as well, so that
//! a reconciliation need not ask the server for the child.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use futures::StreamExt as _;
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use kube_runtime::controller::{self, Action, Controller};
use kube_runtime::reflector::store::WriterDropped;
use kube_runtime::reflector::{ObjectRef, Store};
use kube_runtime::{WatchStreamExt as _, reflector, watcher};
use peer_protocol::{ControllerArguments, Tally, job};

/// The allocator that Skopos's program has too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: ControllerArguments,
}

/// What a reconciliation needs.
struct Needs {
    api: Api<ConfigMap>,
    children: Store<ConfigMap>,
    tally: Arc<Tally>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the child is not applied: {0}")]
    Apply(#[from] kube::Error),
    #[error("the store of children has ended: {0}")]
    Store(#[from] WriterDropped),
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Command::parse().arguments;
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static("peer-kube-rs")));
    let tally = Arc::new(Tally::start("kube-rs"));
    let api: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, job::NAMESPACE);
    let (children, writer) = reflector::store();
    let owned = watcher(api.clone(), watcher::Config::default().labels(job::CHILDREN))
        .default_backoff()
        .reflect(writer)
        .touched_objects();
    let needs = Arc::new(Needs { api: api.clone(), children, tally: tally.clone() });
    let controller = Controller::new(api, watcher::Config::default().labels(job::PARENTS))
        .with_config(controller::Config::default().concurrency(arguments.workers))
        .owns_stream(owned)
        .run(counted, |_, _, _| Action::requeue(RETRY), needs)
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = controller => {}
        () = tally.obey() => {}
    }
    Ok(())
}

/// When a reconciliation that failed is tried again. kube-runtime has no default.
const RETRY: Duration = Duration::from_secs(1);

async fn counted(parent: Arc<ConfigMap>, needs: Arc<Needs>) -> Result<Action, Failure> {
    let wrote = reconcile(&parent, &needs).await;
    needs.tally.ended(&wrote);
    wrote.map(|_| Action::await_change())
}

/// Applies the child if it is not as it is wanted. Returns whether it did.
async fn reconcile(parent: &ConfigMap, needs: &Needs) -> Result<bool, Failure> {
    let Some(wanted) = job::wanted(parent) else { return Ok(false) };
    needs.children.wait_until_ready().await?;
    let name = wanted.name_any();
    let child = needs.children.get(&ObjectRef::new(&name).within(job::NAMESPACE));
    if child.is_some_and(|child| job::is_right(&child, &wanted)) {
        return Ok(false);
    }
    let manager = PatchParams::apply("peer-kube-rs").force();
    needs.api.patch(&name, &manager, &Patch::Apply(&wanted)).await?;
    Ok(true)
}

//! Skopos's controller with its defaults, at the job that the compared controllers have.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use peer_protocol::{ControllerArguments, Tally, job};
use skopos::{FactoryOptions, InformerFactory, InformerOptions, Transport, TransportOptions};
use skopos_controller::{Context, Controller, ControllerOptions, Outcome, Predicate, ReconcileError};
use tokio_util::sync::CancellationToken;

/// The allocator that kube-rs's program has too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: ControllerArguments,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Command::parse().arguments;
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static("peer-skopos")));
    let tally = Arc::new(Tally::start("skopos"));
    let transport = Transport::from_config(config, TransportOptions::default())?;
    let api = Api::namespaced(transport.client(job::NAMESPACE), job::NAMESPACE);
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let everything = InformerOptions::namespace(job::NAMESPACE).labels(job::EVERYTHING)?;
    let maps = factory.informer::<ConfigMap>(everything)?;
    let options = ControllerOptions::named("peer-skopos").workers(arguments.workers.into());
    let counts = tally.clone();
    let controller = Controller::new(maps.clone(), options)
        .when(Predicate::labels(job::PARENTS)?)
        .owns(maps)
        .reconcile(move |context| counted(counts.clone(), api.clone(), context));
    let stop = CancellationToken::new();
    tokio::select! {
        ended = controller.run(stop.clone()) => ended?,
        () = tally.obey() => {}
    }
    factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

async fn counted(
    tally: Arc<Tally>,
    api: Api<ConfigMap>,
    context: Context<ConfigMap>,
) -> Result<Outcome, ReconcileError> {
    let wrote = reconcile(&api, &context).await;
    tally.ended(&wrote);
    wrote.map(|_| Outcome::Done)
}

/// Applies the child if it is not as it is wanted. Returns whether it did.
async fn reconcile(api: &Api<ConfigMap>, context: &Context<ConfigMap>) -> Result<bool, ReconcileError> {
    let Some(parent) = context.object() else { return Ok(false) };
    let Some(wanted) = job::wanted(&parent.decode()?) else { return Ok(false) };
    if let Some(child) = context.children::<ConfigMap>().first()
        && job::is_right(&child.decode()?, &wanted)
    {
        return Ok(false);
    }
    context.apply(api, &wanted).await?;
    Ok(true)
}

//! Skopos's informer with its defaults and one handler, behind the protocol of the comparison.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig};
use peer_protocol::{Arguments, Change, EventLine, Reporter, Resource, Version, WatchList, What, digest};
use serde::de::DeserializeOwned;
use skopos::{
    Encoding, Event, FactoryOptions, Freshness, HandlerOptions, Informer, InformerFactory, InformerOptions,
    InitialList, Object, Transport, TransportOptions, sync_handler,
};

/// The allocator that kube-rs's program has too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
    /// Decode every object to a typed one in the handler, as one does that looks at more than the metadata.
    #[arg(long)]
    typed: bool,
    /// The encoding that is asked for.
    #[arg(long, value_enum, default_value_t = Asked::Protobuf)]
    encoding: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Asked {
    /// Protobuf where the server has it, which is the default of the library.
    Protobuf,
    /// JSON only.
    Json,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Command { arguments, typed, encoding } = Command::parse();
    let encoding = if encoding == Asked::Json { Encoding::Json } else { Encoding::Protobuf };
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static("peer-skopos")));
    let reporter = Arc::new(Reporter::start("skopos", &arguments));
    let transport = Transport::from_config(config, TransportOptions::default())?;
    match arguments.resource {
        Resource::Pods => run::<Pod>(transport, &arguments, typed, encoding, reporter).await,
        Resource::Configmaps => run::<ConfigMap>(transport, &arguments, typed, encoding, reporter).await,
    }
}

async fn run<K>(
    transport: Transport,
    arguments: &Arguments,
    typed: bool,
    encoding: Encoding,
    reporter: Arc<Reporter>,
) -> Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + 'static,
{
    let mut options = FactoryOptions { encoding, ..FactoryOptions::default() };
    if arguments.watch_list == WatchList::Off {
        options.machine.initial = InitialList::Paged;
    }
    let factory = InformerFactory::new(transport, options);
    let scope = arguments.namespace.as_ref().map_or_else(InformerOptions::all, InformerOptions::namespace);
    let informer = factory.informer::<K>(scope)?;
    let handler = informer.add_handler(telling(typed, reporter.clone()), HandlerOptions::default())?;
    let wait = async {
        if let Err(error) = informer.wait_synced(arguments.sync_timeout).await {
            reporter.write(What::SyncTimeout { reason: error.to_string() });
        }
        // It is willing to wait on, which its protocol asks of every client.
        while informer.wait_synced(Duration::from_secs(3600)).await.is_err() {}
        if handler.wait_synced(Duration::MAX).await.is_ok() {
            reporter.synced(informer.store().len());
        }
        std::future::pending().await
    };
    let store = informer.store();
    let commands = reporter.obey(|| {
        let objects: Vec<_> = store.snapshot().iter().collect();
        let parts: Vec<_> = objects
            .iter()
            .map(|object| (object.key().to_string(), object.uid(), object.resource_version().to_string()))
            .collect();
        (parts.len(), digest(parts.iter().map(|(key, uid, rv)| (key.as_str(), *uid, rv.as_str()))))
    });
    tokio::select! {
        () = wait => {}
        () = tell_freshness(&informer, &reporter) => {}
        () = reporter.report(arguments) => {}
        () = commands => {}
    }
    factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

fn telling<K: DeserializeOwned + 'static>(
    typed: bool,
    reporter: Arc<Reporter>,
) -> skopos::SyncHandler<impl Fn(Event<K>) + Send + Sync + 'static> {
    sync_handler(move |event: Event<K>| {
        if typed {
            // Of an object that is no `K` the metadata is told all the same.
            drop(std::hint::black_box(event.object().decode()));
        }
        let initial = matches!(event, Event::Added { initial: true, .. });
        reporter.event(event.object().name(), initial, || {
            let (change, old) = match &event {
                Event::Updated { old, .. } => (Change::Updated, Some(version(old))),
                Event::Deleted { .. } => (Change::Deleted, None),
                _ => (Change::Added, None),
            };
            let Version { uid, rv } = version(event.object());
            EventLine { change, initial, key: event.key().to_string(), uid, rv, old }
        });
    })
}

fn version<K>(object: &Object<K>) -> Version {
    Version { uid: object.uid().to_owned(), rv: object.resource_version().to_string() }
}

/// How often the freshness is looked at, which every read carries.
const LOOK: Duration = Duration::from_millis(50);

async fn tell_freshness<K>(informer: &Informer<K>, reporter: &Reporter) {
    let mut last = (String::from("failing"), String::new());
    loop {
        let now = match informer.freshness() {
            Freshness::Live { .. } => (String::from("well"), String::new()),
            // An informer that has only just begun is not in trouble yet.
            Freshness::NeverSynced { .. } if informer.state().attempts == 0 => last.clone(),
            freshness => (
                String::from("failing"),
                freshness.reason().map_or_else(|| freshness.to_string(), ToString::to_string),
            ),
        };
        if now != last {
            reporter.write(What::Told { state: now.0.clone(), reason: now.1.clone() });
            last = now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

//! The clients: kube-rs' client and watcher, and a Skopos informer.

use std::io;

use futures::StreamExt as _;
use http::{HeaderValue, Request, Uri, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube_runtime::watcher::{self, watcher};
use kube_runtime::{WatchStreamExt as _, reflector};
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::{Event, FactoryOptions, InformerFactory, InformerOptions, Transport, TransportOptions};

use super::history::Seen;
use super::link::Link;

/// The way in which a client lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    KubeListWatch,
    KubeStreamingList,
    Skopos,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::KubeListWatch, Way::KubeStreamingList, Way::Skopos];
}

/// Returns a client's configuration for a server at this path.
pub(super) fn config(path: &str) -> kube::Config {
    kube::Config::new(format!("http://localhost{path}").parse().unwrap())
}

/// Keeps a cache of ConfigMaps and reports its changes to `seen`, without end.
pub(super) async fn follow(way: Way, link: Link, path: &'static str, seen: Seen) {
    match way {
        Way::KubeListWatch => kube_watch(kube_client(link, path), watcher::Config::default(), seen).await,
        Way::KubeStreamingList => {
            kube_watch(kube_client(link, path), watcher::Config::default().streaming_lists(), seen).await;
        }
        Way::Skopos => skopos_watch(&link, path, seen).await,
    }
}

/// Runs kube-rs' reflector on a client.
pub(super) async fn kube_watch(client: kube::Client, config: watcher::Config, seen: Seen) {
    let (_store, writer) = reflector::store();
    let events = watcher(Api::<ConfigMap>::all(client), config).default_backoff();
    let mut events = std::pin::pin!(reflector(writer, events));
    while let Some(event) = events.next().await {
        // The user sees the error and continues: the watcher recovers without help.
        let Ok(event) = event else { continue };
        match event {
            watcher::Event::Init => seen.list_begins(),
            watcher::Event::InitApply(map) => {
                let (key, uid, version) = parts(map);
                seen.listed(key, uid, version);
            }
            watcher::Event::InitDone => seen.list_ends(),
            watcher::Event::Apply(map) => {
                let (key, uid, version) = parts(map);
                seen.put(key, uid, version);
            }
            watcher::Event::Delete(map) => seen.delete(&parts(map).0),
        }
    }
}

fn parts(map: ConfigMap) -> (String, String, String) {
    let metadata = map.metadata;
    let key = format!("{}/{}", metadata.namespace.unwrap(), metadata.name.unwrap());
    (key, metadata.uid.unwrap(), metadata.resource_version.unwrap())
}

async fn skopos_watch(link: &Link, path: &str, seen: Seen) {
    let link = link.clone();
    let dialer = dialer_fn(move |_| {
        let refused = |error: io::Error| TransportErrorKind::Refused {
            to: "memory".into(),
            reason: error.to_string().into(),
        };
        let dialed = link.connect().map(|io| Dialed::new(io, Protocol::Http2));
        std::future::ready(dialed.map_err(refused))
    });
    let options = TransportOptions { seed: Some(7), ..TransportOptions::default() };
    let transport = Transport::with_dialer(config(path), options, dialer).unwrap();
    let factory =
        InformerFactory::new(transport, FactoryOptions { seed: Some(7), ..FactoryOptions::default() });
    let informer = factory.informer::<ConfigMap>(InformerOptions::all()).unwrap();
    let mut events = std::pin::pin!(informer.events().unwrap());
    while let Some(event) = events.next().await {
        let object = event.object();
        let key = object.key().to_string();
        match &event {
            Event::Deleted { .. } => seen.delete(&key),
            _ => {
                let version = object.resource_version().to_string();
                seen.put(key, object.uid().to_owned(), version);
            }
        }
    }
}

/// Makes a kube-rs client. It opens one connection for each request, as for each watch over TCP.
pub(super) fn kube_client(link: Link, path: &str) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| send(link.clone(), request));
    ClientBuilder::new(service, "default").with_layer(&config(path).base_uri_layer()).build()
}

async fn send(
    link: Link,
    mut request: Request<Body>,
) -> Result<http::Response<hyper::body::Incoming>, tower::BoxError> {
    let io = TokioIo::new(link.connect()?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    link.run(async move { drop(connection.await) });
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    *request.uri_mut() = path.parse::<Uri>()?;
    Ok(sender.send_request(request).await?)
}

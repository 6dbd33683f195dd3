//! Discovery and OpenAPI, cached for when the server is down, and restored from an earlier run.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use skopos::{InformerOptions, ResourceId};
use skopos_fleet::{
    ClusterId, ClusterOptions, Condition, Document, DocumentRequest, FleetOptions, Keeper, Persistence,
    RestoredState,
};

use crate::support::*;

fn version() -> DocumentRequest {
    DocumentRequest::new("/version", "application/json").expect("a document")
}

#[tokio::test(start_paused = true)]
async fn document_is_fetched_once_and_survives_outage() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    let asks = (0..20).map(|_| async { cluster.document(&version(), secs(5)).await.unwrap().body });
    let bodies = join_all(asks).await;
    assert!(!bodies[0].is_empty() && bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(server.requests().len(), 1);
    server.pause().await;
    tokio::time::sleep(secs(3600)).await;
    let begun = tokio::time::Instant::now();
    let old = cluster.document(&version(), secs(5)).await.unwrap();
    assert_eq!(old.body, bodies[0]);
    assert!(old.age() >= secs(3600) && begun.elapsed() <= secs(5), "{:?}", old.age());
    let none = DocumentRequest::new("/api", "application/json").unwrap();
    assert!(cluster.document(&none, secs(5)).await.is_err());
    assert_eq!(cluster.documents().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn prefetches_kubectl_documents_before_first_request() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet_with(ClusterOptions { prefetch_documents: true, ..options() });
    let cluster = join(&fleet, "a");
    until_condition(&cluster, Condition::Live).await;
    let all_there =
        || DocumentRequest::essential().iter().all(|of| cluster.documents().iter().any(|(is, _)| is == of));
    // At once: the server may be down in a moment.
    let soon = tokio::time::timeout(secs(2), eventually("the documents are there", all_there)).await;
    assert!(soon.is_ok(), "{:?}", cluster.documents());
    server.pause().await;
    until_condition(&cluster, Condition::Unreachable).await;
    for request in DocumentRequest::essential() {
        assert!(cluster.document(&request, secs(1)).await.is_ok());
    }
}

#[derive(Default)]
struct Notes {
    forgotten: Mutex<Vec<String>>,
}

impl Keeper for Notes {}

impl Persistence for Notes {
    fn load<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, RestoredState> {
        Box::pin(async move {
            if cluster.as_str() == "hangs" {
                std::future::pending::<()>().await;
            }
            let document = Document::from_checkpoint("text/plain", None, "old".into(), secs(3600));
            RestoredState { kinds: vec![config_maps()], documents: vec![(version(), document)] }
        })
    }

    fn prepare<'a>(
        &'a self,
        _: &'a ClusterId,
        _: &'a str,
        _: &'a ResourceId,
        options: InformerOptions,
    ) -> BoxFuture<'a, InformerOptions> {
        Box::pin(async move { options })
    }

    fn delete<'a>(&'a self, cluster: &'a ClusterId) -> BoxFuture<'a, ()> {
        self.forgotten.lock().push(cluster.to_string());
        Box::pin(async {})
    }
}

#[tokio::test(start_paused = true)]
async fn restores_content_of_earlier_run() {
    let world = World::default();
    for name in ["a", "hangs"] {
        world.server(name);
    }
    let notes = Arc::new(Notes::default());
    let fleet = world.fleet_of(FleetOptions {
        cluster: options(),
        keeper: Some(notes.clone()),
        retain_removed: Duration::ZERO,
        ..FleetOptions::default()
    });
    // It is down, but that is not known yet.
    let down = join(&fleet, "down");
    let cluster = join(&fleet, "a");
    let hangs = join(&fleet, "hangs");
    eventually("the kind runs", || cluster.cached(&config_maps()).is_some_and(|kind| kind.has_content()))
        .await;
    let old = down.document(&version(), secs(1)).await.unwrap();
    assert_eq!(&old.body[..], b"old");
    assert!(old.age() >= secs(3599), "{:?}", old.age());
    assert!(cluster.document(&version(), secs(1)).await.unwrap().body.len() > 3, "newer where it can be had");
    tokio::time::sleep(secs(21)).await;
    assert!(hangs.kind(&config_maps(), secs(5)).await.is_ok(), "a keeper that hangs delays for a moment");
    for cluster in [&cluster, &down, &hangs] {
        assert!(cluster.cached(&config_maps()).is_some(), "{cluster:?}");
    }
    fleet.leave(&id("a"), "sold");
    eventually("it is forgotten", || *notes.forgotten.lock() == ["a"]).await;
    assert!(fleet.shutdown(secs(15)).await);
}

//! Memory of the merged view, and how long it is held.

use std::sync::atomic::{AtomicBool, Ordering};

use skopos::ResourceId;
use skopos_fleet::KindFilter;
use skopos_serve::Registry;

use super::*;
use crate::merged::kinds::Shape;

const MAPS: &str = "/api/v1/configmaps";

fn trusting(config: &mut Config) {
    config.authorization.loopback = LoopbackTrust::Trusted;
}

impl Bed {
    fn map(&self, cluster: &str, name: &str, bytes: usize) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x".repeat(bytes)},
            "metadata": {"namespace": "default", "name": name}});
        self.server(cluster).apply(map).unwrap();
    }

    /// Returns the number of kinds that a cluster caches.
    fn kept(&self, cluster: &str) -> usize {
        self.services.fleet.cluster(cluster).unwrap().stats().kinds.len()
    }
}

#[tokio::test(start_paused = true)]
async fn evicted_kind_leaves_merged_view_and_returns() {
    let bed = Bed::keeping(&["north", "south"], KindsOptions::default(), trusting, |cluster| {
        cluster.memory_budget = Some(64 << 10);
        cluster.budget_memory = Duration::from_secs(60);
    });
    bed.map("north", "a", 10);
    bed.map("south", "b", 10);
    let list = bed.until(MAPS, |list| list.items().len() == 2).await;
    let from = format!("resourceVersion={}", list.version());
    let mut watch = bed.watch_of(MAPS, &from).await;
    let mut other = bed.watch_of(MAPS, &format!("clusters=north&{from}")).await;
    bed.map("south", "large", 100 << 10);
    says(&watch.event().await, "ADDED", "south/default/large");
    // Later changes there would be missing from the watch.
    let end = watch.next().await.unwrap();
    assert_eq!((&end["type"], &end["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(watch.next().await.is_none());
    let list = bed.get(MAPS).await;
    assert_eq!(list.items(), ["north/default/a"], "what is not followed any more is not shown");
    let missing = list.json["metadata"]["annotations"]["skopos.dev/missing"].as_str().unwrap();
    assert!(missing.contains("south") && missing.contains("let go"), "{missing}");
    // When memory is free again, its objects come back like those of a new cluster.
    let mut watch = bed.watch_of(MAPS, &format!("resourceVersion={}", list.version())).await;
    bed.server("south").delete("configmaps", Some("default"), "large").unwrap();
    says(&watch.event().await, "ADDED", "south/default/b");
    bed.map("south", "c", 10);
    says(&watch.event().await, "ADDED", "south/default/c");
    other.silent().await;
    assert_eq!(bed.get(MAPS).await.items().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn disallowed_kind_leaves_memory_despite_watches() {
    let may = Arc::new(AtomicBool::new(true));
    let wish = may.clone();
    let bed = Bed::keeping(&["north"], KindsOptions::default(), trusting, |cluster| {
        let wish = move |kind: &ResourceId| kind.plural != "configmaps" || wish.load(Ordering::Relaxed);
        cluster.admits = KindFilter::new(wish);
    });
    bed.map("north", "a", 10);
    let list = bed.until(MAPS, |list| list.items().len() == 1).await;
    let mut watch = bed.watch_of(MAPS, &format!("resourceVersion={}", list.version())).await;
    assert_eq!(bed.kept("north"), 1);
    may.store(false, Ordering::Relaxed);
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    assert!(watch.next().await.is_none());
    assert_eq!(bed.kept("north"), 0);
    let list = bed.get(MAPS).await;
    assert_eq!(list.items().len(), 0);
    assert!(list.warnings().contains("may not be kept"), "{}", list.warnings());
    sleep(LONG_TIMEOUT).await;
    assert_eq!(bed.kept("north"), 0, "nothing begins it again");
    may.store(true, Ordering::Relaxed);
    bed.until(MAPS, |list| list.items() == ["north/default/a"]).await;
}

#[tokio::test(start_paused = true)]
async fn paged_states_expire_while_kind_is_watched() {
    let bed = Bed::new(&["north"]);
    bed.map("north", "a", 10);
    bed.map("north", "b", 10);
    let list = bed.until(MAPS, |list| list.items().len() == 2).await;
    let _watch = bed.watch_of(MAPS, &format!("resourceVersion={}", list.version())).await;
    let shape = Shape::new(&Registry::builtin().lookup("configmaps").unwrap());
    let history = bed.merged.reader.kinds.get(&shape).await.history.clone();
    bed.get(&format!("{MAPS}?limit=500")).await;
    assert_eq!(history.paged().0, 0, "all is on the first page");
    bed.get(&format!("{MAPS}?limit=1")).await;
    assert_eq!(history.paged().0, 1);
    sleep(Duration::from_secs(400)).await;
    assert_eq!(history.paged(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn unused_kind_is_evicted_after_idle_timeout() {
    let idle = Duration::from_secs(60);
    let options = KindsOptions { idle_stop: idle, ..KindsOptions::default() };
    let bed = Bed::keeping(&["north", "south"], options, trusting, |cluster| {
        cluster.idle_stop = Some(idle);
    });
    bed.map("north", "a", 10);
    bed.pod("south", "shop", "web");
    bed.until(MAPS, |list| list.items().len() == 1).await;
    let list = bed.until(PODS, |list| list.items().len() == 1).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    assert_eq!((bed.kept("north"), bed.kept("south")), (2, 2));
    // No requests.
    sleep(4 * idle).await;
    assert_eq!((bed.kept("north"), bed.kept("south")), (1, 1), "but what is watched stays");
    bed.pod("south", "shop", "b");
    says(&watch.event().await, "ADDED", "south/shop/b");
    drop(watch);
    sleep(4 * idle).await;
    assert_eq!((bed.kept("north"), bed.kept("south")), (0, 0));
    // The next request starts it again.
    bed.until(MAPS, |list| list.items() == ["north/default/a"]).await;
    assert!(bed.merged.shutdown(LONG_TIMEOUT).await);
}

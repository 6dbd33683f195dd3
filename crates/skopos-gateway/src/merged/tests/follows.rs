//! The age of the merged view's content.

use skopos_serve::Registry;

use super::*;
use crate::merged::kinds::Shape;

fn age(list: &Told) -> Option<f64> {
    list.headers.get("skopos-age").map(|age| age.to_str().unwrap().parse().unwrap())
}

/// A time after which any content without proof is old.
const FOR_LONG: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn unshown_store_does_not_refresh_age() {
    let bed = Bed::new(&["north"]);
    bed.pod("north", "shop", "a");
    bed.until(PODS, |list| list.items().len() == 1 && list.warnings().is_empty()).await;
    let shape = Shape::new(&Registry::builtin().resolve("", "v1", "pods").unwrap());
    let followed_stores = bed.merged.reader.kinds.get(&shape).await.followed_stores.clone();
    let running = bed.services.fleet.cluster("north").unwrap().cached(&shape.resource).unwrap();

    // The followed store has ended, and another reader has started a new one before the feed's next attempt.
    let store = running.informer().store();
    let turn = followed_stores.begin(&id("north"), store.clone());
    followed_stores.end(&id("north"), turn, Some(store.snapshot()));
    sleep(FOR_LONG).await;
    assert!(running.informer().freshness().is_live());
    let list = bed.get(PODS).await;
    assert!(age(&list).unwrap() >= FOR_LONG.as_secs_f64(), "{:?}", list.headers);
    assert!(list.warnings().contains("data may be old: north"), "{}", list.warnings());

    // Without even that store.
    followed_stores.forget(&id("north"));
    let list = bed.get(PODS).await;
    assert_eq!(age(&list), None);
    assert!(list.warnings().contains("of unknown age"), "{}", list.warnings());

    // The late end of an old turn does not end a later one.
    followed_stores.begin(&id("north"), store);
    followed_stores.end(&id("north"), turn, None);
    let list = bed.get(PODS).await;
    assert_eq!(list.warnings(), "");
    assert!(age(&list).unwrap() < FOR_LONG.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn rerouted_cluster_keeps_its_freshness() {
    let bed = Bed::new(&["north"]);
    bed.pod("north", "shop", "a");
    bed.until(PODS, |list| list.items().len() == 1 && list.warnings().is_empty()).await;
    let other = ClusterSpec::from_config(kube::Config::new("http://elsewhere".parse().unwrap()));
    bed.services.fleet.join(id("north"), other).unwrap();
    sleep(FOR_LONG).await;
    bed.pod("north", "shop", "b");
    let list = bed.until(PODS, |list| list.items().len() == 2).await;
    assert_eq!(list.warnings(), "");
    sleep(FOR_LONG).await;
    let list = bed.get(PODS).await;
    assert_eq!(list.warnings(), "");
    assert!(age(&list).unwrap() < FOR_LONG.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn page_reports_age_of_its_state() {
    let bed = Bed::new(&["north", "south"]);
    for name in ["a", "b", "c"] {
        bed.pod("north", "shop", name);
        bed.pod("south", "shop", name);
    }
    bed.until(PODS, |list| list.items().len() == 6 && list.warnings().is_empty()).await;
    let mut page = bed.get(&format!("{PODS}?limit=2")).await;
    assert_eq!((page.warnings().as_str(), page.json["metadata"]["annotations"].is_null()), ("", true));
    let young = age(&page).unwrap();
    for since in [200.0, 400.0] {
        sleep(Duration::from_secs(200)).await;
        let token = page.json["metadata"]["continue"].as_str().unwrap();
        page = bed.get(&format!("{PODS}?limit=2&continue={token}")).await;
        assert_eq!(page.items().len(), 2);
        // The store's last proof may be somewhat older than the read.
        let old = age(&page).unwrap();
        assert!((since..since + young + 1.0).contains(&old), "{old}, after {young}");
        for cluster in ["north", "south"] {
            assert!(
                page.warnings().contains(&format!("{cluster} (up to {old:.0}s old)")),
                "{}",
                page.warnings()
            );
        }
        assert!(page.json["metadata"]["annotations"]["skopos.dev/stale"].is_string());
    }
    let newest = bed.get(PODS).await;
    assert_eq!(newest.warnings(), "");
    assert!(age(&newest).unwrap() < FOR_LONG.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn page_names_clusters_missing_from_its_state() {
    let bed = Bed::new(&["north", "south"]);
    bed.server("south").pause_with(CloseMode::Rst).await;
    for name in ["a", "b"] {
        bed.pod("north", "shop", name);
    }
    let first = bed.until(&format!("{PODS}?limit=1"), |list| list.items().len() == 1).await;
    assert!(first.warnings().contains("nothing is shown of south"), "{}", first.warnings());
    bed.server("south").resume().await.unwrap();
    bed.until(PODS, |list| list.warnings().is_empty()).await;
    let token = first.json["metadata"]["continue"].as_str().unwrap();
    let second = bed.get(&format!("{PODS}?limit=1&continue={token}")).await;
    assert_eq!(second.items(), ["north/shop/b"]);
    assert!(second.warnings().contains("nothing is shown of south"), "{}", second.warnings());
}

#[tokio::test(start_paused = true)]
async fn cluster_is_hidden_when_another_takes_its_name() {
    let bed = Bed::new(&["north", "south"]);
    let source = QuietSource::for_member(&bed.services.fleet, "north").await;
    bed.pod("north", "shop", "a");
    bed.pod("south", "shop", "b");
    let list = bed.until(PODS, |list| list.items().len() == 2).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    sleep(Duration::from_secs(1)).await;
    bed.server("north").pause_with(CloseMode::Rst).await;
    source.lists_another("north");
    // A caller who may read one need not be allowed to read the other.
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    let list = bed.get(PODS).await;
    assert_eq!(list.items(), ["south/shop/b"]);
    assert!(list.warnings().contains("nothing is shown of north"), "{}", list.warnings());
    bed.server("north").resume().await.unwrap();
    bed.until(PODS, |list| list.items() == ["north/shop/a", "south/shop/b"]).await;
}

/// Checks that nothing vanishes, because the cluster had no content.
#[tokio::test(start_paused = true)]
async fn watch_hides_unreviewed_cluster_that_took_name() {
    let bed = reviewed(&["north", "south"]);
    let source = QuietSource::for_member(&bed.services.fleet, "north").await;
    bed.pod("south", "shop", "b");
    let list = bed.until(PODS, |list| list.code == 200 && list.items().len() == 1).await;
    let mut watch = bed.watch(&format!("resourceVersion={}", list.version())).await;
    // The decision is valid for ten seconds, and is asked for again after 45.
    watch.silent_for(Duration::from_secs(11)).await;
    bed.server("north").auth().answer_reviews(|_| false);
    source.lists_another("north");
    let comes = async {
        sleep(Duration::from_secs(5)).await;
        bed.pod("north", "shop", "secret");
    };
    let (event, ()) = tokio::join!(watch.next(), comes);
    assert_eq!(event.unwrap()["object"]["code"], 410);
    assert!(watch.next().await.is_none());
}

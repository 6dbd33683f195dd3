//! Of what the merged view tells the age.

use skopos_serve::Registry;

use super::*;
use crate::merged::kinds::Shape;

fn age(list: &Told) -> Option<f64> {
    list.headers.get("skopos-age").map(|age| age.to_str().unwrap().parse().unwrap())
}

/// Longer than anything may be old by itself.
const FOR_LONG: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_not_shown_does_not_make_what_is_shown_young() {
    let bed = Bed::new(&["north"]);
    bed.pod("north", "shop", "a");
    bed.until(PODS, |list| list.items().len() == 1 && list.warnings().is_empty()).await;
    let shape = Shape::of(&Registry::builtin().resolve("", "v1", "pods").unwrap());
    let follows = bed.merged.kinds.get(&shape).await.follows.clone();
    let running = bed.services.fleet.cluster("north").unwrap().cached(&shape.resource).unwrap();

    // As where what was followed has ended, and another reader has started it again before the feed's next attempt.
    let store = running.informer().store();
    let turn = follows.begin(&id("north"), store.clone());
    follows.end(&id("north"), turn, Some(store.snapshot()));
    sleep(FOR_LONG).await;
    assert!(running.informer().freshness().is_live());
    let list = bed.get(PODS).await;
    assert!(age(&list).unwrap() >= FOR_LONG.as_secs_f64(), "{:?}", list.headers);
    assert!(list.warnings().contains("old data is shown of north"), "{}", list.warnings());

    // Where not even that is known.
    follows.forget(&id("north"));
    let list = bed.get(PODS).await;
    assert_eq!(age(&list), None);
    assert!(list.warnings().contains("of unknown age"), "{}", list.warnings());

    // Who ends late ends nothing of those after him.
    follows.begin(&id("north"), store);
    follows.end(&id("north"), turn, None);
    let list = bed.get(PODS).await;
    assert_eq!(list.warnings(), "");
    assert!(age(&list).unwrap() < FOR_LONG.as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_reached_another_way_is_as_young_as_before() {
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

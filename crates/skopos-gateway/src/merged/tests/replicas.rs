//! Equal replicas: two gateways over the same clusters, behind one address.

use super::*;
use crate::merged::ContinueKeys;

const OLD: &str = "b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb28=";
const NEW: &str = "bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bm4=";

type Servers = BTreeMap<&'static str, TestServer>;

/// Returns two clusters.
fn clusters() -> Servers {
    // Replicas differ by a random tag of 11 bits.
    fastrand::seed(7);
    let server = |name| (name, TestServer::builder().start_in_memory().expect("a server"));
    ["north", "south"].map(server).into()
}

/// Returns keys from a file with these lines.
fn keys(lines: &[&str]) -> ContinueKeys {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys");
    std::fs::write(&path, lines.join("\n")).expect("written");
    ContinueKeys::open(&path).expect("keys")
}

fn replica(servers: &Servers, keys: Option<ContinueKeys>) -> Bed {
    let options = KindsOptions { continue_keys: keys, ..KindsOptions::default() };
    Bed::over(servers.clone(), "uid 1", options, |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
    })
}

/// Makes three pods in each cluster, and waits until each replica has them.
async fn fill(replicas: [&Bed; 2]) {
    for name in ["a", "b", "c"] {
        replicas[0].pod("north", "shop", name);
        replicas[0].pod("south", "shop", name);
    }
    for replica in replicas {
        replica.until(PODS, |list| list.items().len() == 6).await;
    }
}

impl Bed {
    /// Returns a page of two pods.
    async fn page(&self, token: &str) -> Told {
        self.get(&format!("{PODS}?limit=2&continue={token}")).await
    }
}

impl Told {
    fn token(&self) -> &str {
        self.json["metadata"]["continue"].as_str().unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_with_same_keys_continue_each_others_lists() {
    let servers = clusters();
    let (one, two) = (replica(&servers, Some(keys(&[OLD]))), replica(&servers, Some(keys(&[OLD]))));
    fill([&one, &two]).await;
    let first = one.page("").await;
    assert_eq!(first.items(), ["north/shop/a", "north/shop/b"]);
    // What was written before a page is on it, although the watch of the second replica may be late.
    one.server("south").delete("pods", Some("shop"), "a").unwrap();
    one.pod("north", "shop", "bb");
    let second = two.page(first.token()).await;
    assert_eq!((second.code, second.items()), (200, vec!["north/shop/bb".into(), "north/shop/c".into()]));
    // A client that keeps the version of the first page, or that of the last one, misses nothing.
    assert_eq!(second.version(), first.version());
    let third = two.page(second.token()).await;
    assert_eq!((third.code, third.version()), (200, first.version()));
    assert_eq!((third.items(), third.token()), (vec!["south/shop/b".into(), "south/shop/c".into()], ""));
    // The replica of the first page has its state.
    let third = one.page(second.token()).await;
    assert_eq!(
        (third.version(), third.items()),
        (first.version(), vec!["south/shop/a".into(), "south/shop/b".into()])
    );
    let mut watch = one.watch(&format!("resourceVersion={}", second.version())).await;
    says(&watch.event().await, "DELETED", "south/shop/a");
    says(&watch.event().await, "ADDED", "north/shop/bb");
}

#[tokio::test(start_paused = true)]
async fn watch_at_another_replica_is_told_to_list_again() {
    let servers = clusters();
    let (one, two) = (replica(&servers, Some(keys(&[OLD]))), replica(&servers, Some(keys(&[OLD]))));
    fill([&one, &two]).await;
    let list = one.get(PODS).await;
    let mut watch = two.watch(&format!("resourceVersion={}", list.version())).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
    let again = two.get(PODS).await;
    let mut watch = two.watch(&format!("resourceVersion={}", again.version())).await;
    one.pod("north", "shop", "d");
    says(&watch.event().await, "ADDED", "north/shop/d");
}

#[tokio::test(start_paused = true)]
async fn replica_with_other_keys_refuses_continue_token() {
    let servers = clusters();
    for other in [Some(keys(&[NEW])), None] {
        let (one, two) = (replica(&servers, Some(keys(&[OLD]))), replica(&servers, other));
        fill([&one, &two]).await;
        let first = one.page("").await;
        assert_eq!(two.page(first.token()).await.code, 410);
        assert_eq!(one.page(first.token()).await.code, 200);
        let first = two.page("").await;
        assert_eq!(one.page(first.token()).await.code, 410);
        assert_eq!(two.page(first.token()).await.code, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn rotated_keys_verify_old_tokens() {
    let servers = clusters();
    let (one, two) = (replica(&servers, Some(keys(&[OLD]))), replica(&servers, Some(keys(&[NEW, OLD]))));
    fill([&one, &two]).await;
    let first = one.page("").await;
    assert_eq!(two.page(first.token()).await.code, 200);
    // The first replica does not know the new key yet, and then does not know the old one any more.
    let first = two.page("").await;
    assert_eq!(one.page(first.token()).await.code, 410);
    let one = replica(&servers, Some(keys(&[OLD, NEW])));
    one.until(PODS, |list| list.items().len() == 6).await;
    assert_eq!(one.page(first.token()).await.code, 200);
    let three = replica(&servers, Some(keys(&[NEW])));
    three.until(PODS, |list| list.items().len() == 6).await;
    assert_eq!(three.page(first.token()).await.code, 200);
    let first = one.page("").await;
    assert_eq!((three.page(first.token()).await.code, two.page(first.token()).await.code), (410, 200));
}

#[tokio::test(start_paused = true)]
async fn replica_that_may_lack_something_does_not_continue() {
    let servers = clusters();
    let (one, two) = (replica(&servers, Some(keys(&[OLD]))), replica(&servers, Some(keys(&[OLD]))));
    fill([&one, &two]).await;
    // A replica that does not have one of the clusters.
    let north: Servers =
        servers.iter().filter(|(name, _)| **name == "north").map(|(n, s)| (*n, s.clone())).collect();
    let fewer = replica(&north, Some(keys(&[OLD])));
    fewer.until(PODS, |list| list.items().len() == 3).await;
    let first = one.page("").await;
    let refused = fewer.page(first.token()).await;
    assert_eq!(refused.code, 410, "{}", refused.json);
    // As with an API server, a client that accepts several states may continue with the token of the refusal.
    let rest = fewer.page(refused.token()).await;
    assert_eq!((rest.code, rest.items()), (200, vec!["north/shop/c".to_owned()]));
    // A cluster that cannot be asked whether this replica has everything.
    servers["south"].pause().await;
    let refused = two.page(first.token()).await;
    assert_eq!(refused.code, 410, "{}", refused.json);
    assert_eq!(one.page(first.token()).await.code, 200, "its own state needs no proof");
}

//! Events and errors for clients after a break in a member's history, as by a restored etcd, or after a gap.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use skopos_testserver::{Fault, Match, TestServer};
use tokio::time::timeout;

use super::memory_tests::{PODS, deafen, lab, names, pod};
use crate::testing::{Lab, QuietSource, told};

/// Time within which any failure of a member is detected.
const NOTICED: Duration = Duration::from_secs(90);

fn revision(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Returns all events of a watch; it must end within this time.
async fn watched(lab: &Lab, from: u64, within: Duration) -> Vec<Value> {
    let seconds = within.as_secs();
    let path = format!("{PODS}?watch=1&timeoutSeconds={seconds}&resourceVersion={from}");
    let all = told(lab.send(Method::GET, &path, &[], "").await).await;
    serde_json::Deserializer::from_slice(&all.body).into_iter().map(Result::unwrap).collect()
}

fn expired(events: &[Value]) -> bool {
    matches!(events, [error] if error["type"] == "ERROR" && error["object"]["code"] == 410)
}

#[tokio::test(start_paused = true)]
async fn rollback_expires_open_and_new_watches() {
    let lab = lab(&["a"]);
    let member = lab.member("a");
    let backup = member.resource_version();
    for name in ["b", "c", "d"] {
        member.create(pod(name)).unwrap();
    }
    let before = lab.get(PODS, &[]).await.json();
    assert_eq!(names(&before), ["a", "b", "c", "d"]);
    let open = watched(&lab, revision(&before), 10 * NOTICED);
    let restored = async {
        // After the watch has begun.
        tokio::time::sleep(Duration::from_secs(1)).await;
        member.roll_back(backup).unwrap();
    };
    let (told, ()) = timeout(NOTICED, async { tokio::join!(open, restored) }).await.expect("it is noticed");
    assert!(expired(&told), "{told:?}");
    // A new watch from there would miss the new history until it reaches that revision.
    let again = watched(&lab, revision(&before), NOTICED).await;
    assert!(expired(&again), "{again:?}");
    let after = lab.get(PODS, &[]).await.json();
    assert_eq!((names(&after), revision(&after)), (vec!["a"], backup));
    let watch = watched(&lab, backup, NOTICED);
    let created = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        member.create(pod("e")).unwrap();
    };
    let (told, ()) = tokio::join!(watch, created);
    let said = |event: &Value| (event["type"].clone(), event["object"]["metadata"]["name"].clone());
    assert_eq!(told.iter().map(said).collect::<Vec<_>>(), [(json!("ADDED"), json!("e"))]);
}

/// Checks changes that share a version, as of Events whose lease expires; here some come seconds after the others.
#[tokio::test(start_paused = true)]
async fn watch_delivers_rest_of_changes_sharing_version() {
    let lab = lab(&["a", "b", "c"]);
    let member = lab.member("a");
    let from_memory = format!("{PODS}?resourceVersion=0");
    assert_eq!(names(&lab.get(&from_memory, &[]).await.json()), ["a", "b", "c"]);
    let slowly = Fault::Slow { bytes: 100, every: Duration::from_secs(1) };
    let _slow = member.faults().inject(slowly).on(Match::watch().resource("pods"));
    member.close_watches();
    tokio::time::sleep(Duration::from_secs(10)).await;
    member.expire(["a", "b", "c"].map(|name| ("pods", Some("shop"), name))).unwrap();
    let between = async {
        loop {
            let list = lab.get(&from_memory, &[]).await.json();
            if revision(&list) == member.resource_version() {
                break list;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let between = timeout(NOTICED, between).await.expect("the first of them comes");
    let left = names(&between);
    assert!(!left.is_empty(), "some are still to come");
    // The same events as for a watch that was cut off after the first of them.
    let told = watched(&lab, revision(&between), NOTICED).await;
    let gone: Vec<_> = told.iter().map(|event| event["object"]["metadata"]["name"].clone()).collect();
    assert_eq!(gone, ["b", "c"]);
    assert!(left.iter().all(|name| gone.contains(&json!(name))), "{left:?}");
    assert!(told.iter().all(|event| event["type"] == "DELETED"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn rollback_expires_pages_and_exact_lists() {
    let lab = lab(&["a", "b", "c"]);
    let member = lab.member("a");
    let backup = member.resource_version();
    member.create(pod("d")).unwrap();
    let first = lab.get(&format!("{PODS}?limit=2"), &[]).await.json();
    let (of, token) = (revision(&first), first["metadata"]["continue"].as_str().unwrap());
    let rest = format!("{PODS}?limit=2&continue={token}");
    assert_eq!(names(&lab.get(&rest, &[]).await.json()), ["c", "d"]);
    member.roll_back(backup).unwrap();
    tokio::time::sleep(NOTICED).await;
    for name in ["x", "y", "z"] {
        member.create(pod(name)).unwrap();
    }
    assert!(member.resource_version() > of);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let exact = format!("{PODS}?resourceVersion={of}&resourceVersionMatch=Exact");
    for path in [rest, exact] {
        let told = lab.get(&path, &[]).await;
        assert_eq!((told.code, &told.json()["reason"]), (410, &json!("Expired")), "{path}: {told:?}");
    }
    assert_eq!(names(&lab.get(PODS, &[]).await.json()), ["a", "b", "c", "x", "y", "z"]);
}

/// Checks a watch ahead of memory. An object of a live list may be deleted before the member's watch is open again, and
/// its deletion would be lost.
#[tokio::test(start_paused = true)]
async fn watch_ahead_of_memory_ends_at_gap() {
    let lab = lab(&["a"]);
    let member = lab.member("a");
    lab.get(PODS, &[]).await;
    let deaf = deafen(&lab).await;
    member.create(pod("ghost")).unwrap();
    let list = lab.get(PODS, &[]).await;
    assert_eq!((list.header("skopos-source"), names(&list.json())), ("member", vec!["a", "ghost"]));
    let from = revision(&list.json());
    let watch = watched(&lab, from, 2 * NOTICED);
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        member.delete("pods", Some("shop"), "ghost").unwrap();
        member.create(pod("b")).unwrap();
        member.compact();
        member.forget_events();
        drop(deaf);
    };
    let (told, ()) = tokio::join!(watch, meanwhile);
    assert_eq!(told, Vec::<Value>::new(), "it ends before it is told of what came after");
    let again = watched(&lab, from, NOTICED).await;
    assert!(expired(&again), "{again:?}");
    assert_eq!(names(&lab.get(PODS, &[]).await.json()), ["a", "b"]);
}

/// Checks the case of another cluster that takes the name, at a revision that the earlier one has passed long ago.
#[tokio::test(start_paused = true)]
async fn versions_expire_when_another_cluster_takes_name() {
    let lab = lab(&["a"]);
    let source = QuietSource::for_member(&lab.services.fleet, "a").await;
    for name in ["b", "c", "d"] {
        lab.member("a").create(pod(name)).unwrap();
    }
    let first = lab.get(&format!("{PODS}?limit=2"), &[]).await.json();
    let from = revision(&first);
    let open = watched(&lab, from, 10 * NOTICED);
    let replaced = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let another = TestServer::builder().start_in_memory().unwrap();
        another
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
            .unwrap();
        another.create(pod("x")).unwrap();
        assert!(another.resource_version() < from);
        lab.replace_member("a", &another);
        source.lists_another("a");
        another
    };
    let (told, another) = timeout(NOTICED, async { tokio::join!(open, replaced) }).await.expect("it is told");
    assert!(expired(&told), "{told:?}");
    assert_eq!(names(&lab.get(PODS, &[]).await.json()), ["x"]);
    assert!(expired(&watched(&lab, from, NOTICED).await));
    let token = first["metadata"]["continue"].as_str().unwrap();
    for query in [format!("limit=2&continue={token}"), format!("resourceVersion={from}")] {
        let told = lab.get(&format!("{PODS}?{query}"), &[]).await;
        assert_eq!((told.code, &told.json()["reason"]), (410, &json!("Expired")), "{query}: {told:?}");
    }
    // Revisions of the new cluster itself are valid.
    let now = revision(&lab.get(PODS, &[]).await.json());
    let watch = watched(&lab, now, Duration::from_secs(10));
    let created = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        another.create(pod("y")).unwrap();
    };
    let (told, ()) = tokio::join!(watch, created);
    assert_eq!(told[0]["object"]["metadata"]["name"], "y", "{told:?}");
}

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use skopos_fleet::{Paused, PausedBy};
use skopos_testserver::{Connections, Direction, Fault, FaultGuard, Match};

use crate::testing::{Lab, told};

pub(super) const PODS: &str = "/clusters/a/api/v1/namespaces/shop/pods";

pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    })
}

pub(super) fn lab(pods: &[&str]) -> Lab {
    let lab = Lab::trusting(&["a"]);
    fill(&lab, pods);
    lab
}

fn fill(lab: &Lab, pods: &[&str]) {
    let member = lab.member("a");
    member.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    for name in pods {
        member.create(pod(name)).unwrap();
    }
}

pub(super) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Returns the number of requests for pods that reached the member since it was cleared.
fn asked(lab: &Lab, verb: &str) -> usize {
    let requests = lab.member("a").requests();
    requests.iter().filter(|r| r.resource.as_deref() == Some("pods") && r.verb == verb).count()
}

#[tokio::test(start_paused = true)]
async fn lists_and_gets_come_from_memory_with_age() {
    let lab = lab(&["a", "b", "c"]);
    lab.get(PODS, &[]).await;
    lab.member("a").clear_requests();
    let list = lab.get(PODS, &[]).await;
    assert_eq!((list.code, list.header("skopos-source")), (200, "memory"), "{list:?}");
    assert!(list.header("skopos-age").parse::<f64>().unwrap() <= 60.0 && list.header("warning").is_empty());
    assert_eq!((names(&list.json()), &list.json()["kind"]), (vec!["a", "b", "c"], &json!("PodList")));
    let one = lab.get(&format!("{PODS}/b"), &[]).await;
    assert_eq!((one.header("skopos-source"), &one.json()["spec"]["nodeName"]), ("memory", &json!("n1")));
    let none = lab.get(&format!("{PODS}/none"), &[]).await;
    assert_eq!((none.code, none.message().as_str()), (404, "pods \"none\" not found"));
    assert_eq!((asked(&lab, "list"), asked(&lab, "get")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn memory_answers_equal_member_answers() {
    let lab = lab(&["a", "b", "c"]);
    let member = Lab::with(&[], |_| {});
    drop(member);
    lab.get(PODS, &[]).await;
    // The same kind passes through if it is never cached.
    let direct = Lab::with(&["a"], |config| {
        config.authorization.loopback = crate::config::LoopbackTrust::Trusted;
        config.cache.never =
            vec![crate::config::Kind { group: String::new(), version: "v1".into(), resource: "pods".into() }];
    });
    fill(&direct, &["a", "b", "c"]);
    for query in [
        "",
        "?labelSelector=app%3Db",
        "?labelSelector=app+in+(a,c)",
        "?fieldSelector=spec.nodeName%3Dn1",
        "?fieldSelector=metadata.name%3Da",
        "?limit=2",
        "?labelSelector=a%3D%3D%3Db",
        "?fieldSelector=spec.made.up%3D1",
        "?resourceVersionMatch=Exact",
        "?resourceVersion=abc",
        "?continue=abc",
        "?resourceVersion=0",
    ] {
        let (memory, through) =
            (lab.get(&format!("{PODS}{query}"), &[]).await, direct.get(&format!("{PODS}{query}"), &[]).await);
        assert_eq!(through.header("skopos-source"), "member", "{query}");
        assert_eq!(memory.code, through.code, "{query}: {memory:?} {through:?}");
        if memory.code == 200 {
            assert_eq!(names(&memory.json()), names(&through.json()), "{query}");
        } else {
            assert_eq!(memory.json(), through.json(), "{query}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_of_one_state() {
    let lab = lab(&["a", "b", "c", "d", "e"]);
    let first = lab.get(&format!("{PODS}?limit=2"), &[]).await.json();
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    lab.member("a").create(pod("bb")).unwrap();
    lab.member("a").delete("pods", Some("shop"), "d").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = lab.get(&format!("{PODS}?limit=10&continue={token}"), &[]).await.json();
    assert_eq!(names(&second), ["c", "d", "e"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(names(&lab.get(PODS, &[]).await.json()), ["a", "b", "bb", "c", "e"]);

    tokio::time::sleep(Duration::from_secs(400)).await;
    let late = lab.get(&format!("{PODS}?limit=10&continue={token}"), &[]).await;
    assert_eq!((late.code, &late.json()["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn paged_list_keeps_state_among_other_lists() {
    let lab = lab(&["a", "b", "c", "d", "e"]);
    let token = |page: &Value| page["metadata"]["continue"].as_str().unwrap().to_owned();
    let first = lab.get(&format!("{PODS}?limit=1"), &[]).await.json();
    let mut page = first.clone();
    for name in ["b", "c", "d"] {
        // Other lists, each at a state of its own; a list in one page, as kubectl reads it, needs no kept state.
        for other in 0..15 {
            lab.member("a").create(pod(&format!("x-{name}-{other}"))).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(lab.get(&format!("{PODS}?limit=1"), &[]).await.code, 200);
            assert_eq!(lab.get(&format!("{PODS}?limit=500"), &[]).await.code, 200);
        }
        // Longer than a token's lifetime, all in all.
        tokio::time::sleep(Duration::from_secs(200)).await;
        page = lab.get(&format!("{PODS}?limit=1&continue={}", token(&page)), &[]).await.json();
        assert_eq!(names(&page), [name], "{page}");
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    }
}

/// Checks that a list is of one state from its first byte to its last, and that a slow reader delays no other client.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_read_slowly_delays_no_event() {
    let lab = lab(&[]);
    lab.member("a").load_pods(300);
    let all = "/clusters/a/api/v1/pods";
    let before = lab.get(all, &[]).await;
    let watch = lab.send(Method::GET, &format!("{PODS}?watch=1"), &[], "").await;
    let mut events = watch.into_body();
    for (number, encoding) in ["identity", "gzip"].into_iter().enumerate() {
        let begun = lab.send(Method::GET, all, &[("accept-encoding", encoding)], "").await;
        let (parts, mut list) = begun.into_parts();
        let mut read = list.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
        let name = format!("late-{number}");
        lab.member("a").create(pod(&name)).unwrap();
        let event = events.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(std::str::from_utf8(&event).unwrap().contains(&name), "{event:?}");
        assert!(names(&lab.get(PODS, &[]).await.json()).contains(&name.as_str()));

        read.extend_from_slice(&list.collect().await.unwrap().to_bytes());
        if parts.headers.get("content-encoding").is_some_and(|coding| coding == "gzip") {
            let mut decoder = flate2::read::GzDecoder::new(read.as_slice());
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut decoder, &mut text).unwrap();
            read = text;
        }
        let list: Value = serde_json::from_slice(&read).unwrap();
        assert_eq!(names(&list).len(), names(&before.json()).len() + number, "{encoding}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_share_frames_and_lists_compressed_objects() {
    let lab = lab(&["a"]);
    lab.member("a").load_pods(100);
    let list = "/clusters/a/api/v1/pods";
    lab.get(list, &[]).await;
    let path = format!("{PODS}?watch=1&resourceVersion=0");
    let mut watches = Vec::new();
    for _ in 0..20 {
        let mut body = lab.send(Method::GET, &path, &[], "").await.into_body();
        // Each watch has a state of its own.
        body.frame().await.unwrap().unwrap();
        watches.push(body);
    }
    lab.member("a").create(pod("b")).unwrap();
    for watch in &mut watches {
        watch.frame().await.unwrap().unwrap();
    }
    for _ in 0..3 {
        lab.get(list, &[("accept-encoding", "gzip")]).await;
    }
    let metrics = lab.get("/metrics", &[]).await;
    let metrics = std::str::from_utf8(&metrics.body).unwrap();
    for line in [
        "skopos_watch_frames_encoded_total 1.0",
        "skopos_watch_evictions_total 0.0",
        "skopos_compressed_objects_total 102.0",
        "skopos_compressed_found_total 204.0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_and_metadata_alone() {
    let lab = lab(&["a"]);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let told = lab.get(PODS, &[("accept", table)]).await.json();
    assert_eq!((&told["kind"], &told["columnDefinitions"][0]["name"]), (&json!("Table"), &json!("Name")));
    assert_eq!(told["rows"][0]["cells"][0], "a");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let told = lab.get(PODS, &[("accept", partial)]).await.json();
    assert!(told["kind"] == "PartialObjectMetadataList" && told["items"][0]["spec"].is_null(), "{told}");
    let protobuf = lab.get(PODS, &[("accept", "application/vnd.kubernetes.protobuf")]).await;
    assert_eq!(protobuf.header("skopos-source"), "memory");
    assert_eq!(protobuf.header("content-type"), "application/vnd.kubernetes.protobuf");
    // The member answers requests that memory cannot.
    let cbor = lab.get(PODS, &[("accept", "application/cbor")]).await;
    assert_eq!(cbor.header("skopos-source"), "member");
}

#[tokio::test(start_paused = true)]
async fn paused_cluster_answers_at_once_with_warning() {
    let lab = lab(&["a", "b"]);
    lab.get(PODS, &[]).await;
    lab.services.fleet.cluster("a").unwrap().pause(Paused { by: PausedBy::ScaledDown, since: None });
    lab.member("a").pause().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let began = tokio::time::Instant::now();
    let list = lab.get(PODS, &[]).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!((list.code, names(&list.json())), (200, vec!["a", "b"]));
    assert!(list.header("skopos-age").parse::<f64>().unwrap() >= 300.0, "{list:?}");
    let warning = list.header("warning");
    assert!(
        warning.starts_with("299 - \"skopos: pods of cluster a from memory, up to ")
            && warning.contains("paused"),
        "{warning}"
    );
    assert_eq!(lab.get(&format!("{PODS}/a"), &[]).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn silent_cluster_delays_read_up_to_deadline() {
    let lab = lab(&["a"]);
    lab.get(PODS, &[]).await;
    let _fault = lab.member("a").faults().black_hole(Connections::All, Direction::Both);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let began = tokio::time::Instant::now();
    let list = lab.get(PODS, &[]).await;
    assert!(began.elapsed() <= lab.services.config.cache.member_deadline.0, "{:?}", began.elapsed());
    assert_eq!((list.code, names(&list.json())), (200, vec!["a"]));
    assert!(!list.header("warning").is_empty() && list.header("skopos-age").parse::<f64>().unwrap() >= 100.0);
}

#[tokio::test(start_paused = true)]
async fn stale_answer_carries_warning_despite_live_watch() {
    let lab = Lab::with(&["a"], |config| {
        config.authorization.loopback = crate::config::LoopbackTrust::Trusted;
        config.cache.max_age = crate::config::Span(Duration::from_secs(5));
    });
    fill(&lab, &["a"]);
    lab.get(PODS, &[]).await;
    let _slow = lab.member("a").faults().inject(Fault::DelayHeaders(Duration::from_secs(5))).everywhere();
    tokio::time::sleep(Duration::from_secs(20)).await;
    for path in [PODS.to_owned(), format!("{PODS}/a")] {
        let told = lab.get(&path, &[]).await;
        assert_eq!((told.code, told.header("skopos-source")), (200, "memory"));
        let age: f64 = told.header("skopos-age").parse().unwrap();
        assert!((5.0..90.0).contains(&age), "{age}");
        let warning = told.header("warning");
        assert!(
            warning.starts_with("299 - \"skopos: pods of cluster a from memory, up to ")
                && warning.contains("the cluster gave nothing newer within 3s"),
            "{warning}"
        );
    }
    // A client that accepts any version gets it, with its age.
    let any = lab.get(&format!("{PODS}?resourceVersion=0"), &[]).await;
    assert_eq!((any.code, any.header("warning")), (200, ""));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_every_change_from_memory() {
    let lab = lab(&["a"]);
    let list = lab.get(PODS, &[]).await.json();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{PODS}?watch=1&resourceVersion={revision}&allowWatchBookmarks=true");
    let answer = lab.send(Method::GET, &path, &[], "").await;
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["skopos-source"].to_str().unwrap()),
        (200, "memory")
    );
    let mut body = answer.into_body();
    let mut next = async || {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&frame).unwrap();
        (event["type"].as_str().unwrap().to_owned(), event["object"].clone())
    };
    lab.member("a").create(pod("b")).unwrap();
    let (kind, object) = next().await;
    assert_eq!((kind.as_str(), &object["metadata"]["name"]), ("ADDED", &json!("b")));
    lab.member("a").delete("pods", Some("shop"), "a").unwrap();
    let (kind, object) = next().await;
    assert_eq!(
        (kind.as_str(), &object["metadata"]["name"], &object["kind"]),
        ("DELETED", &json!("a"), &json!("Pod"))
    );
    let (kind, _) = next().await;
    assert_eq!(kind, "BOOKMARK");
    // One watch on the member serves all.
    assert_eq!(
        lab.member("a")
            .requests()
            .iter()
            .filter(|r| r.is_open_watch() && r.resource.as_deref() == Some("pods"))
            .count(),
        1
    );

    let old = lab.send(Method::GET, &format!("{PODS}?watch=1&resourceVersion=1"), &[], "").await;
    let old = told(old).await.json();
    assert_eq!((&old["type"], &old["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_its_bookmark() {
    let lab = lab(&["a", "b"]);
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5"
    );
    let all = told(lab.send(Method::GET, &path, &[], "").await).await;
    let events: Vec<Value> =
        serde_json::Deserializer::from_slice(&all.body).into_iter().map(Result::unwrap).collect();
    let kinds: Vec<_> = events.iter().take(3).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "ADDED", "BOOKMARK"]);
    assert_eq!(events[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test(start_paused = true)]
async fn secrets_are_cached_only_when_configured() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}});
    for keep in [false, true] {
        let lab = Lab::with(&["a"], |config| {
            config.authorization.loopback = crate::config::LoopbackTrust::Trusted;
            config.cache.secrets = keep;
        });
        fill(&lab, &[]);
        lab.member("a").create(secret.clone()).unwrap();
        let told = lab.get("/clusters/a/api/v1/namespaces/shop/secrets", &[]).await;
        assert_eq!((told.code, told.header("skopos-source")), (200, if keep { "memory" } else { "member" }));
        let kept = lab.services.fleet.cluster("a").unwrap().kinds();
        assert_eq!(kept.iter().any(|kind| kind.resource().plural == "secrets"), keep);
    }
}

#[tokio::test(start_paused = true)]
async fn paths_not_fitting_kind_are_not_found() {
    let lab = lab(&["a"]);
    for path in [
        "/clusters/a/api/v1/namespaces/shop/nodes",
        "/clusters/a/api/v1/pods/a",
        "/clusters/a/api/v1/namespaces/shop/made-up",
    ] {
        assert_eq!(lab.get(path, &[]).await.code, 404, "{path}");
    }
    assert_eq!(lab.get("/clusters/a/api/v1/namespaces/shop", &[]).await.json()["metadata"]["name"], "shop");
    assert_eq!(names(&lab.get("/clusters/a/api/v1/pods", &[]).await.json()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn no_watch_begins_inside_of_a_gap() {
    let lab = lab(&["a"]);
    let before = lab.get(PODS, &[]).await.json();
    let member = lab.member("a");
    member.pause().await;
    let inside = member.create(pod("b")).unwrap();
    member.create(pod("c")).unwrap();
    member.compact();
    member.forget_events();
    member.resume().await.unwrap();
    let listed = async {
        while names(&lab.get(PODS, &[]).await.json()) != ["a", "b", "c"] {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), listed).await.unwrap();
    let watched = async |from: &Value| {
        let version = from["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{PODS}?watch=1&timeoutSeconds=2&resourceVersion={version}");
        let all = told(lab.send(Method::GET, &path, &[], "").await).await;
        let events = serde_json::Deserializer::from_slice(&all.body).into_iter::<Value>().map(Result::unwrap);
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(watched(&before).await, ["ADDED", "ADDED"]);
    // Other changes within the gap are unknown.
    assert_eq!(watched(&inside).await, ["ERROR"]);
}

/// Breaks watches of pods, and waits until memory reports it.
pub(super) async fn deafen(lab: &Lab) -> FaultGuard {
    let deaf = lab.member("a").faults().inject(Fault::status(503, 0)).on(Match::watch().resource("pods"));
    lab.member("a").close_watches();
    tokio::time::sleep(Duration::from_secs(10)).await;
    deaf
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_share_member_requests() {
    let lab = lab(&["a", "b"]);
    lab.get(PODS, &[]).await;
    let _deaf = deafen(&lab).await;
    lab.member("a").create(pod("c")).unwrap();
    lab.member("a").clear_requests();
    let all = join_all((0..100).map(|n| {
        let (lab, name) = (&lab, ["a", "b", "c"][n % 3]);
        async move { (name, lab.get(&format!("{PODS}/{name}"), &[]).await) }
    }));
    for (name, told) in all.await {
        assert_eq!((told.code, told.header("skopos-source")), (200, "member"));
        assert_eq!(told.json()["metadata"]["name"], name);
    }
    // The first read, and one for all others; each is a probe and a list.
    assert!(asked(&lab, "list") <= 4, "{}", asked(&lab, "list"));
}

/// Checks the size of a list that the member answered: it shares nothing with the store.
#[tokio::test(start_paused = true)]
async fn paged_member_lists_are_counted_in_full() {
    let lab = lab(&["a", "b"]);
    lab.get(PODS, &[]).await;
    let _deaf = deafen(&lab).await;
    let held = async || {
        let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("skopos_paged_bytes{path=\"clusters\"} "));
        line.unwrap().parse::<f64>().unwrap()
    };
    let mut last = held().await;
    assert_eq!(last, 0.0);
    for name in ["c", "d", "e"] {
        lab.member("a").create(pod(name)).unwrap();
        let first = lab.get(&format!("{PODS}?limit=1"), &[("cache-control", "no-cache")]).await;
        assert_eq!((first.code, first.header("skopos-source")), (200, "member"));
        let now = held().await;
        assert!(now > last + 1000.0, "{now} after {last}");
        last = now;
    }
}

/// Checks a paged list ahead of memory, which may be behind for long.
#[tokio::test(start_paused = true)]
async fn paged_list_from_member_reaches_last_page() {
    let lab = lab(&["a", "b"]);
    lab.get(PODS, &[]).await;
    let _deaf = deafen(&lab).await;
    lab.member("a").create(pod("c")).unwrap();
    let mut page = lab.get(&format!("{PODS}?limit=1"), &[]).await;
    assert_eq!(page.header("skopos-source"), "member");
    let of = page.json()["metadata"]["resourceVersion"].clone();
    let mut found = Vec::new();
    loop {
        assert_eq!(page.code, 200, "{page:?}");
        let list = page.json();
        assert_eq!(list["metadata"]["resourceVersion"], of);
        found.extend(names(&list).into_iter().map(str::to_owned));
        let Some(token) = list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else {
            break;
        };
        page = lab.get(&format!("{PODS}?limit=1&continue={token}"), &[]).await;
    }
    assert_eq!(found, ["a", "b", "c"]);
    let exact = format!("{PODS}?resourceVersion={}&resourceVersionMatch=Exact", of.as_str().unwrap());
    assert_eq!(lab.get(&exact, &[]).await.code, 200);
}

/// Checks a streamed list, as client-go's informers begin; they have no fallback where it fails.
#[tokio::test(start_paused = true)]
async fn watch_list_starts_newest_when_memory_lags() {
    let lab = lab(&["a", "b"]);
    lab.get(PODS, &[]).await;
    let deaf = deafen(&lab).await;
    lab.member("a").create(pod("c")).unwrap();
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60"
    );
    let watch = async { told(lab.send(Method::GET, &path, &[], "").await).await };
    let later = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(deaf);
        tokio::time::sleep(Duration::from_secs(30)).await;
        lab.member("a").create(pod("d")).unwrap();
    };
    let (told, ()) = tokio::join!(watch, later);
    let events = serde_json::Deserializer::from_slice(&told.body).into_iter::<Value>().map(Result::unwrap);
    let said = |event: Value| {
        let meta = &event["object"]["metadata"];
        let ends = meta["annotations"]["k8s.io/initial-events-end"] == "true";
        let name = if ends { "all" } else { meta["name"].as_str().unwrap_or_default() };
        format!("{} {name}", event["type"].as_str().unwrap())
    };
    let events: Vec<_> = events.map(said).filter(|event| event != "BOOKMARK ").collect();
    assert_eq!(events, ["ADDED a", "ADDED b", "ADDED c", "BOOKMARK all", "ADDED d"]);
}

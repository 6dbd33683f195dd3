//! Tests of the WATCH half of the contract, rule by rule.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use skopos_testserver::{CloseMode, Fault, Lag, Match, Outcome, TestServer};
use support::*;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const END: &str = "k8s.io/initial-events-end";

async fn with_maps(names: &[&str]) -> TestServer {
    let server = start(TestServer::builder()).await;
    for name in names {
        server.create(config_map(name)).unwrap();
    }
    server
}

#[tokio::test(start_paused = true)]
async fn w1_w3_watch_without_version_begins_with_state() {
    let server = with_maps(&["b", "a"]).await;
    for version in ["", "&resourceVersion=0", "&resourceVersion="] {
        let mut old_style = watch(&server, &format!("{MAPS}?watch=1{version}")).await;
        assert_eq!(old_style.short().await, "ADDED a", "in key order");
        assert_eq!(old_style.short().await, "ADDED b");
        // No bookmark for a client that did not request any.
        assert!(old_style.quiet(90 * SECOND).await);
    }
    let mut stream = watch(
        &server,
        &format!(
            "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ),
    )
    .await;
    assert_eq!(stream.short().await, "ADDED a");
    assert_eq!(stream.short().await, "ADDED b");
    let end = stream.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"], json!({END: "true"}));
    assert_eq!(rv(&end["object"]), server.resource_version());
    assert_eq!((&end["object"]["kind"], &end["object"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    server.create(config_map("c")).unwrap();
    assert_eq!(stream.short().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn w2_options_that_do_not_go_together_are_invalid() {
    let server = with_maps(&[]).await;
    let invalid = |problem: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {problem}");
    let needs_match = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let needs_send = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    let only = "resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
    for (query, message) in [
        ("sendInitialEvents=true", invalid(needs_match)),
        ("sendInitialEvents=false", invalid(needs_match)),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1", invalid(needs_send)),
        ("resourceVersionMatch=Exact&resourceVersion=1", invalid(&format!("[{needs_send}, {only}]"))),
    ] {
        get(&server, &format!("{MAPS}?watch=1&{query}")).await.failed(422, "Invalid", &message);
    }
    let old = start(TestServer::builder().watch_list(false)).await;
    get(&old, &format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")).await.failed(
        422,
        "Invalid",
        &invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
    );
    // Watches at version 0 began with the state long before that feature.
    old.create(config_map("a")).unwrap();
    assert_eq!(watch(&old, &format!("{MAPS}?watch=1&resourceVersion=0")).await.short().await, "ADDED a");
}

#[tokio::test(start_paused = true)]
async fn w3_future_initial_events_time_out_in_stream() {
    let server = with_maps(&["a"]).await;
    let next = server.resource_version() + 1;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={next}"
    );
    let begin = Instant::now();
    let mut stream = watch(&server, &path).await;
    assert!(begin.elapsed() >= 3 * SECOND);
    let event = stream.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(504), &json!("Timeout")));
    assert_eq!(stream.next().await, None);
    let write = async {
        tokio::time::sleep(SECOND).await;
        server.create(config_map("b")).unwrap();
    };
    let (mut stream, ()) = tokio::join!(watch(&server, &path), write);
    assert_eq!((stream.short().await, stream.short().await), ("ADDED a".into(), "ADDED b".into()));
}

#[tokio::test(start_paused = true)]
async fn w4_watch_from_version_delivers_only_newer() {
    let server = with_maps(&["a", "b"]).await;
    let then = server.resource_version();
    server.create(config_map("c")).unwrap();
    let mut from_then = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={then}")).await;
    assert_eq!(from_then.short().await, "ADDED c");
    let no_state = format!("{MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let mut from_now = watch(&server, &format!("{no_state}&resourceVersion=0")).await;
    let mut from_newest = watch(&server, &no_state).await;
    let future = server.resource_version() + 2;
    let mut from_future =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={future}&allowWatchBookmarks=1")).await;
    for name in ["d", "e", "f"] {
        server.create(config_map(name)).unwrap();
    }
    assert_eq!(from_now.short().await, "ADDED d");
    assert_eq!(from_newest.short().await, "ADDED d");
    assert_eq!(from_future.short().await, "ADDED f", "what is not newer is suppressed");
}

#[tokio::test(start_paused = true)]
async fn w4_no_bookmark_goes_back_behind_a_future_version() {
    let server = with_maps(&["a"]).await;
    let future = server.resource_version() + 10;
    let mut stream =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={future}&allowWatchBookmarks=1")).await;
    assert!(stream.quiet(200 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn w5_too_old_version_ends_watch_with_error() {
    let server = with_maps(&["a", "b"]).await;
    let then = server.resource_version();
    server.create(config_map("c")).unwrap();
    server.compact();
    let now = server.resource_version();
    let mut stream = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={then}")).await;
    let event = stream.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired",
        "message": format!("too old resource version: {then} ({now})"), "code": 410});
    assert_eq!(event["object"], expected);
    assert_eq!(stream.next().await, None);
    let mut stream = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}")).await;
    server.create(config_map("d")).unwrap();
    assert_eq!(stream.short().await, "ADDED d");
    // Validation fails before the stream begins.
    get(&server, &format!("{MAPS}?watch=1&resourceVersion=x")).await.failed(
        500,
        "",
        "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
    );
}

#[tokio::test(start_paused = true)]
async fn w6_bounded_window_outlives_version_compaction() {
    let server = start(TestServer::builder().event_window(75 * SECOND, 20)).await;
    let start = server.resource_version();
    for i in 0..10 {
        server.create(config_map(&format!("m{i}"))).unwrap();
    }
    server.compact_versions();
    assert_eq!(
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={start}")).await.short().await,
        "ADDED m0"
    );
    for i in 10..40 {
        server.create(config_map(&format!("m{i}"))).unwrap();
    }
    assert_eq!(
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={start}")).await.short().await,
        "ERROR"
    );
}

#[tokio::test(start_paused = true)]
async fn w7_bookmarks_come_each_minute_and_before_end() {
    let server = with_maps(&["a"]).await;
    let now = server.resource_version();
    let begin = Instant::now();
    let mut stream = watch(
        &server,
        &format!("{MAPS}?watch=1&resourceVersion={now}&allowWatchBookmarks=true&timeoutSeconds=100"),
    )
    .await;
    let first = stream.next().await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 60);
    let mut object = first["object"].clone();
    object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    assert_eq!(
        object,
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": now.to_string()}})
    );
    // Writes of other resources advance it too.
    server
        .create(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}),
        )
        .unwrap();
    let last = stream.next().await.unwrap();
    assert_eq!((begin.elapsed().as_secs(), rv(&last["object"])), (98, server.resource_version()));
    // W8: the end is clean, and not an event.
    assert_eq!(stream.next().await, None);
    assert_eq!(begin.elapsed().as_secs(), 100);
}

#[tokio::test(start_paused = true)]
async fn w7_a_short_watch_has_a_bookmark_too() {
    let server = with_maps(&["a"]).await;
    let begin = Instant::now();
    let now = server.resource_version();
    let mut stream = watch(
        &server,
        &format!("{MAPS}?watch=1&resourceVersion={now}&allowWatchBookmarks=true&timeoutSeconds=3"),
    )
    .await;
    assert_eq!(stream.short().await, "BOOKMARK");
    assert_eq!((begin.elapsed().as_secs(), stream.next().await), (1, None));
}

#[tokio::test(start_paused = true)]
async fn w8_watch_ends_between_30_and_60_minutes() {
    let server = with_maps(&[]).await;
    let begin = Instant::now();
    let mut stream = watch(&server, &format!("{MAPS}?watch=1")).await;
    assert_eq!(stream.next().await, None);
    let minutes = begin.elapsed().as_secs() / 60;
    assert!((30..60).contains(&minutes), "{minutes}");
}

#[tokio::test(start_paused = true)]
async fn w9_crossing_a_selector_adds_and_deletes() {
    let server = start(TestServer::builder()).await;
    let now = server.resource_version();
    let mut stream =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}&labelSelector=app%3Dx")).await;
    server.create(labelled("a", "y")).unwrap();
    let entered = rv(&server.update(labelled("a", "x")).unwrap());
    let mut inside = labelled("a", "x");
    inside["data"] = json!({"k": "v"});
    let modified = rv(&server.update(inside).unwrap());
    let left = rv(&server.update(labelled("a", "y")).unwrap());
    server.update(labelled("a", "z")).unwrap();
    server.create(labelled("b", "x")).unwrap();
    let deleted = rv(&server
        .delete("configmaps", Some("default"), "b")
        .map(|_| json!({"metadata": {"resourceVersion": server.resource_version().to_string()}}))
        .unwrap());

    let event = stream.next().await.unwrap();
    assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("ADDED"), entered));
    let event = stream.next().await.unwrap();
    assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("MODIFIED"), modified));
    let event = stream.next().await.unwrap();
    assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("DELETED"), left));
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "x", "the object as it was inside");
    assert_eq!(event["object"]["data"]["k"], "v");
    assert_eq!(stream.short().await, "ADDED b");
    let event = stream.next().await.unwrap();
    assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("DELETED"), deleted));
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "x", "the last state");
}

#[tokio::test(start_paused = true)]
async fn w10_slow_watcher_is_closed_silently() {
    let server = start(TestServer::builder().slow_watchers(10, SECOND)).await;
    let now = server.resource_version();
    let mut reader = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}")).await;
    let mut sleeper = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}")).await;
    let mut count = 0;
    for i in 0..40 {
        let mut map = config_map(&format!("m{i}"));
        map["data"] = json!({"x": "y".repeat(100_000)});
        server.create(map).unwrap();
        assert_eq!(reader.short().await, format!("ADDED m{i}"));
        tokio::time::sleep(SECOND / 10).await;
    }
    while let Some(event) = sleeper.next().await {
        assert_eq!(event["type"], "ADDED");
        count += 1;
    }
    assert!(count < 40, "{count} events came in spite of all");
    assert_eq!(server.evicted_watches("configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn w11_events_come_in_order_and_once() {
    let server = start(TestServer::builder()).await;
    let now = server.resource_version();
    let mut stream = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}")).await;
    for round in 0..300 {
        for name in ["a", "b", "c"] {
            match round {
                0 => server.create(config_map(name)).unwrap(),
                _ => server.update(labelled(name, &round.to_string())).unwrap(),
            };
        }
    }
    let mut last = now;
    for _ in 0..900 {
        let version = rv(&stream.next().await.unwrap()["object"]);
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    assert!(stream.quiet(SECOND).await);
    assert_eq!(last, server.resource_version());
}

#[tokio::test(start_paused = true)]
async fn w13_metadata_and_tables_stream_too() {
    let server = with_maps(&["a", "b"]).await;
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let client = Client::open(&server).await;
    let mut stream = client
        .try_watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=1"), &[("accept", accept)])
        .await
        .unwrap();
    let event = stream.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["kind"]),
        (&json!("ADDED"), &json!("PartialObjectMetadata"))
    );
    assert!(event["object"].get("data").is_none());
    stream.next().await;
    assert_eq!(stream.next().await.unwrap()["object"]["kind"], "PartialObjectMetadata");

    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let client = Client::open(&server).await;
    let mut stream = client.try_watch(&format!("{MAPS}?watch=1"), &[("accept", accept)]).await.unwrap();
    assert!(stream.next().await.unwrap()["object"]["columnDefinitions"].is_array());
    let second = stream.next().await.unwrap();
    assert_eq!(
        (&second["object"]["kind"], &second["object"]["columnDefinitions"]),
        (&json!("Table"), &Value::Null)
    );
    let accept = [("accept", "application/json;as=Odd;v=v1;g=meta.k8s.io")];
    assert_eq!(get_with(&server, &format!("{MAPS}?watch=1"), &accept).await.code, 406);
}

#[tokio::test(start_paused = true)]
async fn w15_a_server_that_stops_ends_its_watches_cleanly() {
    let server = with_maps(&[]).await;
    let mut stream = watch(&server, &format!("{MAPS}?watch=1")).await;
    server.close_watches();
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn crd_deletion_removes_objects_and_history() {
    let server = with_maps(&[]).await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let widget = |name: &str| {
        server
            .create(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}))
            .unwrap()
    };
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    server.create(definition.clone()).unwrap();
    widget("a");
    let then = rv(&widget("b"));
    let mut streams = Vec::new();
    for query in ["".to_owned(), format!("&resourceVersion={then}"), "&allowWatchBookmarks=1".to_owned()] {
        streams.push(watch(&server, &format!("{widgets}?watch=1{query}")).await);
    }
    for initial in [0, 2] {
        assert_eq!(
            (streams[initial].short().await, streams[initial].short().await),
            ("ADDED a".into(), "ADDED b".into())
        );
    }
    assert_eq!(streams[2].short().await, "BOOKMARK");
    server.delete("customresourcedefinitions", None, "widgets.example.com").unwrap();
    for stream in &mut streams {
        assert_eq!((stream.short().await, stream.short().await), ("DELETED a".into(), "DELETED b".into()));
        assert_eq!(stream.short().await, "END");
    }
    assert_eq!(get(&server, &format!("{widgets}?watch=1")).await.code, 404);

    server.create(definition).unwrap();
    let mut stream = watch(&server, &format!("{widgets}?watch=1&resourceVersion={then}")).await;
    let error = stream.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let now = rv(&get(&server, widgets).await.ok());
    let mut stream = watch(&server, &format!("{widgets}?watch=1&resourceVersion={now}")).await;
    widget("a");
    assert_eq!(stream.short().await, "ADDED a");
    assert!(stream.quiet(SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn w17_one_object_is_watched_by_name() {
    let server = with_maps(&["a", "b"]).await;
    for path in [
        format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Db"),
        "/api/v1/watch/namespaces/default/configmaps/b".to_owned(),
    ] {
        let mut stream = watch(&server, &path).await;
        assert_eq!(stream.short().await, "ADDED b", "{path}");
        assert!(stream.quiet(SECOND).await);
    }
    let other = "/api/v1/watch/namespaces/default/configmaps/b?fieldSelector=metadata.name%3Da";
    get(&server, other).await.failed(
        400,
        "BadRequest",
        "fieldSelector metadata.name doesn't match requested name",
    );
    // With a name in the path it is a GET, whatever the parameter says.
    let object = get(&server, &format!("{MAPS}/b?watch=1")).await.ok();
    assert_eq!(object["metadata"]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn namespace_watch_excludes_other_namespaces() {
    let server = with_maps(&[]).await;
    let _ = server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
    let now = server.resource_version();
    let mut one =
        watch(&server, &format!("/api/v1/namespaces/other/configmaps?watch=1&resourceVersion={now}")).await;
    let mut all = watch(&server, &format!("/api/v1/configmaps?watch=1&resourceVersion={now}")).await;
    server.create(config_map("a")).unwrap();
    let mut there = config_map("b");
    there["metadata"]["namespace"] = "other".into();
    server.create(there).unwrap();
    assert_eq!(one.short().await, "ADDED b");
    assert_eq!((all.short().await, all.short().await), ("ADDED a".into(), "ADDED b".into()));
}

#[tokio::test(start_paused = true)]
async fn lagging_server_shows_older_view_until_caught_up() {
    let server = with_maps(&["a"]).await;
    let then = server.resource_version();
    let lag = server.faults().inject(Fault::Lag(Lag::Frozen { at: then })).everywhere();
    let mut stream =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={then}&allowWatchBookmarks=1")).await;
    server.create(config_map("b")).unwrap();
    let bookmark = stream.next().await.unwrap();
    assert_eq!((&bookmark["type"], rv(&bookmark["object"])), (&json!("BOOKMARK"), then));
    lag.heal();
    assert_eq!(stream.short().await, "ADDED b");

    let _lag = server.faults().inject(Fault::Lag(Lag::By(10 * SECOND))).everywhere();
    tokio::time::sleep(20 * SECOND).await;
    let begin = Instant::now();
    server.create(config_map("c")).unwrap();
    assert_eq!(stream.short().await, "ADDED c");
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn restore_silences_open_watches_and_shows_old_state() {
    let server = with_maps(&["a"]).await;
    let then = server.resource_version();
    server.create(config_map("b")).unwrap();
    server.create(config_map("b2")).unwrap();
    let now = server.resource_version();
    let mut stream =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}&allowWatchBookmarks=1")).await;
    server.roll_back(then).unwrap();
    assert_eq!(names(&get(&server, MAPS).await.ok()), ["a"]);
    // The next write gets a version that the watch has passed already.
    assert!(rv(&server.create(config_map("c")).unwrap()) < now);
    assert!(stream.quiet(300 * SECOND).await);
    server.compact();
    assert!(server.roll_back(then).is_err());
}

#[tokio::test(start_paused = true)]
async fn log_records_open_and_ended_watches() {
    let server = with_maps(&["a"]).await;
    let stream = watch(&server, &format!("{MAPS}?watch=1&timeoutSeconds=5")).await;
    server.wait_for(|server| server.open_watches() == 1).await.unwrap();
    let record = server.requests().pop().unwrap();
    assert_eq!((record.verb, record.outcome), ("watch", Outcome::Streaming(200)));
    assert_eq!(
        (record.connection, record.query_param("timeoutSeconds").as_deref()),
        (stream.client.id, Some("5"))
    );
    let mut stream = stream;
    while stream.next().await.is_some() {}
    server.wait_for(|server| server.open_watches() == 0).await.unwrap();
    assert_eq!(server.requests().pop().unwrap().outcome, Outcome::Answered(200));
    let dropped = watch(&server, &format!("{MAPS}?watch=1")).await;
    drop(dropped);
    server.wait_for(|server| server.requests().last().unwrap().outcome == Outcome::Dropped).await.unwrap();
    assert_eq!(get(&server, MAPS).await.code, 200);
    assert_eq!(server.requests().pop().unwrap().outcome, Outcome::Answered(200));
    let never = server.wait_for_within(SECOND, |server| server.open_watches() == 9).await;
    assert!(never.unwrap_err().to_string().contains("0 open watches"));
}

#[tokio::test(start_paused = true)]
async fn w16_watch_fault_spares_other_requests() {
    let server = with_maps(&["a"]).await;
    let fault = server.faults().inject(Fault::status(410, 0)).on(Match::watch().resource("configmaps"));
    get(&server, &format!("{MAPS}?watch=1")).await.failed(
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    );
    assert_eq!(get(&server, MAPS).await.code, 200);
    assert_eq!(fault.hits(), 1);
    server.faults().kill_connections(CloseMode::Fin);
}

#[tokio::test(start_paused = true)]
async fn stored_json_is_unchanged_and_reaches_watchers() {
    let server = with_maps(&["a"]).await;
    let mut stream =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={}", server.resource_version())).await;
    let mut map = config_map("a");
    map["metadata"]["uid"] = json!("u");
    map["data"] = json!({"x": "y"});
    for _ in 0..2 {
        server.store_json("configmaps", map.to_string().as_bytes()).unwrap();
        let event = stream.next().await.unwrap();
        assert_eq!((&event["type"], rv(&event["object"])), (&json!("MODIFIED"), server.resource_version()));
        assert_eq!(
            (&event["object"]["data"], &event["object"]["metadata"]["uid"]),
            (&json!({"x": "y"}), &json!("u"))
        );
    }
    map["metadata"]["name"] = json!("b");
    server.store_json("configmaps", map.to_string().as_bytes()).unwrap();
    assert_eq!(stream.short().await, "ADDED b");
    assert_eq!(server.store_json("configmaps", b"{}").unwrap_err().code, 400);
    assert_eq!(server.store_json("widgets", map.to_string().as_bytes()).unwrap_err().code, 404);
}

#[tokio::test(start_paused = true)]
async fn w11_expired_keys_share_revision_in_own_frames() {
    let server = with_maps(&["a", "b", "c", "d"]).await;
    let begun = server.resource_version();
    let path = |rv| format!("{MAPS}?watch=1&resourceVersion={rv}");
    let mut open = watch(&server, &path(begun)).await;
    let lease = ["c", "a", "nobody", "b"].map(|name| ("configmaps", Some("default"), name));
    let gone = server.expire(lease).unwrap();
    assert_eq!(gone.iter().map(rv).collect::<Vec<_>>(), [begun + 1; 3]);
    assert!(server.expire([("configmaps", Some("default"), "d"), ("spoons", None, "x")]).is_err());
    assert_eq!((server.resource_version(), server.count("configmaps")), (begun + 1, 1));
    // In key order.
    let mut late = watch(&server, &path(begun)).await;
    for stream in [&mut open, &mut late] {
        for name in ["a", "b", "c"] {
            let event = stream.next().await.unwrap();
            assert_eq!(
                (&event["type"], &event["object"]["metadata"]["name"]),
                (&json!("DELETED"), &json!(name))
            );
            assert_eq!(rv(&event["object"]), begun + 1);
        }
    }
    let mut behind = watch(&server, &path(begun + 1)).await;
    server.create(config_map("e")).unwrap();
    for stream in [&mut open, &mut late, &mut behind] {
        assert_eq!(stream.short().await, "ADDED e");
    }
    let exactly = format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion=");
    assert_eq!(names(&get(&server, &format!("{exactly}{begun}")).await.ok()).len(), 4);
    assert_eq!(names(&get(&server, &format!("{exactly}{}", begun + 1)).await.ok()), ["d"]);
}

#[tokio::test(start_paused = true)]
async fn w11_bookmark_may_split_deletions_of_one_revision() {
    let builder = TestServer::builder().pause_within_revision(2 * SECOND).bookmark_interval(3 * SECOND);
    let server = start(builder).await;
    for name in ["a", "b", "c"] {
        server.create(config_map(name)).unwrap();
    }
    let begun = server.resource_version();
    let mut stream =
        watch(&server, &format!("{MAPS}?watch=1&resourceVersion={begun}&allowWatchBookmarks=1")).await;
    let begin = Instant::now();
    server.expire(["a", "b", "c"].map(|name| ("configmaps", Some("default"), name))).unwrap();
    server.create(config_map("d")).unwrap();
    let mut told = Vec::new();
    for _ in 0..5 {
        let event = stream.next().await.unwrap();
        let kind = event["type"].as_str().unwrap().to_owned();
        told.push((kind, rv(&event["object"]) - begun, begin.elapsed().as_secs()));
    }
    let expected =
        [("DELETED", 1, 0), ("DELETED", 1, 2), ("BOOKMARK", 1, 3), ("DELETED", 1, 4), ("ADDED", 2, 4)];
    assert_eq!(told, expected.map(|(kind, rv, at)| (kind.to_owned(), rv, at)));
}

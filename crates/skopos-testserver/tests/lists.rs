//! Tests of the LIST half of the contract, rule by rule.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use skopos_testserver::{Fault, Lag, Match, TestServer};
use support::*;
use tokio::time::Instant;

async fn with_maps(names: &[&str]) -> TestServer {
    let server = start(TestServer::builder()).await;
    for name in names {
        server.create(config_map(name)).unwrap();
    }
    server
}

fn token(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

#[tokio::test(start_paused = true)]
async fn l1_list_without_version_is_newest_state() {
    let server = with_maps(&["a", "b"]).await;
    // Even if reads that may be older see nothing.
    let _lag = server.faults().inject(Fault::Lag(Lag::Frozen { at: 1 })).everywhere();
    let list = get(&server, MAPS).await.ok();
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(rv(&list), server.resource_version());
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert!(list["items"][0].get("kind").is_none(), "items of typed lists carry no kind");
}

#[tokio::test(start_paused = true)]
async fn l2_version_0_is_any_state_without_paging() {
    let server = with_maps(&["a", "b", "c"]).await;
    let then = server.resource_version();
    server.create(config_map("d")).unwrap();
    let list = get(&server, &format!("{MAPS}?resourceVersion=0&limit=1")).await.ok();
    assert_eq!(names(&list).len(), 4);
    assert!(list["metadata"].get("continue").is_none());
    let lag = server.faults().inject(Fault::Lag(Lag::Frozen { at: then })).everywhere();
    let old = get(&server, &format!("{MAPS}?resourceVersion=0")).await.ok();
    assert_eq!((names(&old).len(), rv(&old)), (3, then));
    lag.heal();
    assert_eq!(names(&get(&server, &format!("{MAPS}?resourceVersion=0")).await.ok()).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn l3_version_is_minimum_and_exact_with_limit() {
    let server = with_maps(&["a", "b"]).await;
    let then = server.resource_version();
    server.create(config_map("c")).unwrap();
    let newer = get(&server, &format!("{MAPS}?resourceVersion={then}")).await.ok();
    assert_eq!((names(&newer).len(), rv(&newer)), (3, then + 1));
    let exact = get(&server, &format!("{MAPS}?resourceVersion={then}&limit=10")).await.ok();
    assert_eq!((names(&exact), rv(&exact)), (vec!["a", "b"], then));
    let exact = get(&server, &format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!((names(&exact), rv(&exact)), (vec!["a", "b"], then));
    let path = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan&limit=1");
    let newer = get(&server, &path).await.ok();
    assert_eq!((names(&newer), rv(&newer)), (vec!["a"], then + 1));
}

#[tokio::test(start_paused = true)]
async fn l4_options_that_do_not_go_together_are_invalid() {
    let server = with_maps(&[]).await;
    let token = token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a\u0000"}"#);
    let cases = [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            "resourceVersionMatch=Odd&resourceVersion=1",
            "resourceVersionMatch",
            "FieldValueNotSupported",
            "Unsupported value: \"Odd\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents",
            "FieldValueForbidden",
            "Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            &format!("resourceVersionMatch=NotOlderThan&resourceVersion=1&continue={token}"),
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
    ];
    for (query, field, reason, message) in cases {
        let answer = get(&server, &format!("{MAPS}?{query}")).await;
        let status = answer.failed(
            422,
            "Invalid",
            &format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}"),
        );
        let details = json!({"group": "meta.k8s.io", "kind": "ListOptions",
            "causes": [{"reason": reason, "message": message, "field": field}]});
        assert_eq!(status["details"], details, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn l5_non_numeric_version_is_bad_request() {
    let server = with_maps(&[]).await;
    let message = "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    get(&server, &format!("{MAPS}?resourceVersion=x")).await.failed(400, "BadRequest", message);
    let huge = "99999999999999999999";
    let message = format!(
        "invalid resource version: resourceVersion: Invalid value: \"{huge}\": strconv.ParseUint: parsing \"{huge}\": value out of range"
    );
    get(&server, &format!("{MAPS}?resourceVersion={huge}")).await.failed(400, "BadRequest", &message);
}

#[tokio::test(start_paused = true)]
async fn l6_future_version_waits_then_is_too_large() {
    let server = with_maps(&["a"]).await;
    let (now, next) = (server.resource_version(), server.resource_version() + 1);
    let begin = Instant::now();
    let answer = get(&server, &format!("{MAPS}?resourceVersion={next}")).await;
    assert!(begin.elapsed() >= Duration::from_secs(3) && begin.elapsed() < Duration::from_secs(4));
    let message = format!("Timeout: Too large resource version: {next}, current: {now}");
    let status = answer.failed(504, "Timeout", &message);
    let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    assert_eq!(status["details"], json!({"causes": cause, "retryAfterSeconds": 1}));
    assert_eq!(answer.headers["retry-after"], "1");

    // An exact read waits too.
    let begin = Instant::now();
    let answer = get(&server, &format!("{MAPS}?resourceVersion={next}&resourceVersionMatch=Exact")).await;
    assert_eq!(answer.failed(504, "Timeout", &message)["details"], status["details"]);
    assert!(begin.elapsed() >= Duration::from_secs(3) && begin.elapsed() < Duration::from_secs(4));

    // A version that arrives in time is served.
    let write = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.create(config_map("b")).unwrap();
    };
    let path = format!("{MAPS}?resourceVersion={next}");
    let (answer, ()) = tokio::join!(get(&server, &path), write);
    assert_eq!(names(&answer.ok()), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn l7_pages_continue_at_version_of_first_page() {
    let server = with_maps(&["a", "b", "c", "d", "e"]).await;
    let then = server.resource_version();
    let first = get(&server, &format!("{MAPS}?limit=2")).await.ok();
    assert_eq!((names(&first), rv(&first)), (vec!["a", "b"], then));
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let next = first["metadata"]["continue"].as_str().unwrap();
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(next).unwrap()).unwrap();
    assert_eq!(decoded, format!(r#"{{"v":"meta.k8s.io/v1","rv":{then},"start":"/b\u0000"}}"#));

    // L10: writes in between do not show.
    server.delete("configmaps", Some("default"), "c").unwrap();
    server.create(config_map("bb")).unwrap();
    let second = get(&server, &format!("{MAPS}?limit=2&continue={next}")).await.ok();
    assert_eq!((names(&second), rv(&second)), (vec!["c", "d"], then));
    let next = second["metadata"]["continue"].as_str().unwrap();
    let last = get(&server, &format!("{MAPS}?limit=2&continue={next}")).await.ok();
    assert_eq!((names(&last), rv(&last)), (vec!["e"], then));
    assert!(
        last["metadata"].get("continue").is_none() && last["metadata"].get("remainingItemCount").is_none()
    );

    // Without a limit the rest is one page; in lists of all namespaces, keys begin with the namespace.
    let all = get(&server, "/api/v1/configmaps?limit=2").await.ok();
    let next = all["metadata"]["continue"].as_str().unwrap();
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(next).unwrap()).unwrap();
    assert!(decoded.contains(r#""start":"/default/b\u0000""#), "{decoded}");
    assert_eq!(
        names(&get(&server, &format!("/api/v1/configmaps?continue={next}")).await.ok()),
        ["bb", "d", "e"]
    );
}

#[tokio::test(start_paused = true)]
async fn l7_bad_tokens_are_bad_requests() {
    let server = with_maps(&[]).await;
    let good = token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a\u0000"}"#);
    let cases = [
        (
            token(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            "invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)",
        ),
        (
            token(r#"{"v":"v9","rv":1,"start":"a"}"#),
            "invalid continue token: continue key is not valid: server does not recognize this encoded version v9",
        ),
        (
            token(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#),
            "invalid continue token: continue key is not valid: ../a",
        ),
        (
            format!("{good}&resourceVersion=5"),
            "specifying resource version is not allowed when using continue",
        ),
    ];
    for (token, message) in cases {
        get(&server, &format!("{MAPS}?limit=1&continue={token}")).await.failed(400, "BadRequest", message);
    }
    assert_eq!(get(&server, &format!("{MAPS}?continue=%21")).await.code, 400);
    assert_eq!(get(&server, &format!("{MAPS}?continue={good}&resourceVersion=0")).await.code, 200);
    get(&server, &format!("{MAPS}?limit=x")).await.failed(
        400,
        "BadRequest",
        "strconv.ParseInt: parsing \"x\": invalid syntax",
    );
}

#[tokio::test(start_paused = true)]
async fn l8_compacted_pages_may_continue_inconsistently() {
    let server = with_maps(&["a", "b", "c"]).await;
    let then = server.resource_version();
    let first = get(&server, &format!("{MAPS}?limit=1")).await.ok();
    let next = first["metadata"]["continue"].as_str().unwrap().to_owned();
    server.delete("configmaps", Some("default"), "b").unwrap();
    server.compact();
    get(&server, &format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).await.failed(
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    );
    let answer = get(&server, &format!("{MAPS}?limit=1&continue={next}")).await;
    let status = answer.failed(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let token = status["metadata"]["continue"].as_str().unwrap();
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    assert_eq!(decoded, r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000"}"#);
    let rest = get(&server, &format!("{MAPS}?limit=1&continue={token}")).await.ok();
    assert_eq!((names(&rest), rv(&rest)), (vec!["c"], server.resource_version()));
    // A read that need not be exact is unaffected.
    assert_eq!(get(&server, &format!("{MAPS}?resourceVersion={then}")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn l8_versions_are_compacted_after_five_minutes() {
    let server = with_maps(&["a", "b"]).await;
    let first = get(&server, &format!("{MAPS}?limit=1")).await.ok();
    let next = first["metadata"]["continue"].as_str().unwrap().to_owned();
    server.update(labelled("a", "x")).unwrap();
    for minute in 0..11 {
        tokio::time::advance(Duration::from_secs(60)).await;
        server.update(labelled("a", &minute.to_string())).unwrap();
    }
    assert_eq!(get(&server, &format!("{MAPS}?limit=1&continue={next}")).await.code, 410);
}

#[tokio::test(start_paused = true)]
async fn l9_selector_omits_count_empty_list_is_array() {
    let server = start(TestServer::builder()).await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        server.create(labelled(name, app)).unwrap();
    }
    let page = get(&server, &format!("{MAPS}?limit=2&labelSelector=app%3Dx")).await.ok();
    assert_eq!(names(&page), ["a", "c"]);
    assert!(page["metadata"].get("remainingItemCount").is_none());
    let next = page["metadata"]["continue"].as_str().unwrap();
    let page = get(&server, &format!("{MAPS}?limit=2&labelSelector=app%3Dx&continue={next}")).await.ok();
    assert_eq!(names(&page), ["d"]);
    let empty = get(&server, "/api/v1/namespaces/none/configmaps").await.ok();
    assert_eq!(empty["items"], json!([]));
    assert_eq!(rv(&empty), server.resource_version());
}

#[tokio::test(start_paused = true)]
async fn l11_unready_cache_answers_retry_after() {
    let server = with_maps(&["a"]).await;
    let fault = server.faults().inject(Fault::cache_not_ready(3)).on(Match::list().resource("configmaps"));
    let answer = get(&server, MAPS).await;
    answer.failed(429, "TooManyRequests", "storage is (re)initializing");
    assert_eq!(answer.headers["retry-after"], "3");
    fault.heal();
    assert_eq!(get(&server, MAPS).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn l12_large_list_is_compressed_on_request() {
    let server = with_maps(&[]).await;
    for i in 0..50 {
        let mut map = config_map(&format!("m{i}"));
        map["data"] = json!({"x": "y".repeat(5000)});
        server.create(map).unwrap();
    }
    let plain = get(&server, MAPS).await;
    let packed = get_with(&server, MAPS, &[("accept-encoding", "br, gzip;q=0.8")]).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() < plain.body.len() / 10);
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    let small = get_with(&server, &format!("{MAPS}?limit=1"), &[("accept-encoding", "gzip")]).await;
    assert!(!small.headers.contains_key("content-encoding"));
}

#[tokio::test(start_paused = true)]
async fn selectors_follow_server_grammar_and_fields() {
    let server = start(TestServer::builder()).await;
    server.create(labelled("a", "x")).unwrap();
    server.create(config_map("b")).unwrap();
    for (query, expected) in [
        ("labelSelector=app", vec!["a"]),
        ("labelSelector=%21app", vec!["b"]),
        ("labelSelector=app+in+%28x,y%29", vec!["a"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name%21%3Db,metadata.namespace%3Ddefault", vec!["a"]),
    ] {
        assert_eq!(names(&get(&server, &format!("{MAPS}?{query}")).await.ok()), expected, "{query}");
    }
    get(&server, &format!("{MAPS}?fieldSelector=data.x%3D1")).await.failed(
        400,
        "BadRequest",
        "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
    get(&server, "/api/v1/pods?fieldSelector=spec.x%3D1").await.failed(
        400,
        "BadRequest",
        "field label not supported: spec.x",
    );
    assert_eq!(get(&server, &format!("{MAPS}?labelSelector=a+b")).await.code, 400);
    server.load_pods(3);
    let all = get(&server, "/api/v1/pods").await.ok();
    let node = all["items"][0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    let here = get(&server, &format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await.ok();
    assert!(here["items"].as_array().unwrap().iter().all(|pod| pod["spec"]["nodeName"] == *node));
    assert!(!here["items"].as_array().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn serves_metadata_and_tables_refuses_other_forms() {
    let server = with_maps(&["a"]).await;
    let list = get_with(
        &server,
        MAPS,
        &[("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")],
    );
    let list = list.await.ok();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(names(&list), ["a"]);
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let one = get_with(&server, &format!("{MAPS}/a"), &[("accept", one)]).await.ok();
    assert_eq!(one["kind"], "PartialObjectMetadata");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = get_with(&server, MAPS, &[("accept", accept)]).await.ok();
    assert_eq!((&table["kind"], table["rows"].as_array().map(Vec::len)), (&json!("Table"), Some(1)));
    assert!(table["columnDefinitions"].is_array());
    let answer = get_with(&server, MAPS, &[("accept", "application/cbor")]).await;
    answer.failed(406, "NotAcceptable", "only the following media types are accepted: application/json");
    let both = [("accept", "application/cbor,application/json")];
    assert_eq!(get_with(&server, MAPS, &both).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn single_get_honours_resource_version() {
    let server = with_maps(&["a"]).await;
    let then = server.resource_version();
    server.update(labelled("a", "new")).unwrap();
    let one = format!("{MAPS}/a");
    assert_eq!(get(&server, &one).await.ok()["kind"], "ConfigMap");
    let _lag = server.faults().inject(Fault::Lag(Lag::Frozen { at: then })).everywhere();
    assert!(get(&server, &format!("{one}?resourceVersion=0")).await.ok()["metadata"].get("labels").is_none());
    assert_eq!(get(&server, &one).await.ok()["metadata"]["labels"]["app"], "new");
    assert_eq!(get(&server, &format!("{one}?resourceVersion={}", then + 1)).await.code, 504);
    let status =
        get(&server, &format!("{MAPS}/b")).await.failed(404, "NotFound", "configmaps \"b\" not found");
    assert_eq!(status["details"], json!({"name": "b", "kind": "configmaps"}));
    get(&server, &format!("{one}?resourceVersion=x")).await.failed(
        500,
        "",
        "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
    );
}

#[tokio::test(start_paused = true)]
async fn w16_w18_paths_that_are_not_served_and_health() {
    let server = with_maps(&[]).await;
    let answer = get(&server, "/apis/none.example/v1/things").await;
    assert_eq!((answer.code, &answer.body[..]), (404, b"404 page not found\n".as_slice()));
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    for probe in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        assert_eq!(get(&server, probe).await.body, "ok");
    }
    assert!(get(&server, "/version").await.ok()["gitVersion"].is_string());
    // W15: a server that shuts down is not ready.
    server.faults().shutting_down(true);
    assert_eq!((get(&server, "/readyz").await.code, get(&server, "/livez").await.code), (500, 200));
    let fault = server.faults().inject(Fault::too_many_requests(1)).everywhere();
    let answer = get(&server, MAPS).await;
    assert_eq!((answer.code, answer.headers["retry-after"].to_str().unwrap()), (429, "1"));
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    fault.heal();
}

#[tokio::test(start_paused = true)]
async fn lists_and_objects_are_indented_on_request() {
    let server = with_maps(&["a"]).await;
    for path in [MAPS.to_owned(), format!("{MAPS}/a")] {
        let compact = get(&server, &path).await;
        assert!(compact.body.ends_with(b"}\n") && !compact.body.contains(&b' '), "{:?}", compact.body);
        for (wish, indented) in [("true", true), ("1", true), ("false", false), ("yes", false)] {
            let answer = get(&server, &format!("{path}?pretty={wish}")).await;
            assert_eq!(answer.ok(), compact.json());
            assert_eq!(
                answer.body.starts_with(b"{\n  \"kind\": \"ConfigMap"),
                indented,
                "{wish}: {:?}",
                answer.body
            );
        }
    }
}

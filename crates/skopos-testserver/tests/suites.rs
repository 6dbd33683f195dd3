//! Tests of behaviour that the test suites and bug reports of other projects rely on, over in-memory connections.

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use skopos_testserver::{TestServer, User};
use support::{Answer, MAPS, config_map, get, request, rv, start, watch};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn server() -> TestServer {
    start(TestServer::builder()).await
}

async fn send(server: &TestServer, method: Method, path: &str, kind: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    request(server, method, path, &[("content-type", kind)], body).await.expect("an answer")
}

async fn post(server: &TestServer, path: &str, body: &Value) -> Answer {
    send(server, Method::POST, path, JSON, body).await
}

#[track_caller]
fn done(answer: &Answer) -> Value {
    assert!(matches!(answer.code, 200 | 201), "{} {:?}", answer.code, answer.body);
    answer.json()
}

#[tokio::test(start_paused = true)]
async fn json_patch_can_test_absent_field() {
    let server = server().await;
    server.create(config_map("a")).unwrap();
    // The first step of kube-runtime's finalizer.
    let add = json!([{"op": "test", "path": "/metadata/finalizers", "value": null},
                     {"op": "add", "path": "/metadata/finalizers", "value": ["a.example/b"]}]);
    let path = format!("{MAPS}/a");
    let patched = done(&send(&server, Method::PATCH, &path, JSON_PATCH, &add).await);
    assert_eq!(patched["metadata"]["finalizers"], json!(["a.example/b"]));
    assert_eq!(send(&server, Method::PATCH, &path, JSON_PATCH, &add).await.code, 422, "now it is there");
}

#[tokio::test(start_paused = true)]
async fn json_patches_are_bounded() {
    let server = server().await;
    let mut map = config_map("a");
    map["data"] = json!({"a": "x".repeat(1024)});
    server.create(map).unwrap();
    let path = format!("{MAPS}/a");
    let copies: Value =
        (0..24).map(|i| json!({"op": "copy", "from": "/data", "path": format!("/data/c{i}")})).collect();
    assert_eq!(send(&server, Method::PATCH, &path, JSON_PATCH, &copies).await.code, 422);
    let tests = Value::from(vec![json!({"op": "test", "path": "/data/b"}); 10_001]);
    let message =
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    let answer = send(&server, Method::PATCH, &path, JSON_PATCH, &tests).await;
    answer.failed(413, "RequestEntityTooLarge", message);
}

#[tokio::test(start_paused = true)]
async fn new_server_has_built_in_objects() {
    let server = server().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(server.get("namespaces", None, name).unwrap()["status"]["phase"], "Active", "{name}");
    }
    let service = server.get("services", Some("default"), "kubernetes").unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], server.port());
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let slice = server.get("endpointslices", Some("default"), "kubernetes").unwrap();
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["127.0.0.1"]));
    let endpoints = server.get("endpoints", Some("default"), "kubernetes").unwrap();
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], server.port());
    let in_memory = TestServer::builder().start_in_memory().unwrap();
    let service = in_memory.get("services", Some("default"), "kubernetes").unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 6443);
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
}

async fn token(server: &TestServer, spec: Value) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let issued = done(&post(server, &format!("{ACCOUNTS}/s/token"), &request).await);
    issued["status"]["token"].as_str().expect("a token").to_owned()
}

async fn review(server: &TestServer, spec: Value) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    done(&post(server, REVIEWS, &review).await)["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_service_account_is_known() {
    let server = server().await;
    let uid = server.create(account("s")).unwrap()["metadata"]["uid"].clone();
    let issued = token(&server, json!({})).await;
    assert_eq!(issued.split('.').count(), 3, "it has the form of a JSON web token");
    let status = review(&server, json!({"token": issued})).await;
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:s");
    assert_eq!(status["user"]["uid"], uid);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(status["user"]["groups"], json!(groups));
    assert_eq!(status["audiences"], json!(["https://kubernetes.default.svc"]));

    // It is valid for requests too, where authentication is required.
    server.auth().add_token("other", User::new("admin"));
    let own = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let headers = |token: &str| format!("Bearer {token}");
    let bearer = headers(&issued);
    let body = Bytes::from(json!({"kind": "SelfSubjectReview"}).to_string());
    let answer =
        request(&server, Method::POST, own, &[("authorization", &bearer)], body.clone()).await.unwrap();
    assert_eq!(done(&answer)["status"]["userInfo"]["username"], "system:serviceaccount:default:s");
    let bearer = headers("unknown");
    let answer = request(&server, Method::POST, own, &[("authorization", &bearer)], body).await.unwrap();
    assert_eq!(answer.code, 401);
}

#[tokio::test(start_paused = true)]
async fn token_is_bound_to_audience_expiry_and_account() {
    let server = server().await;
    server.create(account("s")).unwrap();
    let api = token(&server, json!({"audiences": ["api"], "expirationSeconds": 600})).await;
    let authenticated = |status: Value| status["authenticated"] == true;
    assert!(!authenticated(review(&server, json!({"token": api})).await), "it is not for the API server");
    let status = review(&server, json!({"token": api, "audiences": ["x", "api"]})).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["api"])));
    tokio::time::advance(Duration::from_secs(601)).await;
    assert!(
        !authenticated(review(&server, json!({"token": api, "audiences": ["api"]})).await),
        "it has expired"
    );

    let of_account = token(&server, json!({})).await;
    server.delete("serviceaccounts", Some("default"), "s").unwrap();
    assert!(!authenticated(review(&server, json!({"token": of_account})).await), "its account is gone");
    server.create(account("s")).unwrap();
    assert!(!authenticated(review(&server, json!({"token": of_account})).await), "it is another account");

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.create(pod).unwrap();
    let bound =
        token(&server, json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}})).await;
    assert!(authenticated(review(&server, json!({"token": bound})).await));
    server.delete("pods", Some("default"), "p").unwrap();
    assert!(!authenticated(review(&server, json!({"token": bound})).await), "its pod is gone");

    let short = json!({"spec": {"expirationSeconds": 100}});
    assert_eq!(post(&server, &format!("{ACCOUNTS}/s/token"), &short).await.code, 422);
    assert_eq!(post(&server, &format!("{ACCOUNTS}/nosuch/token"), &json!({})).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn json_answers_end_with_a_newline() {
    let server = server().await;
    server.create(config_map("a")).unwrap();
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    for (path, headers) in [
        (format!("{MAPS}/a"), &[][..]),
        (format!("{MAPS}/a"), &table),
        (format!("{MAPS}/nosuch"), &[]),
        (MAPS.to_owned(), &[]),
        (MAPS.to_owned(), &table),
        ("/api".to_owned(), &[]),
        ("/apis/apps/v1".to_owned(), &[]),
    ] {
        let answer = request(&server, Method::GET, &path, headers, Bytes::new()).await.unwrap();
        assert!(
            answer.body.ends_with(b"}\n") && !answer.body.ends_with(b"\n\n"),
            "{path}: {:?}",
            answer.body
        );
        let length = answer.headers.get("content-length").map(|length| length.to_str().unwrap().to_owned());
        assert!(length.is_none_or(|length| length == answer.body.len().to_string()));
    }
    for answer in [
        post(&server, MAPS, &json!({"metadata": {"name": "b"}})).await,
        send(&server, Method::DELETE, &format!("{MAPS}/b"), JSON, &json!({})).await,
        post(&server, REVIEWS, &json!({"spec": {"token": "x"}})).await,
    ] {
        assert!(answer.body.ends_with(b"}\n"), "{:?}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn openapi_v2_is_served_as_protobuf() {
    let server = server().await;
    let accept = [("accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")];
    let answer = request(&server, Method::GET, "/openapi/v2", &accept, Bytes::new()).await.unwrap();
    assert_eq!(answer.code, 200);
    assert_eq!(answer.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert!(answer.body.starts_with(b"\x0a\x032.0\x12"));
    let has = |text: &str| answer.body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("io.k8s.api.authorization.v1.SubjectAccessReview") && has("fieldValidation"));
    let other = [("accept", "application/x")];
    let answer = request(&server, Method::GET, "/openapi/v2", &other, Bytes::new()).await.unwrap();
    assert_eq!(answer.code, 406);
}

/// Serves a custom resource `PLURAL.lab.test` in the namespace `default`.
fn define(server: &TestServer, kind: &str, subresources: Value, schema: Value) -> String {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    server
        .create(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.lab.test")},
            "spec": {"group": "lab.test", "scope": "Namespaced",
                "names": {"plural": plural, "singular": singular, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                              "schema": {"openAPIV3Schema": schema}}]}}))
        .expect("the definition is taken");
    format!("/apis/lab.test/v1/namespaces/default/{plural}")
}

#[tokio::test(start_paused = true)]
async fn nulls_that_mean_nothing_give_way_to_defaults() {
    let server = server().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 3}, "note": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}}, "may": {"type": "string", "nullable": true},
        "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}});
    let boxes = define(&server, "Box", json!({}), schema);
    let object = |name: &str, spec: Value| json!({"apiVersion": "lab.test/v1", "kind": "Box", "metadata": {"name": name}, "spec": spec});
    let nulls = json!({"size": null, "note": null, "list": null, "may": null, "map": {"x": null}});
    let created = done(&post(&server, &boxes, &object("a", nulls)).await);
    assert_eq!(created["spec"], json!({"map": {}, "may": null, "size": 3}));
    assert_eq!(post(&server, &boxes, &object("b", json!({"list": [null]}))).await.code, 422);
    let path = format!("{boxes}/a");
    let patch = json!([{"op": "add", "path": "/spec/size", "value": null}, {"op": "add", "path": "/spec/note", "value": null}]);
    let patched = done(&send(&server, Method::PATCH, &path, JSON_PATCH, &patch).await);
    assert_eq!(patched["spec"], json!({"map": {}, "may": null, "size": 3}));
    let mut update = patched.clone();
    update["spec"] = json!({"size": null, "may": null});
    assert_eq!(
        done(&send(&server, Method::PUT, &path, JSON, &update).await)["spec"],
        json!({"may": null, "size": 3})
    );
}

fn deployment(containers: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}})
}

async fn apply(server: &TestServer, path: &str, manager: &str, object: &Value) -> Value {
    let path = format!("{path}?fieldManager={manager}");
    done(&send(server, Method::PATCH, &path, APPLY, object).await)
}

fn containers(deployment: &Value) -> Vec<(String, String)> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    let text = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
    containers.iter().map(|c| (text(&c["name"]), text(&c["image"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn unapplied_item_is_removed_whole() {
    let server = server().await;
    let path = format!("{DEPLOYMENTS}/d");
    let both = json!([{"name": "web", "image": "web:1"}, {"name": "helper", "image": "helper:1"}]);
    apply(&server, &path, "gitops", &deployment(both)).await;
    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "helper", "image": "helper:2"}]}}}});
    let strategic = "application/strategic-merge-patch+json";
    done(&send(&server, Method::PATCH, &format!("{path}?fieldManager=kubectl-set"), strategic, &image).await);
    let one = json!([{"name": "web", "image": "web:1"}]);
    let left = apply(&server, &path, "gitops", &deployment(one)).await;
    assert_eq!(containers(&left), [("web".into(), "web:1".into())]);
    let managers = left["metadata"]["managedFields"].to_string();
    assert!(!managers.contains("helper"), "{managers}");
}

#[tokio::test(start_paused = true)]
async fn items_follow_order_of_applied_configuration() {
    let server = server().await;
    let path = format!("{DEPLOYMENTS}/d");
    let url = json!({"name": "URL", "value": "$(HOST)/x"});
    apply(&server, &path, "gitops", &deployment(json!([{"name": "b", "image": "i", "env": [url]}]))).await;
    let env = json!([{"name": "HOST", "value": "h"}, url]);
    let two = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i", "env": env}]);
    let applied = apply(&server, &path, "gitops", &deployment(two)).await;
    assert_eq!(containers(&applied), [("a".into(), "i".into()), ("b".into(), "i".into())]);
    assert_eq!(applied["spec"]["template"]["spec"]["containers"][1]["env"], env);
}

#[tokio::test(start_paused = true)]
async fn cleared_managers_stay_away_until_an_apply() {
    let server = server().await;
    let mut map = config_map("a");
    map["data"] = json!({"x": "1"});
    server.create(map.clone()).unwrap();
    let path = format!("{MAPS}/a");
    let clear = json!({"metadata": {"managedFields": [{}]}});
    let cleared = done(&send(&server, Method::PATCH, &path, MERGE, &clear).await);
    assert_eq!(cleared["metadata"].get("managedFields"), None);
    let changed = done(&send(&server, Method::PATCH, &path, MERGE, &json!({"data": {"y": "2"}})).await);
    assert_eq!(changed["metadata"].get("managedFields"), None);
    map["data"] = json!({"x": "1"});
    let applied = apply(&server, &path, "a", &map).await;
    let mut managers: Vec<&str> = applied["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    managers.sort_unstable();
    assert_eq!(managers, ["a", "before-first-apply"]);
    assert_eq!(applied["data"], json!({"x": "1", "y": "2"}));
}

#[tokio::test(start_paused = true)]
async fn generation_increments_as_kind_defines() {
    let server = server().await;
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
    let phase = json!({"status": {"phase": "a"}});
    let generation = |object: Value| object["metadata"]["generation"].as_i64();
    for (kind, subresources, path, expected) in
        [("Open", json!({}), "", 2), ("Shut", json!({"status": {}}), "/status", 1)]
    {
        let collection = define(&server, kind, subresources, schema.clone());
        let object =
            json!({"apiVersion": "lab.test/v1", "kind": kind, "metadata": {"name": "o"}, "spec": {"x": 1}});
        assert_eq!(generation(done(&post(&server, &collection, &object).await)), Some(1));
        let labels = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}});
        let path_of = |path: &str| format!("{collection}/o{path}");
        done(&send(&server, Method::PATCH, &path_of(""), MERGE, &labels).await);
        let written = done(&send(&server, Method::PATCH, &path_of(path), MERGE, &phase).await);
        assert_eq!(
            (written["status"]["phase"].as_str(), generation(written.clone())),
            (Some("a"), Some(expected))
        );
        let spec = json!({"spec": {"x": 2}});
        let written = done(&send(&server, Method::PATCH, &path_of(""), MERGE, &spec).await);
        assert_eq!(generation(written), Some(expected + 1), "{kind}");
    }

    done(&post(&server, DEPLOYMENTS, &deployment(json!([{"name": "c", "image": "i"}]))).await);
    let path = format!("{DEPLOYMENTS}/d");
    for (change, expected) in [
        (json!({"metadata": {"annotations": {"x": "y"}}}), 2),
        (json!({"metadata": {"annotations": {"x": "y"}}}), 2),
        (json!({"metadata": {"labels": {"x": "y"}}}), 2),
        (json!({"spec": {"paused": true}}), 3),
        (json!({"metadata": {"annotations": null}}), 4),
    ] {
        let written = done(&send(&server, Method::PATCH, &path, MERGE, &change).await);
        assert_eq!(generation(written), Some(expected), "{change}");
    }
    let status = done(
        &send(&server, Method::PATCH, &format!("{path}/status"), MERGE, &json!({"status": {"replicas": 1}}))
            .await,
    );
    assert_eq!(generation(status), Some(4));

    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let labelled = json!({"metadata": {"labels": {"x": "y"}}});
    assert_eq!(generation(done(&send(&server, Method::PATCH, slice, MERGE, &labelled).await)), Some(2));
}

#[tokio::test(start_paused = true)]
async fn events_of_both_groups_are_same_objects() {
    const CORE: &str = "/api/v1/namespaces/default/events";
    const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    let server = server().await;
    let before = server.resource_version();
    let mut watch_new = watch(&server, &format!("{NEW}?watch=1&resourceVersion={before}")).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal", "reason": "R",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "message": "m", "count": 2,
        "reportingComponent": "k"});
    let created = done(&post(&server, CORE, &event).await);
    let seen = get(&server, &format!("{NEW}/e")).await.ok();
    assert_eq!(
        (&seen["note"], &seen["regarding"]["name"], &seen["deprecatedCount"]),
        (&json!("m"), &json!("p"), &json!(2))
    );
    assert_eq!(
        (seen["apiVersion"].as_str(), &seen["metadata"]["uid"]),
        (Some("events.k8s.io/v1"), &created["metadata"]["uid"])
    );
    assert_eq!(rv(&seen), rv(&created));
    let added = watch_new.next().await.expect("an event");
    assert_eq!((&added["type"], &added["object"]["note"]), (&json!("ADDED"), &json!("m")));

    let changed =
        json!({"note": "n", "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
    let patched = done(&send(&server, Method::PATCH, &format!("{NEW}/e"), MERGE, &changed).await);
    let seen = get(&server, &format!("{CORE}/e")).await.ok();
    assert_eq!(
        (&seen["message"], &seen["series"]["count"], rv(&seen)),
        (&json!("n"), &json!(3), rv(&patched))
    );
    assert_eq!(server.count("events"), 1);

    let other = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "f"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {"kind": "Node", "name": "n"}, "note": "x",
        "reportingController": "k", "reportingInstance": "k-1", "action": "A", "reason": "R", "type": "Normal"});
    done(&post(&server, NEW, &other).await);
    let listed = get(&server, CORE).await.ok();
    assert_eq!(support::names(&listed), ["e", "f"]);
    assert_eq!(listed["items"][1]["involvedObject"]["kind"], "Node");
    assert_eq!(
        post(&server, CORE, &json!({"metadata": {"name": "f"}, "involvedObject": {}})).await.code,
        409
    );

    done(&send(&server, Method::DELETE, &format!("{CORE}/e"), JSON, &json!({})).await);
    assert_eq!(get(&server, &format!("{NEW}/e")).await.code, 404);
    for expected in ["MODIFIED e", "ADDED f", "DELETED e"] {
        assert_eq!(watch_new.short().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_for_this_machine_only_refuses_other_hosts() {
    let server = start(TestServer::builder().only_local_hosts(true)).await;
    // The client of these tests names another host.
    let answer = get(&server, MAPS).await;
    assert_eq!(answer.code, 403, "{:?}", answer.body);
    assert!(answer.json()["message"].as_str().unwrap().contains("\"test\""));
    assert_eq!(get(&TestServer::builder().start_in_memory().unwrap(), MAPS).await.code, 200);
}

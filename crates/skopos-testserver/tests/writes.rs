//! Tests of the responses to writes, rule by rule, over in-memory connections.

mod support;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use skopos_testserver::TestServer;
use support::{Answer, MAPS, config_map, get, request, rv, start};

const JSON: (&str, &str) = ("content-type", "application/json");
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn server() -> TestServer {
    start(TestServer::builder()).await
}

async fn send(
    server: &TestServer,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    request(server, method, path, headers, Bytes::from(body.to_string())).await.expect("an answer")
}

async fn post(server: &TestServer, path: &str, body: &Value) -> Answer {
    send(server, Method::POST, path, &[JSON], body).await
}

async fn put(server: &TestServer, path: &str, body: &Value) -> Answer {
    send(server, Method::PUT, path, &[JSON], body).await
}

async fn patch(server: &TestServer, path: &str, kind: &str, body: &Value) -> Answer {
    send(server, Method::PATCH, path, &[("content-type", kind)], body).await
}

async fn delete(server: &TestServer, path: &str, body: &Value) -> Answer {
    send(server, Method::DELETE, path, &[JSON], body).await
}

#[track_caller]
fn created(answer: &Answer) -> Value {
    assert_eq!(answer.code, 201, "{:?}", answer.body);
    answer.json()
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "web:1"}]}})
}

fn deployment(replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}}})
}

fn widgets(schema: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
             "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}},
            {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}},
        ]}})
}

#[tokio::test(start_paused = true)]
async fn a_created_object_has_an_identity() {
    let server = server().await;
    let object = created(&post(&server, MAPS, &config_map("a")).await);
    let metadata = &object["metadata"];
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert!(metadata["creationTimestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert_eq!(metadata["managedFields"], Value::Null, "a config map without data has nothing to manage");
    let again = post(&server, MAPS, &config_map("a")).await;
    let status = again.failed(409, "AlreadyExists", "configmaps \"a\" already exists");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_and_checked() {
    let server = server().await;
    let mut object = config_map("x");
    object["metadata"] = json!({"generateName": "map-"});
    let (one, two) =
        (created(&post(&server, MAPS, &object).await), created(&post(&server, MAPS, &object).await));
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("map-") && name.len() == 9, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);

    let answer = post(&server, MAPS, &config_map("Not Valid")).await;
    assert_eq!(answer.code, 422);
    let cause = &answer.json()["details"]["causes"][0];
    assert_eq!((&cause["field"], &cause["reason"]), (&json!("metadata.name"), &json!("FieldValueInvalid")));
    object["metadata"] = json!({});
    let answer = post(&server, MAPS, &object).await;
    answer.failed(
        422,
        "Invalid",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    );
}

#[tokio::test(start_paused = true)]
async fn object_must_match_request_path() {
    let server = server().await;
    let mut other = config_map("a");
    other["metadata"]["namespace"] = json!("other");
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    post(&server, MAPS, &other).await.failed(400, "BadRequest", text);
    let missing = "/api/v1/namespaces/other/configmaps";
    post(&server, missing, &other).await.failed(404, "NotFound", "namespaces \"other\" not found");
    created(&post(&server, MAPS, &config_map("a")).await);
    let text = "the name of the object (b) does not match the name on the URL (a)";
    put(&server, &format!("{MAPS}/a"), &config_map("b")).await.failed(400, "BadRequest", text);
    let answer = post(&server, PODS, &deployment(1)).await;
    assert_eq!(answer.code, 400);
    assert_eq!(post(&server, "/api/v1/configmaps", &config_map("c")).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn stale_update_conflicts_and_unversioned_succeeds() {
    let server = server().await;
    let first = created(&post(&server, MAPS, &config_map("a")).await);
    let mut update = first.clone();
    update["data"] = json!({"x": "1"});
    let path = format!("{MAPS}/a");
    let second = put(&server, &path, &update).await.ok();
    assert!(rv(&second) > rv(&first));
    update["data"] = json!({"x": "2"});
    put(&server, &path, &update).await.failed(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes \
         to the latest version and try again",
    );
    update["metadata"]["resourceVersion"] = Value::Null;
    put(&server, &path, &update).await.ok();
    update["metadata"]["uid"] = json!("another");
    assert_eq!(put(&server, &path, &update).await.code, 409);
    put(&server, &format!("{MAPS}/b"), &config_map("b")).await.failed(
        404,
        "NotFound",
        "configmaps \"b\" not found",
    );
}

#[tokio::test(start_paused = true)]
async fn an_update_that_changes_nothing_is_no_event() {
    let server = server().await;
    let first = created(&post(&server, DEPLOYMENTS, &deployment(1)).await);
    let same = put(&server, &format!("{DEPLOYMENTS}/web"), &deployment(1)).await.ok();
    assert_eq!(rv(&same), rv(&first));
    assert_eq!(same["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn spec_and_status_are_written_apart() {
    let server = server().await;
    let mut object = deployment(1);
    object["status"] = json!({"replicas": 9});
    let object = created(&post(&server, DEPLOYMENTS, &object).await);
    assert_eq!(object["status"], Value::Null);
    let path = format!("{DEPLOYMENTS}/web");
    let mut status = deployment(5);
    status["status"] = json!({"replicas": 3});
    let after = put(&server, &format!("{path}/status"), &status).await.ok();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["replicas"]), (&json!(1), &json!(3)));
    assert_eq!(after["metadata"]["generation"], 1);
    let after = put(&server, &path, &deployment(5)).await.ok();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["replicas"]), (&json!(5), &json!(3)));
    assert_eq!(after["metadata"]["generation"], 2);
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["subresource"] == "status"), "{managers:?}");
}

#[tokio::test(start_paused = true)]
async fn all_four_patch_types_apply() {
    let server = server().await;
    created(&post(&server, PODS, &pod("p")).await);
    let path = format!("{PODS}/p");
    let merge = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    patch(&server, &path, "application/merge-patch+json", &merge).await.ok();
    let json_patch = json!([{"op": "remove", "path": "/metadata/labels/a"}]);
    patch(&server, &path, "application/json-patch+json", &json_patch).await.ok();
    let strategic =
        json!({"spec": {"containers": [{"name": "c", "image": "web:2"}, {"name": "d", "image": "x"}]}});
    let after = patch(&server, &path, "application/strategic-merge-patch+json", &strategic).await.ok();
    assert_eq!(after["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(after["spec"]["containers"].as_array().map(Vec::len), Some(2));
    let unfit = patch(&server, &path, "application/json-patch+json", &json_patch).await;
    unfit.failed(422, "Invalid", "the server rejected our request due to an error in our request");
    assert_eq!(patch(&server, &path, "application/json", &merge).await.code, 415);
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"b": "3"}}});
    let apply = "application/apply-patch+yaml";
    assert_eq!(patch(&server, &path, apply, &config).await.code, 422, "a manager must be named");
    let conflict = patch(&server, &format!("{path}?fieldManager=me"), apply, &config).await;
    assert_eq!((conflict.code, &conflict.json()["reason"]), (409, &json!("Conflict")));
    let cause = &conflict.json()["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldManagerConflict"), &json!(".metadata.labels.b"))
    );
    let forced = patch(&server, &format!("{path}?fieldManager=me&force=true"), apply, &config).await.ok();
    assert_eq!(forced["metadata"]["labels"]["b"], "3");
    let new = format!("{PODS}/new?fieldManager=me");
    let config =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {"nodeName": "n"}});
    created(&patch(&server, &new, apply, &config).await);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_checks_everything_and_changes_nothing() {
    let server = server().await;
    let before = server.resource_version();
    created(&post(&server, &format!("{MAPS}?dryRun=All"), &config_map("a")).await);
    assert_eq!(post(&server, &format!("{MAPS}?dryRun=All"), &config_map("A")).await.code, 422);
    assert_eq!(post(&server, &format!("{MAPS}?dryRun=Some"), &config_map("a")).await.code, 422);
    assert_eq!((server.resource_version(), server.count("configmaps")), (before, 0));
    server.create(config_map("a")).unwrap();
    let before = server.resource_version();
    delete(&server, &format!("{MAPS}/a?dryRun=All"), &json!({})).await.ok();
    let changed = json!({"data": {"x": "1"}});
    let dry = format!("{MAPS}/a?dryRun=All");
    let after = patch(&server, &dry, "application/merge-patch+json", &changed).await.ok();
    assert_eq!(after["data"]["x"], "1");
    assert_eq!(server.resource_version(), before);
}

#[tokio::test(start_paused = true)]
async fn delete_returns_status_or_waiting_object() {
    let server = server().await;
    let uid = server.create(config_map("a")).unwrap()["metadata"]["uid"].clone();
    let gone = delete(&server, &format!("{MAPS}/a"), &json!({})).await.ok();
    assert_eq!(gone["status"], "Success");
    assert_eq!(gone["details"], json!({"name": "a", "kind": "configmaps", "uid": uid}));
    delete(&server, &format!("{MAPS}/a"), &json!({})).await.failed(
        404,
        "NotFound",
        "configmaps \"a\" not found",
    );

    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    server.create(held).unwrap();
    let path = format!("{MAPS}/held");
    let waiting = delete(&server, &path, &json!({})).await.ok();
    assert!(!waiting["metadata"]["deletionTimestamp"].is_null());
    let again = delete(&server, &path, &json!({})).await.ok();
    assert_eq!(rv(&again), rv(&waiting));
    let more = json!({"metadata": {"finalizers": ["example.com/x", "example.com/y"]}});
    let refused = patch(&server, &path, "application/merge-patch+json", &more).await;
    assert_eq!(refused.code, 422, "no finalizer can be added any more");
    let done = json!({"metadata": {"finalizers": null}});
    patch(&server, &path, "application/merge-patch+json", &done).await.ok();
    assert_eq!(server.count("configmaps"), 0);
}

#[tokio::test(start_paused = true)]
async fn deleting_may_demand_a_state() {
    let server = server().await;
    server.create(config_map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let answer = delete(&server, &path, &json!({"preconditions": {"uid": "another"}})).await;
    assert_eq!((answer.code, &answer.json()["reason"]), (409, &json!("Conflict")));
    let answer = delete(&server, &path, &json!({"preconditions": {"resourceVersion": "1"}})).await;
    assert_eq!(answer.code, 409);
    assert_eq!(server.count("configmaps"), 1);
    let text = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    delete(&server, "/api/v1/namespaces/default", &json!({})).await.failed(403, "Forbidden", text);
}

#[tokio::test(start_paused = true)]
async fn unbound_pod_vanishes_and_budget_stops_eviction() {
    let server = server().await;
    server.create(pod("p")).unwrap();
    delete(&server, &format!("{PODS}/p"), &json!({})).await.ok();
    assert_eq!(server.count("pods"), 0);

    let mut labelled = pod("q");
    labelled["metadata"]["labels"] = json!({"app": "q"});
    server.create(labelled).unwrap();
    let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "q"}}}, "status": {"disruptionsAllowed": 0}});
    server.create(budget.clone()).unwrap();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}});
    let path = format!("{PODS}/q/eviction");
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    post(&server, &path, &eviction).await.failed(429, "TooManyRequests", text);
    budget["status"]["disruptionsAllowed"] = json!(1);
    server.update(budget).unwrap();
    created(&post(&server, &path, &eviction).await);
    assert_eq!(server.count("pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let server = server().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        server.create(support::labelled(name, app)).unwrap();
    }
    let list = delete(&server, &format!("{MAPS}?labelSelector=app%3Dx"), &json!({})).await.ok();
    assert_eq!(support::names(&list), ["a", "b"]);
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(server.count("configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn scale_subresource_changes_replicas() {
    let server = server().await;
    server.create(deployment(1)).unwrap();
    let path = format!("{DEPLOYMENTS}/web/scale");
    let scale = get(&server, &path).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(scale["status"]["selector"], "app=web");
    let change = json!({"spec": {"replicas": 4}});
    let scaled = patch(&server, &path, "application/merge-patch+json", &change).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 4);
    assert_eq!(server.get("deployments", Some("default"), "web").unwrap()["spec"]["replicas"], 4);
    put(&server, &path, &scale).await.failed(
        409,
        "Conflict",
        "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply your \
         changes to the latest version and try again",
    );
    let negative = json!({"spec": {"replicas": -1}});
    assert_eq!(patch(&server, &path, "application/merge-patch+json", &negative).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_kept_warned_of_or_refused() {
    let server = server().await;
    let mut object = deployment(1);
    object["spec"]["replicsa"] = json!(3);
    let path = format!("{DEPLOYMENTS}?dryRun=All");
    let strict = post(&server, &format!("{path}&fieldValidation=Strict"), &object).await;
    strict.failed(
        400,
        "BadRequest",
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \
         \"spec.replicsa\"",
    );
    let warned = post(&server, &path, &object).await;
    created(&warned);
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"spec.replicsa\\\"\"");
    let ignored = post(&server, &format!("{path}&fieldValidation=Ignore"), &object).await;
    created(&ignored);
    assert!(ignored.headers.get("warning").is_none());
}

#[tokio::test(start_paused = true)]
async fn write_without_acceptable_form_changes_nothing() {
    let server = server().await;
    server.create(config_map("a")).unwrap();
    let before = server.resource_version();
    let path = format!("{MAPS}/a");
    let cbor = ("accept", "application/cbor");
    let mut changed = config_map("a");
    changed["data"] = json!({"x": "1"});
    let apply = format!("{MAPS}/b?fieldManager=me");
    for (method, path, kind, body) in [
        (Method::POST, MAPS, "application/json", config_map("b")),
        (Method::PUT, &path, "application/json", changed.clone()),
        (Method::PATCH, &path, "application/merge-patch+json", changed),
        (Method::PATCH, &apply, "application/apply-patch+yaml", config_map("b")),
        (Method::DELETE, &path, "application/json", json!({})),
    ] {
        let answer = send(&server, method.clone(), path, &[("content-type", kind), cbor], &body).await;
        answer.failed(406, "NotAcceptable", "only the following media types are accepted: application/json");
        assert_eq!(server.resource_version(), before, "{method} {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn extreme_types_and_numbers_get_response() {
    const MAX: i64 = i64::MAX;
    let server = server().await;
    let mut running = pod("p");
    running["spec"]["nodeName"] = json!("n");
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    service["spec"] = json!({"ports": [{"port": 80}]});
    let mut counted = config_map("counted");
    counted["metadata"]["generation"] = json!(MAX);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    for object in [config_map("a"), counted, running, service, deployment(1), widgets(&json!({})), widget] {
        server.create(object).unwrap();
    }
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    let (maps, namespace) = (format!("{MAPS}/a?fieldManager=me"), "/api/v1/namespaces/shop");
    let (scale, widget) =
        (format!("{DEPLOYMENTS}/web/scale"), "/apis/example.com/v1/namespaces/default/widgets/w");
    let (json, apply) = ("application/json", "application/apply-patch+yaml");
    let (json_patch, merge) = ("application/json-patch+json", "application/merge-patch+json");
    let text = r#"[{"op": "replace", "path": "", "value": "x"}]"#;
    let mut wrong = Vec::new();
    for (method, path, kind, body, code) in [
        ("PATCH", &*maps, apply, "- a", 400),
        ("PATCH", &maps, apply, "a", 400),
        ("PATCH", &maps, json_patch, text, 422),
        ("PATCH", &maps, merge, r#"{"metadata": {"managedFields": ["x"]}}"#, 422),
        ("POST", "/api/v1/namespaces", json, r#"{"metadata": {"name": "n", "labels": "x"}}"#, 400),
        (
            "POST",
            "/api/v1/namespaces/default/secrets",
            json,
            r#"{"metadata": {"name": "s"}, "data": "x", "stringData": {"a": "b"}}"#,
            400,
        ),
        ("PUT", "/api/v1/namespaces/default/services/s", json, r#"{"spec": "x"}"#, 400),
        ("PATCH", "/api/v1/namespaces/default/services/s", merge, r#"{"spec": "x"}"#, 422),
        ("PUT", "/api/v1/namespaces/shop/status", json, r#"{"status": "x"}"#, 400),
        ("DELETE", namespace, json, "{}", 200),
        ("PATCH", &scale, json_patch, text, 422),
        ("PATCH", &scale, merge, r#"{"metadata": "x"}"#, 422),
        ("PUT", &scale, json, r#"{"metadata": "x", "spec": "y"}"#, 400),
        ("PATCH", widget, json_patch, text, 422),
        ("PATCH", widget, merge, r#"{"metadata": {"labels": "x"}}"#, 422),
        ("PATCH", widget, merge, r#"{"spec": "x", "status": []}"#, 200),
        ("PUT", &format!("{MAPS}/counted"), json, r#"{"data": {"x": "1"}}"#, 200),
        ("DELETE", &format!("{PODS}/p?gracePeriodSeconds={MAX}"), json, "", 200),
        ("GET", &format!("{MAPS}?limit={MAX}&resourceVersion={MAX}"), json, "", 504),
    ] {
        let (method, asked) = (method.parse().unwrap(), Bytes::from_static(body.as_bytes()));
        let answer = request(&server, method, path, &[("content-type", kind)], asked).await;
        let given = answer.map_or(0, |answer| answer.code);
        if given != code {
            wrong.push(format!("{given} instead of {code}: {path} {kind} {body}"));
        }
        assert_eq!(get(&server, MAPS).await.code, 200, "behind {path} {body}");
    }
    assert_eq!(wrong, [""; 0]);
    let mut stream = support::watch(&server, &format!("{MAPS}?watch=1&timeoutSeconds={MAX}")).await;
    assert_eq!(stream.short().await, "ADDED a");
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert!(server.get("pods", Some("default"), "p").is_ok(), "it has time");
    server.create(config_map("b")).unwrap();
    assert_eq!((stream.short().await, stream.short().await), ("ADDED counted".into(), "ADDED b".into()));
}

#[tokio::test(start_paused = true)]
async fn definitions_bring_resources_and_take_them_away() {
    let server = server().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 0}, "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"}}}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    assert_eq!(get(&server, path).await.code, 404);
    let definition = created(&post(&server, definitions, &widgets(&schema)).await);
    assert_eq!(definition["status"]["conditions"][1]["type"], "Established");

    let widget = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    let refused = post(&server, path, &widget(json!({"colour": "green", "size": "big"}))).await;
    assert_eq!(refused.code, 422);
    assert_eq!(refused.json()["details"]["causes"].as_array().map(Vec::len), Some(2));
    let stored = created(&post(&server, path, &widget(json!({"size": 2}))).await);
    assert_eq!((&stored["spec"]["colour"], &stored["metadata"]["generation"]), (&json!("red"), &json!(1)));
    let beta = get(&server, "/apis/example.com/v1beta1/namespaces/default/widgets/w").await.ok();
    assert_eq!(beta["apiVersion"], "example.com/v1beta1");
    assert_eq!(get(&server, &format!("{path}/w/scale")).await.ok()["spec"]["replicas"], 2);
    assert_eq!(
        patch(&server, &format!("{path}/w"), "application/strategic-merge-patch+json", &json!({})).await.code,
        415
    );

    delete(&server, &format!("{definitions}/widgets.example.com"), &json!({})).await.ok();
    assert_eq!(get(&server, path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn update_of_lease_or_custom_resource_needs_version() {
    let server = server().await;
    server.create(widgets(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))).unwrap();
    let widget = |size: i64| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size}});
    let lease = |seconds: i64| json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": seconds}});
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let both = [
        (widgets, "w", widget(1), widget(2), "widgets.example.com \"w\""),
        (leases, "l", lease(1), lease(2), "leases.coordination.k8s.io \"l\""),
    ];
    for (path, name, first, mut second, text) in both {
        let stored = created(&post(&server, path, &first).await);
        let one = format!("{path}/{name}");
        let text = format!(
            "{text} is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        );
        for version in [json!(null), json!("0"), json!("")] {
            second["metadata"]["resourceVersion"] = version;
            put(&server, &one, &second).await.failed(422, "Invalid", &text);
        }
        assert_eq!(rv(&get(&server, &one).await.ok()), rv(&stored));
        second["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let stored = put(&server, &one, &second).await.ok();
        put(&server, &one, &second).await.failed(
            409,
            "Conflict",
            &format!(
                "Operation cannot be fulfilled on {}: the object has been modified; please apply your changes to the \
                 latest version and try again",
                text.split(" is invalid").next().unwrap()
            ),
        );
        let merge = json!({"metadata": {"labels": {"a": "1"}}});
        patch(&server, &one, "application/merge-patch+json", &merge).await.ok();
        let apply = format!("{one}?fieldManager=me&force=true");
        let applied = patch(&server, &apply, "application/apply-patch+yaml", &first).await.ok();
        assert!(rv(&applied) > rv(&stored), "a patch is of the newest state");
    }
    let status = json!({"metadata": {"name": "w"}, "status": {"size": 1}});
    assert_eq!(put(&server, &format!("{widgets}/w/status"), &status).await.code, 422);
    let scale = json!({"metadata": {"resourceVersion": ""}, "spec": {"replicas": 4}});
    assert_eq!(put(&server, &format!("{widgets}/w/scale"), &scale).await.ok()["spec"]["replicas"], 4);
    server.update(widget(5)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_created_in_a_namespace_that_goes() {
    let server = server().await;
    let mut held = config_map("held");
    held["metadata"]["namespace"] = json!("shop");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    server.create(held).unwrap();
    delete(&server, "/api/v1/namespaces/shop", &json!({})).await.ok();
    let answer =
        post(&server, "/api/v1/namespaces/shop/configmaps", &json!({"metadata": {"name": "b"}})).await;
    let text = "configmaps is forbidden: unable to create new content in namespace shop because it is being terminated";
    let status = answer.failed(403, "Forbidden", text);
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;
use skopos_testserver::{Fault, Match};

use crate::config::{AuthorizationMode, ConnectPolicy, PolicyRule};
use crate::testing::{Lab, QuietSource, told};

fn pod(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}})
}

fn with_pod(lab: &Lab, name: &str) {
    let member = lab.member("a");
    let _ = member.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    member.create(pod(name)).unwrap();
}

/// Allows everything, in the caller's own name.
fn open(config: &mut crate::config::Config) {
    config.outbound.impersonate = true;
    config.authorization.mode = AuthorizationMode::Policy;
    config.authorization.policy =
        vec![PolicyRule { users: vec!["*".into()], verbs: vec!["*".into()], ..PolicyRule::default() }];
}

#[tokio::test(start_paused = true)]
async fn passes_through_member_answers() {
    let lab = Lab::trusting(&["a"]);
    with_pod(&lab, "web");
    let told = lab.get("/clusters/a/api/v1/namespaces/shop/pods/web", &[]).await;
    assert_eq!((told.code, &told.json()["metadata"]["name"]), (200, &json!("web")));
    assert_eq!(lab.get("/clusters/a/api/v1/namespaces/shop/pods/none", &[]).await.code, 404);
    assert_eq!(lab.get("/clusters/none/api/v1/pods", &[]).await.code, 404);
    assert_eq!(told.header("x-content-type-options"), "nosniff");
}

#[tokio::test(start_paused = true)]
async fn unknown_cluster_is_unavailable_until_sources_read() {
    let lab = Lab::guarded(&["a"], open);
    lab.admit("t-jane", "jane");
    let source = QuietSource::default();
    lab.services.fleet.follow(source.clone());
    assert_eq!(lab.get_as("t-jane", "/clusters/a/version").await.code, 200);
    let unknown = lab.get_as("t-jane", "/clusters/none/version").await;
    assert_eq!((unknown.code, unknown.header("retry-after")), (503, "1"), "{}", unknown.message());
    assert!(
        unknown.message().contains("not all sources of clusters have been read"),
        "{}",
        unknown.message()
    );
    assert_eq!(lab.get("/clusters/none/version", &[]).await.code, 401);
    source.speaks();
    assert_eq!(lab.get_as("t-jane", "/clusters/none/version").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_caller_learns_nothing_of_paths() {
    let lab = Lab::guarded(&["a"], |_| {});
    for path in ["/clusters/a/api/v1/pods", "/clusters", "/nothing", "/clusters/none/api"] {
        let told = lab.get(path, &[]).await;
        assert_eq!((told.code, told.message().as_str()), (401, "Unauthorized"), "{path}");
    }
    assert_eq!(lab.get("/clusters/a/api/v1/pods", &[("authorization", "Bearer made-up")]).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn absent_cluster_looks_like_forbidden_one() {
    let lab = Lab::guarded(&["a"], |_| {});
    with_pod(&lab, "web");
    lab.admit("t-jane", "jane");
    lab.member("a")
        .auth()
        .answer_reviews(|asked| asked.user == "jane" && asked.namespace == "shop" && asked.verb == "get");
    let shop = "/clusters/a/api/v1/namespaces/shop/pods";
    assert_eq!(lab.get_as("t-jane", &format!("{shop}/web")).await.code, 200);
    lab.member("a").clear_requests();
    let denied = lab.get_as("t-jane", shop).await;
    assert_eq!(denied.code, 403);
    assert!(denied.message().contains("User \"jane\" cannot list resource \"pods\""), "{}", denied.message());
    // The member got a review only.
    assert!(lab.member("a").requests().iter().all(|asked| asked.path.contains("subjectaccessreviews")));

    let none = lab.get_as("t-jane", "/clusters/none/api/v1/pods").await;
    assert_eq!(none.code, 403);
    assert!(!none.message().contains("none"), "{}", none.message());
}

/// Checks that accounts of the same name in two clusters are not related.
#[tokio::test(start_paused = true)]
async fn cluster_account_is_unknown_in_other_clusters() {
    let lab = Lab::guarded(&["a", "b"], |_| {});
    for name in ["a", "b"] {
        lab.member(name).auth().answer_reviews(|_| true);
    }
    let pods = |cluster: &str| format!("/clusters/{cluster}/api/v1/namespaces/shop/pods");
    for account in ["system:serviceaccount:ci:deployer", "system:node:n1", "system:bootstrap:abcdef"] {
        lab.admit(account, account);
        assert_eq!(lab.get_as(account, &pods("a")).await.code, 200, "{account}");
        lab.member("b").clear_requests();
        let (there, nowhere) =
            (lab.get_as(account, &pods("b")).await, lab.get_as(account, &pods("none")).await);
        assert_eq!((there.code, nowhere.code), (403, 403), "{account}");
        assert_eq!(there.message(), nowhere.message());
        assert!(lab.member("b").requests().is_empty(), "{account}: it is not even asked");
        let all = lab.get_as(account, "/fleet/api/v1/pods").await.json();
        assert_eq!(all["metadata"]["annotations"]["skopos.dev/denied"], "b", "{all}");
    }
    lab.admit("t-jane", "jane");
    assert_eq!(lab.get_as("t-jane", &pods("b")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn list_by_name_requires_right_to_that_name() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|asked| asked.name == "web");
    let pods = "/clusters/a/api/v1/namespaces/shop/pods";
    assert_eq!(lab.get_as("t-jane", &format!("{pods}?fieldSelector=metadata.name%3Dweb")).await.code, 200);
    for query in [
        "",
        "?fieldSelector=metadata.name%3Dother",
        "?fieldSelector=metadata.name!%3Dweb",
        "?fieldSelector=spec.nodeName%3Dweb",
    ] {
        assert_eq!(lab.get_as("t-jane", &format!("{pods}{query}")).await.code, 403, "{query}");
    }
    let twice = format!("{pods}?fieldSelector=metadata.name%3Dweb&fieldSelector=metadata.name%3Dother");
    assert_eq!(lab.get_as("t-jane", &twice).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn rejects_ambiguous_paths_and_queries() {
    let lab = Lab::trusting(&["a"]);
    for path in [
        "/clusters/a/api/v1/namespaces/shop%2Fpods",
        "/clusters/a/api/v1/../../../metrics",
        "/clusters/a/api/v1/%2e%2e/pods",
        "/clusters/a//api/v1/pods",
        "/clusters/a/api/v1/pods%00",
        "/clusters/a/api/v1/pods?watch=%zz",
        "/clusters/a/api/v1/pods?watch=0;watch=1",
        "/clusters/a/api/v1/pods?watch=0&watch=1",
        "/clusters/a%252f/api",
    ] {
        let told = lab.get(path, &[]).await;
        assert_eq!((told.code, &told.json()["reason"]), (400, &json!("BadRequest")), "{path}");
    }
    for path in [
        "/",
        "/clusters",
        "/other/a",
        "/clusters/a/api/v1/watch/pods/x/status/y",
        "/clusters/a/api/v1/proxy/nodes/n",
    ] {
        assert_eq!(lab.get(path, &[]).await.code, 404, "{path}");
    }
    assert!(lab.member("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn member_request_carries_listed_headers_and_identity() {
    let lab = Lab::guarded(&["a"], open);
    lab.admit("t-jane", "jane");
    let echo = lab.add_echo("echo");
    let sent = [
        ("authorization", "Bearer t-jane"),
        ("accept", "application/json"),
        ("cookie", "session=secret"),
        ("x-remote-user", "admin"),
        ("x-forwarded-for", "10.0.0.1"),
        ("connection", "close"),
        ("te", "trailers"),
    ];
    let path = "/clusters/echo/api/v1/namespaces/s%3Aa/configmaps/x?dryRun=All&a=b%26c";
    let answer = lab.send(Method::PUT, path, &sent, "{\"a\":1}").await;
    assert_eq!(told(answer).await.code, 200);
    let (request, body) = echo.seen().remove(0);
    assert_eq!(request.uri().to_string(), "/api/v1/namespaces/s:a/configmaps/x?dryRun=All&a=b%26c");
    assert_eq!((request.method(), &body[..]), (&Method::PUT, &b"{\"a\":1}"[..]));
    let mut names: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["accept", "content-length", "host", "impersonate-group", "impersonate-user", "user-agent"]
    );
    assert_eq!(request.headers()["impersonate-user"], "jane");
    assert!(!format!("{request:?}").contains("t-jane"));
}

#[tokio::test(start_paused = true)]
async fn forged_and_dropped_headers_are_refused() {
    let lab = Lab::guarded(&["a"], open);
    lab.admit("t-jane", "jane");
    let echo = lab.add_echo("echo");
    for (name, value, code) in [
        ("Impersonate_Group", "system:masters", 403),
        ("impersonate-extra-scopes", "all", 400),
        ("connection", "Impersonate-User", 400),
        ("connection", "close, x-remote-user", 400),
        ("upgrade", "SPDY/3.1", 403),
        ("connection", "Upgrade", 403),
    ] {
        let told =
            lab.get("/clusters/echo/api/v1/pods", &[("authorization", "Bearer t-jane"), (name, value)]).await;
        assert_eq!(told.code, code, "{name}: {value}");
    }
    assert!(echo.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_listed_headers_come_back_and_no_redirect() {
    let lab = Lab::trusting(&[]);
    let echo = lab.add_echo("echo");
    let headers = [
        ("content-type", "application/json"),
        ("set-cookie", "a=b"),
        ("skopos-source", "forged"),
        ("access-control-allow-origin", "*"),
        ("alt-svc", "h3=\":443\""),
    ];
    echo.answers(200, &headers, "{}");
    let told = lab.get("/clusters/echo/api/v1/namespaces/s/pods/x/status", &[]).await;
    assert_eq!(told.header("skopos-source"), "member");
    assert_eq!(told.headers.get_all("skopos-source").iter().count(), 1);
    for gone in ["set-cookie", "access-control-allow-origin", "alt-svc"] {
        assert_eq!(told.header(gone), "", "{gone}");
    }
    for code in [301, 302, 303, 305, 307, 308] {
        echo.answers(code, &[("location", "http://169.254.169.254/")], "");
        let told = lab.get("/clusters/echo/api/v1/namespaces/s/pods/x/status", &[]).await;
        assert!(told.code >= 500 && told.header("location").is_empty(), "{code}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_pod_streams_by_plain_request() {
    let lab = Lab::trusting(&[]);
    let echo = lab.add_echo("echo");
    let pod = "/clusters/echo/api/v1/namespaces/shop/pods/web";
    for path in [
        format!("{pod}/exec?command=sh"),
        format!("{pod}/attach"),
        format!("{pod}/portforward"),
        format!("{pod}/proxy/metrics"),
        format!("{pod}/log"),
        "/clusters/echo/api/v1/namespaces/shop/services/https:web:443/proxy/admin".into(),
        "/clusters/echo/api/v1/nodes/n/proxy/logs/".into(),
    ] {
        for method in [Method::GET, Method::POST] {
            let told = told(lab.send(method.clone(), &path, &[], "").await).await;
            assert_eq!(told.code, 403, "{method} {path}");
        }
    }
    assert_eq!(told(lab.send(Method::CONNECT, "/clusters/echo/api", &[], "").await).await.code, 403);
    assert_eq!(told(lab.send(Method::TRACE, "/clusters/echo/api", &[], "").await).await.code, 405);
    assert!(echo.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn refuses_writes_without_impersonation() {
    let lab = Lab::guarded(&["a"], |config| {
        open(config);
        config.outbound.impersonate = false;
    });
    lab.admit("t-jane", "jane");
    let echo = lab.add_echo("echo");
    let path = "/clusters/echo/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings";
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let told =
            told(lab.send(method.clone(), path, &[("authorization", "Bearer t-jane")], "{}").await).await;
        assert!(told.code == 403 && told.message().contains("outbound.impersonate"), "{method}: {told:?}");
    }
    assert!(echo.seen().is_empty());
    assert_eq!(lab.get_as("t-jane", &format!("{path}/x/status")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_on_revocation_expiry_and_shutdown() {
    let lab = Lab::guarded(&["a"], |_| {});
    with_pod(&lab, "web");
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let watch = async || {
        let path = "/clusters/a/api/v1/namespaces/shop/pods?watch=1&resourceVersion=0&timeoutSeconds=100000";
        let answer = lab.send(Method::GET, path, &[("authorization", "Bearer t-jane")], "").await;
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.starts_with(b"{\"type\":\"ADDED\""), "{first:?}");
        body
    };
    let began = tokio::time::Instant::now();
    drop(watch().await.collect().await.unwrap());
    assert!(began.elapsed() <= Duration::from_secs(600), "{:?}", began.elapsed());

    let body = watch().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    lab.member("a").auth().answer_reviews(|_| false);
    let began = tokio::time::Instant::now();
    drop(body.collect().await.unwrap());
    assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());

    lab.member("a").auth().answer_reviews(|_| true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let body = watch().await;
    assert_eq!(lab.services.watches.open(), 1);
    lab.draining.cancel();
    let began = tokio::time::Instant::now();
    drop(body.collect().await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(1) && lab.services.watches.open() == 0);
}

#[tokio::test(start_paused = true)]
async fn legacy_watch_paths_serve_one_cluster_and_all() {
    let lab = Lab::guarded(&["a"], |_| {});
    with_pod(&lab, "web");
    lab.admit("t-jane", "jane");
    // A caller who may watch one object only may do so by its name in the old path, too.
    lab.member("a").auth().answer_reviews(|asked| asked.verb == "watch" && asked.name == "web");
    for root in ["/clusters/a", "/fleet"] {
        let path = format!("{root}/api/v1/watch/namespaces/shop/pods");
        assert_eq!(lab.get_as("t-jane", &path).await.code, 403, "{path}");
        let one = format!("{path}/web?resourceVersion=0");
        let answer = lab.send(Method::GET, &one, &[("authorization", "Bearer t-jane")], "").await;
        assert_eq!(answer.status(), 200, "{one}");
        let first = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.starts_with(b"{\"type\":\"ADDED\""), "{one}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_documents_survive_member_outage() {
    let lab = Lab::trusting(&["a"]);
    let paths = ["/api", "/apis", "/api/v1", "/apis/apps/v1", "/version", "/openapi/v3"];
    for path in paths {
        assert_eq!(lab.get(&format!("/clusters/a{path}"), &[]).await.code, 200, "{path}");
    }
    lab.member("a").pause().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    for path in paths {
        let told = lab.get(&format!("/clusters/a{path}"), &[]).await;
        assert_eq!((told.code, told.header("skopos-source")), (200, "memory"), "{path}");
        assert!(told.header("skopos-age").parse::<f64>().unwrap() >= 120.0, "{told:?}");
    }
    // An unavailable kind gets an answer in time, in the API server's shape.
    let began = tokio::time::Instant::now();
    let told = lab.get("/clusters/a/api/v1/pods", &[]).await;
    assert!((500..505).contains(&told.code) && told.json()["kind"] == "Status", "{told:?}");
    assert!(began.elapsed() <= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn bodies_are_limited() {
    let lab = Lab::with(&[], |config| {
        config.authorization.loopback = crate::config::LoopbackTrust::Trusted;
        config.listen.limits.body_bytes = crate::config::ByteSize(10);
    });
    // A test's body is complete, and so never larger than announced: tests over connections cover the limit itself.
    let echo = lab.add_echo("echo");
    let answer = lab.send(Method::POST, "/clusters/echo/api/v1/namespaces", &[], "{}").await;
    assert_eq!(told(answer).await.code, 200);
    assert_eq!(echo.seen().len(), 1);
}

/// Checks the end of logs. A watch may end at any time and is resumed; a log is not.
#[tokio::test(start_paused = true)]
async fn log_cut_by_gateway_ends_with_error() {
    let lab = Lab::guarded(&["a"], |config| config.outbound.connect = ConnectPolicy::Logs);
    lab.member("a").load_pods(1);
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let pod = &lab.member("a").list("pods", None).unwrap().0[0]["metadata"];
    let (namespace, name) = (pod["namespace"].as_str().unwrap(), pod["name"].as_str().unwrap());
    let log = format!("/clusters/a/api/v1/namespaces/{namespace}/pods/{name}/log");
    let log = log.as_str();
    let whole = lab.get_as("t-jane", log).await;
    assert_eq!((whole.code, whole.body.is_empty()), (200, false), "{whole:?}");
    let asked = lab.member("a").requests();
    let asked = asked.iter().find(|asked| asked.path.ends_with("/log")).unwrap();
    assert!(!asked.query.contains("timeoutSeconds"), "{}", asked.query);

    let _silent = lab.member("a").faults().inject(Fault::Stall).on(Match::get().resource("pods").name(name));
    let jane = [("authorization", "Bearer t-jane")];
    let followed = format!("{log}?follow=true");
    let read = async |path: &str| {
        let answer = lab.send(Method::GET, path, &jane, "").await;
        assert_eq!(answer.status().as_u16(), 200);
        let began = tokio::time::Instant::now();
        (answer.into_body().collect().await.map(|body| body.to_bytes()), began.elapsed())
    };
    let lifetime = lab.services.config.outbound.streams.lifetime.0;
    let (end, after) = read(&followed).await;
    assert!(end.is_err() && after == lifetime, "{end:?} after {after:?}");

    let drain = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        lab.draining.cancel();
    };
    // A log that ends without the client is an answer in progress, which gets its time when the gateway stops.
    let late = tokio::time::timeout(Duration::from_secs(120), read(log));
    let ((end, after), late, ()) = tokio::join!(read(&followed), late, drain);
    assert!(end.is_err() && after == Duration::from_secs(60), "{end:?} after {after:?}");
    assert!(late.is_err(), "{late:?}");

    let revoked = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        lab.member("a").auth().answer_reviews(|_| false);
    };
    let ((end, after), ()) = tokio::join!(read(log), revoked);
    assert!(end.is_err() && after <= Duration::from_secs(61), "{end:?} after {after:?}");
}

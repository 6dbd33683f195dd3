//! Secrets that must not leak: callers' tokens, members' credentials, the content of Secrets, a member's texts about others.

use std::io;
use std::sync::{Arc, Once};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use skopos_fleet::ClusterSpec;
use skopos_fleet::source::DiscoveredCluster;
use skopos_testserver::{Fault, Match};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::testing::{Lab, QuietSource, told};

/// The log of all levels.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records the log of this thread, until the guard is dropped.
    pub(crate) fn start(&self) -> tracing::subscriber::DefaultGuard {
        // With a single subscriber, tracing caches a first log call of another thread as disabled.
        static NOBODY: Once = Once::new();
        NOBODY.call_once(|| {
            let nobody = tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish();
            tracing::subscriber::set_global_default(nobody).unwrap();
        });
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        tracing::subscriber::set_default(subscriber.with_writer(self.clone()).finish())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

const TOKEN: &str = "canary-of-a-token";
const SECRET: &str = "canary-of-a-secret";
const COOKIE: &str = "canary-of-a-cookie";

#[tokio::test(start_paused = true)]
async fn no_output_contains_tokens_or_secrets() {
    let log = Log::default();
    let guard = log.start();
    let lab = Lab::guarded(&["a"], |config| {
        config.outbound.impersonate = true;
        config.authorization.observers.users = vec!["jane".into()];
    });
    lab.admit(TOKEN, "jane");
    lab.member("a").auth().answer_reviews(|asked| asked.verb != "delete");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"k": SECRET},
        "metadata": {"name": "s", "namespace": "default"}});
    lab.member("a").create(secret).unwrap();
    let bearer = format!("Bearer {TOKEN}");
    let known = [("authorization", bearer.as_str()), ("cookie", COOKIE)];
    let mut shown = String::new();
    for path in [
        "/clusters/a/api/v1/pods",
        "/clusters/a/api/v1/namespaces/default/secrets/s",
        "/clusters/a/api/v1/namespaces/default/secrets?watch=1&timeoutSeconds=1",
        "/clusters/a/api/v1/pods?labelSelector=%3D%3D",
        "/clusters/none/api/v1/pods",
        "/fleet/api/v1/pods",
        "/fleet/api/v1/secrets",
        "/nothing",
        "/metrics",
        "/api/v1/status",
    ] {
        let answer = lab.get(path, &known).await;
        if !path.contains("default/secrets") {
            shown.push_str(&format!("{:?} {}\n", answer.headers, String::from_utf8_lossy(&answer.body)));
        }
    }
    for authorization in
        [format!("Bearer {TOKEN}-of-nobody"), format!("Basic {TOKEN}"), format!("Bearer {TOKEN} x")]
    {
        let answer = lab.get("/clusters/a/api/v1/pods", &[("authorization", &authorization)]).await;
        assert_eq!(answer.code, 401);
        shown.push_str(&answer.message());
    }
    // Writes, one of them refused, and an unreachable member.
    let path = "/clusters/a/api/v1/namespaces/default/secrets";
    let body =
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "t"}, "stringData": {"k": SECRET}});
    drop(told(lab.send(Method::POST, path, &known, body.to_string()).await).await);
    drop(told(lab.send(Method::DELETE, &format!("{path}/s"), &known, "").await).await);
    lab.member("a").pause().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let answer = told(lab.send(Method::PUT, &format!("{path}/s"), &known, body.to_string()).await).await;
    shown.push_str(&String::from_utf8_lossy(&answer.body));
    drop(guard);
    let logged = log.text();
    assert!(logged.contains("skopos::audit") && logged.contains("skopos_"), "nothing was logged: {logged}");
    for (name, canary) in [("token", TOKEN), ("secret", SECRET), ("cookie", COOKIE)] {
        for (place, text) in [("log", &logged), ("answers", &shown)] {
            let line = text.lines().find(|line| line.contains(canary));
            assert!(line.is_none(), "the {name} is in the {place}: {line:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn audit_log_records_caller_target_and_authorizer() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|asked| asked.resource == "pods");
    lab.get_as("t-jane", "/clusters/a/api/v1/namespaces/shop/pods").await;
    let log = Log::default();
    let guard = log.start();
    lab.get_as("t-jane", "/clusters/a/api/v1/namespaces/shop/pods").await;
    lab.get_as("t-jane", "/clusters/a/api/v1/nodes").await;
    lab.get_as("t-jane", "/clusters/none/api/v1/nodes").await;
    lab.get_as("t-jane", "/fleet/api/v1/pods").await;
    lab.get("/clusters/a/api/v1/pods", &[]).await;
    drop(guard);
    let text = log.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("skopos::audit")).collect();
    assert_eq!(lines.len(), 5, "{text}");
    for (line, parts) in lines.iter().zip([
        &[
            "from=127.0.0.1",
            "user=\"jane\"",
            "cluster=\"a\"",
            "what=\"list v1/pods in shop\"",
            "code=200",
            "allowed=true",
            "by=\"member\"",
            "decision_age=",
            "source=\"memory\"",
            " age=",
        ][..],
        &[
            "user=\"jane\"",
            "cluster=\"a\"",
            "what=\"list v1/nodes\"",
            "code=403",
            "allowed=false",
            "by=\"member\"",
        ],
        &["cluster=\"none\"", "code=403", "allowed=false", "by=\"no_member\""],
        &["route=\"fleet\"", "what=\"list v1/pods\"", "code=200", "allowed=true"],
        &["refused=", "code=401"],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

/// The operation is done even if the caller does not wait for the answer.
#[tokio::test(start_paused = true)]
async fn audit_log_records_aborted_requests() {
    let lab = Lab::guarded(&["a"], |config| config.outbound.impersonate = true);
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let slow = Fault::DelayHeaders(Duration::from_secs(8));
    let _slow = lab.member("a").faults().inject(slow).on(Match::any().resource("pods"));
    let log = Log::default();
    let guard = log.start();
    let path = "/clusters/a/api/v1/namespaces/shop/pods/web";
    let known = [("authorization", "Bearer t-jane")];
    let asking = lab.send(Method::DELETE, path, &known, "");
    assert!(tokio::time::timeout(Duration::from_secs(2), asking).await.is_err());
    drop(guard);
    let text = log.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("skopos::audit")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    let what = format!("what={path:?}");
    for part in ["user=\"jane\"", "method=DELETE", "route=\"clusters\"", &what, "code=499"] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn gateway_sends_members_only_reads_and_reviews() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    for path in [
        "/clusters/a/api/v1/pods",
        "/fleet/apis/apps/v1/deployments",
        "/clusters/a/openapi/v3",
        "/clusters/a/api/v1/secrets",
    ] {
        assert_eq!(lab.get_as("t-jane", path).await.code, 200, "{path}");
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    let reviews = ["tokenreviews", "subjectaccessreviews"];
    for asked in lab.member("a").requests() {
        let read = ["get", "list", "watch", "other"].contains(&asked.verb);
        let review = reviews.iter().any(|review| asked.path.ends_with(review));
        assert!(read || review, "{} {}", asked.verb, asked.path);
        let secrets = asked.resource.as_deref() == Some("secrets") && asked.verb == "watch";
        assert!(!secrets, "secrets are kept without having been asked for");
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_member_response_reaches_only_its_callers() {
    let lab = Lab::trusting(&["a"]);
    let evil = lab.add_echo("evil");
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"canary-of-evil","code":418}"#;
    evil.answers(
        418,
        &[("content-type", "application/json"), ("warning", "299 - \"canary-of-evil\"")],
        status,
    );
    let own = lab.get("/clusters/evil/api/v1/namespaces/s/pods/x/status", &[]).await;
    assert_eq!(own.code, 418);
    for path in ["/clusters/a/api/v1/pods", "/fleet/api/v1/pods?clusters=a", "/clusters/a/api", "/metrics"] {
        let told = lab.get(path, &[]).await;
        let text = format!("{:?} {}", told.headers, String::from_utf8_lossy(&told.body));
        assert!(told.code == 200 && !text.contains("canary-of-evil"), "{path}: {text}");
    }
    // An arbitrary list or an HTML page is not valid content.
    for body in
        ["[]", "null", "<html>canary</html>", r#"{"kind":"SecretList","apiVersion":"v1","items":[{}]}"#]
    {
        evil.answers(200, &[("content-type", "application/json")], body);
        let told = lab.get("/fleet/api/v1/pods", &[]).await;
        let list = told.json();
        assert_eq!(
            (told.code, &list["kind"], &list["items"]),
            (200, &json!("PodList"), &json!([])),
            "{list}"
        );
        assert!(list["metadata"]["annotations"]["skopos.dev/missing"].to_string().contains("evil"), "{list}");
    }
}

#[tokio::test(start_paused = true)]
async fn forged_continue_token_grants_no_access() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|asked| asked.namespace == "red");
    for namespace in ["blue", "red", "zoo"] {
        let member = lab.member("a");
        member
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .unwrap();
        for name in ["x", "y"] {
            let canary = format!("canary-{namespace}");
            let metadata = json!({"name": name, "namespace": namespace, "annotations": {"c": canary}});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            member.create(object).unwrap();
        }
    }
    let red = "/clusters/a/api/v1/namespaces/red/configmaps";
    let first = lab.get_as("t-jane", &format!("{red}?limit=1")).await.json();
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let mut seen = 0;
    for start in
        ["", "\0", "x\0", "blue/x", "../blue/x", "/blue/x", "zoo/x\0", "red/x", "../..", "a/../../blue/", "y"]
    {
        for revision in [revision, 1, -1, i64::MAX] {
            let token = skopos_wire::ContinueToken::new(revision, start).encode();
            let told = lab.get_as("t-jane", &format!("{red}?limit=5&continue={token}")).await;
            let text = String::from_utf8_lossy(&told.body);
            assert!([200, 400, 410, 504].contains(&told.code), "{start:?}: {text}");
            assert!(!text.contains("canary-blue") && !text.contains("canary-zoo"), "{start:?}: {text}");
            seen += usize::from(text.contains("canary-red"));
        }
    }
    assert!(seen > 0);
}

#[tokio::test(start_paused = true)]
async fn denial_does_not_reveal_existence() {
    let lab = Lab::guarded(&["a", "down"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| false);
    lab.member("down").pause().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "namespace": "default"}});
    lab.member("a").create(object).unwrap();
    let answer = async |path: String| {
        let told = lab.get_as("t-jane", &path).await;
        let mut headers: Vec<_> = told.headers.keys().map(|name| name.as_str().to_owned()).collect();
        headers.sort();
        (told.code, headers, String::from_utf8_lossy(&told.body).into_owned())
    };
    for rest in [
        "api/v1/configmaps",
        "api/v1/namespaces/default/configmaps/there",
        "apis/made.up/v1/things",
        "version",
    ] {
        let denied = answer(format!("/clusters/a/{rest}")).await;
        assert_eq!(denied.0, 403, "{rest}");
        assert_eq!(answer(format!("/clusters/none/{rest}")).await, denied, "{rest}");
        let down = answer(format!("/clusters/down/{rest}")).await;
        assert!(down.0 == 503 && down.2.contains("does not say whether User"), "{rest}: {down:?}");
    }
    for names in ["a", "none", "none,a"] {
        let told = answer(format!("/fleet/api/v1/configmaps?clusters={names}")).await;
        assert_eq!(told, answer("/fleet/api/v1/configmaps".into()).await, "{names}");
        assert_eq!(told.0, 403, "{names}");
    }
    let there = answer("/clusters/a/api/v1/namespaces/default/configmaps/there".into()).await.2;
    let absent = answer("/clusters/a/api/v1/namespaces/default/configmaps/other".into()).await.2;
    assert_eq!(there, absent.replace("other", "there"));
}

/// Others may write to most sources of clusters. A name that only such a source lists belongs to its writers.
#[tokio::test(start_paused = true)]
async fn sends_no_token_to_untrusted_source_clusters() {
    let lab = Lab::guarded(&["home"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("home").auth().answer_reviews(|_| true);
    let home = || lab.services.fleet.cluster("home").unwrap();
    assert_eq!(lab.get_as("t-jane", "/clusters/home/api/v1/pods").await.code, 200);
    let source = QuietSource::default();
    lab.services.fleet.follow(source.clone());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let listed = [(home().id().clone(), DiscoveredCluster::up(home().spec().unwrap()))].into();
    assert!(lab.services.fleet.leave(home().id(), "the file is not there for a moment"));
    source.lists(listed);
    lab.member("home").clear_requests();
    let told = lab.get_as("t-jane", "/clusters/home/api/v1/pods").await;
    assert_eq!(told.code, 503, "{told:?}");
    let asked = lab.member("home").requests();
    assert!(asked.iter().all(|request| request.resource.as_deref() != Some("tokenreviews")), "{asked:?}");
}

/// A decision holds for ten seconds, but only for the cluster that made it.
#[tokio::test(start_paused = true)]
async fn decision_does_not_outlive_cluster_replacement() {
    let lab = Lab::guarded(&["home", "a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let source = QuietSource::for_member(&lab.services.fleet, "a").await;
    let paths = ["/clusters/a/api/v1/pods", "/fleet/api/v1/pods?clusters=a"];
    for path in paths {
        assert_eq!(lab.get_as("t-jane", path).await.code, 200, "{path}");
    }
    lab.member("a").auth().answer_reviews(|_| false);
    source.lists_another("a");
    for path in paths {
        let told = lab.get_as("t-jane", path).await;
        assert_eq!(told.code, 403, "{path}: {told:?}");
    }
}

/// The answer comes over the connection that was current at the time of the request.
#[tokio::test(start_paused = true)]
async fn decision_of_replaced_connection_grants_nothing() {
    let lab = Lab::guarded(&["home", "a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let a = lab.services.fleet.cluster("a").unwrap();
    // The cached copy stays on the old connection until the new one has delivered it.
    assert_eq!(lab.get_as("t-jane", "/fleet/api/v1/pods").await.code, 200);
    let slow = Fault::DelayHeaders(Duration::from_secs(2));
    let _slow = lab.member("a").faults().inject(slow).everywhere();
    for (path, code) in [("/clusters/a/api/v1/pods", 503), ("/fleet/api/v1/pods", 200)] {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let told = async { lab.get_as("t-jane", path).await };
        let redirected = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let url = format!("http://elsewhere-{code}").parse().unwrap();
            lab.services
                .fleet
                .join(a.id().clone(), ClusterSpec::from_config(kube::Config::new(url)))
                .unwrap();
        };
        let (told, ()) = tokio::join!(told, redirected);
        assert_eq!(told.code, code, "{path}: {told:?}");
        if code == 200 {
            assert_eq!(told.json()["metadata"]["annotations"]["skopos.dev/denied"], "a", "{told:?}");
        }
    }
}

/// Authorization goes by the path. RBAC allows everything that a role in the namespace names, even resources that are not
/// namespaced.
#[tokio::test(start_paused = true)]
async fn namespace_permission_grants_no_outside_reads() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("t-jane", "jane");
    let member = lab.member("a");
    for name in ["shop", "other"] {
        member.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).unwrap();
    }
    member.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).unwrap();
    member.auth().answer_reviews(|asked| asked.namespace == "shop");
    for route in ["/clusters/a", "/fleet"] {
        for rest in [
            "nodes",
            "nodes?watch=1&resourceVersion=0&timeoutSeconds=1",
            "nodes/n1",
            "namespaces",
            "namespaces?watch=1&resourceVersion=0&timeoutSeconds=1",
            "namespaces?fieldSelector=metadata.name%3Dother",
            "namespaces/other",
            "persistentvolumes",
        ] {
            let told = lab.get_as("t-jane", &format!("{route}/api/v1/namespaces/shop/{rest}")).await;
            assert_eq!(
                (told.code, &told.json()["kind"]),
                (404, &json!("Status")),
                "{route} {rest}: {told:?}"
            );
        }
        // Namespaced objects and the Namespace itself are readable.
        for path in ["namespaces/shop/pods", "namespaces/shop"] {
            let told = lab.get_as("t-jane", &format!("{route}/api/v1/{path}")).await;
            assert_eq!(told.code, 200, "{route} {path}: {told:?}");
        }
        for path in ["nodes", "namespaces", "namespaces/other"] {
            let told = lab.get_as("t-jane", &format!("{route}/api/v1/{path}")).await;
            assert_eq!(told.code, 403, "{route} {path}: {told:?}");
        }
    }
}

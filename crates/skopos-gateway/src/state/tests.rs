use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::json;
use skopos::ResourceId;
use skopos_fleet::{ClusterId, Condition, Paused, PausedBy};
use skopos_testserver::{Fault, Match};

use super::status::Report;
use crate::config::{ByteSize, Limits, Metrics as MetricsConfig};
use crate::listen::{ListenOptions, Listener};
use crate::testing::Lab;

fn pods() -> ResourceId {
    ResourceId { group: String::new(), version: "v1".into(), plural: "pods".into(), kind: "Pod".into() }
}

fn listening(lab: &Lab) {
    let options = ListenOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        authenticated: false,
        limits: Limits::default(),
    };
    lab.state.listening(Listener::bind(&options).unwrap().stats());
}

/// Starts caching the pods of a cluster, and waits until the cluster is known to answer.
async fn live(lab: &Lab, name: &str) {
    let cluster = lab.services.fleet.cluster(name).unwrap();
    cluster.kind(&pods(), Duration::from_secs(5)).await.unwrap();
    cluster.states().wait_for(|state| state.condition == Condition::Live).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readiness_depends_only_on_listener() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.member("a").pause().await;
    for path in ["/healthz", "/livez"] {
        assert_eq!(lab.get(path, &[]).await.code, 200, "{path}");
    }
    assert_eq!(lab.get("/readyz", &[]).await.code, 503);
    listening(&lab);
    let began = tokio::time::Instant::now();
    assert_eq!(lab.get("/readyz", &[]).await.code, 200);
    assert_eq!(began.elapsed(), Duration::ZERO);
    lab.state.stopping();
    assert_eq!(lab.get("/readyz", &[]).await.code, 503);
    assert_eq!(lab.get("/healthz/../metrics", &[]).await.code, 400);
    assert_eq!(lab.get("/healthz/metrics", &[]).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn state_is_for_observers() {
    let lab = Lab::guarded(&["a"], |config| {
        config.authorization.observers.users = vec!["prometheus".into()];
        config.authorization.observers.groups = vec!["ops".into()];
    });
    lab.admit("t-jane", "jane");
    lab.admit("t-prometheus", "prometheus");
    for path in ["/metrics", "/api/v1/status"] {
        assert_eq!(lab.get(path, &[]).await.code, 401, "{path}");
        let denied = lab.get_as("t-jane", path).await;
        assert!(denied.code == 403 && !denied.message().contains("\"a\""), "{path}: {denied:?}");
        assert_eq!(lab.get_as("t-prometheus", path).await.code, 200, "{path}");
    }
    assert_eq!(lab.get_as("t-prometheus", "/api/v1/other").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn metrics_drop_removed_clusters() {
    let lab = Lab::trusting(&["a", "b"]);
    live(&lab, "a").await;
    lab.get("/clusters/a/api/v1/namespaces/x/pods/none", &[]).await;
    let told = lab.get("/metrics", &[]).await;
    let text = String::from_utf8(told.body.to_vec()).unwrap();
    let age = r#"skopos_kind_age_seconds{cluster="a",group="",version="v1",resource="pods"} "#;
    assert!(text.contains(age), "{text}");
    assert!(text.contains(r#"skopos_cluster_up{cluster="a"} 1"#), "{text}");
    assert!(text.contains(r#"skopos_requests_total{route="clusters",method="GET",code="404"} 1"#), "{text}");

    lab.services.fleet.leave(&ClusterId::new("a").unwrap(), "test");
    tokio::time::sleep(Duration::from_secs(700)).await;
    let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    assert!(!text.contains(r#"cluster="a""#) && text.contains(r#"cluster="b""#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_how_fast_faults_are_found_and_healed() {
    let lab = Lab::trusting(&["a"]);
    live(&lab, "a").await;
    let cluster = lab.services.fleet.cluster("a").unwrap();
    let text = async || String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    assert!(!text().await.contains("skopos_incident_detection_seconds_count"));
    let refused = lab.member("a").faults().inject(Fault::status(503, 0)).on(Match::any().resource("pods"));
    cluster.states().wait_for(|state| state.condition == Condition::Degraded).await.unwrap();
    let degraded = text().await;
    assert!(degraded.contains(r#"skopos_incident_detection_seconds_count{cause="kind"} 1"#), "{degraded}");
    assert!(degraded.contains(r#"skopos_incident_healing_seconds_count{cause="kind"} 0"#), "{degraded}");
    drop(refused);
    cluster.states().wait_for(|state| state.condition == Condition::Live).await.unwrap();
    let healed = text().await;
    assert!(healed.contains(r#"skopos_incident_healing_seconds_count{cause="kind"} 1"#), "{healed}");
    assert!(
        healed.contains(r#"skopos_incident_healing_seconds_bucket{le="+Inf",cause="kind"} 1"#),
        "{healed}"
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_judge_the_age_of_answers() {
    let lab = Lab::trusting(&["a"]);
    live(&lab, "a").await;
    let answers = async |path: &str| {
        assert_eq!(lab.get(path, &[]).await.code, 200, "{path}");
        let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("skopos_answers_total"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // A document has no objects.
    assert!(answers("/clusters/a/api").await.is_empty());
    let clusters = r#"{route="clusters",age="young"} 1"#;
    assert_eq!(answers("/clusters/a/api/v1/pods").await, [clusters]);
    let both = answers("/fleet/api/v1/pods").await;
    assert!(
        both.len() == 2 && both.iter().any(|line| line == r#"{route="fleet",age="young"} 1"#),
        "{both:?}"
    );
    lab.member("a").pause().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let all = answers("/clusters/a/api/v1/pods").await;
    assert!(all.iter().any(|line| line == r#"{route="clusters",age="old"} 1"#), "{all:?}");
}

/// Returns a metric of held memory for `/clusters` and for `/fleet`.
async fn held(lab: &Lab, name: &str) -> [f64; 2] {
    let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    ["clusters", "fleet"].map(|path| {
        let sample = format!("skopos_{name}{{path=\"{path}\"}} ");
        let line =
            text.lines().find_map(|line| line.strip_prefix(&sample)).unwrap_or_else(|| panic!("{text}"));
        line.parse().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn event_and_frame_bytes_stay_capped_across_kinds() {
    const LEAST: f64 = (8 << 20) as f64;
    const KINDS: [(&str, &str); 6] = [
        ("ConfigMap", "configmaps"),
        ("Secret", "secrets"),
        ("ServiceAccount", "serviceaccounts"),
        ("Service", "services"),
        ("Endpoints", "endpoints"),
        ("PodTemplate", "podtemplates"),
    ];
    let lab = Lab::with(&["a"], |config| {
        config.authorization.loopback = crate::config::LoopbackTrust::Trusted;
        config.cache.bytes_per_cluster = ByteSize::mebibytes(32);
        config.cache.secrets = true;
    });
    let mut watches = Vec::new();
    // Start after the member's initial content.
    let version = lab.member("a").resource_version();
    for (_, plural) in KINDS {
        let watch =
            format!("/clusters/a/api/v1/{plural}?watch=1&timeoutSeconds=500&resourceVersion={version}");
        watches.push(lab.send(http::Method::GET, &watch, &[], "").await.into_body());
    }
    // Each resource would keep its latest hundred events.
    for round in 0..16 {
        for ((kind, _), watch) in KINDS.iter().zip(&mut watches) {
            let metadata = json!({"namespace": "default", "name": format!("x{round}"),
                "annotations": {"large": "x".repeat(100_000)}});
            lab.member("a").create(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap();
            let told = watch.frame().await.unwrap_or_else(|| panic!("{kind}: ended after {round}"));
            assert!(told.unwrap().into_data().unwrap().len() > 100_000, "{kind}");
        }
        for name in ["event_bytes", "frame_bytes"] {
            let [held, _] = held(&lab, name).await;
            assert!(held <= LEAST, "{name} after {round}: {held}");
        }
    }
    for name in ["event_bytes", "frame_bytes"] {
        assert!(held(&lab, name).await[0] > LEAST / 2.0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn event_and_page_bytes_are_reported_and_released() {
    let lab = Lab::trusting(&["a"]);
    let mut watches = Vec::new();
    for path in ["/clusters/a", "/fleet"] {
        lab.get(&format!("{path}/api/v1/pods"), &[]).await;
        let watch = format!("{path}/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=500");
        watches.push(lab.send(http::Method::GET, &watch, &[], "").await);
    }
    let held = async |name: &str| held(&lab, name).await;
    lab.member("a").load_pods(1000);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let burst = held("event_bytes").await;
    assert!(burst.iter().all(|bytes| *bytes > 500_000.0), "{burst:?}");
    let firsts = ["/clusters/a", "/fleet"].map(|path| format!("{path}/api/v1/pods?limit=1"));
    for first in &firsts {
        assert!(lab.get(first, &[]).await.json()["metadata"]["continue"].is_string());
    }
    assert_eq!(held("paged_bytes").await, [0.0, 0.0], "all of it is the newest");
    let pods = lab.get("/clusters/a/api/v1/pods?limit=20", &[]).await.json();
    for pod in pods["items"].as_array().unwrap() {
        let meta = &pod["metadata"];
        let (namespace, name) = (meta["namespace"].as_str(), meta["name"].as_str().unwrap());
        lab.member("a").delete("pods", namespace, name).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let paged = held("paged_bytes").await;
    assert!(paged.iter().all(|bytes| *bytes > 20.0 * 500.0), "{paged:?}");
    // No more changes happen, and both are still watched.
    tokio::time::sleep(Duration::from_secs(450)).await;
    let left = held("event_bytes").await;
    assert!((0..2).all(|path| left[path] > 0.0 && left[path] < burst[path] / 5.0), "{left:?} of {burst:?}");
    assert_eq!(held("paged_bytes").await, [0.0, 0.0]);
    drop(watches);
}

#[tokio::test(start_paused = true)]
async fn caps_series_and_reports_omitted_ones() {
    let many: Vec<&'static str> =
        ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "ca", "cb"].into();
    let lab = Lab::with(&many, |config| config.metrics = MetricsConfig { max_series: 100 });
    let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    let series = text.lines().filter(|line| line.contains("{cluster=")).count();
    assert!(series <= 100 && series > 50, "{series}");
    assert!(text.contains("skopos_left_out 5"), "{text}");
    // Paths without a route make no series of their own.
    for n in 0..50 {
        lab.get(&format!("/made-up-{n}"), &[]).await;
    }
    let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    assert!(!text.contains("made-up") && text.contains(r#"route="none""#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn status_report_lists_cluster_states_and_reasons() {
    let lab = Lab::trusting(&["a", "b"]);
    lab.services.fleet.cluster("a").unwrap().kind(&pods(), Duration::from_secs(5)).await.unwrap();
    lab.services.fleet.cluster("b").unwrap().pause(Paused { by: PausedBy::ScaledDown, since: None });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = lab.get("/api/v1/status", &[]).await;
    let report: Report = serde_json::from_slice(&told.body).unwrap();
    let states: Vec<_> = report.clusters.iter().map(|c| (c.name.as_str(), c.state.as_str())).collect();
    assert_eq!(states, [("a", "live"), ("b", "paused")]);
    assert!(report.clusters[1].reason.is_some());
    let kind = &report.clusters[0].kinds[0];
    assert_eq!((kind.resource.as_str(), kind.freshness.as_str()), ("pods", "live"));
}

/// A metric must exist when its alert is needed, or the alert never fires.
#[tokio::test(start_paused = true)]
async fn alerts_fire_for_failures_present_since_start() {
    let lab = Lab::with(&["a", "b"], |config| {
        config.authorization.loopback = crate::config::LoopbackTrust::Trusted;
        config.cache.kinds =
            vec![crate::config::Kind { group: String::new(), version: "v1".into(), resource: "pods".into() }];
    });
    let broken = Fault::status(500, 0);
    let _broken = lab.member("a").faults().inject(broken).on(Match::any().resource("pods"));
    lab.member("b").pause().await;
    tokio::time::sleep(Duration::from_secs(181)).await;
    let text = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    let value = |series: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
    };
    assert_eq!(value(r#"skopos_cluster_up{cluster="b"}"#), 0.0);
    assert_eq!(value(r#"skopos_cluster_paused{cluster="b"}"#), 0.0);
    assert!(value(r#"skopos_cluster_silent_seconds{cluster="b"}"#) > 120.0);
    assert!(value(r#"skopos_cluster_silent_seconds{cluster="a"}"#) < 60.0);
    // The age of content that was never read is unknown, so the other alert on content cannot fire.
    let of_kind = r#"{cluster="a",group="",version="v1",resource="pods"}"#;
    assert_eq!(value(&format!("skopos_kind_live{of_kind}")), 0.0);
    assert!(!text.contains(&format!("skopos_kind_age_seconds{of_kind}")));
    assert_eq!(value(r#"skopos_cluster_up{cluster="a"}"#), 1.0);
}

//! Creation from rendered manifests in memory, and from the chart with a fake helm.

use std::time::Duration;

use serde_json::{Value, json};
use skopos_testserver::{Fault, Match, TestServer, VirtualCluster, VirtualClusters};
use skopos_vcluster::{Chart, CreateOptions, Error, Host, Manifests, PauseOptions, Silent, Source, Step};

use super::support::*;

fn manifests(cluster: &VirtualCluster) -> Manifests {
    let mut objects = cluster.manifests();
    // As `helm template` prints them, without a namespace.
    for object in &mut objects {
        object["metadata"].as_object_mut().unwrap().remove("namespace");
    }
    Manifests::new(objects).unwrap()
}

fn applied(name: &str) -> CreateOptions {
    CreateOptions::new(Source::Manifests(manifests(&VirtualCluster::new(name))))
}

async fn empty() -> (VirtualClusters, Host) {
    let virtuals = host_with(&[]).await;
    let host = client(virtuals.host());
    (virtuals, host)
}

fn created(server: &TestServer, namespace: &str) -> Value {
    server.get("namespaces", None, namespace).unwrap()["metadata"]["annotations"]["vcluster.loft.sh/created"]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn cluster_from_manifests_comes_up_like_any_other() {
    let (virtuals, host) = empty().await;
    let steps = Steps::default();
    let made = host.create("shop", &applied("shop"), &steps).await.unwrap();
    assert_eq!((made.status.as_str(), made.namespace.as_str()), ("Running", NS));
    assert_eq!(created(virtuals.host(), NS), "true");
    let texts = steps.texts();
    assert_eq!(texts[0], "namespace vcluster-shop made");
    let at = |text: &str| {
        texts.iter().position(|step| step == text).unwrap_or_else(|| panic!("{text}: {texts:?}"))
    };
    assert!(at("Service shop applied") < at("StatefulSet shop applied"), "{texts:?}");
    assert_eq!(texts.last().unwrap(), "it is up");
    // The vcluster CLI can pause it, and this one can resume it.
    cli::pause(virtuals.host(), NS, "shop");
    virtuals.wait_down(NS, "shop").await.unwrap();
    host.resume("shop", None, Default::default(), &Silent).await.unwrap();
    up(&virtuals, NS, "shop").await;
}

#[tokio::test(start_paused = true)]
async fn existing_cluster_changes_only_on_upgrade() {
    let (virtuals, host) = empty().await;
    host.create("shop", &applied("shop"), &Silent).await.unwrap();
    let again = host.create("shop", &applied("shop"), &Silent).await.unwrap_err();
    assert!(matches!(again, Error::Exists { .. }), "{again}");
    let upgrade = CreateOptions { upgrade: true, ..applied("shop") };
    host.create("shop", &upgrade, &Silent).await.unwrap();
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    let paused = host.create("shop", &upgrade, &Silent).await.unwrap_err();
    assert!(matches!(paused, Error::Paused { .. }), "{paused}");

    let into = |namespace: &str| CreateOptions { namespace: Some(namespace.into()), ..applied("other") };
    let occupied = host.create("other", &into(NS), &Silent).await.unwrap_err();
    assert_eq!(
        occupied.to_string(),
        "virtual cluster shop is in namespace vcluster-shop, which has room for one"
    );
    namespace(virtuals.host(), "platform", json!({}), json!({}));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "loft", "namespace": "platform"},
        "spec": {"ports": [{"port": 443}]}});
    virtuals.host().create(service).unwrap();
    let platform = host.create("other", &into("platform"), &Silent).await.unwrap_err();
    assert!(matches!(platform, Error::Platform { .. }), "{platform}");
    let another = host.create("other", &applied("shop"), &Silent).await.unwrap_err();
    assert!(matches!(another, Error::Manifests(_)), "{another}");
}

#[tokio::test(start_paused = true)]
async fn foreign_namespace_is_kept_and_dying_one_awaited() {
    let (virtuals, host) = empty().await;
    namespace(virtuals.host(), "team", json!({}), json!({}));
    let options = CreateOptions { namespace: Some("team".into()), ..applied("shop") };
    host.create("shop", &options, &Silent).await.unwrap();
    assert_eq!(created(virtuals.host(), "team"), Value::Null);

    namespace(virtuals.host(), "old", json!({}), json!({}));
    workload_pod(virtuals.host(), "old", "slow", None);
    edit(virtuals.host(), "pods", Some("old"), "slow", |pod| {
        pod["metadata"]["finalizers"] = json!(["example.com/stays"]);
    });
    virtuals.host().delete("namespaces", None, "old").unwrap();
    let options = CreateOptions { namespace: Some("old".into()), ..applied("next") };
    let (made, ()) = tokio::join!(host.create("next", &options, &Silent), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        edit(virtuals.host(), "pods", Some("old"), "slow", |pod| pod["metadata"]["finalizers"] = json!([]));
    });
    made.unwrap();
    assert_eq!(created(virtuals.host(), "old"), "true");
}

#[tokio::test(start_paused = true)]
async fn refused_object_is_not_reported_as_applied() {
    let (virtuals, host) = empty().await;
    let stray = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stray", "namespace": "nowhere"}});
    let mut objects = VirtualCluster::new("shop").manifests();
    objects.push(stray);
    let source = Source::Manifests(Manifests::new(objects).unwrap());
    let steps = Steps::default();
    let error = host.create("shop", &CreateOptions::new(source), &steps).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { status, .. } if status.code == 404), "{error}");
    assert!(error.to_string().contains("/namespaces/nowhere/configmaps/stray"), "{error}");
    assert!(!steps.texts().iter().any(|step| step.contains("stray applied")), "{:?}", steps.texts());
    assert!(virtuals.host().get("statefulsets", Some(NS), "shop").is_err(), "the control plane comes last");
}

#[tokio::test(start_paused = true)]
async fn retries_apply_after_conflict() {
    let (virtuals, host) = empty().await;
    let service = Match::write().resource("services");
    let _conflict = virtuals.host().faults().inject(Fault::status(409, 0)).on(service).times(2);
    host.create("shop", &applied("shop"), &Silent).await.unwrap();
    assert!(virtuals.host().get("services", Some(NS), "shop").is_ok());
}

#[tokio::test(start_paused = true)]
async fn reports_missing_helm_and_manifests() {
    let (virtuals, host) = empty().await;
    let error =
        host.create("shop", &CreateOptions::new(Source::Chart(Chart::default())), &Silent).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nonexistent/helm was not found: install helm, or give rendered manifests"
    );
    assert!(virtuals.host().get("namespaces", None, NS).is_err(), "nothing was begun");
}

#[tokio::test]
async fn calls_helm_like_vcluster_cli() {
    let helm = FakeHelm::new(
        "cat > \"$here/values\"; touch \"$here/called\"; while [ ! -e \"$here/go\" ]; do sleep 0.02; done",
    );
    let virtuals = host_with(&[]).await;
    let host = client_with(virtuals.host(), helm.options());
    let chart = Chart {
        version: Some("0.30.0".into()),
        values: vec!["values.yaml".into()],
        inline: Some(json!({"sync": {"a": "inner secret"}})),
        set: vec!["token=secret".into()],
        ..Chart::default()
    };
    let steps = Steps::default();
    let options = CreateOptions::new(Source::Chart(chart));
    let (made, ()) = tokio::join!(host.create("shop", &options, &steps), async {
        FakeHelm::made(&helm.path("called")).await;
        // The objects of the chart; the namespace exists by now.
        virtuals.create(&VirtualCluster::new("shop").in_namespace(NS)).unwrap();
        std::fs::write(helm.path("go"), "").unwrap();
    });
    assert_eq!(made.unwrap().status.as_str(), "Running");
    assert_eq!(
        helm.calls(),
        [
            "upgrade shop vcluster --repo https://charts.loft.sh --version 0.30.0 --install --namespace vcluster-shop \
          --repository-config='' --kubeconfig /k --kube-context here --values values.yaml --values - --set token=secret"
        ]
    );
    assert!(!steps.texts().join(" ").contains("secret"), "{:?}", steps.texts());
    assert_eq!(std::fs::read_to_string(helm.path("values")).unwrap(), r#"{"sync":{"a":"inner secret"}}"#);
    assert_eq!(created(virtuals.host(), NS), "true");
}

#[tokio::test]
async fn reports_helm_errors() {
    let virtuals = host_with(&[]).await;
    let helm = FakeHelm::new("echo 'Error: no such chart' >&2; exit 3");
    let host = client_with(virtuals.host(), helm.options());
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    let error = host.create("shop", &options, &Silent).await.unwrap_err();
    assert_eq!(error.to_string(), "helm upgrade failed (exit code 3): Error: no such chart");

    let old = FakeHelm::new("");
    let text = std::fs::read_to_string(old.path("helm")).unwrap().replace("v3.18.4", "v3.9.1");
    std::fs::write(old.path("draft"), text).unwrap();
    std::fs::set_permissions(old.path("draft"), std::fs::metadata(old.path("helm")).unwrap().permissions())
        .unwrap();
    std::fs::rename(old.path("draft"), old.path("helm")).unwrap();
    let host = client_with(virtuals.host(), old.options());
    let error = host.create("shop", &options, &Silent).await.unwrap_err();
    assert_eq!(error.to_string(), "helm \"v3.9.1\" cannot be used: at least 3.10 is needed");

    let chart = Chart { path: Some("/nonexistent/chart".into()), ..Chart::default() };
    let host = client_with(virtuals.host(), helm.options());
    let error = host.create("gone", &CreateOptions::new(Source::Chart(chart)), &Silent).await.unwrap_err();
    assert!(matches!(error, Error::Chart { .. }), "{error}");
    assert!(virtuals.host().get("namespaces", None, "vcluster-gone").is_err(), "nothing was made for it");
}

/// A script that ends as helm does: it prints that it was cancelled before it records that.
const CANCELLED: &str = "trap 'echo cancelled; echo cancelled >&2; touch \"$here/ended\"; exit 1' TERM; \
                         touch \"$here/called\"; while true; do sleep 0.02; done";

#[tokio::test]
async fn dropped_create_lets_helm_terminate_gracefully() {
    let helm = FakeHelm::new(CANCELLED);
    let virtuals = host_with(&[]).await;
    let host = client_with(virtuals.host(), helm.options());
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    let called = helm.path("called");
    tokio::select! {
        _ = host.create("shop", &options, &Silent) => panic!("helm ended by itself"),
        () = FakeHelm::made(&called) => {}
    }
    FakeHelm::made(&helm.path("ended")).await;
}

#[tokio::test]
async fn deadline_lets_helm_terminate_gracefully() {
    let helm = FakeHelm::new(CANCELLED);
    let virtuals = host_with(&[]).await;
    let host = client_with(virtuals.host(), helm.options());
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    let called = helm.path("called");
    let (made, ()) = tokio::join!(host.create("shop", &options, &Silent), async {
        FakeHelm::made(&called).await;
        // The fake helm takes real time all the same.
        tokio::time::pause();
        tokio::time::advance(options.within).await;
        tokio::time::resume();
    });
    assert!(matches!(made, Err(Error::Deadline { .. })), "{made:?}");
    assert!(helm.path("ended").exists());
}

#[tokio::test]
async fn create_completes_failed_helm_release() {
    let virtuals = host_with_shop().await;
    let helm = FakeHelm::new("");
    let host = client_with(virtuals.host(), helm.options());
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    let there = host.create("shop", &options, &Silent).await.unwrap_err();
    assert!(matches!(there, Error::Exists { .. }), "{there}");
    edit(virtuals.host(), "secrets", Some(NS), "sh.helm.release.v1.shop.v1", |release| {
        release["metadata"]["labels"]["status"] = "failed".into();
    });
    host.create("shop", &options, &Silent).await.unwrap();
    assert_eq!(helm.calls().len(), 1);
}

/// Returns a host and a helm that was killed while installing: it has recorded its start, and refuses to continue from
/// there.
async fn broken_off(began: i64) -> (VirtualClusters, FakeHelm) {
    let virtuals = host_with_shop().await;
    edit(virtuals.host(), "secrets", Some(NS), RELEASE, |release| {
        release["metadata"]["labels"]["status"] = "pending-install".into();
        release["metadata"]["labels"]["createdAt"] = began.to_string().into();
    });
    (virtuals, FakeHelm::new(""))
}

const RELEASE: &str = "sh.helm.release.v1.shop.v1";

#[tokio::test]
async fn removes_leftovers_of_killed_helm() {
    let (virtuals, helm) = broken_off(1_700_000_000).await;
    let host = client_with(virtuals.host(), helm.options());
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    host.create("shop", &options, &Silent).await.unwrap();
    assert!(virtuals.host().get("secrets", Some(NS), RELEASE).is_err());
    assert_eq!(helm.calls().len(), 1);
}

#[tokio::test]
async fn waits_for_helm_that_may_still_run() {
    let (virtuals, helm) = broken_off(jiff::Timestamp::now().as_second()).await;
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    create_while_helm_ends(&virtuals, &helm, &options, "failed").await.unwrap();
    assert!(virtuals.host().get("secrets", Some(NS), RELEASE).is_ok());
    assert_eq!(helm.calls().len(), 1);
}

#[tokio::test]
async fn concurrently_created_changes_only_on_upgrade() {
    let (virtuals, helm) = broken_off(jiff::Timestamp::now().as_second()).await;
    let options = CreateOptions::new(Source::Chart(Chart::default()));
    let there = create_while_helm_ends(&virtuals, &helm, &options, "deployed").await.unwrap_err();
    assert!(matches!(there, Error::Exists { .. }), "{there}");
    assert!(helm.calls().is_empty(), "{:?}", helm.calls());

    let (virtuals, helm) = broken_off(jiff::Timestamp::now().as_second()).await;
    let upgrade = CreateOptions { upgrade: true, ..options };
    create_while_helm_ends(&virtuals, &helm, &upgrade, "deployed").await.unwrap();
    assert_eq!(helm.calls().len(), 1);
}

/// Creates a virtual cluster while another helm is at work, which then leaves its release in that state.
async fn create_while_helm_ends(
    virtuals: &VirtualClusters,
    helm: &FakeHelm,
    options: &CreateOptions,
    status: &str,
) -> Result<skopos_vcluster::VirtualCluster, Error> {
    let host = client_with(virtuals.host(), helm.options());
    let waiting = tokio::sync::Notify::new();
    let told = |step: Step| {
        if matches!(&step, Step::WaitingForHelm { secret, .. } if secret == RELEASE) {
            waiting.notify_one();
        }
    };
    let mut creating = std::pin::pin!(host.create("shop", options, &told));
    tokio::select! {
        made = &mut creating => panic!("it did not wait: {made:?}"),
        () = waiting.notified() => {}
    }
    assert!(helm.calls().is_empty());
    edit(virtuals.host(), "secrets", Some(NS), RELEASE, |release| {
        release["metadata"]["labels"]["status"] = status.into();
    });
    creating.await
}

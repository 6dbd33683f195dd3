//! Reported states, by each way of pausing, and resuming.

use serde_json::{Value, json};
use skopos_testserver::{Fault, Match, VirtualCluster};
use skopos_vcluster::{Error, PauseOptions, ResumeOptions, Silent, Step};

use super::support::*;

fn annotations(workload: &Value) -> Vec<String> {
    let all = workload["metadata"]["annotations"].as_object();
    all.into_iter().flatten().map(|(key, _)| key.clone()).filter(|key| key.starts_with("loft.sh/")).collect()
}

#[tokio::test(start_paused = true)]
async fn paused_by_us_and_resumed_by_us() {
    let virtuals = host_with_shop().await;
    let host = client(virtuals.host());
    assert_eq!(status(&host, "shop").await, "Running");
    let steps = Steps::default();
    let paused = host.pause("shop", None, PauseOptions::default(), &steps).await.unwrap();
    assert_eq!((paused.status.as_str(), paused.workload.pods), ("Paused", 0));
    assert_eq!(
        steps.texts()[..2],
        ["vcluster-shop/shop is Running", "StatefulSet shop scaled to zero, a resume brings back 1"]
    );
    virtuals.wait_down(NS, "shop").await.unwrap();

    let resumed =
        host.resume("shop", None, ResumeOptions { wait: true, ..ResumeOptions::default() }, &Silent).await;
    assert_eq!(resumed.unwrap().status.as_str(), "Running");
    up(&virtuals, NS, "shop").await;
    assert_eq!(annotations(&workload(virtuals.host(), NS, "shop")), Vec::<String>::new());
    // Repeating it is allowed, and changes nothing.
    let steps = Steps::default();
    host.resume("shop", None, ResumeOptions::default(), &steps).await.unwrap();
    assert_eq!(steps.texts().last().unwrap(), "nothing to do: it is Running");
}

/// Checks a gateway that answers from memory, which may not have the write yet.
#[tokio::test(start_paused = true)]
async fn read_after_write_is_not_older() {
    let virtuals = host_with_shop().await;
    let (host, server) = (client(virtuals.host()), virtuals.host());
    let body = workload(server, NS, "shop").to_string();
    let headers = vec![(http::header::CONTENT_TYPE, "application/json".to_owned())];
    let memory = Fault::Answer { code: 200, headers, body };
    let memory = server.faults().inject(memory).on(Match::get().resource("statefulsets")).times(1);
    server.clear_requests();
    let paused = host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    assert_eq!((paused.workload.pods, memory.hits()), (0, 1));
    // A read of the newest state sees a concurrent resume at once.
    let requests = server.requests();
    let gets: Vec<_> = requests.iter().filter(|request| request.verb == "get").collect();
    let asked: Vec<bool> = gets.iter().map(|get| get.query_param("resourceVersion").is_some()).collect();
    assert_eq!(asked.iter().filter(|asked| **asked).count(), 1, "{asked:?}");
    assert_eq!(asked[..2], [false, true], "and what is older is asked for again");
}

#[tokio::test(start_paused = true)]
async fn resumes_cluster_paused_by_cli() {
    let virtuals = host_with(&[VirtualCluster::new("shop").replicas(3)]).await;
    let host = client(virtuals.host());
    cli::pause(virtuals.host(), NS, "shop");
    assert_eq!(status(&host, "shop").await, "Paused");
    virtuals.wait_down(NS, "shop").await.unwrap();
    host.resume("shop", Some(NS), ResumeOptions::default(), &Silent).await.unwrap();
    up(&virtuals, NS, "shop").await;
    assert_eq!(workload(virtuals.host(), NS, "shop")["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn cli_resumes_cluster_paused_by_us() {
    for shop in [VirtualCluster::new("shop").replicas(3), VirtualCluster::new("shop").deployed_etcd()] {
        let virtuals = host_with(&[shop]).await;
        let host = client(virtuals.host());
        host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
        let paused = workload(virtuals.host(), NS, "shop");
        let date = paused["metadata"]["annotations"]["loft.sh/paused-date"].as_str().unwrap();
        assert!(date.ends_with('Z') && date.len() == "2026-01-02T03:04:05.678Z".len(), "{date}");
        assert!(cli::resume(virtuals.host(), NS, "shop"));
        up(&virtuals, NS, "shop").await;
        assert_eq!(shown(&host, "shop", "Running").await.status.as_str(), "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn scaled_down_cluster_must_be_paused_before_resume() {
    let virtuals = host_with(&[VirtualCluster::new("shop").replicas(3)]).await;
    let host = client(virtuals.host());
    virtuals.scale(NS, "shop", 0).unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
    let down = shown(&host, "shop", "ScaledDown").await;
    assert!(down.workload.is_off());
    let refused = host.resume("shop", None, ResumeOptions::default(), &Silent).await.unwrap_err();
    assert!(matches!(refused, Error::ScaledDown { .. }), "{refused}");
    assert!(refused.to_string().contains("pause it first"));

    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    assert_eq!(status(&host, "shop").await, "Paused");
    host.resume("shop", None, ResumeOptions::default(), &Silent).await.unwrap();
    up(&virtuals, NS, "shop").await;
    // The configured number, because it is not recorded elsewhere.
    assert_eq!(workload(virtuals.host(), NS, "shop")["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn etcd_pauses_with_deployment_not_stateful_set() {
    let virtuals = host_with(&[VirtualCluster::new("shop").deployed_etcd()]).await;
    let host = client(virtuals.host());
    let etcd = |virtuals: &skopos_testserver::VirtualClusters| {
        virtuals.host().get("statefulsets", Some(NS), "shop-etcd").unwrap()
    };
    let steps = Steps::default();
    host.pause("shop", None, PauseOptions::default(), &steps).await.unwrap();
    assert_eq!(etcd(&virtuals)["spec"]["replicas"], 0);
    assert_eq!(annotations(&etcd(&virtuals)).len(), 3);
    let steps = Steps::default();
    host.resume("shop", None, ResumeOptions::default(), &steps).await.unwrap();
    assert_eq!(
        steps.texts()[1..],
        ["StatefulSet shop-etcd scaled to 1", "Deployment shop scaled to 1"],
        "the control plane last, which says that there is something to resume"
    );
    up(&virtuals, NS, "shop").await;

    let virtuals = host_with_shop().await;
    let mut etcd_set = VirtualCluster::new("shop").deployed_etcd().manifests().pop().unwrap();
    etcd_set["spec"]["replicas"] = 1.into();
    virtuals.host().create(etcd_set).unwrap();
    let host = client(virtuals.host());
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    assert_eq!(etcd(&virtuals)["spec"]["replicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn pause_deletes_only_pods_of_cluster() {
    let virtuals = host_with(&[VirtualCluster::new("shop").namespace_sync()]).await;
    let server = virtuals.host();
    workload_pod(server, NS, "web", Some("shop"));
    workload_pod(server, NS, "others", Some("other"));
    workload_pod(server, NS, "plain", None);
    namespace(server, "synced", json!({"vcluster.loft.sh/managed-by": "vcluster-shop-x-shop"}), json!({}));
    workload_pod(server, "synced", "inner", None);
    let before = ["secrets", "services", "persistentvolumeclaims"].map(|of| names(server, of, Some(NS)));
    let own = PauseOptions { synced: false, ..PauseOptions::default() };
    client(server).pause("shop", None, own, &Silent).await.unwrap();
    server.wait_for(|server| names(server, "pods", None) == ["inner", "others", "plain"]).await.unwrap();
    let steps = Steps::default();
    client(server).pause("shop", None, PauseOptions::default(), &steps).await.unwrap();
    server.wait_for(|server| names(server, "pods", None) == ["others", "plain"]).await.unwrap();
    assert_eq!(
        before,
        ["secrets", "services", "persistentvolumeclaims"].map(|of| names(server, of, Some(NS)))
    );
    assert!(steps.texts().contains(&"1 pods deleted in namespace synced".to_owned()), "{:?}", steps.texts());
}

#[tokio::test(start_paused = true)]
async fn leaves_cluster_that_is_down_for_other_reason() {
    let virtuals = host_with_shop().await;
    let (server, host) = (virtuals.host(), client(virtuals.host()));
    edit(server, "statefulsets", Some(NS), "shop", |set| {
        set["metadata"]["labels"]["loft.sh/sleep-mode"] = "true".into()
    });
    assert_eq!(status(&host, "shop").await, "Paused");
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    assert_eq!(workload(server, NS, "shop")["spec"]["replicas"], 1, "the platform's business");
    let refused = host.resume("shop", None, ResumeOptions::default(), &Silent).await.unwrap_err();
    assert!(matches!(refused, Error::Sleeping { .. }), "{refused}");

    edit(server, "statefulsets", Some(NS), "shop", |set| {
        set["metadata"]["labels"].as_object_mut().unwrap().remove("loft.sh/sleep-mode");
        set["metadata"]["annotations"] = json!({"loft.sh/restoring": "true"});
    });
    workload_pod(server, NS, "web", Some("shop"));
    let refused = host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap_err();
    assert!(matches!(refused, Error::Restoring { .. }), "{refused}");
    assert_eq!(workload(server, NS, "shop")["spec"]["replicas"], 1);
    assert!(names(server, "pods", Some(NS)).contains(&"web".to_owned()));
    let refused = host.resume("shop", None, ResumeOptions::default(), &Silent).await.unwrap_err();
    assert!(matches!(refused, Error::Restoring { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn resume_during_pause_keeps_running_pods() {
    let virtuals = host_with_shop().await;
    let (server, host) = (virtuals.host(), client(virtuals.host()));
    workload_pod(server, NS, "web", Some("shop"));
    edit(server, "pods", Some(NS), "shop-0", |pod| {
        pod["metadata"]["finalizers"] = json!(["example.com/stays"])
    });
    let resumed = |step: Step| {
        if matches!(step, Step::WaitingForPods { .. }) {
            cli::resume(server, NS, "shop");
        }
    };
    let error = host.pause("shop", None, PauseOptions::default(), &resumed).await.unwrap_err();
    assert!(error.to_string().contains("resumed"), "{error}");
    assert!(names(server, "pods", Some(NS)).contains(&"web".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn annotated_but_running_cluster_pauses_again() {
    // As `helm upgrade` leaves a paused one.
    let virtuals = host_with(&[VirtualCluster::new("shop").replicas(2)]).await;
    let host = client(virtuals.host());
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    virtuals.scale(NS, "shop", 1).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    assert_eq!(status(&host, "shop").await, "Paused");
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
    host.resume("shop", None, ResumeOptions::default(), &Silent).await.unwrap();
    assert_eq!(workload(virtuals.host(), NS, "shop")["spec"]["replicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn status_reads_pods_and_secrets() {
    let virtuals = host_with_shop().await;
    let (server, host) = (virtuals.host(), client(virtuals.host()));
    edit(server, "pods", Some(NS), "shop-0", |pod| {
        pod["status"]["containerStatuses"] = json!([{"name": "syncer", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]);
    });
    assert_eq!(status(&host, "shop").await, "CrashLoopBackOff");
    edit(server, "secrets", Some(NS), "vc-config-shop", |secret| {
        secret["metadata"]["annotations"] = json!({"sleepmode.loft.sh/sleep-type": "inactivity"});
    });
    assert_eq!(status(&host, "shop").await, "Sleeping (workloads only)");
    assert_eq!(host.list(None, WITHIN).await.unwrap()[0].workload.version.as_deref(), Some("0.30.0"));
}

#[tokio::test(start_paused = true)]
async fn ambiguous_name_requires_namespace() {
    let virtuals = host_with_shop().await;
    namespace(virtuals.host(), "team", json!({}), json!({}));
    virtuals.create(&VirtualCluster::new("shop").in_namespace("team")).unwrap();
    let host = client(virtuals.host());
    let several = host.find("shop", None, WITHIN).await.unwrap_err().to_string();
    assert_eq!(
        several,
        "there are several virtual clusters shop, in the namespaces team, vcluster-shop: say which"
    );
    assert_eq!(host.find("shop", Some("team"), WITHIN).await.unwrap().namespace, "team");
    assert_eq!(host.list(Some("team"), WITHIN).await.unwrap().len(), 1);
    let none = host.pause("nobody", Some("team"), PauseOptions::default(), &Silent).await.unwrap_err();
    assert_eq!(none.to_string(), "there is no virtual cluster nobody in namespace team");
    let wrong = host.find("../pods", None, WITHIN).await.unwrap_err();
    assert!(matches!(wrong, Error::InvalidName { .. }), "{wrong}");
}

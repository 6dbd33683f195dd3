//! Hosts that do not answer, or too late, or during concurrent changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use skopos_testserver::VirtualCluster;
use skopos_vcluster::{Error, Host, HostOptions, PauseOptions, ResumeOptions, Silent};
use tokio::time::Instant;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn gives_up_unreachable_host_in_time() {
    let virtuals = host_with_shop().await;
    virtuals.host().pause().await;
    let steps = Steps::default();
    let options = HostOptions { answer_timeout: Duration::from_secs(20), ..without_helm() };
    let host = client_with(virtuals.host(), options);
    let started = Instant::now();
    let error = host.pause("shop", None, PauseOptions::default(), &steps).await.unwrap_err();
    assert!(matches!(error, Error::HostUnreachable { .. }), "{error}");
    assert!(started.elapsed() <= Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(steps.texts()[0].starts_with("the host does not answer: "), "{:?}", steps.texts());

    let started = Instant::now();
    let error = host.list(None, Duration::from_secs(3)).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(started.elapsed() <= Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_is_waited_for() {
    let virtuals = host_with_shop().await;
    let (server, host) = (virtuals.host().clone(), client(virtuals.host()));
    server.pause().await;
    let (paused, ()) = tokio::join!(host.pause("shop", None, PauseOptions::default(), &Silent), async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        server.resume().await.unwrap();
    });
    assert_eq!(paused.unwrap().status.as_str(), "Paused");
}

#[tokio::test(start_paused = true)]
async fn deadline_error_names_remaining_pods() {
    let virtuals = host_with_shop().await;
    edit(virtuals.host(), "pods", Some(NS), "shop-0", |pod| {
        pod["metadata"]["finalizers"] = serde_json::json!(["example.com/stays"]);
    });
    let host = client(virtuals.host());
    let options = PauseOptions { within: Duration::from_secs(30), ..PauseOptions::default() };
    let error = host.pause("shop", None, options, &Silent).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "not done within 30s: still waiting for 1 pods of StatefulSet vcluster-shop/shop to go"
    );
    edit(virtuals.host(), "pods", Some(NS), "shop-0", |pod| {
        pod["metadata"]["finalizers"] = serde_json::json!([])
    });
    host.pause("shop", None, options, &Silent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn concurrent_scale_is_not_lost() {
    let virtuals = host_with(&[VirtualCluster::new("shop").replicas(2)]).await;
    let (server, transport) = (virtuals.host().clone(), transport(virtuals.host()));
    // Another client scales it just before the patch arrives.
    let done = Arc::new(AtomicBool::new(false));
    let meddler = virtuals.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        if request.method() == Method::PATCH && !done.swap(true, Ordering::SeqCst) {
            meddler.scale(NS, "shop", 5).unwrap();
        }
        let transport = transport.clone();
        async move { transport.send(request).await }
    });
    let host = Host::new(kube::Client::new(service, "default"), without_helm());
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    let paused = workload(&server, NS, "shop");
    assert_eq!(paused["metadata"]["annotations"]["loft.sh/paused-replicas"], "5");
    host.resume("shop", None, ResumeOptions::default(), &Silent).await.unwrap();
    assert_eq!(workload(&server, NS, "shop")["spec"]["replicas"], 5);
}

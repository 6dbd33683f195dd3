//! Finalizers, metrics and the manager.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use skopos_controller::finalizer::{Work, with_finalizer};
use skopos_controller::metrics::{Metrics, Names};
use skopos_controller::{
    Context, Controller, ControllerOptions, Manager, ManagerError, ManagerOptions, Outcome, ReconcileError,
};
use support::{Diary, World, secs, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const FINALIZER: &str = "example.com/cleanup";

/// Runs a controller that records what it applies and cleans up. The first cleanup fails.
fn finalizing(world: &World, diary: &Diary) -> support::Running {
    let client = world.factory.transport().client("a");
    let (diary, cleanups) = (diary.clone(), Arc::new(AtomicUsize::new(0)));
    let reconcile = move |context: Context<ConfigMap>| {
        let (api, diary) = (Api::<ConfigMap>::namespaced(client.clone(), "a"), diary.clone());
        let cleanups = cleanups.clone();
        async move {
            let Some(object) = context.object() else { return Ok(Outcome::Done) };
            with_finalizer(&api, FINALIZER, object.decode()?, |work| async move {
                match work {
                    Work::Apply(object) => {
                        let finalizers = object.metadata.finalizers.unwrap_or_default();
                        assert!(finalizers.contains(&FINALIZER.to_owned()), "nothing is applied without it");
                        diary.add(format!("apply {}", object.metadata.name.unwrap_or_default()));
                    }
                    Work::Cleanup(_) if cleanups.fetch_add(1, Ordering::SeqCst) == 0 => {
                        diary.add("cleanup fails".to_owned());
                        return Err(ReconcileError::retry("no"));
                    }
                    Work::Cleanup(object) => {
                        diary.add(format!("cleanup {}", object.metadata.name.unwrap_or_default()));
                    }
                }
                Ok(Outcome::Done)
            })
            .await
        }
    };
    world.run(
        Controller::new(world.informer::<ConfigMap>(), ControllerOptions::named("test")).reconcile(reconcile),
    )
}

#[tokio::test(start_paused = true)]
async fn finalizer_precedes_apply_and_outlasts_cleanup() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let mut other = support::config_map("a", "other", "1");
    other["metadata"]["finalizers"] = serde_json::json!(["example.com/other"]);
    world.server.create(other).unwrap();
    let diary = Diary::default();
    let running = finalizing(&world, &diary);
    diary.has(&["apply one", "apply other"]).await;
    world.server.delete("configmaps", Some("a"), "one").unwrap();
    diary.has(&["cleanup fails", "cleanup one"]).await;
    until(|| world.server.get("configmaps", Some("a"), "one").is_err()).await;
    // The finalizer of another controller stays.
    world.server.delete("configmaps", Some("a"), "other").unwrap();
    diary.has(&["cleanup other"]).await;
    let left = || world.server.get("configmaps", Some("a"), "other").expect("it has a finalizer");
    until(|| left()["metadata"]["finalizers"] == serde_json::json!(["example.com/other"])).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(diary.count("cleanup other"), 1);
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn metrics_have_our_names_and_controller_runtimes() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let diary = Diary::default();
    let running = finalizing(&world, &diary);
    diary.has(&["apply one"]).await;
    let mut registry = Registry::default();
    for names in [Names::Skopos, Names::ControllerRuntime] {
        registry.register_collector(Box::new(Metrics::new([running.handle.clone()], names)));
    }
    until(|| running.handle.stats().succeeded == 2).await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "skopos_controller_reconcile_total{controller=\"test\",result=\"success\"} 2.0",
        "skopos_controller_put_off_total{controller=\"test\",reason=\"stale\"} 0.0",
        "skopos_controller_status{controller=\"test\",status=\"working\"} 1.0",
        "skopos_controller_reconcile_seconds_count{controller=\"test\"} 2",
        "skopos_controller_reconcile_seconds_bucket{le=\"+Inf\",controller=\"test\"} 2",
        "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 2.0",
        "controller_runtime_max_concurrent_reconciles{controller=\"test\"} 1.0",
        "controller_runtime_reconcile_time_seconds_count{controller=\"test\"} 2",
        "workqueue_depth{name=\"test\"} 0.0",
        "workqueue_queue_duration_seconds_count{name=\"test\"} 2",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    running.stop().await;
    world.end().await;
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn manager_serves_health_readiness_and_metrics() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = ManagerOptions::default();
    options.listen = free.local_addr().unwrap();
    let service = |world: &World| {
        Controller::new(world.informer::<ConfigMap>(), ControllerOptions::named("test"))
            .reconcile(|_| futures::future::ok::<_, ReconcileError>(Outcome::Done))
    };
    // Another process uses the port.
    let taken = Manager::new(options.clone()).controller(service(&world)).run(CancellationToken::new()).await;
    let error = taken.unwrap_err();
    assert!(matches!(error, ManagerError::Listen { .. }) && error.to_string().contains("listen"), "{error}");
    drop(free);

    let service = service(&world);
    let (handle, stop) = (service.handle(), CancellationToken::new());
    let manager = Manager::new(options.clone()).controller(service).run(stop.clone());
    let looks = async {
        until(|| handle.stats().succeeded == 1).await;
        assert!(get(options.listen, "/healthz").await.ends_with("\r\n\r\nok\n"));
        let ready = get(options.listen, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.0 200") && ready.contains("test: working"), "{ready}");
        assert!(get(options.listen, "/metrics").await.contains("skopos_controller_reconcile_total"));
        assert!(get(options.listen, "/else").await.starts_with("HTTP/1.0 404"));
        world.factory.freeze(secs(5)).await;
        let ready = get(options.listen, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.0 503") && ready.contains("test: stale: configmaps: "), "{ready}");
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(manager, looks);
    ended.unwrap();
    world.end().await;
}

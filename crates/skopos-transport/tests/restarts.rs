//! A real API server over TLS that stops and restarts on the same port.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::config::KubeConfigOptions;
use skopos_testserver::{CloseMode, TestServer};
use skopos_transport::{Transport, TransportOptions};
use tokio::time::Instant;

#[tokio::test]
async fn kube_client_finds_restarted_server_in_two_seconds() {
    let server = TestServer::builder().tls(true).start().await.unwrap();
    let kubeconfig = serde_saphyr::from_str(&server.kubeconfig()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let transport = Transport::from_config(config, TransportOptions::default()).unwrap();
    let maps: Api<ConfigMap> = Api::all(transport.client("default"));
    for round in 0..10 {
        let how = if round % 2 == 0 { CloseMode::Rst } else { CloseMode::Fin };
        let list = maps.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let mut events = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
        server.restart(how).await.unwrap();
        let back = Instant::now();
        while let Ok(Some(_)) = events.try_next().await {}
        transport.connected(Duration::from_secs(2)).await.unwrap();
        maps.list(&ListParams::default()).await.unwrap();
        assert!(back.elapsed() <= Duration::from_secs(2), "round {round}: {:?}", back.elapsed());
    }
    assert!(transport.stats().connections.len() <= 2, "{:?}", transport.stats());
    assert!(transport.shutdown(Duration::from_secs(1)).await);
    server.stop().await;
}

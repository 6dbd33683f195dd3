//! The exported kubeconfig.

use skopos_fleet::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use skopos_vcluster::{Error, KubeconfigOptions, PauseOptions, Silent};

use super::support::*;

#[tokio::test(start_paused = true)]
async fn it_can_be_used_also_while_it_is_paused() {
    let virtuals = host_with_shop().await;
    let host = client(virtuals.host());
    host.pause("shop", None, PauseOptions::default(), &Silent).await.unwrap();
    let exported = host.kubeconfig("shop", None, &KubeconfigOptions::default()).await.unwrap();
    assert_eq!(exported.context, "vcluster_shop_vcluster-shop_host");
    assert!(exported.inside_only);
    let yaml = exported.text();
    let config = Kubeconfig::parse(yaml.as_bytes(), &KubeconfigPolicy::hostile()).unwrap();
    assert_eq!(config.current_context(), Some("vcluster_shop_vcluster-shop_host"));
    let config = config.cluster(None).unwrap().config();
    assert_eq!(config.cluster_url.to_string(), "https://shop.vcluster-shop.svc:443/");
    assert_eq!(config.tls_server_name.as_deref(), Some("shop.vcluster-shop"));
    assert!(config.root_cert.is_some() && config.auth_info.client_key_data.is_some());
    assert!(!format!("{exported:?}").contains("PRIVATE"));
}

#[tokio::test(start_paused = true)]
async fn withholds_kubeconfig_that_runs_programs() {
    let virtuals = host_with_shop().await;
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: 'https://a', \
                certificate-authority-data: QQ==}}]\nusers: [{name: a, user: {exec: {apiVersion: v1, command: evil}}}]\n\
                contexts: [{name: a, context: {cluster: a, user: a}}]\n";
    edit(virtuals.host(), "secrets", Some(NS), "vc-shop", |secret| {
        secret["stringData"] = serde_json::json!({"config": text})
    });
    let host = client(virtuals.host());
    let error = host.kubeconfig("shop", None, &KubeconfigOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Kubeconfig(_)), "{error}");
    virtuals.host().delete("secrets", Some(NS), "vc-shop").unwrap();
    let error = host.kubeconfig("shop", None, &KubeconfigOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::NoKubeconfig { .. }), "{error}");
}

//! Objects that are deleted with a virtual cluster, and objects that stay.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use skopos_testserver::{Fault, Match, TestServer, VirtualCluster, VirtualClusters};
use skopos_vcluster::{
    CreateOptions, DeleteOptions, Error, Host, Manifests, RemovalOptions, Silent, Source, Step,
};

use super::support::*;

async fn delete(host: &Host, name: &str, removal: RemovalOptions) -> Result<(), Error> {
    host.delete(name, None, DeleteOptions { removal, ..DeleteOptions::default() }, &Silent).await
}

/// Returns the names of all objects in a namespace that a chart or a syncer creates, and of objects without a
/// namespace.
fn left(server: &TestServer, namespace: &str) -> Vec<String> {
    let inside = [
        "statefulsets",
        "deployments",
        "pods",
        "services",
        "secrets",
        "configmaps",
        "serviceaccounts",
        "roles",
        "rolebindings",
        "persistentvolumeclaims",
    ];
    let all = inside.iter().flat_map(|of| {
        names(server, of, Some(namespace)).into_iter().map(move |name| format!("{of}/{name}"))
    });
    let outside = ["clusterroles", "priorityclasses", "namespaces"];
    let outside = outside
        .iter()
        .flat_map(|of| names(server, of, None).into_iter().map(move |name| format!("{of}/{name}")));
    all.chain(outside.filter(|name| !is_the_servers_own(name))).collect()
}

fn is_the_servers_own(name: &str) -> bool {
    let own = ["namespaces/default", "namespaces/kube-", "clusterroles/system:", "priorityclasses/system-"];
    own.iter().any(|own| name.starts_with(own))
}

/// Makes a virtual cluster with three replicas in a foreign namespace, beside objects that do not belong to it.
async fn among_others() -> VirtualClusters {
    let host = TestServer::builder().workloads(true).start_in_memory().unwrap();
    namespace(&host, "team", json!({}), json!({}));
    let virtuals = VirtualClusters::on(host).in_memory().start();
    let shop = VirtualCluster::new("shop").in_namespace("team").replicas(3).namespace_sync();
    virtuals.create(&shop).unwrap();
    let server = virtuals.host();
    server.wait_for(|server| workload(server, "team", "shop")["status"]["readyReplicas"] == 3).await.unwrap();
    let managed = json!({"vcluster.loft.sh/managed-by": "team-x-shop"});
    let class = |name: &str, labels: &Value| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1,
            "metadata": {"name": name, "labels": labels}})
    };
    server.create(class("translated", &managed)).unwrap();
    server.create(class("other", &json!({}))).unwrap();
    namespace(server, "synced", managed.clone(), json!({}));
    namespace(server, "imported", managed, json!({"vcluster.loft.sh/imported": "true"}));
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"}});
    server.create(map("configmap-shop")).unwrap();
    server.create(map("unrelated")).unwrap();
    let dns = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 53}]},
        "metadata": {"name": "kube-dns-x", "namespace": "team", "labels": {"k8s-app": "vcluster-kube-dns"}}});
    server.create(dns).unwrap();
    virtuals
}

const STAYS: [&str; 7] = [
    "configmaps/configmap-shop",
    "configmaps/unrelated",
    "persistentvolumeclaims/data-shop-1",
    "persistentvolumeclaims/data-shop-2",
    "priorityclasses/other",
    "namespaces/imported",
    "namespaces/team",
];

#[tokio::test(start_paused = true)]
async fn foreign_namespace_loses_only_own_objects() {
    let virtuals = among_others().await;
    let (server, host) = (virtuals.host(), client(virtuals.host()));
    delete(&host, "shop", RemovalOptions::default()).await.unwrap();
    server
        .wait_for(|server| left(server, "team") == STAYS)
        .await
        .unwrap_or_else(|_| panic!("{:?}", left(server, "team")));
    let namespace = server.get("namespaces", None, "team").unwrap();
    assert!(!namespace.to_string().contains("deleting.skopos.dev"), "{namespace}");
    let gone = delete(&host, "shop", RemovalOptions::default()).await.unwrap_err();
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn data_and_config_map_by_choice() {
    let virtuals = among_others().await;
    let host = client(virtuals.host());
    let removal = RemovalOptions { keep_claims: true, config_map: true, ..RemovalOptions::default() };
    delete(&host, "shop", removal).await.unwrap();
    let stays: Vec<&str> = {
        let mut stays = STAYS.to_vec();
        stays.remove(0);
        stays.insert(1, "persistentvolumeclaims/data-shop-0");
        stays
    };
    let server = virtuals.host();
    server
        .wait_for(|server| left(server, "team") == stays)
        .await
        .unwrap_or_else(|_| panic!("{:?}", left(server, "team")));
}

#[tokio::test(start_paused = true)]
async fn deletes_own_namespace_and_spares_others() {
    let virtuals = host_with(&[VirtualCluster::new("shop"), VirtualCluster::new("other")]).await;
    let host = client(virtuals.host());
    delete(&host, "shop", RemovalOptions::default()).await.unwrap();
    assert!(virtuals.host().get("namespaces", None, NS).is_err());
    virtuals.wait_gone(NS, "shop").await.unwrap();
    assert_eq!(status(&host, "other").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_recreated_namespace() {
    // A caller that may not change the namespace does not know its uid.
    for may_change in [true, false] {
        let virtuals = host_with(&[VirtualCluster::new("shop").without_helm()]).await;
        let (server, host) = (virtuals.host(), client(virtuals.host()));
        let forbidden = (!may_change).then(|| {
            server.faults().inject(Fault::status(403, 0)).on(Match::write().resource("namespaces")).times(1)
        });
        let hold = |finalizers: Value| {
            edit(server, "pods", Some(NS), "slow", |pod| pod["metadata"]["finalizers"] = finalizers.clone());
        };
        workload_pod(server, NS, "slow", None);
        hold(json!(["example.com/stays"]));
        let (deleted, ()) = tokio::join!(delete(&host, "shop", RemovalOptions::default()), async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            hold(json!([]));
            server.wait_for(|server| server.get("namespaces", None, NS).is_err()).await.unwrap();
            namespace(server, NS, json!({}), json!({}));
        });
        deleted.unwrap();
        assert!(server.get("namespaces", None, NS).is_ok());
        drop(forbidden);
    }
}

#[tokio::test(start_paused = true)]
async fn namespace_with_new_cluster_stays() {
    let virtuals = host_with(&[VirtualCluster::new("shop").without_helm()]).await;
    let (server, host) = (virtuals.host(), client(virtuals.host()));
    let made = AtomicBool::new(false);
    let told = |step: Step| {
        if matches!(step, Step::Removed { .. }) && !made.swap(true, Ordering::SeqCst) {
            virtuals.create(&VirtualCluster::new("other").in_namespace(NS)).unwrap();
        }
    };
    host.delete("shop", None, DeleteOptions::default(), &told).await.unwrap();
    up(&virtuals, NS, "other").await;
    let claims = names(server, "persistentvolumeclaims", Some(NS));
    assert!(!claims.contains(&"data-shop-0".to_owned()), "{claims:?}");
    let namespace = server.get("namespaces", None, NS).unwrap();
    assert!(!namespace.to_string().contains("deleting.skopos.dev"), "{namespace}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_where_something_is_being_deleted() {
    let virtuals = host_with(&[]).await;
    let (server, host) = (virtuals.host(), client(virtuals.host()));
    namespace(server, NS, json!({"deleting.skopos.dev/old": ""}), json!({}));
    let manifests = Manifests::new(VirtualCluster::new("shop").manifests()).unwrap();
    let options = CreateOptions::new(Source::Manifests(manifests));
    let error = host.create("shop", &options, &Silent).await.unwrap_err();
    assert!(matches!(&error, Error::Deleting { name, .. } if name == "old"), "{error}");
    assert!(server.get("statefulsets", Some(NS), "shop").is_err());
}

#[tokio::test(start_paused = true)]
async fn namesake_elsewhere_keeps_its_cluster_role() {
    let virtuals = among_others().await;
    let server = virtuals.host();
    namespace(server, "elsewhere", json!({}), json!({}));
    virtuals.create(&VirtualCluster::new("shop").in_namespace("elsewhere").namespace_sync()).unwrap();
    let host = client(server);
    host.delete("shop", Some("team"), DeleteOptions::default(), &Silent).await.unwrap();
    let roles = names(server, "clusterroles", None);
    assert!(roles.contains(&"vc-mn-shop-v-elsewhere".to_owned()), "{roles:?}");
    assert!(!roles.contains(&"vc-mn-shop-v-team".to_owned()), "{roles:?}");
}

#[tokio::test(start_paused = true)]
async fn protected_cluster_is_not_touched() {
    let virtuals = host_with_shop().await;
    edit(virtuals.host(), "statefulsets", Some(NS), "shop", |set| {
        set["metadata"]["annotations"] = json!({"loft.sh/non-deletable": "true"});
    });
    let before = left(virtuals.host(), NS);
    let error = delete(&client(virtuals.host()), "shop", RemovalOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Protected(_)), "{error}");
    assert_eq!(left(virtuals.host(), NS), before);
}

#[tokio::test]
async fn a_release_is_deleted_by_helm() {
    let virtuals = host_with_shop().await;
    let helm = FakeHelm::new("");
    let host = client_with(virtuals.host(), helm.options());
    delete(&host, "shop", RemovalOptions::default()).await.unwrap();
    assert_eq!(
        helm.calls(),
        ["delete shop --namespace vcluster-shop --repository-config='' --kubeconfig /k --kube-context here"]
    );
    assert!(virtuals.host().get("namespaces", None, NS).is_err());

    let virtuals = host_with(&[VirtualCluster::new("shop").without_helm()]).await;
    let host = client_with(virtuals.host(), helm.options());
    delete(&host, "shop", RemovalOptions::default()).await.unwrap();
    assert_eq!(helm.calls().len(), 1, "helm knows of no release");
    assert!(virtuals.host().get("namespaces", None, NS).is_err());
}

#[tokio::test]
async fn helm_failure_keeps_data() {
    let virtuals = among_others().await;
    let helm = FakeHelm::new("echo 'forbidden' >&2; exit 1");
    let host = client_with(virtuals.host(), helm.options());
    let error = delete(&host, "shop", RemovalOptions::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "helm delete failed (exit code 1): forbidden");
    assert!(
        names(virtuals.host(), "persistentvolumeclaims", Some("team")).contains(&"data-shop-0".to_owned())
    );
    assert_eq!(status(&host, "shop").await, "Running");
    // By another client in the meantime.
    let gone =
        FakeHelm::new("echo 'Error: uninstall: Release not loaded: shop: release: not found' >&2; exit 1");
    let host = client_with(virtuals.host(), gone.options());
    delete(&host, "shop", RemovalOptions::default()).await.unwrap();
}

use std::time::Duration;

use serde_json::{Value, json};

use crate::TestServer;

async fn server() -> TestServer {
    TestServer::builder().workloads(true).clock_seed(7).start().await.unwrap()
}

fn deployment(replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}},
    })
}

fn pods(server: &TestServer) -> Vec<Value> {
    server.list("pods", Some("default")).unwrap().0
}

fn status(server: &TestServer, resource: &str, name: &str) -> Value {
    server.get(resource, Some("default"), name).unwrap()["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gets_pods_that_turn_ready_and_loses_them_when_scaled_down() {
    let server = server().await;
    server.create(deployment(3, "nginx:1")).unwrap();
    server.wait_for(|s| status(s, "deployments", "web")["readyReplicas"] == 3).await.unwrap();
    assert!(
        pods(&server)
            .iter()
            .all(|pod| pod["status"]["phase"] == "Running" && !pod["spec"]["nodeName"].is_null())
    );
    let progressing = &status(&server, "deployments", "web")["conditions"][1];
    assert_eq!(progressing["reason"], "NewReplicaSetAvailable");
    server.update(deployment(1, "nginx:1")).unwrap();
    server
        .wait_for(|s| s.count("pods") == 1 && status(s, "deployments", "web")["replicas"] == 1)
        .await
        .unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_the_pods_step_by_step() {
    let server = server().await;
    server.create(deployment(4, "nginx:1")).unwrap();
    server.wait_for(|s| status(s, "deployments", "web")["readyReplicas"] == 4).await.unwrap();
    server.update(deployment(4, "nginx:2")).unwrap();
    let mut fewest = usize::MAX;
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"] == "nginx:2";
    let is_ready = |pod: &Value| super::cluster::active(pod) && super::cluster::ready(pod);
    server
        .wait_for(|s| {
            let pods = pods(s);
            fewest = fewest.min(pods.iter().filter(|pod| is_ready(pod)).count());
            pods.len() == 4 && pods.iter().all(|pod| image(pod) && is_ready(pod))
        })
        .await
        .unwrap();
    assert!(fewest >= 3, "only {fewest} pods were ready");
    assert_eq!(server.count("replicasets"), 2);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_grows_and_shrinks_in_order() {
    let server = server().await;
    let set = |replicas: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"},
            "spec": {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": {
                "metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "db:1"}]}}},
        })
    };
    server.create(set(3)).unwrap();
    server
        .wait_for(|s| {
            let pods = pods(s);
            // The next one comes only when all before it are ready.
            let unready = pods.iter().filter(|pod| !super::cluster::ready(pod)).count();
            assert!(unready <= 1, "{unready} pods are not ready");
            status(s, "statefulsets", "db")["readyReplicas"] == 3
        })
        .await
        .unwrap();
    server.update(set(1)).unwrap();
    server.wait_for(|s| s.count("pods") == 1).await.unwrap();
    assert_eq!(pods(&server)[0]["metadata"]["name"], "db-0");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_end() {
    let server = server().await;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"},
        "spec": {"completions": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}});
    server.create(job).unwrap();
    server.wait_for(|s| status(s, "jobs", "j")["succeeded"] == 2).await.unwrap();
    server.wait_for(|s| !status(s, "jobs", "j")["completionTime"].is_null()).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dependents_go_with_their_owners() {
    let server = server().await;
    server.create(deployment(2, "nginx:1")).unwrap();
    server.wait_for(|s| status(s, "deployments", "web")["readyReplicas"] == 2).await.unwrap();
    server.delete("deployments", Some("default"), "web").unwrap();
    server.wait_for(|s| s.count("replicasets") == 0 && s.count("pods") == 0).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_is_emptied() {
    let server = TestServer::builder().start().await.unwrap();
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}});
    server.create(config).unwrap();
    let mut held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "shop", "finalizers": ["example.com/x"]}});
    server.create(held.clone()).unwrap();
    server.delete("namespaces", None, "shop").unwrap();
    server.wait_for(|s| s.count("configmaps") == 1).await.unwrap();
    assert_eq!(server.get("namespaces", None, "shop").unwrap()["status"]["phase"], "Terminating");
    held["metadata"]["finalizers"] = json!([]);
    server.update(held).unwrap();
    server.wait_for(|s| s.get("namespaces", None, "shop").is_err()).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_has_its_grace_period() {
    let server = TestServer::builder().start().await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "x"}]}});
    server.create(pod).unwrap();
    let pods = server.registry().lookup("pods").unwrap();
    let place = crate::place::Place::new(&pods, Some("default"), "p");
    let writer = crate::write::Writer::new(server.state());
    let before = tokio::time::Instant::now();
    writer.delete(&place, &crate::write::DeleteOptions::default()).unwrap();
    assert!(!server.get("pods", Some("default"), "p").unwrap()["metadata"]["deletionTimestamp"].is_null());
    server.wait_for(|s| s.count("pods") == 0).await.unwrap();
    assert_eq!(before.elapsed().as_secs(), Duration::from_secs(5).as_secs());
    server.stop().await;
}

//! Clusters from the ClusterProfiles of a hub.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use skopos_fleet::kubeconfig::KubeconfigPolicy;
use skopos_fleet::source::{
    AccessCredentials, AccessPlugin, AccessProvider, ClusterProfileSource, TokenSecret,
};
use skopos_fleet::{Condition, Fleet};
use skopos_testserver::TestServer;

use crate::sources::{host, ids};
use crate::support::*;

const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterprofiles.multicluster.x-k8s.io"},
        "spec": {
            "group": "multicluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {"plural": "clusterprofiles", "singular": "clusterprofile", "kind": "ClusterProfile"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Returns an entry of `status.accessProviders`.
fn access(provider: &str, server: &str) -> Value {
    let ca = STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    json!({"name": provider, "cluster": {"server": server, "certificate-authority-data": ca}})
}

fn profile(namespace: &str, name: &str, status: Value) -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"namespace": namespace, "name": name, "labels": {"x-k8s.io/cluster-manager": "fleet"}},
        "spec": {"displayName": name, "clusterManager": {"name": "fleet"}}, "status": status})
}

fn token_secret(name: &str, token: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "team-a", "name": name},
        "data": {"token": STANDARD.encode(token)}})
}

fn plugin() -> AccessProvider {
    let plugin = AccessPlugin {
        command: "gke-gcloud-auth-plugin".into(),
        args: vec!["--use".into()],
        env: BTreeMap::from([("REGION".into(), "west".into())]),
        api_version: "client.authentication.k8s.io/v1".into(),
        provide_cluster_info: true,
    };
    AccessProvider { name: "google".into(), credentials: AccessCredentials::Exec(plugin) }
}

fn token_file() -> AccessProvider {
    AccessProvider {
        name: "federated".into(),
        credentials: AccessCredentials::TokenFile("/run/token".into()),
    }
}

fn secret_reader(suffix: &str) -> AccessProvider {
    let secret = TokenSecret { suffix: suffix.into(), key: "token".into() };
    AccessProvider { name: "secretreader".into(), credentials: AccessCredentials::Secret(secret) }
}

fn follow(fleet: &Fleet, providers: impl IntoIterator<Item = AccessProvider>) {
    let mut policy = KubeconfigPolicy::hostile();
    policy.allow_system_roots = true;
    let source = ClusterProfileSource::new(fleet.cluster("host").expect("the host"), policy);
    fleet.follow(source.namespaces(["team-a", "team-b"]).providers(providers));
}

async fn hub(world: &World) -> (TestServer, Fleet) {
    let (server, fleet) = host(world).await;
    server.create(definition()).expect("the definition");
    (server, fleet)
}

fn config(fleet: &Fleet, name: &str) -> Option<kube::Config> {
    Some(fleet.get(name)?.spec()?.config())
}

fn token(fleet: &Fleet, name: &str) -> Option<String> {
    Some(config(fleet, name)?.auth_info.token?.expose_secret().to_owned())
}

#[tokio::test(start_paused = true)]
async fn profiles_are_clusters_with_credentials_of_their_provider() {
    let world = World::default();
    for name in ["a", "b"] {
        world.server(name);
    }
    let (server, fleet) = hub(&world).await;
    let mut google = access("google", "https://a");
    google["cluster"]["extensions"] = json!([
        {"name": EXEC_EXTENSION, "extension": {"clusterName": "one"}},
        {"name": "multicluster.x-k8s.io/clusterprofiles/auth/exec/additional-args", "extension": ["--evil"]},
    ]);
    // The operator's order decides, and not the profile's.
    let one = json!({"accessProviders": [access("federated", "https://b"), google, access("unknown", "https://c")]});
    server.create(profile("team-a", "one", one)).unwrap();
    follow(&fleet, [plugin(), token_file()]);
    eventually("it is there", || ids(&fleet) == ["host", "one.team-a"]).await;
    assert!(fleet.problems().is_empty(), "{:?}", fleet.problems());
    assert_eq!(fleet.cluster("one.team-a").unwrap().labels()["x-k8s.io/cluster-manager"], "fleet");
    let one = config(&fleet, "one.team-a").unwrap();
    assert_eq!(one.cluster_url.host(), Some("a"));
    let exec = one.auth_info.exec.unwrap();
    assert_eq!(
        (exec.command.as_deref(), exec.args),
        (Some("gke-gcloud-auth-plugin"), Some(vec!["--use".into()]))
    );
    let info = exec.cluster.unwrap();
    assert_eq!(
        (info.server.as_deref(), info.config),
        (Some("https://a"), Some(json!({"clusterName": "one"})))
    );
    // The field before v0.1.0 of the API; a public CA.
    let mut older = access("federated", "https://b");
    older["cluster"].as_object_mut().unwrap().remove("certificate-authority-data");
    server.create(profile("team-b", "two", json!({"credentialProviders": [older]}))).unwrap();
    eventually("it came", || ids(&fleet).len() == 3).await;
    let two = config(&fleet, "two.team-b").unwrap();
    assert_eq!(two.auth_info.token_file.as_deref(), Some("/run/token"));
    assert!(two.root_cert.is_none() && !two.accept_invalid_certs && two.auth_info.exec.is_none());
    // The cluster moves; then it leaves.
    let mut moved = server.get("clusterprofiles.multicluster.x-k8s.io", Some("team-b"), "two").unwrap();
    moved["status"]["credentialProviders"][0]["cluster"]["server"] = json!("https://a");
    server.update(moved).unwrap();
    eventually("it is followed", || config(&fleet, "two.team-b").unwrap().cluster_url.host() == Some("a"))
        .await;
    server.delete("clusterprofiles.multicluster.x-k8s.io", Some("team-b"), "two").unwrap();
    eventually("it left", || ids(&fleet) == ["host", "one.team-a"]).await;
}

#[tokio::test(start_paused = true)]
async fn rotated_token_of_profile_is_taken_over() {
    let world = World::default();
    world.server("a");
    let (server, fleet) = hub(&world).await;
    let status = json!({"accessProviders": [access("secretreader", "https://a")]});
    server.create(profile("team-a", "one", status)).unwrap();
    follow(&fleet, [secret_reader("-reader")]);
    eventually("it is missed", || fleet.problems().len() == 1).await;
    let problem = fleet.problems()[0].to_string();
    assert!(
        problem.contains("there is no token in Secret team-a/one-reader, key token: create it"),
        "{problem}"
    );
    server.create(token_secret("one", "of another")).unwrap();
    server.create(token_secret("one-reader", "first\n")).unwrap();
    eventually("it is there", || token(&fleet, "one.team-a").as_deref() == Some("first")).await;
    assert!(fleet.problems().is_empty());
    let one = fleet.cluster("one.team-a").unwrap();
    one.kind(&config_maps(), secs(5)).await.unwrap();
    server.update(token_secret("one-reader", "second")).unwrap();
    eventually("it is taken over", || token(&fleet, "one.team-a").as_deref() == Some("second")).await;
    until_condition(&one, Condition::Live).await;
    // Without a token the cluster stays as it is, and the problem is told.
    server.delete("secrets", Some("team-a"), "one-reader").unwrap();
    eventually("it is missed", || fleet.problems().len() == 1).await;
    assert_eq!(token(&fleet, "one.team-a").as_deref(), Some("second"));
    assert_eq!(one.state().condition, Condition::Live);
}

#[tokio::test(start_paused = true)]
async fn unusable_profile_is_its_own_problem() {
    let world = World::default();
    world.server("a");
    let (server, fleet) = hub(&world).await;
    let with = |field: &str, value: Value| {
        let mut access = access("federated", "https://a");
        access["cluster"][field] = value;
        json!({"accessProviders": [access]})
    };
    let broken = [
        ("new", json!({}), "has no accessProviders yet"),
        (
            "unknown",
            json!({"accessProviders": [access("azure", "https://a")]}),
            "(\"azure\") is configured here",
        ),
        ("no-server", json!({"accessProviders": [{"name": "federated"}]}), "server is missing"),
        (
            "no-map",
            json!({"accessProviders": [{"name": "federated", "cluster": "canary"}]}),
            "not as the API describes it",
        ),
        ("no-list", json!({"accessProviders": "canary"}), "not as the API describes it"),
        (
            "insecure",
            with("insecure-skip-tls-verify", json!(true)),
            "insecure-skip-tls-verify is not admitted",
        ),
        (
            "file",
            with("certificate-authority", json!("/etc/canary")),
            "certificate-authority is not admitted",
        ),
        ("proxy", with("proxy-url", json!("http://canary")), "proxy-url is not admitted"),
        ("http", with("server", json!("http://a")), "http://"),
        (
            "secret",
            json!({"accessProviders": [access("secretreader", "https://a")]}),
            "no token in Secret team-b/secret",
        ),
    ];
    for (name, status, _) in &broken {
        server.create(profile("team-b", name, status.clone())).unwrap();
    }
    server
        .create(profile("team-a", "good", json!({"accessProviders": [access("secretreader", "https://a")]})))
        .unwrap();
    server.create(token_secret("good", "t")).unwrap();
    follow(&fleet, [plugin(), token_file(), secret_reader("")]);
    eventually("all are there", || ids(&fleet).len() == broken.len() + 2).await;
    assert!(fleet.cluster("good.team-a").unwrap().kind(&config_maps(), secs(5)).await.is_ok());
    let problems = fleet.problems();
    assert_eq!(problems.len(), broken.len(), "{problems:#?}");
    for (name, _, reason) in &broken {
        let cluster = Some(id(&format!("{name}.team-b")));
        let problem = problems.iter().find(|problem| problem.cluster == cluster).unwrap().to_string();
        assert!(problem.contains(reason), "{name}: {problem}");
    }
    let told = format!("{problems:?} {:?} {:?}", fleet.stats(), fleet.members());
    assert!(!told.contains("canary"), "{told}");
    // A hub that has no such objects any more is a problem of the source, and removes no cluster.
    server.pause().await;
    eventually("it is told", || fleet.problems().iter().any(|problem| problem.cluster.is_none())).await;
    assert_eq!(ids(&fleet).len(), broken.len() + 2);
}

//! Clusters from Argo CD's Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use skopos_fleet::kubeconfig::KubeconfigPolicy;
use skopos_fleet::source::{SecretFlavour, SecretSource};
use skopos_fleet::{Condition, Fleet};
use skopos_testserver::TestServer;

use crate::sources::{host, ids};
use crate::support::*;

/// Returns a CA in base64, as the Secrets have it.
fn ca() -> String {
    STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
}

/// Returns the `config` of a cluster with a token.
fn config(token: &str) -> Value {
    json!({"bearerToken": token, "tlsClientConfig": {"insecure": false, "caData": ca()}})
}

/// Returns a Secret of Argo CD.
fn cluster(namespace: &str, secret: &str, name: &str, server: &str, config: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": namespace, "name": secret, "labels": {"argocd.argoproj.io/secret-type": "cluster", "env": "prod"}},
        "stringData": {"name": name, "server": server, "config": config, "project": "shop", "namespaces": "a,b", "shard": "1"}})
}

fn follow(fleet: &Fleet, policy: KubeconfigPolicy) {
    let host = fleet.cluster("host").expect("the host");
    fleet.follow(SecretSource::new(host, SecretFlavour::ArgoCd, policy));
}

/// Puts another `config` into a Secret, as a rotation does.
fn rotate(server: &TestServer, secret: &str, config: &Value) {
    let mut changed = server.get("secrets", Some("team-a"), secret).expect("the Secret");
    changed["data"]["config"] = json!(STANDARD.encode(config.to_string()));
    server.update(changed).expect("the Secret changes");
}

fn token(fleet: &Fleet, name: &str) -> Option<String> {
    use secrecy::ExposeSecret as _;
    let config = fleet.cluster(name).ok()?.spec()?.config();
    config.auth_info.token.map(|token| token.expose_secret().to_owned())
}

#[tokio::test(start_paused = true)]
async fn argo_cds_secrets_are_clusters() {
    let world = World::default();
    for name in ["a", "b"] {
        world.server(name);
    }
    let (server, fleet) = host(&world).await;
    server.create(cluster("team-a", "cluster-1", "prod", "https://a", &config("first").to_string())).unwrap();
    // Repositories have the same label with another value.
    let mut repository = cluster("team-a", "repo", "repo", "https://a", "{}");
    repository["metadata"]["labels"]["argocd.argoproj.io/secret-type"] = json!("repository");
    server.create(repository).unwrap();
    follow(&fleet, KubeconfigPolicy::hostile());
    eventually("it is there", || ids(&fleet) == ["host", "prod.team-a"]).await;
    let prod = fleet.cluster("prod.team-a").unwrap();
    assert_eq!(prod.labels()["env"], "prod");
    prod.kind(&config_maps(), secs(5)).await.unwrap();
    assert_eq!(names(&prod, &config_maps()), ["a"]);
    assert_eq!(token(&fleet, "prod.team-a").as_deref(), Some("first"));
    // A new cluster, without a name, and one whose name is no valid one.
    let unnamed = cluster("team-a", "cluster-2", "", "https://b", &config("t").to_string());
    server.create(unnamed).unwrap();
    let odd = cluster("team-a", "cluster-3", "https://b:6443", "https://b", &config("t").to_string());
    server.create(odd).unwrap();
    eventually("all are there", || ids(&fleet).len() == 4).await;
    assert!(ids(&fleet).contains(&"cluster-2.team-a".to_owned()), "{:?}", ids(&fleet));
    assert!(ids(&fleet).iter().any(|id| id.starts_with("https:-b:6443.team-a-")), "{:?}", ids(&fleet));
    // A rotated token reaches the same cluster, which keeps its handle.
    rotate(&server, "cluster-1", &config("second"));
    eventually("it is taken over", || token(&fleet, "prod.team-a").as_deref() == Some("second")).await;
    assert!(fleet.cluster("prod.team-a").unwrap() == prod);
    until_condition(&prod, Condition::Live).await;
    // A broken version is a problem of this cluster only, and changes no connection.
    rotate(&server, "cluster-1", &json!("no object"));
    eventually("it is told", || fleet.problems().len() == 1).await;
    assert_eq!(fleet.problems()[0].cluster, Some(id("prod.team-a")));
    assert_eq!(
        (prod.state().condition, token(&fleet, "prod.team-a").as_deref()),
        (Condition::Live, Some("second"))
    );
    rotate(&server, "cluster-1", &config("third"));
    eventually("it is well again", || fleet.problems().is_empty()).await;
    server.delete("secrets", Some("team-a"), "cluster-1").unwrap();
    eventually("it left", || !ids(&fleet).contains(&"prod.team-a".to_owned())).await;
    assert_eq!(ids(&fleet).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn every_setting_of_argo_cd_reaches_the_connection() {
    let world = World::default();
    let (server, fleet) = host(&world).await;
    let pem = |kind: &str| STANDARD.encode(format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n"));
    let create = |name: &str, config: Value| {
        server.create(cluster("team-a", name, name, "https://a:6443", &config.to_string())).unwrap();
    };
    create(
        "basic",
        json!({"username": "me", "password": "secret", "tlsClientConfig": {"caData": ca(), "serverName": "a.example"}}),
    );
    create(
        "certificate",
        json!({"tlsClientConfig": {"caData": ca(), "certData": pem("CERTIFICATE"), "keyData": pem("PRIVATE KEY")},
            "disableCompression": true}),
    );
    create(
        "exec",
        json!({"tlsClientConfig": {"insecure": true}, "proxyUrl": "http://proxy:3128", "execProviderConfig": {
            "command": "aws", "args": ["eks", "get-token"], "env": {"AWS_REGION": "eu-central-1"},
            "apiVersion": "client.authentication.k8s.io/v1beta1", "installHint": "install aws"}}),
    );
    follow(&fleet, KubeconfigPolicy::trusted());
    eventually("all are there", || ids(&fleet).len() == 4).await;
    assert!(fleet.problems().is_empty(), "{:?}", fleet.problems());
    let config = |name: &str| fleet.cluster(&format!("{name}.team-a")).unwrap().spec().unwrap().config();
    let basic = config("basic");
    assert_eq!(
        (basic.auth_info.username.as_deref(), basic.tls_server_name.as_deref()),
        (Some("me"), Some("a.example"))
    );
    assert!(basic.auth_info.password.is_some() && basic.root_cert.is_some() && !basic.accept_invalid_certs);
    let certificate = config("certificate");
    assert_eq!(certificate.auth_info.client_certificate_data, Some(pem("CERTIFICATE")));
    assert!(certificate.auth_info.client_key_data.is_some() && certificate.disable_compression);
    let exec = config("exec");
    assert!(exec.accept_invalid_certs);
    assert_eq!(exec.proxy_url.unwrap().to_string(), "http://proxy:3128/");
    let plugin = exec.auth_info.exec.unwrap();
    assert_eq!((plugin.command.as_deref(), plugin.args.unwrap().len()), (Some("aws"), 2));
    assert_eq!(plugin.env.unwrap()[0]["value"], "eu-central-1");
}

#[tokio::test(start_paused = true)]
async fn unusable_secret_of_argo_cd_is_its_own_problem() {
    let world = World::default();
    world.server("a");
    let (server, fleet) = host(&world).await;
    let good = config("canary-token");
    let with = |extra: Value| {
        let mut config = good.clone();
        let fields = config.as_object_mut().zip(extra.as_object());
        let (config_fields, extra) = fields.expect("objects");
        config_fields.extend(extra.clone());
        config.to_string()
    };
    let exec = json!({"execProviderConfig": {"command": "/bin/sh", "args": ["canary"], "apiVersion": "client.authentication.k8s.io/v1"}});
    let broken = [
        (
            "aws",
            "https://a",
            with(json!({"awsAuthConfig": {"clusterName": "canary"}})),
            "awsAuthConfig is not supported",
        ),
        (
            "exec",
            "https://a",
            with(exec),
            "config.execProviderConfig is not admitted here: it runs a program",
        ),
        (
            "insecure",
            "https://a",
            with(json!({"tlsClientConfig": {"insecure": true}})),
            "config.tlsClientConfig.insecure is not admitted",
        ),
        ("proxy", "https://a", with(json!({"proxyUrl": "http://canary"})), "config.proxyUrl is not admitted"),
        (
            "no-ca",
            "https://a",
            json!({"bearerToken": "canary"}).to_string(),
            "config.tlsClientConfig.caData is missing",
        ),
        ("bad-ca", "https://a", with(json!({"tlsClientConfig": {"caData": "canary!"}})), "caData"),
        ("bad-json", "https://a", "{canary".to_owned(), "key config is not JSON"),
        ("bad-type", "https://a", r#"{"bearerToken": ["canary"]}"#.to_owned(), "key config is not JSON"),
        (
            "two-ways",
            "https://a",
            with(json!({"username": "canary", "password": "canary"})),
            "config.bearerToken is given beside username",
        ),
        ("no-server", "", good.to_string(), "key server is missing"),
        ("http", "http://a", good.to_string(), "http://"),
        ("user", "https://me:canary@a", good.to_string(), "a user or password"),
        (
            "itself",
            "https://kubernetes.default.svc",
            r#"{"tlsClientConfig":{"insecure":false}}"#.to_owned(),
            "the cluster of Argo CD itself",
        ),
    ];
    for (name, to, config, _) in &broken {
        server.create(cluster("team-b", name, name, to, config)).unwrap();
    }
    server.create(cluster("team-a", "good", "good", "https://a", &good.to_string())).unwrap();
    follow(&fleet, KubeconfigPolicy::hostile());
    eventually("all are there", || ids(&fleet).len() == broken.len() + 2).await;
    assert!(fleet.cluster("good.team-a").unwrap().kind(&config_maps(), secs(5)).await.is_ok());
    let problems = fleet.problems();
    assert_eq!(problems.len(), broken.len(), "{problems:#?}");
    for (name, .., reason) in &broken {
        let cluster = Some(id(&format!("{name}.team-b")));
        let problem = problems.iter().find(|problem| problem.cluster == cluster).unwrap().to_string();
        assert!(problem.contains(reason), "{name}: {problem}");
    }
    let told = format!("{problems:?} {:?} {:?}", fleet.stats(), fleet.members());
    assert!(!told.contains("canary"), "{told}");
}

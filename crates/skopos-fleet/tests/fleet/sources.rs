//! Clusters from files, folders and Secrets, including untrusted ones.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use skopos_fleet::kubeconfig::{KubeconfigError, KubeconfigPaths, KubeconfigPolicy};
use skopos_fleet::source::{KubeconfigFile, KubeconfigFolder, SecretFlavour, SecretSource};
use skopos_fleet::{ClusterId, Condition, Fleet, SpecError};
use skopos_testserver::TestServer;

use crate::support::*;

/// Returns a kubeconfig with a context for each host, named after it.
fn contexts(hosts: &[&str]) -> String {
    let ca = STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let (mut clusters, mut contexts) = (String::new(), String::new());
    for host in hosts {
        clusters.push_str(&format!(
            "- name: {host}\n  cluster:\n    server: https://{host}\n    certificate-authority-data: {ca}\n"
        ));
        contexts.push_str(&format!("- name: {host}\n  context: {{cluster: {host}, user: me}}\n"));
    }
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n{clusters}contexts:\n{contexts}\
         users:\n- name: me\n  user: {{token: canary-token}}\n"
    )
}

pub(super) fn ids(fleet: &Fleet) -> Vec<String> {
    let members = fleet.members();
    let there = members.values().filter(|cluster| cluster.state().condition != Condition::Removed);
    there.map(|cluster| cluster.id().to_string()).collect()
}

/// Replaces a file as another process would: writes beside it, then renames.
fn replace(path: &Path, content: &str) {
    let beside = path.with_extension("tmp");
    std::fs::write(&beside, content).expect("written");
    std::fs::rename(beside, path).expect("renamed");
}

#[tokio::test(start_paused = true)]
async fn joined_context_is_followed_and_keeps_name() {
    let world = World::default();
    for name in ["a", "b", "home"] {
        world.server(name);
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, others) = (folder.path().join("config"), folder.path().join("others"));
    std::fs::write(&others, contexts(&["home"])).unwrap();
    let fleet = world.fleet();
    let file = || KubeconfigFile::new(&path, KubeconfigPolicy::trusted());
    let home = fleet.join_context(ClusterId::new("home").unwrap(), file(), "a").await.unwrap();
    // The file does not exist, but the name is taken all the same.
    fleet.follow(KubeconfigFile::new(&others, KubeconfigPolicy::trusted()));
    eventually("the others are read", || ids(&fleet).len() == 2).await;
    let other = ids(&fleet).remove(1);
    assert!(other.starts_with("home-") && fleet.cluster(&other).unwrap().spec().is_some(), "{other}");
    assert!(fleet.problems().iter().any(|problem| problem.to_string().contains("cannot be read")));
    assert!(fleet.cluster("home").unwrap().spec().is_none());
    replace(&path, &contexts(&["a", "b"]));
    eventually("it is read", || fleet.problems().is_empty()).await;
    assert_eq!((ids(&fleet), fleet.unread_sources(secs(1)).await), (vec!["home".to_owned(), other], 0));
    let server = |fleet: &Fleet| fleet.cluster("home").unwrap().spec().unwrap().server().to_string();
    assert_eq!(server(&fleet), "https://a/");
    assert!(home.kind(&config_maps(), secs(5)).await.is_ok());
    // Other credentials, another address: the same handle leads there.
    replace(&path, &contexts(&["a", "b"]).replace("server: https://a\n", "server: https://b\n"));
    eventually("it is followed", || server(&fleet) == "https://b/").await;
    assert!(home.kind(&config_maps(), secs(5)).await.is_ok());
    std::fs::remove_file(&path).unwrap();
    eventually("it is missed", || fleet.problems().len() == 1).await;
    assert_eq!(server(&fleet), "https://b/");
}

#[tokio::test(start_paused = true)]
async fn contexts_of_file_become_clusters() {
    let world = World::default();
    for name in ["a", "b"] {
        world.server(name);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let fleet = world.fleet();
    fleet.follow(KubeconfigFile::new(&path, KubeconfigPolicy::trusted()));
    eventually("it is missed", || fleet.problems().len() == 1).await;
    replace(&path, &contexts(&["a", "b"]));
    eventually("both are there", || ids(&fleet) == ["a", "b"]).await;
    assert!(fleet.problems().is_empty());
    let cluster = fleet.cluster("a").unwrap();
    assert!(cluster.kind(&config_maps(), secs(5)).await.is_ok());
    // A file that is broken, truncated or gone removes no cluster.
    for broken in ["{", "contexts: 7", "\u{0}\u{1}", "", "apiVersion: v1\nclusters:\n- name: a\n"] {
        replace(&path, broken);
        eventually("it is told", || fleet.problems().len() == 1).await;
        assert_eq!(ids(&fleet), ["a", "b"]);
        replace(&path, &contexts(&["a", "b"]));
        eventually("it is well again", || fleet.problems().is_empty()).await;
    }
    replace(&path, &contexts(&["a", "c"]));
    eventually("one left, one came", || ids(&fleet) == ["a", "c"]).await;
    assert_eq!(cluster.state().condition, Condition::Live, "and nothing happened to the third");
    replace(&path, "contexts: []");
    eventually("it says that it has none", || ids(&fleet).is_empty()).await;
    replace(&path, &contexts(&["a", "c"]));
    eventually("they are back", || ids(&fleet) == ["a", "c"]).await;
    std::fs::remove_file(&path).unwrap();
    eventually("it is missed", || fleet.problems().len() == 1).await;
    assert_eq!(ids(&fleet), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn any_context_name_works_and_exact_name_wins() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let named = ["team/prod", "team-prod", "生产", "测试", ".."];
    let text = |names: &[&str]| {
        let contexts = names.iter().enumerate();
        let contexts =
            contexts.map(|(n, name)| format!("- {{name: '{name}', context: {{cluster: c{n}}}}}\n"));
        let clusters =
            (0..names.len()).map(|n| format!("- {{name: c{n}, cluster: {{server: 'http://c{n}'}}}}\n"));
        format!("contexts:\n{}clusters:\n{}", contexts.collect::<String>(), clusters.collect::<String>())
    };
    std::fs::write(&one, text(&named)).unwrap();
    std::fs::write(&two, text(&["team/prod", "team-prod"])).unwrap();
    let fleet = World::default().fleet();
    fleet.follow(KubeconfigFile::new(&one, KubeconfigPolicy::trusted()));
    fleet.follow(KubeconfigFile::new(&two, KubeconfigPolicy::trusted()));
    eventually("all are there", || ids(&fleet).len() == 7).await;
    assert!(fleet.problems().is_empty(), "{:?}", fleet.problems());
    let of = |file: &Path, name: &str| {
        let members = fleet.members();
        let found = members.values().find(|cluster| {
            let (kubeconfig, context) = cluster.context().unwrap();
            kubeconfig.files() == [file] && *context == *name
        });
        found.unwrap().clone()
    };
    assert_eq!(of(&one, "team-prod").id().as_str(), "team-prod");
    for (n, name) in named.iter().enumerate() {
        let cluster = of(&one, name);
        assert_eq!(cluster.spec().unwrap().server().host(), Some(&*format!("c{n}")));
        assert_eq!(cluster.original_name().is_some(), *name != "team-prod");
    }
    // A name stays the same whatever other names come and go.
    let before = of(&one, "team/prod");
    replace(&one, &text(&["team/prod"]));
    eventually("the others left", || ids(&fleet).len() == 3).await;
    assert!(of(&one, "team/prod") == before && ids(&fleet).contains(&before.id().to_string()));
    assert!(!ids(&fleet).contains(&"team-prod".to_owned()), "it is not the other file's now");
}

#[tokio::test(start_paused = true)]
async fn list_of_files_is_merged_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a"), contexts(&["a"])).unwrap();
    let list = ["none", "a", "later"].map(|name| path(name).display().to_string()).join(":");
    let fleet = World::default().fleet();
    fleet.follow(KubeconfigFile::list(KubeconfigPaths::list(list), KubeconfigPolicy::trusted()));
    eventually("one is there", || ids(&fleet) == ["a"]).await;
    assert!(fleet.problems().is_empty());
    replace(&path("later"), &contexts(&["b", "a"]));
    eventually("another comes", || ids(&fleet) == ["a", "b"]).await;
    // A broken file is a problem of all files, but removes nothing.
    replace(&path("later"), "clusters: 7");
    eventually("it is told", || fleet.problems().len() == 1).await;
    assert!(fleet.problems()[0].to_string().contains("later: not a kubeconfig"), "{:?}", fleet.problems());
    assert_eq!(ids(&fleet), ["a", "b"]);
    // A hidden context is reported: kubectl, too, uses the first file's.
    replace(&path("later"), &contexts(&["a"]).replace("https://a", "https://elsewhere"));
    eventually("it is told", || fleet.problems().iter().any(|p| p.to_string().contains("lead elsewhere")))
        .await;
    assert_eq!(ids(&fleet), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn only_chosen_contexts_become_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, contexts(&["a", "b", "c"])).unwrap();
    let fleet = World::default().fleet();
    fleet.follow(
        KubeconfigFile::new(&path, KubeconfigPolicy::trusted())
            .contexts(["b", "nobody"])
            .labels([("env", "prod")]),
    );
    eventually("they are there", || ids(&fleet) == ["b", "nobody"]).await;
    let problems = fleet.problems();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].cluster, Some(id("nobody")));
    assert_eq!(fleet.cluster("b").unwrap().labels()["env"], "prod");
}

#[tokio::test(start_paused = true)]
async fn each_folder_file_is_cluster_with_own_problem() {
    let world = World::default();
    for name in ["a", "b"] {
        world.server(name);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = |name: &str, content: &str| std::fs::write(file(name), content).unwrap();
    write("one.yaml", &contexts(&["a"]));
    write("two", &contexts(&["b"]));
    write(
        "exec.yaml",
        "clusters: [{name: c, cluster: {server: 'https://c', certificate-authority-data: AAAA}}]\n\
        users: [{name: u, user: {exec: {command: /bin/false, apiVersion: v1}}}]\n\
        contexts: [{name: x, context: {cluster: c, user: u}}]\n",
    );
    write(".hidden", &contexts(&["a"]));
    write("one.yaml.tmp", "{");
    std::fs::create_dir(file("deeper")).unwrap();
    let fleet = world.fleet();
    let clusters = KubeconfigFolder::new(folder.path(), KubeconfigPolicy::hostile());
    fleet.follow(clusters.labels([("env", "test")]));
    eventually("they are there", || ids(&fleet) == ["exec", "one", "two"]).await;
    assert_eq!(fleet.cluster("two").unwrap().labels()["env"], "test");
    let refused = |fleet: &Fleet| {
        let problems = fleet.problems();
        let fields = problems.iter().map(|problem| match &problem.error {
            SpecError::Kubeconfig(KubeconfigError::Refused { field, .. }) => *field,
            other => panic!("{other}"),
        });
        fields.collect::<Vec<_>>()
    };
    assert_eq!(refused(&fleet), ["exec"]);
    for name in ["one", "two"] {
        assert!(fleet.cluster(name).unwrap().kind(&config_maps(), secs(5)).await.is_ok());
    }
    assert_eq!(
        fleet.cluster("exec").unwrap().kind(&config_maps(), secs(5)).await.unwrap_err().as_str(),
        "config"
    );

    // A half-written file is not read, however long that lasts; a deleted one removes its cluster.
    let two = fleet.cluster("two").unwrap();
    let whole = contexts(&["b"]);
    write("two", &whole[..whole.len() / 2]);
    write("one.yaml", "");
    std::fs::remove_file(file("exec.yaml")).unwrap();
    eventually("one left", || ids(&fleet) == ["one", "two"]).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(two.state().condition, Condition::Live);
    assert_eq!(fleet.problems().len(), 2, "{:?}", fleet.problems());
    write("two", &whole);
    eventually("it is whole", || fleet.problems().len() == 1).await;
    // An unreadable folder is not an empty one.
    let away = folder.path().with_extension("away");
    std::fs::rename(folder.path(), &away).unwrap();
    eventually("it is missed", || fleet.problems().iter().any(|problem| problem.cluster.is_none())).await;
    assert_eq!(ids(&fleet), ["one", "two"]);
    std::fs::rename(&away, folder.path()).unwrap();
    eventually("it is back", || fleet.problems().len() == 1).await;
}

fn secret(
    namespace: &str,
    name: &str,
    labels: serde_json::Value,
    key: &str,
    value: &str,
) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name, "labels": labels}, "stringData": {key: value}})
}

pub(super) async fn host(world: &World) -> (TestServer, Fleet) {
    let server = world.server("host");
    for name in ["team-a", "team-b"] {
        server
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .expect("a namespace");
    }
    let fleet = world.fleet();
    join(&fleet, "host");
    (server, fleet)
}

#[tokio::test(start_paused = true)]
async fn cluster_apis_secrets_are_clusters() {
    let world = World::default();
    world.server("a");
    let (server, fleet) = host(&world).await;
    let label = json!({"cluster.x-k8s.io/cluster-name": "prod"});
    server.create(secret("team-a", "prod-kubeconfig", label.clone(), "value", &contexts(&["a"]))).unwrap();
    // The same label is on a Secret without a kubeconfig.
    server.create(secret("team-a", "prod-ca", label.clone(), "value", "x")).unwrap();
    server
        .create(secret("team-a", "prod-user-kubeconfig", label.clone(), "value", &contexts(&["a"])))
        .unwrap();
    server.create(secret("team-a", "other-kubeconfig", json!({}), "value", &contexts(&["a"]))).unwrap();
    let source = SecretSource::new(
        fleet.cluster("host").unwrap(),
        SecretFlavour::ClusterApi,
        KubeconfigPolicy::hostile(),
    );
    fleet.follow(source);
    eventually("it is there", || ids(&fleet) == ["host", "prod.team-a"]).await;
    let cluster = fleet.cluster("prod.team-a").unwrap();
    assert!(cluster.kind(&config_maps(), secs(5)).await.is_ok());
    assert_eq!(cluster.labels()["cluster.x-k8s.io/cluster-name"], "prod");
    // While the host is down, its clusters stay.
    server.pause().await;
    tokio::time::sleep(secs(600)).await;
    assert_eq!(ids(&fleet), ["host", "prod.team-a"]);
    assert!(fleet.problems().iter().any(|problem| problem.source == "Cluster API Secrets in host"));
    server.resume().await.unwrap();
    eventually("it is back", || fleet.problems().is_empty()).await;
    server.delete("secrets", Some("team-a"), "prod-kubeconfig").unwrap();
    eventually("it left", || ids(&fleet) == ["host"]).await;
}

#[tokio::test(start_paused = true)]
async fn name_stays_with_its_secret() {
    let world = World::default();
    for name in ["a", "b"] {
        world.server(name);
    }
    let (server, fleet) = host(&world).await;
    let put = |name: &str, host: &str| {
        let labels = json!({"skopos.dev/cluster": "prod"});
        server.create(secret("team-a", name, labels, "kubeconfig", &contexts(&[host]))).unwrap();
    };
    put("one", "a");
    let follow = |fleet: &Fleet| {
        let host = fleet.cluster("host").unwrap();
        fleet.follow(SecretSource::new(host, SecretFlavour::Plain, KubeconfigPolicy::hostile()));
    };
    follow(&fleet);
    eventually("it is there", || ids(&fleet) == ["host", "prod.team-a"]).await;
    let cluster = fleet.cluster("prod.team-a").unwrap();
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    // A writer of Secrets creates another one, which sorts before the first.
    tokio::time::sleep(secs(2)).await;
    put("before", "b");
    eventually("it is there under a name of its own", || ids(&fleet).len() == 3).await;
    let other = ids(&fleet).remove(2);
    assert!(other.starts_with("prod.team-a-"), "{other}");
    assert_eq!(fleet.cluster(&other).unwrap().original_name().as_deref(), Some("prod.team-a"));
    assert!(fleet.cluster("prod.team-a").unwrap() == cluster);
    assert_eq!(names(&cluster, &config_maps()), ["a"]);
    // The same result without knowledge of the earlier owner.
    let late = world.fleet();
    join(&late, "host");
    follow(&late);
    eventually("both are there", || ids(&late) == ids(&fleet)).await;
    assert_eq!(late.cluster("prod.team-a").unwrap().spec().unwrap().server().host(), Some("a"));
    // When the first is gone, the other keeps its own name: no request goes to another cluster.
    server.delete("secrets", Some("team-a"), "one").unwrap();
    eventually("it left", || cluster.state().condition == Condition::Removed).await;
    assert_eq!(ids(&fleet), ["host", &*other]);
    let kept = fleet.cluster(&other).unwrap();
    kept.kind(&config_maps(), secs(5)).await.unwrap();
    assert_eq!(names(&kept, &config_maps()), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn hostile_secrets_affect_only_their_cluster() {
    let world = World::default();
    world.server("a");
    let (server, fleet) = host(&world).await;
    let labelled = |name: &str| json!({"skopos.dev/cluster": name});
    let mut put = 0;
    let mut create = |namespace: &str, label: &str, content: &str| {
        put += 1;
        server
            .create(secret(namespace, &format!("s-{put}"), labelled(label), "kubeconfig", content))
            .unwrap();
    };
    create("team-a", "prod", &contexts(&["a"]));
    let with =
        |extra: &str| contexts(&["a"]).replace("user: {token: canary-token}", &format!("user: {{{extra}}}"));
    let hostile = [
        ("exec", with("exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}")),
        ("file", with("tokenFile: /etc/passwd")),
        ("key", with("client-key: /etc/ssl/key.pem, client-certificate: /etc/ssl/cert.pem")),
        ("insecure", contexts(&["a"]).replace("    certificate-authority-data", "    insecure-skip-tls-verify: true\n    certificate-authority-data")),
        ("proxy", contexts(&["a"]).replace("    certificate-authority-data", "    proxy-url: http://evil\n    certificate-authority-data")),
        ("http", contexts(&["a"]).replace("https://a", "http://a")),
        ("dots", contexts(&["a"]).replace("https://a", "https://a/../x")),
        ("user", contexts(&["a"]).replace("https://a", "https://me:canary-password@a")),
        ("bomb", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nclusters: *c\n".into()),
        ("deep", "[".repeat(10_000)),
        ("empty", String::new()),
        ("noise", "\u{1}\u{2}canary-noise: [".into()),
    ];
    for (label, content) in &hostile {
        create("team-b", label, content);
    }
    // The name of a cluster of another namespace.
    create("team-b", "prod", &contexts(&["b"]));
    let source =
        SecretSource::new(fleet.cluster("host").unwrap(), SecretFlavour::Plain, KubeconfigPolicy::hostile());
    fleet.follow(source);
    eventually("all are there", || ids(&fleet).len() == hostile.len() + 3).await;
    let prod = fleet.cluster("prod.team-a").unwrap();
    assert!(prod.kind(&config_maps(), secs(5)).await.is_ok());
    assert_eq!(names(&prod, &config_maps()), ["a"]);
    let problems = fleet.problems();
    assert_eq!(problems.len(), hostile.len(), "{problems:#?}");
    for (label, _) in &hostile {
        let name = format!("{label}.team-b");
        let error = fleet.cluster(&name).unwrap().kind(&config_maps(), secs(5)).await.unwrap_err();
        assert_eq!(error.as_str(), "config", "{name}: {error}");
    }
    // None of their contents is shown.
    let told = format!("{problems:?} {:?} {:?}", fleet.stats(), fleet.members());
    for canary in ["canary", "/etc/passwd", "evil"] {
        assert!(!told.contains(canary), "{canary} is told");
    }
}

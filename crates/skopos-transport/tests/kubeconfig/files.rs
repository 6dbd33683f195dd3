//! Files, lists, contexts and servers.

use crate::world::{Caller, Given, Outcome, World, asked_anonymously, asked_by, base64, kubeconfig, list};

#[tokio::test]
async fn skips_missing_files_of_kubeconfig_list() {
    let world = World::start().await;
    let (there, none) =
        (world.write("a", kubeconfig(&world.cluster(), "token: t")), world.folder.path().join("none"));
    for paths in [vec![&*there, &*none], vec![&*none, &*there]] {
        world.check_given(&list(&paths), &asked_by("Bearer t")).await;
    }
    world.check_given(&Given::File(none), &Outcome::Refused).await;
}

#[tokio::test]
async fn ignores_empty_and_repeated_list_entries() {
    let world = World::start().await;
    let path = world.write("a", kubeconfig(&world.cluster(), "token: t")).display().to_string();
    world.check_given(&Given::List(format!(":{path}::{path}:")), &asked_by("Bearer t")).await;
}

#[tokio::test]
async fn rejects_list_with_broken_file() {
    let world = World::start().await;
    let good = world.write("a", kubeconfig(&world.cluster(), "token: t"));
    let broken = world.write("b", "clusters: 7");
    world.check_given(&list(&[&good, &broken]), &Outcome::Refused).await;
}

#[tokio::test]
async fn empty_current_context_defers_to_next_file() {
    let world = World::start().await;
    let good = world.write("a", kubeconfig(&world.cluster(), "token: t"));
    let new = "apiVersion: v1\nkind: Config\nclusters: null\ncontexts: null\nusers: null\n\
               current-context: \"\"\npreferences: {}\n";
    for empty in [new, "", "# nothing\n"] {
        let empty = world.write("new", empty);
        world.check_given(&list(&[&empty, &good]), &asked_by("Bearer t")).await;
    }
}

#[tokio::test]
async fn first_of_equally_named_entries_wins_whole() {
    let world = World::start().await;
    let first = world.write(
        "first",
        "users: [{name: u, user: {token: first}}]\ncontexts: [{name: other, context: {cluster: c, user: u}}]\n\
         current-context: main",
    );
    let second = world.write("second", kubeconfig(&world.cluster(), "token: second, as: jane"));
    world.check_given(&list(&[&first, &second]), &asked_by("Bearer first")).await;
    let as_jane = Outcome::Asked(Caller {
        authorization: Some("Bearer second".into()),
        impersonated: Some("jane".into()),
        path: "/version".into(),
        ..Caller::default()
    });
    world.check_given(&list(&[&second, &first]), &as_jane).await;
}

#[tokio::test]
async fn relative_paths_resolve_from_own_file() {
    let world = World::start().await;
    world.write("one/ca.crt", world.ca());
    world.write("two/token", "t");
    let cluster = format!(
        "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]",
        world.https
    );
    let one = world.write("one/config", cluster);
    let two = world.write(
        "two/config",
        "users: [{name: u, user: {tokenFile: ./token}}]\n\
         contexts: [{name: main, context: {cluster: c, user: u}}]\ncurrent-context: main",
    );
    world.check_given(&list(&[&one, &two]), &asked_by("Bearer t")).await;
}

#[tokio::test]
async fn another_kind_or_version_is_refused() {
    let world = World::start().await;
    let good = kubeconfig(&world.cluster(), "token: t");
    for (from, to, expected) in [
        ("kind: Config", "kind: Pod", Outcome::Refused),
        ("apiVersion: v1", "apiVersion: v2", Outcome::Refused),
        ("apiVersion: v1\nkind: Config\n", "", asked_by("Bearer t")),
    ] {
        let path = world.write("config", good.replace(from, to));
        world.check_given(&Given::File(path), &expected).await;
    }
}

#[tokio::test]
async fn names_that_are_given_twice_are_refused() {
    let world = World::start().await;
    let good = kubeconfig(&world.cluster(), "token: t");
    for (from, to) in [
        ("users: [", "users: [{name: u, user: {}}, "),
        ("clusters: [", "clusters: [{name: c, cluster: {}}, "),
        ("contexts: [", "contexts: [{name: main, context: {}}, "),
    ] {
        let path = world.write("config", good.replace(from, to));
        world.check_given(&Given::File(path), &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn last_of_duplicate_keys_wins() {
    let world = World::start().await;
    world.check(&world.cluster(), "token: first, token: second", &asked_by("Bearer second")).await;
}

#[tokio::test]
async fn reads_only_first_document() {
    let world = World::start().await;
    let good = kubeconfig(&world.cluster(), "token: t");
    for further in ["---\nkind: Config\ncurrent-context: other\n", "---\n{[\n"] {
        let path = world.write("config", format!("{good}{further}"));
        world.check_given(&Given::File(path), &asked_by("Bearer t")).await;
    }
}

#[tokio::test]
async fn yaml_and_json_are_read_however_they_are_written() {
    let world = World::start().await;
    let good = kubeconfig(&world.cluster(), "token: t");
    let json = serde_json::json!({
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {
            "server": world.https, "certificate-authority-data": base64(world.ca()),
        }}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
    });
    for text in [
        json.to_string(),
        format!("\u{feff}{good}"),
        good.replace('\n', "\r\n"),
        format!("{good}unknown: {{field: 7}}\n"),
    ] {
        let path = world.write("config", text);
        world.check_given(&Given::File(path), &asked_by("Bearer t")).await;
    }
}

#[tokio::test]
async fn a_current_context_that_is_missing_is_an_error() {
    let world = World::start().await;
    let text =
        kubeconfig(&world.cluster(), "token: t").replace("current-context: main", "current-context: x");
    let path = world.write("config", text);
    world.check_given(&Given::File(path), &Outcome::Refused).await;
}

#[tokio::test]
async fn a_user_that_is_missing_or_empty_is_anonymous() {
    let world = World::start().await;
    // Over TLS kubectl prompts on the terminal for a name and a password.
    let cluster = format!("server: 'http://{}'", world.http);
    for user in ["user: none", "user: ''", "namespace: x"] {
        let text = kubeconfig(&cluster, "token: t").replace("user: u}", &format!("{user}}}"));
        let path = world.write("config", text);
        world.check_given(&Given::File(path), &asked_anonymously()).await;
    }
    let text = kubeconfig(&world.cluster(), "token: t").replace("user: u}", "user: none}");
    let path = world.write("config", text);
    world.check_skopos_given(&Given::File(path), &asked_anonymously()).await;
}

#[tokio::test]
async fn rejects_missing_cluster_or_server() {
    let world = World::start().await;
    let text = kubeconfig(&world.cluster(), "token: t").replace("cluster: c,", "cluster: none,");
    let path = world.write("config", text);
    world.check_given(&Given::File(path), &Outcome::Refused).await;
    for cluster in ["server: ''", "insecure-skip-tls-verify: true"] {
        world.check(cluster, "token: t", &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn a_server_without_a_scheme_is_http() {
    let world = World::start().await;
    let localhost = format!("localhost:{}", world.http.port());
    for server in [world.http.to_string(), localhost] {
        world.check(&format!("server: '{server}'"), "token: t", &asked_anonymously()).await;
    }
    let with_path = format!("server: '{}/path'", world.http);
    world.check(&with_path, "", &Outcome::Refused).await;
}

#[tokio::test]
async fn over_plain_http_no_credentials_are_sent() {
    let world = World::start().await;
    let cluster = format!("server: 'http://{}'", world.http);
    world.write("token", "t");
    for user in ["token: t", "tokenFile: token", "username: me, password: p"] {
        world.check(&cluster, user, &asked_anonymously()).await;
    }
    let as_me = Caller { impersonated: Some("me".into()), path: "/version".into(), ..Caller::default() };
    world.check(&cluster, "as: me, token: t", &Outcome::Asked(as_me)).await;
    // Problems of the trust in a server do not matter without TLS.
    let insecure = format!("{cluster}, insecure-skip-tls-verify: true, certificate-authority-data: AAAA");
    world.check(&insecure, "", &asked_anonymously()).await;
}

#[tokio::test]
async fn keeps_path_of_server_url() {
    let world = World::start().await;
    let cluster = world.cluster().replace(&world.https, &format!("{}/k8s/clusters/c-1", world.https));
    let caller = Caller {
        authorization: Some("Bearer t".into()),
        path: "/k8s/clusters/c-1/version".into(),
        ..Caller::default()
    };
    world.check_skopos(&cluster, "token: t", &Outcome::Asked(caller)).await;
}

#[tokio::test]
async fn a_proxy_has_to_be_one_that_is_known() {
    let world = World::start().await;
    for (proxy, expected) in [
        ("''", asked_by("Bearer t")),
        ("'ftp://127.0.0.1:1'", Outcome::Refused),
        ("'127.0.0.1:1'", Outcome::Refused),
        ("'proxy.test:80'", Outcome::Refused),
    ] {
        let cluster = format!("{}, proxy-url: {proxy}", world.cluster());
        world.check(&cluster, "token: t", &expected).await;
    }
}

//! Tests beyond the comparison with kubectl in `tests/kubeconfig`.

use super::*;

fn parse(text: &str) -> Kubeconfig {
    Kubeconfig::parse(text.as_bytes(), MAX_BYTES).unwrap()
}

/// Creates a kubeconfig with one context, cluster and user of these names.
fn one(context: &str, cluster: &str, server: &str, user: &str, token: &str) -> Kubeconfig {
    parse(&format!(
        "clusters: [{{name: {cluster}, cluster: {{server: {server}}}}}]\n\
         users: [{{name: {user}, user: {{token: {token}}}}}]\n\
         contexts: [{{name: {context}, context: {{cluster: {cluster}, user: {user}}}}}]\n"
    ))
}

#[test]
fn tells_which_contexts_an_earlier_file_hides() {
    let a = || one("prod", "kubernetes", "https://a", "admin", "x");
    for (b, hidden) in [
        (one("test", "other", "https://b", "me", "y"), vec![]),
        // A copy hides nothing.
        (a(), vec![]),
        (one("prod", "other", "https://b", "me", "y"), vec!["prod"]),
        (one("test", "kubernetes", "https://b", "me", "y"), vec!["test"]),
        (one("test", "other", "https://b", "admin", "y"), vec!["test"]),
        (one("test", "kubernetes", "https://a", "me", "y"), vec![]),
    ] {
        let merged = Kubeconfig::merge([a(), b]);
        assert_eq!(merged.hidden_contexts(), hidden);
    }
    // A file may refer to a cluster of another file.
    let half = parse("contexts: [{name: test, context: {cluster: kubernetes, user: admin}}]");
    assert!(Kubeconfig::merge([a(), half]).hidden_contexts().is_empty());
}

#[test]
fn path_list_naming_existing_file_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let list = format!("{}:{}", path("a").display(), path("b").display());
    let paths = KubeconfigPaths::list(&list);
    assert_eq!((paths.files(), paths.skips_missing()), (&[path("a"), path("b")][..], true));
    assert_eq!(paths.to_string(), list);
    assert!(paths.read().unwrap_err().to_string().contains("does not exist"));
    let odd = path("a:b");
    std::fs::write(&odd, "").unwrap();
    assert_eq!(KubeconfigPaths::list(&odd), KubeconfigPaths::file(&odd));
    let missing = KubeconfigPaths::list(path("none")).read().unwrap_err().to_string();
    assert!(missing.contains("none cannot be read"), "{missing}");
}

#[test]
fn parse_error_contains_no_secret_values() {
    for (text, told) in [
        ("clusters: [{name: c}, {name: c}]", "two clusters are called \"c\""),
        ("kind: Pod", "its kind or apiVersion"),
        ("users: [{name: u, user: {token: {a: canary}}}]", "at line 1, column"),
    ] {
        let error = Kubeconfig::parse(text.as_bytes(), MAX_BYTES).unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn normalizes_kubeconfig_parsed_by_kube() {
    let text = serde_json::json!({
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "127.0.0.1:1", "tls-server-name": ""}},
            {"name": "d", "cluster": {"server": "https://127.0.0.1:2", "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": "t", "tokenFile": "/f"}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "none"}}],
    });
    let read = async |options: KubeConfigOptions| {
        config_from_kubeconfig(serde_json::from_value(text.clone()).unwrap(), &options).await.unwrap()
    };
    let config = read(KubeConfigOptions::default()).await;
    assert_eq!(config.cluster_url, "http://127.0.0.1:1");
    let options =
        KubeConfigOptions { cluster: Some("d".into()), user: Some("u".into()), ..Default::default() };
    let config = read(options).await;
    assert_eq!((config.cluster_url.host(), config.accept_invalid_certs), (Some("127.0.0.1"), true));
    assert_eq!(config.auth_info.token_file.as_deref(), Some("/f"));
}

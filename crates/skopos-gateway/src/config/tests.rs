use super::*;

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Err(ConfigError::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn empty_config_equals_default() {
    for text in ["", "# only words\n", "{}"] {
        assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text:?}");
    }
    assert!(Config::default().listen.address.ip().is_loopback());
    assert!(!Config::default().cache.secrets);
}

#[test]
fn a_whole_file_is_read() {
    let text = "\
listen:
  address: 0.0.0.0:6443
  tls: {certificate: /c.pem, key: /k.pem}
  limits: {idle: 1m30s, headerBytes: 32768, halfOpen: 10}
authentication:
  clientCertificates: {ca: /ca.pem}
  oidc: {issuer: 'https://id.example.com', audiences: [skopos]}
authorization:
  whenMemberIsDown: Policy
  policy:
  - {groups: [ops], verbs: [get, list, watch]}
clusters:
  kubeconfigs: [{path: /kube/config, contexts: [a, b], labels: {env: prod}}]
  folders: [{path: /clusters, allow: {exec: true}}]
  secrets: [{flavour: ClusterApi, host: {context: management}}]
cache:
  maxAge: 10s
  kinds: [{resource: pods}, {group: apps, resource: deployments}]
checkpoints: {folder: /var/lib/skopos}
";
    // The schema has sizes as strings, so the number must be quoted.
    let config = Config::parse(&text.replace("32768", "32Ki")).unwrap();
    assert_eq!(config.cache.kinds[1].group, "apps");
    assert_eq!(config.clusters.kubeconfigs[0].labels["env"], "prod");
    assert_eq!(config.authentication.oidc.as_ref().unwrap().username_prefix, "oidc:");
    let written = serde_saphyr::to_string(&config).unwrap();
    assert_eq!(Config::parse(&written).unwrap(), config, "{written}");
}

#[test]
fn every_problem_is_reported_with_line() {
    let found = problems(
        "\
listen:
  adress: 127.0.0.1:80
  limits:
    idle: soon
    connections: 0
    streams: many
clusters:
  secrets:
  - flavour: Other
  - namespaces: [a]
cache: 5
nonsense: {a: 1}
",
    );
    assert_eq!(
        found,
        [
            "line 2, column 3: listen: \"adress\" is not known; \"address\" is",
            "line 4, column 11: listen.limits.idle: \"soon\" is no span of time: write it as 500ms, 30s, 1m30s or 2h",
            "line 5, column 18: listen.limits.connections: must be at least 1, and is 0",
            "line 6, column 14: listen.limits.streams: must be a whole number, and is a text",
            "line 9, column 14: clusters.secrets[0].flavour: \"Other\" must be one of ClusterApi, Plain, ArgoCd",
            "line 10, column 5: clusters.secrets[1]: \"flavour\" is missing",
            "line 11, column 8: cache: must be a map, and is a number",
            "line 12, column 1: \"nonsense\" is not known; there is authentication, authorization, cache, checkpoints, \
             clusters, listen, metrics, outbound, replicas",
        ]
    );
}

#[test]
fn public_address_requires_tls_and_authentication() {
    let found = problems("listen:\n  address: 0.0.0.0:8001\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().all(|problem| problem.starts_with("line 2, column 12: listen.address: ")),
        "{found:?}"
    );
    let tls = "listen:\n  address: '[::]:8001'\n  tls: {certificate: a, key: b}\n";
    assert_eq!(problems(tls).len(), 1);
    Config::parse(&format!("{tls}authentication: {{clientCertificates: {{ca: c}}}}\n")).unwrap();
    Config::parse("listen: {address: '[::1]:8001'}").unwrap();
}

#[test]
fn checks_dependent_fields_together() {
    let found = problems(
        "\
authentication:
  tokenReview: {cluster: a}
  oidc: {issuer: 'http://id', audiences: []}
authorization:
  mode: Policy
  cache: 1m
  loopback: Trusted
",
    );
    let fields: Vec<&str> = found.iter().map(|p| p.split(": ").nth(1).unwrap()).collect();
    assert_eq!(
        fields,
        [
            "authentication.tokenReview",
            "authentication.oidc",
            "authentication.oidc.issuer",
            "authentication.oidc.audiences",
            "authorization.policy",
            "authorization.cache",
            "authorization.loopback",
        ]
    );
}

#[test]
fn shutdown_delay_follows_address_and_is_bounded() {
    let delay = |text: &str| Config::parse(text).unwrap().listen.shutdown_delay().as_secs();
    let outside = "listen: {address: '0.0.0.0:6443', tls: {certificate: c, key: k}}\nauthentication: {clientCertificates: {ca: c}}\n";
    assert_eq!((delay(""), delay(outside), delay("listen: {shutdownDelay: 10s}")), (0, 5, 10));
    let found = problems("listen: {shutdownDelay: 2m}");
    assert!(found.len() == 1 && found[0].contains("listen.shutdownDelay: must be at most"), "{found:?}");
}

#[test]
fn system_of_conflicts_with_shared_accounts() {
    let with = |more: &str| {
        let tls = "listen: {tls: {certificate: c, key: k}}";
        format!("{tls}\nauthentication: {{clientCertificates: {{ca: c, {more}}}}}\n")
    };
    Config::parse(&with("systemOf: a")).unwrap();
    Config::parse(&with("sharedAccounts: true")).unwrap();
    let found = problems(&with("systemOf: a, sharedAccounts: true"));
    assert!(found.len() == 1 && found[0].contains("authentication.clientCertificates.systemOf"), "{found:?}");
}

#[test]
fn checkpoints_go_into_a_folder_or_into_a_bucket() {
    let text = "\
checkpoints:
  bucket:
    url: s3://skopos-prod/west
    endpoint: https://minio.example.com:9000
    region: eu-central-1
    ca: /etc/skopos/minio.crt
    credentials: {accessKey: /etc/skopos/s3/access, secretKey: /etc/skopos/s3/secret}
    deadline: 2m
  every: 1m
";
    let config = Config::parse(text).unwrap();
    let bucket = config.checkpoints.as_ref().unwrap().bucket.as_ref().unwrap();
    assert_eq!(
        (bucket.answer, bucket.deadline, bucket.allow_http),
        (Span::seconds(3), Span::seconds(120), false)
    );
    let written = serde_saphyr::to_string(&config).unwrap();
    assert_eq!(Config::parse(&written).unwrap(), config, "{written}");
    Config::parse("checkpoints: {bucket: {url: s3://skopos-prod, endpoint: 'http://127.0.0.1:9000'}}")
        .unwrap();
    Config::parse(
        "checkpoints: {bucket: {url: s3://skopos-prod, endpoint: 'http://minio', allowHttp: true}}",
    )
    .unwrap();

    assert_eq!(
        problems("checkpoints:\n  every: 1m\n"),
        ["line 2, column 3: checkpoints: must name a folder or a bucket"]
    );
    let wrong = "\
checkpoints:
  folder: /var/lib/skopos
  bucket:
    url: https://skopos-prod/west
    endpoint: http://user:hunter2@minio.example.com
    answer: 11s
    deadline: 1s
";
    let found = problems(wrong);
    assert!(!found.join(" ").contains("hunter2"), "{found:?}");
    assert_eq!(
        found,
        [
            "line 4, column 5: checkpoints.bucket: is in place of a folder: there is one already",
            "line 4, column 10: checkpoints.bucket.url: must be written as s3://BUCKET/PREFIX",
            "line 5, column 15: checkpoints.bucket.endpoint: must not have a user or a password: there is credentials",
            "line 6, column 13: checkpoints.bucket.answer: must be more than nothing and at most 10s",
            "line 7, column 15: checkpoints.bucket.deadline: must be at least as long as answer",
        ]
    );
    let clear = problems("checkpoints:\n  bucket:\n    url: s3://abc\n    endpoint: http://minio:9000\n");
    assert!(
        clear[0].starts_with("line 4, column 15: checkpoints.bucket.endpoint: is without TLS"),
        "{clear:?}"
    );
    let unknown = problems("checkpoints:\n  bucket:\n    url: s3://abc\n    secretKey: hunter2\n");
    assert!(
        unknown[0].starts_with("line 4, column 5: checkpoints.bucket: \"secretKey\" is not known"),
        "{unknown:?}"
    );
    assert!(!unknown[0].contains("hunter2"));
}

#[test]
fn access_provider_has_one_kind_of_credentials() {
    let profiles = |fields: &str| format!("clusters:\n  clusterProfiles:\n  - {fields}\n");
    let config = Config::parse(&profiles(
        "{namespaces: [fleet], providers: [{name: google, exec: {command: gke}}, {name: b, tokenFile: /t}, {name: c, secret: {}}]}",
    ));
    let config = config.unwrap();
    let providers = &config.clusters.cluster_profiles[0].providers;
    let plugin = providers[0].exec.as_ref().unwrap();
    assert!(plugin.provide_cluster_info && plugin.api_version == "client.authentication.k8s.io/v1");
    assert_eq!(providers[2].secret.as_ref().unwrap().key, "token");
    let written = serde_saphyr::to_string(&config).unwrap();
    assert_eq!(Config::parse(&written).unwrap(), config, "{written}");
    let found = problems(&profiles(
        "{providers: [{name: a}, {name: a, tokenFile: /t, exec: {command: c}}, {name: c, secret: {}}]}",
    ));
    let found: Vec<&str> = found.iter().map(|problem| problem.split_once(": ").unwrap().1).collect();
    assert_eq!(
        found,
        [
            "clusters.clusterProfiles[0].providers[0]: must have one of exec, tokenFile and secret",
            "clusters.clusterProfiles[0].providers[1]: must have one of exec, tokenFile and secret",
            "clusters.clusterProfiles[0].providers[1]: \"a\" is named before: remove one of them",
            "clusters.clusterProfiles[0].providers[2]: has tokens in Secrets, and all Secrets beside the profiles are watched: set \
             namespaces",
        ]
    );
    assert!(problems(&profiles("{}"))[0].contains("must name at least one"));
}

#[test]
fn labels_of_clusters_are_labels() {
    let labels =
        |labels: &str| problems(&format!("clusters:\n  folders:\n  - path: /a\n    labels: {labels}\n"));
    Config::parse("clusters: {folders: [{path: /a, labels: {env: prod, example.com/zone: a.b_c}}]}").unwrap();
    let wrong = labels("{-env: prod, env: a b}");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong[0].starts_with(
            "line 4, column 13: clusters.folders[0].labels: \"-env\": name part must consist of"
        ),
        "{wrong:?}"
    );
    assert_eq!(
        labels("{env: 5}"),
        ["line 4, column 19: clusters.folders[0].labels.env: must be a text, and is a number"]
    );
}

#[test]
fn invalid_yaml_is_reported_with_line() {
    let found = problems("listen:\n  address: [\n");
    assert!(found[0].starts_with("line "), "{found:?}");
    assert_eq!(problems("a: 1\na: 2\n").len(), 1);
}

#[test]
fn shipped_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config.schema.json");
    let written = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    if std::env::var_os("SKOPOS_WRITE_SCHEMA").is_some() {
        std::fs::write(path, &written).unwrap();
    }
    let shipped = std::fs::read_to_string(path).unwrap_or_default();
    assert!(shipped == written, "config.schema.json is old: write it with SKOPOS_WRITE_SCHEMA=1 cargo test");
}

#[tokio::test(start_paused = true)]
async fn bad_change_is_refused_and_old_config_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "cache: {maxAge: 5s}\n").unwrap();
    let follower = ConfigFollower::open(path.clone()).unwrap();
    let mut state = follower.subscribe();
    let stop = tokio_util::sync::CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    // The conflict may be outside the file and temporary.
    let in_the_way = folder.path().join("in-the-way");
    let seen = in_the_way.clone();
    tasks.spawn(follower.run(stop.clone(), move |_| match seen.exists() {
        true => Err("something is in the way".into()),
        false => Ok(()),
    }));

    std::fs::write(&path, "cache: {maxAge: 5s\n").unwrap();
    let refused = state.wait_for(|state| state.refused.is_some()).await.unwrap().clone();
    assert_eq!((refused.generation, refused.config.cache.max_age), (1, Span::seconds(5)));
    assert!(refused.refused.unwrap().reason.contains("line "));

    std::fs::write(&path, "cache: {maxAge: 7s}\n").unwrap();
    let taken = state.wait_for(|state| state.generation == 2).await.unwrap().clone();
    assert_eq!(taken.config.cache.max_age, Span::seconds(7));
    assert!(taken.refused.is_none());

    std::fs::write(&in_the_way, "").unwrap();
    std::fs::write(&path, "cache: {maxAge: 8s}\n").unwrap();
    let refused = state.wait_for(|state| state.refused.is_some()).await.unwrap().clone();
    assert_eq!((refused.generation, refused.config.cache.max_age), (2, Span::seconds(7)));
    assert_eq!(&*refused.refused.unwrap().reason, "something is in the way");
    std::fs::remove_file(&in_the_way).unwrap();
    let taken = state.wait_for(|state| state.generation == 3).await.unwrap().clone();
    assert!(taken.refused.is_none() && taken.config.cache.max_age == Span::seconds(8));

    // A missing file does not mean an empty configuration.
    std::fs::remove_file(&path).unwrap();
    let gone = state.wait_for(|state| state.refused.is_some()).await.unwrap().clone();
    assert_eq!(gone.generation, 3);
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

/// Collects the names of all fields of a schema, as `clusters.folders[].path`.
fn fields(root: &serde_json::Value, schema: &serde_json::Value, prefix: &str, found: &mut Vec<String>) {
    let mut schema = schema;
    loop {
        let some = schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
        let reference = schema["$ref"].as_str().and_then(|name| root.pointer(name.trim_start_matches('#')));
        match some.or(reference) {
            Some(inner) => schema = inner,
            None => break,
        }
    }
    if schema["items"].is_object() {
        return fields(root, &schema["items"], &format!("{prefix}[]"), found);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let field = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        found.push(field.clone());
        fields(root, inner, &field, found);
    }
}

/// Collects the names of all fields that a file sets.
fn set(value: &serde_json::Value, prefix: &str, found: &mut Vec<String>) {
    for item in value.as_array().into_iter().flatten() {
        set(item, &format!("{prefix}[]"), found);
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let field = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        found.push(field.clone());
        set(inner, &field, found);
    }
}

#[test]
fn example_loads_and_names_every_field() {
    let example = include_str!("../../../../docs/reference/gateway.example.yaml");
    let alternative: String = example
        .lines()
        .filter(|line| !line.trim_start().starts_with("folder:") && !line.contains("#| in place"))
        .map(|line| line.replacen("#| ", "", 1) + "\n")
        .collect();
    let mut named = Vec::new();
    for text in [example, &alternative] {
        Config::parse(text).unwrap_or_else(|error| panic!("{error}"));
        set(&serde_saphyr::from_str(text).unwrap(), "", &mut named);
    }
    let root = json_schema();
    let mut known = Vec::new();
    fields(&root, &root, "", &mut known);
    let missing: Vec<_> = known.iter().filter(|field| !named.contains(field)).collect();
    assert!(
        known.len() > 100 && missing.is_empty(),
        "docs/reference/gateway.example.yaml does not name {missing:?}"
    );
}

#[test]
fn accepts_path_and_kubeconfig_as_aliases() {
    let of = |kubeconfig: &str, host: &str| {
        Config::parse(&format!(
            "clusters: {{kubeconfigs: [{{{kubeconfig}: /a}}], vclusters: [{{host: {{{host}: /b}}}}]}}"
        ))
    };
    let wanted = of("path", "kubeconfig").unwrap();
    assert_eq!(wanted.clusters.vclusters[0].host.kubeconfig.as_deref(), Some(std::path::Path::new("/b")));
    assert_eq!(of("kubeconfig", "path").unwrap(), wanted);
    let twice =
        Config::parse("clusters: {kubeconfigs: [{path: /a, kubeconfig: /a}]}").unwrap_err().to_string();
    assert!(twice.contains("\"path\" is given twice: remove one"), "{twice}");
    let none = Config::parse("clusters: {kubeconfigs: [{contexts: [a]}]}").unwrap_err().to_string();
    assert!(none.contains("\"path\" is missing"), "{none}");
}

#[test]
fn number_without_unit_is_answered_with_suggestion() {
    let error = Config::parse("cache: {maxAge: 30, bytesPerCluster: 512}").unwrap_err().to_string();
    assert!(error.contains("cache.maxAge: write a duration with a unit: 30s"), "{error}");
    assert!(error.contains("cache.bytesPerCluster: write a size in quotes or with a unit: 512Mi"), "{error}");
}

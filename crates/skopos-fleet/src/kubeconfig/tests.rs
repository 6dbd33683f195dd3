use std::error::Error as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::*;
use crate::address::AddressPolicy;

/// A secret that must never be shown.
const CANARY: &str = "c4n4ry-7Tz";

const PLUGIN_TOLD: &str =
    "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1beta1, provideClusterInfo: true}";

const CA: &str = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n";

fn b64(text: &str) -> String {
    STANDARD.encode(text)
}

/// Returns a kubeconfig with these fields of cluster and user, each a line.
fn kubeconfig(cluster: &[&str], user: &[&str]) -> String {
    let lines = |lines: &[&str]| lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
         clusters:\n- name: c\n  cluster:\n{}\
         users:\n- name: u\n  user:\n{}\
         contexts:\n- name: main\n  context: {{cluster: c, user: u, namespace: shop}}\n",
        lines(cluster),
        lines(user)
    )
}

fn good_cluster() -> Vec<String> {
    vec!["server: https://10.0.0.1:6443".to_owned(), format!("certificate-authority-data: {}", b64(CA))]
}

fn read(cluster: &[&str], user: &[&str], policy: &KubeconfigPolicy) -> Result<ClusterSpec, KubeconfigError> {
    Kubeconfig::parse(kubeconfig(cluster, user).as_bytes(), policy)?.cluster(None)
}

/// Parses a valid cluster with one more line.
fn with_cluster(line: &str, policy: &KubeconfigPolicy) -> Result<ClusterSpec, KubeconfigError> {
    let mut lines = good_cluster();
    lines.push(line.to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    read(&lines, &["token: t"], policy)
}

fn with_user(lines: &[&str], policy: &KubeconfigPolicy) -> Result<ClusterSpec, KubeconfigError> {
    let cluster = good_cluster();
    let cluster: Vec<&str> = cluster.iter().map(String::as_str).collect();
    read(&cluster, lines, policy)
}

type Switch = fn(&mut KubeconfigPolicy);

#[test]
fn dangerous_field_needs_its_own_switch() {
    let cluster: [(&str, &str, Switch); 3] = [
        ("certificate-authority: /etc/passwd", "certificate-authority", |p| {
            p.allow_certificate_authority_file = true
        }),
        ("insecure-skip-tls-verify: true", "insecure-skip-tls-verify", |p| {
            p.allow_insecure_skip_tls_verify = true
        }),
        ("proxy-url: http://10.0.0.9:3128", "proxy-url", |p| {
            p.allow_proxy = true;
            p.addresses = AddressPolicy::anywhere();
        }),
    ];
    let user: [(&str, &str, Switch); 5] = [
        ("exec: {command: sh, apiVersion: client.authentication.k8s.io/v1beta1}", "exec", |p| {
            p.allow_exec = true
        }),
        ("auth-provider: {name: gcp}", "auth-provider", |p| p.allow_auth_provider = true),
        ("client-certificate: /x", "client-certificate", |p| p.allow_client_certificate_file = true),
        ("client-key: /x", "client-key", |p| p.allow_client_key_file = true),
        ("tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token", "tokenFile", |p| {
            p.allow_token_file = true
        }),
    ];
    let all: Vec<(bool, &str, &str, Switch)> = cluster
        .into_iter()
        .map(|(line, field, switch)| (true, line, field, switch))
        .chain(user.into_iter().map(|(line, field, switch)| (false, line, field, switch)))
        .collect();
    for (of_cluster, line, field, switch) in &all {
        let try_with = |policy: &KubeconfigPolicy| match of_cluster {
            true => with_cluster(line, policy),
            false => with_user(&[line], policy),
        };
        let error = try_with(&KubeconfigPolicy::hostile()).expect_err(line);
        let KubeconfigError::Refused { field: named, switch: advice, .. } = &error else {
            panic!("{line}: {error}")
        };
        assert_eq!(named, field);
        assert!(advice.is_some(), "{line}");
        // Every other switch does not allow it.
        let mut others = KubeconfigPolicy::hostile();
        all.iter().filter(|(.., other, _)| other != field).for_each(|(.., other)| other(&mut others));
        assert!(
            matches!(try_with(&others), Err(KubeconfigError::Refused { field: f, .. }) if f == *field),
            "{line}"
        );
        // Only its own switch. What kubectl refuses besides, such as a CA given twice, is another error.
        let mut own = KubeconfigPolicy::hostile();
        switch(&mut own);
        for policy in [own, KubeconfigPolicy::trusted()] {
            let tried = try_with(&policy);
            assert!(!matches!(tried, Err(KubeconfigError::Refused { .. })), "{line}: {tried:?}");
        }
    }
}

#[test]
fn proxy_requires_unrestricted_addresses() {
    let line = "proxy-url: 'socks5://me:c4n4ry@10.0.0.9:1080'";
    let spec = with_cluster(line, &KubeconfigPolicy::trusted()).unwrap();
    assert_eq!(spec.config().proxy_url.unwrap(), "socks5://me:c4n4ry@10.0.0.9:1080");
    let other = with_cluster("proxy-url: 'socks5://me:other@10.0.0.9:1080'", &KubeconfigPolicy::trusted());
    assert!(!spec.connects_as(&other.unwrap()), "connections through it are others");
    // With an address policy, the switch alone is not enough.
    for addresses in [AddressPolicy::outside(), AddressPolicy::anywhere().deny("10.0.0.0/8".parse().unwrap())]
    {
        let policy = KubeconfigPolicy { allow_proxy: true, addresses, ..KubeconfigPolicy::hostile() };
        let error = with_cluster(line, &policy).unwrap_err();
        let KubeconfigError::Refused { field: "proxy-url", switch: None, .. } = &error else {
            panic!("{error}")
        };
        assert!(!format!("{error:?} {error}").contains("c4n4ry"));
        assert_eq!(with_cluster("proxy-url: ''", &policy).unwrap().config().proxy_url, None);
    }
    let error = with_cluster("proxy-url: 'c4n4ry no url'", &KubeconfigPolicy::trusted()).unwrap_err();
    assert_eq!(error, KubeconfigError::Invalid { field: "proxy-url", reason: "is not a URL" });
}

#[test]
fn a_file_stays_refused_beside_inline_data() {
    let data = format!("client-key-data: {}", b64("-----BEGIN PRIVATE KEY-----"));
    let error = with_user(&[&data, "client-key: /etc/shadow"], &KubeconfigPolicy::hostile()).unwrap_err();
    assert!(matches!(error, KubeconfigError::Refused { field: "client-key", .. }), "{error}");
}

#[test]
fn requires_inline_certificate_authority() {
    let server = "server: https://10.0.0.1";
    let hostile = KubeconfigPolicy::hostile();
    assert_eq!(read(&[server], &[], &hostile).unwrap_err(), KubeconfigError::NoCertificateAuthority);
    let empty = read(&[server, "certificate-authority-data: ''"], &[], &hostile).unwrap_err();
    assert_eq!(empty, KubeconfigError::NoCertificateAuthority);
    for (data, reason) in [("%%%", "is not base64"), (&*b64("nothing"), "holds no PEM certificate")] {
        let line = format!("certificate-authority-data: '{data}'");
        let error = read(&[server, &line], &[], &hostile).unwrap_err();
        assert_eq!(error, KubeconfigError::Invalid { field: "certificate-authority-data", reason });
    }
    let spec = read(&[server], &[], &KubeconfigPolicy::trusted()).unwrap();
    assert!(spec.config().root_cert.is_none(), "the system's roots");
    let cluster = good_cluster();
    let cluster: Vec<&str> = cluster.iter().map(String::as_str).collect();
    let spec = read(&cluster, &["token: abc"], &hostile).unwrap();
    assert_eq!(spec.config().root_cert, Some(vec![vec![0, 1, 2]]));
    assert_eq!(spec.namespace(), "shop");
    assert_eq!(spec.config().auth_info.token.unwrap().expose_secret(), "abc");
    assert_eq!(*spec.addresses(), AddressPolicy::outside());
}

#[test]
fn accepts_only_plain_https_server_url() {
    let ca = good_cluster().remove(1);
    let hostile = KubeconfigPolicy::hostile();
    for bad in [
        "",
        "10.0.0.1:6443",
        "ftp://10.0.0.1",
        "file:///etc/passwd",
        "unix:///var/run/docker.sock",
        "https://",
        "https://user:password@10.0.0.1",
        "https://user@10.0.0.1",
        "https://10.0.0.1:0",
        "https://10.0.0.1:99999",
        "https://10.0.0.1/?a=b",
        "https://10.0.0.1/#a",
        "https://10.0.0.1/a/../b",
        "https://10.0.0.1/%2e%2e/b",
        "https://10.0.0.1 evil",
    ] {
        let line = format!("server: '{bad}'");
        let error = read(&[&line, &ca], &[], &hostile).expect_err(bad);
        assert!(matches!(error, KubeconfigError::Server { .. }), "{bad}: {error}");
        assert!(!error.to_string().contains("password@"), "{error}");
    }
    let error = read(&["server: http://10.0.0.1", &ca], &[], &hostile).unwrap_err();
    assert!(matches!(error, KubeconfigError::Refused { switch: Some("allow_http"), .. }), "{error}");
    for good in [
        "https://10.0.0.1",
        "https://[fd00::1]:6443",
        "https://k8s.example/k8s/clusters/c-1",
        "HTTPS://a.b:1/",
    ] {
        let line = format!("server: '{good}'");
        read(&[&line, &ca], &[], &hostile).unwrap_or_else(|error| panic!("{good}: {error}"));
    }
}

#[test]
fn size_depth_and_aliases_are_bounded() {
    let hostile = KubeconfigPolicy::hostile();
    let large = vec![b'#'; hostile.max_bytes + 1];
    assert!(matches!(Kubeconfig::parse(&large, &hostile), Err(KubeconfigError::TooLarge { .. })));
    let deep = format!("clusters: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(matches!(Kubeconfig::parse(deep.as_bytes(), &hostile), Err(KubeconfigError::Malformed { .. })));
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let previous = format!("*a{}", i - 1);
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", [previous.as_str(); 9].join(", ")));
    }
    bomb.push_str("users: *a11\n");
    assert!(matches!(Kubeconfig::parse(bomb.as_bytes(), &hostile), Err(KubeconfigError::Malformed { .. })));
}

#[test]
fn parts_that_are_missing_are_named() {
    let policy = KubeconfigPolicy::hostile();
    let parse = |text: &str| Kubeconfig::parse(text.as_bytes(), &policy).unwrap();
    for empty in ["", "{}", "null", "clusters:\nusers:\ncontexts:\n"] {
        assert!(
            matches!(parse(empty).cluster(None), Err(KubeconfigError::Missing { what: "context", .. })),
            "{empty}"
        );
    }
    let lonely = parse("contexts: [{name: a, context: {cluster: c, user: u}}]");
    assert_eq!(lonely.contexts().collect::<Vec<_>>(), ["a"]);
    let error = lonely.cluster(Some("a")).unwrap_err();
    assert_eq!(error.to_string(), "there is no cluster \"c\"");
    let forged = lonely.cluster(Some("x\n2026 INFO all is well")).unwrap_err();
    assert!(!forged.to_string().contains('\n'), "{forged}");
    // A missing user is not an error: the client is anonymous, as with kubectl.
    let cluster: Vec<String> = good_cluster();
    let cluster: Vec<&str> = cluster.iter().map(String::as_str).collect();
    let anonymous = kubeconfig(&cluster, &["token: t"]).replace("name: u\n", "name: other\n");
    assert!(parse(&anonymous).cluster(None).unwrap().config().auth_info.token.is_none());
}

#[test]
fn no_secret_is_ever_shown() {
    let pem = |kind: &str| b64(&format!("-----BEGIN {kind}-----\n{CANARY}\n-----END {kind}-----"));
    let users = [
        vec![format!("token: {CANARY}")],
        vec![format!("token: '{CANARY} with spaces'")],
        vec![format!("token: [{CANARY}]")],
        vec![format!("token: {{a: {CANARY}}}")],
        vec![format!("username: me"), format!("password: {CANARY}")],
        vec![format!("password: {CANARY}: : :")],
        vec![format!("password: \"{CANARY}")],
        vec![format!("client-key-data: {CANARY}!")],
        vec![format!("client-key-data: {}", b64(CANARY))],
        vec![
            format!("client-key-data: {}", pem("PRIVATE KEY")),
            format!("client-certificate-data: {}", pem("CERTIFICATE")),
        ],
        vec![format!("exec: {{command: x, args: [{CANARY}]}}")],
        vec![format!("exec: {CANARY}")],
        vec![format!("auth-provider: {{name: x, config: {{access-token: {CANARY}}}}}")],
        vec![format!("as-groups: {CANARY}")],
        vec![format!("token: x"), format!("token: {CANARY}")],
    ];
    let coded = b64(CANARY);
    let check = |what: &str, text: String| {
        assert!(!text.contains(CANARY) && !text.contains(&*coded), "{what} shows the canary: {text}");
    };
    for policy in [KubeconfigPolicy::hostile(), KubeconfigPolicy::trusted()] {
        for user in &users {
            let lines: Vec<&str> = user.iter().map(String::as_str).collect();
            let text = kubeconfig(&["server: https://10.0.0.1:1"], &lines);
            let parsed = Kubeconfig::parse(text.as_bytes(), &policy);
            check("parsed", format!("{parsed:?}"));
            let result = parsed.and_then(|parsed| parsed.cluster(None));
            check("spec", format!("{result:?} {result:#?}"));
            if let Err(error) = result {
                check("error", format!("{error} {:?}", error.source()));
            }
        }
        let server = read(&[&format!("server: https://u:{CANARY}@10.0.0.1")], &[], &policy).unwrap_err();
        check("server", format!("{server} {server:?}"));
    }
}

#[test]
fn relative_paths_resolve_from_kubeconfig_folder() {
    let text = kubeconfig(
        &["server: https://10.0.0.1", "certificate-authority: ca.crt"],
        &["tokenFile: /abs/token", "client-key: ../key", "client-certificate: cert"],
    );
    let parsed =
        Kubeconfig::parse(text.as_bytes(), &KubeconfigPolicy::trusted()).unwrap().in_folder("/home/me/.kube");
    let config = parsed.cluster(None).unwrap().config();
    assert_eq!(config.root_cert_file.unwrap(), Path::new("/home/me/.kube/ca.crt"));
    assert_eq!(config.auth_info.token_file.as_deref(), Some("/abs/token"));
    assert_eq!(config.auth_info.client_key.as_deref(), Some("/home/me/.kube/../key"));
}

#[test]
fn a_plugin_is_run_from_where_kubectl_runs_it() {
    for (command, run) in [
        ("./plugin", "/home/me/.kube/./plugin"),
        ("bin/plugin", "/home/me/.kube/bin/plugin"),
        ("/bin/plugin", "/bin/plugin"),
        ("aws", "aws"),
    ] {
        let text = kubeconfig(
            &["server: https://10.0.0.1"],
            &[&format!("exec: {{command: {command}, apiVersion: client.authentication.k8s.io/v1beta1}}")],
        );
        let parsed = Kubeconfig::parse(text.as_bytes(), &KubeconfigPolicy::trusted()).unwrap();
        let exec = parsed.in_folder("/home/me/.kube").cluster(None).unwrap().config().auth_info.exec.unwrap();
        assert_eq!(exec.command.as_deref(), Some(run));
        assert!(exec.cluster.is_none(), "it does not want to know");
    }
}

#[test]
fn exec_plugin_receives_cluster_info_on_request() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.crt"), CA).unwrap();
    let inline = format!("certificate-authority-data: {}", b64(CA));
    for (authority, told) in [
        (&*inline, Some(CA.as_bytes().to_vec())),
        ("certificate-authority: ca.crt", Some(CA.as_bytes().to_vec())),
        ("certificate-authority: nowhere.crt", None),
    ] {
        let spec = |audience: &str| {
            let extension = format!(
                "extensions: [{{name: client.authentication.k8s.io/exec, extension: {{for: {audience}}}}}]"
            );
            let cluster = ["server: https://10.0.0.1", authority, "tls-server-name: api", &extension];
            let text = kubeconfig(&cluster, &[PLUGIN_TOLD]);
            let parsed = Kubeconfig::parse(text.as_bytes(), &KubeconfigPolicy::trusted()).unwrap();
            parsed.in_folder(folder.path()).cluster(None).unwrap()
        };
        let cluster = spec("me").config().auth_info.exec.unwrap().cluster.unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("api"));
        assert_eq!(cluster.certificate_authority_data, told, "{authority}");
        assert_eq!(cluster.config, Some(serde_json::json!({"for": "me"})));
        assert!(spec("me").connects_as(&spec("me")) && !spec("me").connects_as(&spec("you")));
    }
}

#[test]
fn a_changed_secret_makes_another_connection() {
    let spec = |token: &str| with_user(&[&format!("token: {token}")], &KubeconfigPolicy::hostile()).unwrap();
    assert!(spec("a").connects_as(&spec("a")));
    assert!(!spec("a").connects_as(&spec("b")));
    let relabelled = spec("a").with_labels([("x", "y")]);
    assert!(spec("a").connects_as(&relabelled));
    assert!(!spec("a").connects_as(&spec("a").with_addresses(AddressPolicy::anywhere())));
}

proptest! {
    /// Checks that random input yields only errors, and that no dangerous feature is allowed.
    #[test]
    fn noise_is_refused_or_harmless(
        server in "[ -~]{0,30}", field in "[a-zA-Z-]{1,30}", value in "[ -~]{0,40}", cut in 0usize..600,
    ) {
        let text = kubeconfig(&[&format!("server: {server}"), &format!("{field}: {value}")], &[&format!("{field}: {value}")]);
        let policy = KubeconfigPolicy::hostile();
        for text in [&text[..], &text[..cut.min(text.len())]] {
            let Ok(parsed) = Kubeconfig::parse(text.as_bytes(), &policy) else { continue };
            let contexts: Vec<String> = parsed.contexts().map(str::to_owned).collect();
            for context in contexts {
                let Ok(spec) = parsed.cluster(Some(&context)) else { continue };
                let config = spec.config();
                prop_assert_eq!(config.cluster_url.scheme_str(), Some("https"));
                prop_assert!(config.root_cert.is_some() && config.root_cert_file.is_none() && !config.accept_invalid_certs);
                let auth = config.auth_info;
                prop_assert!(auth.exec.is_none() && auth.auth_provider.is_none() && auth.token_file.is_none());
                prop_assert!(auth.client_key.is_none() && auth.client_certificate.is_none() && config.proxy_url.is_none());
            }
        }
    }

    #[test]
    fn bytes_are_refused_or_harmless(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(parsed) = Kubeconfig::parse(&bytes, &KubeconfigPolicy::hostile()) {
            prop_assert!(parsed.cluster(None).is_err());
        }
    }
}

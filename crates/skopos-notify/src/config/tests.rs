use super::*;
use crate::service::NotifierSink;

const GOOD: &str = "\
sinks:
- name: zone
  dns: {zone: apps.example.test, server: '127.0.0.1:53', ttl: 30s}
  from:
  - services: {types: [LoadBalancer]}
  - endpoints: {headless: true, name: '{service}'}
- name: edge
  haproxy: {socket: /run/haproxy/admin.sock, drain: 2m}
  from: [{endpoints: {labels: {edge: 'true'}}}]
";

#[test]
fn a_good_file_makes_sinks() {
    let sinks = NotifyConfig::parse(GOOD).unwrap().sinks().unwrap();
    assert_eq!(sinks.iter().map(|sink| sink.name()).collect::<Vec<_>>(), ["zone", "edge"]);
    let NotifierSink::State(edge) = &sinks[1] else { panic!("a balancer is read back") };
    assert_eq!(edge.plan.drain.as_secs(), 120);
}

#[test]
fn example_loads_and_names_every_field() {
    let example = include_str!("../../../../docs/reference/notify.example.yaml");
    NotifyConfig::parse(example).unwrap_or_else(|error| panic!("{error}"));
    let schema = skopos_config::json_schema::<NotifyConfig>();
    let definitions = schema["$defs"].as_object().into_iter().flat_map(|all| all.values()).chain([&schema]);
    let fields =
        definitions.filter_map(|part| part["properties"].as_object()).flat_map(|fields| fields.keys());
    let missing: Vec<_> = fields.filter(|field| !example.contains(&format!("{field}:"))).collect();
    assert!(missing.is_empty(), "docs/reference/notify.example.yaml does not name {missing:?}");
}

#[test]
fn every_problem_is_reported_with_line() {
    let bad = GOOD
        .replace("ttl: 30s", "ttl: soon")
        .replace("name: edge", "name: edge\n  dnss: {}")
        .replace("{labels: {edge: 'true'}}", "{headles: true}");
    let error = NotifyConfig::parse(&bad).unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    assert!(lines[0].starts_with("line 3, ") && lines[0].contains("sinks[0].dns.ttl"), "{error}");
    assert!(lines[1].starts_with("line 8, ") && lines[1].contains("dns"), "{error}");
    assert!(lines[2].contains("headless"), "{error}");
}

#[test]
fn bucket_and_names_of_ledgers_are_checked() {
    let sink = "webhook: {url: 'https://a.test/'}, from: [{objects: {kind: v1/pods}}]";
    let bad = format!(
        "state:\n  folder: /s\n  bucket: {{url: nowhere, answer: 1m, endpoint: 'http://minio'}}\nsinks:\n- {{name: a.b, {sink}}}\n- {{name: a_b, {sink}}}\n"
    );
    let error = NotifyConfig::parse(&bad).unwrap_err().to_string();
    for part in [
        "line 3, column 17: state.bucket.url: must be written as s3://BUCKET/PREFIX",
        "state.bucket.answer: must be more than nothing and at most 10s",
        "state.bucket.endpoint: is without TLS",
        "sinks[1].name: \"a_b\" is empty or the name of another sink; only letters, digits and - count",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let good = format!(
        "state: {{folder: /s, bucket: {{url: s3://abc/x, endpoint: 'http://127.0.0.1:1'}}}}\nsinks: [{{name: a, {sink}}}]\n"
    );
    let config = NotifyConfig::parse(&good).unwrap();
    assert!(matches!(config.sinks().unwrap().as_slice(), [NotifierSink::Events(_)]));
}

#[test]
fn semantic_errors_are_reported() {
    let bad = "election: {lease: notify}\nguard: {percent: 200}\nsinks:\n- {name: a, from: []}\n- name: a\n  haproxy: {socket: /s, backend: '{pod}'}\n  from: [{services: {types: [Loadbalancer]}}, {endpoints: {}}]\n";
    let error = NotifyConfig::parse(bad).unwrap_err().to_string();
    for part in [
        "NAMESPACE/NAME",
        "more than 100",
        "exactly one of dns, haproxy, ipvs, rest and webhook",
        "is empty",
        "another sink",
        "fed with endpoints",
        "Loadbalancer",
        "there is no {pod}",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn webhook_config_is_validated() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_c2VjcmV0\n").unwrap();
    let good = format!(
        "state: {{folder: {0}}}\nsinks:\n- name: audit\n  webhook: {{url: 'https://hooks.example.test/x', secrets: [{0}/secret], allow: [10.0.0.0/8]}}\n  from:\n  - objects: {{kind: apps/v1/deployments, changes: [created], fields: [spec.replicas]}}\n",
        folder.path().display()
    );
    let config = NotifyConfig::parse(&good).unwrap();
    let sinks = config.sinks().unwrap();
    let NotifierSink::Events(options) = &sinks[0] else { panic!("a webhook is told of events") };
    assert_eq!(options.sources[0].resource.to_string(), "deployments.apps");
    assert_eq!(config.secret_files(), std::slice::from_ref(&secret));
    std::fs::write(&secret, "no secret").unwrap();
    assert!(config.sinks().err().is_some_and(|error| error.contains("secret 1 is not base64")));

    let bad = "sinks:\n- name: audit\n  webhook: {url: 'https://h/', parallel: 0, allow: [ten]}\n  from:\n  - services: {}\n  - objects: {kind: Deployment}\n  - objects: {kind: v1/pods, fields: ['a..b']}\n  - objects: {kind: v1/pods, changes: [gone]}\n";
    let error = NotifyConfig::parse(bad).unwrap_err().to_string();
    assert!(error.contains("created"), "{error}");
    let error = NotifyConfig::parse(&bad.replace("gone", "deleted")).unwrap_err().to_string();
    for part in [
        "state.folder",
        "nothing would be delivered",
        "no network",
        "fed with objects",
        "no resource",
        "no path",
        "each resource once",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

const OTHERS: &str = "\
sinks:
- name: lvs
  ipvs: {addresses: [10.8.0.0/24], forward: route, drain: 5m}
  from: [{services: {}}]
- name: tree
  rest:
    url: 'https://cmdb.example.test/nodes/{pod.label:tree}/hosts/{pod.ip}'
    list: 'https://cmdb.example.test/hosts?owner={owner}'
    item: '/nodes/{node}/hosts/{ip}'
    body: {pod: '{pod.namespace}/{pod.name}'}
  from: [{pods: {labels: {tree: '*'}}}]
";

#[tokio::test]
async fn a_kernel_and_an_inventory_are_sinks_too() {
    let sinks = NotifyConfig::parse(OTHERS).unwrap().sinks().unwrap();
    let [NotifierSink::State(lvs), NotifierSink::State(tree)] = &sinks[..] else {
        panic!("both are read back")
    };
    assert_eq!((lvs.plan.drain.as_secs(), lvs.plan.keep_last), (300, true));
    assert!(!tree.plan.keep_last, "an item is one pod");

    let bad = OTHERS
        .replace("10.8.0.0/24", "ten")
        .replace("{services: {}}", "{services: {types: [ClusterIP]}}, {endpoints: {}}")
        .replace("{pod.ip}", "{pod.addr}")
        .replace("{node}/hosts", "{node/hosts")
        .replace("{pods: {labels", "{services: {}}, {pods: {labels");
    let error = NotifyConfig::parse(&bad).unwrap_err().to_string();
    for part in ["no network", "no types", "name services", "{pod.addr}", "item: ", "name pods"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn servers_and_secrets_of_a_zone_are_checked() {
    let with = |servers: &str| NotifyConfig::parse(&GOOD.replace("server: '127.0.0.1:53'", servers));
    let good = with("servers: ['192.0.2.1:53', '192.0.2.2:53'], notify: '127.0.0.1:5599'").unwrap();
    assert_eq!(good.sinks[0].dns.as_ref().unwrap().servers.len(), 2);
    for (servers, told) in [
        ("owner: us", "has no server"),
        ("server: '192.0.2.1:53', servers: ['192.0.2.2:53']", "name all in servers"),
        ("servers: ['192.0.2.1:53', '192.0.2.1:53']", "names a server twice"),
        ("server: '192.0.2.1:53', notify: here", "invalid socket address"),
    ] {
        let error = with(servers).unwrap_err().to_string();
        assert!(error.starts_with("line 3, ") && error.contains(told), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("tsig");
    let key = format!("server: '127.0.0.1:53', key: {{name: k, secret: {}}}", secret.display());
    for (text, is_good) in
        [("bmV3\n", true), ("bmV3\nb2xk\n", true), ("", false), ("YQ==\nYg==\nYw==\n", false)]
    {
        std::fs::write(&secret, text).unwrap();
        assert_eq!(with(&key).unwrap().sinks().is_ok(), is_good, "{text:?}");
    }
}

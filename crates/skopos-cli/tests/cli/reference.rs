//! The metrics in docs/reference/metrics.md are those of running programs.
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use skopos_controller::metrics::{Metrics, Names};

use super::support::{Running, Server, TIMEOUT, skopos, utf8};

const PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

#[test]
fn reference_lists_gateway_metrics() {
    let (server, folder) = (Server::start(&["--objects", "3"]), tempfile::tempdir().unwrap());
    let config = folder.path().join("gateway.yaml");
    let text = format!(
        "listen: {{address: '127.0.0.1:0'}}\nclusters: {{kubeconfigs: [{{path: '{}'}}]}}\ncheckpoints: {{folder: '{}'}}\n",
        server.kubeconfig(),
        folder.path().join("state").display()
    );
    std::fs::write(&config, text).unwrap();
    let gateway = Running::start(skopos().args(["serve", "--config", utf8(&config)]));
    let line = gateway.line(|line| line.starts_with("serving at "));
    let address = line.trim_start_matches("serving at http://").trim().parse().unwrap();
    get(address, "/clusters/skopos-test/api/v1/pods");
    get(address, "/fleet/api/v1/pods");
    assert_eq!(listed("## Gateway"), exposed(&get(address, "/metrics")));
}

#[test]
fn reference_lists_notifier_metrics() {
    let (server, folder) = (Server::start(&["--objects", "3"]), tempfile::tempdir().unwrap());
    let config = folder.path().join("notify.yaml");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "cluster: {{kubeconfig: '{}'}}\nelection: {{lease: default/notify, duration: 5s}}\nstate: {{folder: '{}'}}\nlisten: '{address}'\nsinks:\n\
         - name: edge\n  haproxy: {{socket: /nonexistent/haproxy.sock}}\n  from: [{{endpoints: {{}}}}]\n\
         - name: hook\n  webhook: {{url: 'http://127.0.0.1:1/', allow: [127.0.0.1/32]}}\n  from: [{{objects: {{kind: v1/pods}}}}]\n",
        server.kubeconfig(),
        folder.path().join("state").display()
    );
    std::fs::write(&config, text).unwrap();
    let _notifier = Running::start(skopos().args(["notify", "--config", utf8(&config)]));
    let listed = listed("## Notifier");
    let begun = tokio::time::Instant::now();
    // Some metrics exist only once a term has begun and a message has been tried.
    let mut metrics = std::iter::repeat_with(|| exposed(&get(address, "/metrics")));
    let last = metrics.find(|metrics| *metrics == listed || begun.elapsed() > TIMEOUT);
    assert_eq!(Some(listed), last);
}

#[test]
fn metrics_of_controllers_are_listed() {
    for (names, heading) in
        [(Names::Skopos, "## Controller"), (Names::ControllerRuntime, "### Names of controller-runtime")]
    {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Metrics::new([], names)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!(listed(heading), exposed(&text), "{heading}");
    }
}

/// Returns the metrics in the tables of a section, up to the next heading: `name type`. That of the gateway has sections.
pub(super) fn listed(heading: &str) -> BTreeSet<String> {
    let section = PAGE.split(&format!("\n{heading}\n")).nth(1).expect("the section");
    let next = if heading.starts_with("## Gateway") { "\n## " } else { "\n#" };
    let lines = section.split(next).next().unwrap_or_default().lines();
    let rows = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let metrics = rows.filter(|cells| cells.len() == 7 && cells[1].starts_with('`'));
    let listed: BTreeSet<_> =
        metrics.map(|cells| format!("{} {}", cells[1].trim_matches('`'), cells[2])).collect();
    assert!(!listed.is_empty(), "the tables below {heading:?} have other columns than this test reads");
    listed
}

/// Returns the metrics in a text of Prometheus: `name type`.
fn exposed(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let named = types.map(|(name, kind)| match kind {
        "counter" => format!("{name}_total {kind}"),
        _ => format!("{name} {kind}"),
    });
    named.collect()
}

/// Returns an answer, or nothing while no server listens.
fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, path).unwrap_or_default()
}

fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

//! `skopos notify` as people run it.
use std::path::Path;

use crate::support::{Running, Server, TIMEOUT, skopos, text};

fn run(args: &[&str]) -> (i32, String, String) {
    let output = crate::support::run(args);
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn notify_demo_completes_every_step() {
    let (code, out, err) = run(&["notify", "demo", "--once"]);
    assert_eq!(code, 0, "{out}{err}");
    for part in [
        "the API server goes away",
        "caught up after",
        "an empty list",
        "nothing was removed",
        "the Service is deleted",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn configuration_error_names_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify.yaml");
    std::fs::write(&path, "sinks:\n- name: zone\n  dns: {zon: a.test}\n  from: []\n").unwrap();
    let (code, _, err) = run(&["notify", "--config", path.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(err.contains("line 3, column 9: sinks[0].dns") && err.contains("zone"), "{err}");
    let (code, _, err) = run(&["notify"]);
    assert_eq!(
        (code, err.trim()),
        (2, "error: name a configuration with --config FILE, or see `skopos notify demo`")
    );
    let (code, _, err) = run(&["notify", "status", "--socket", "/nonexistent/notify.sock"]);
    assert_eq!(code, 1);
    assert!(err.contains("no notifier answers at /nonexistent/notify.sock"), "{err}");
}

#[test]
fn a_secret_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, secret) = (folder.path().join("notify.yaml"), folder.path().join("tsig"));
    let text = format!(
        "sinks:\n- name: zone\n  dns: {{zone: a.test, server: '127.0.0.1:1', key: {{name: k, secret: {}}}}}\n  from: [{{endpoints: {{}}}}]\n",
        secret.display()
    );
    std::fs::write(&path, text).unwrap();
    let (_, _, err) = run(&["notify", "--config", path.to_str().unwrap()]);
    assert!(err.contains("sink zone: the secret in") && err.contains("cannot be read"), "{err}");
    std::fs::write(&secret, "not base64!").unwrap();
    let (_, _, err) = run(&["notify", "--config", path.to_str().unwrap(), "--once"]);
    assert!(err.contains("is not base64"), "{err}");
}

#[test]
fn it_plans_works_once_and_takes_commands() {
    let cluster = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (path, state) = (folder.path().join("notify.yaml"), folder.path().join("state"));
    let text = format!(
        "cluster: {{kubeconfig: {}}}\nstate: {{folder: {}}}\nsinks:\n- name: edge\n  haproxy: {{socket: /nonexistent/haproxy.sock}}\n  from: [{{endpoints: {{}}}}]\n",
        cluster.kubeconfig(),
        state.display()
    );
    std::fs::write(&path, text).unwrap();
    let config = path.to_str().unwrap();
    let (code, out, _) = run(&["notify", "--config", config, "--plan"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("edge: no plan: /nonexistent/haproxy.sock"), "{out}");
    let (code, out, _) = run(&["notify", "--config", config, "--once", "--limit", "2s"]);
    assert_eq!(code, 1);
    assert!(out.contains("the sink does not work: /nonexistent/haproxy.sock"), "{out}");
    let mut notifier = Running::start(skopos().args(["notify", "--config", config]));
    let status = || run(&["notify", "status", "--config", config, "-o", "json"]);
    let out = std::iter::repeat_with(status)
        .find_map(|(code, out, _)| (code == 0).then_some(out))
        .expect("an answer");
    assert!(out.contains("\"phase\": "), "{out}");
    let (code, _, err) = run(&["notify", "approve", "abc", "--config", config]);
    assert_eq!(code, 1);
    assert!(err.contains("nothing is held as abc"), "{err}");
    let (code, out, _) = run(&["notify", "held", "--config", config]);
    assert_eq!((code, out.as_str()), (0, "nothing is held\n"));
    let (code, _, err) = run(&["notify", "--config", config]);
    assert_eq!(code, 1);
    assert!(err.contains("another notifier runs with this folder"), "{err}");
    notifier.signal("TERM");
    assert_eq!(notifier.wait(TIMEOUT).code(), Some(0), "a signal is how it is meant to end");
}

/// Returns a configuration with one sink, which cannot be reached.
fn configuration(cluster: &Server, state: &Path, sink: &str, more: &str) -> String {
    let (kubeconfig, state) = (cluster.kubeconfig(), state.display());
    format!(
        "cluster: {{kubeconfig: {kubeconfig}}}\nstate: {{folder: {state}}}\n{more}\nsinks:\n- name: {sink}\n  haproxy: {{socket: /nonexistent/haproxy.sock}}\n  from: [{{endpoints: {{}}}}]\n"
    )
}

/// Polls the notifier until its status contains this text.
fn until_status(config: &Path, part: &str) {
    let config = config.to_str().expect("UTF-8");
    let status = || run(&["notify", "status", "--config", config, "-o", "json"]).1;
    let begun = tokio::time::Instant::now();
    let has = |out: &String| {
        assert!(begun.elapsed() < TIMEOUT, "{part} is not in {out}");
        out.contains(part)
    };
    std::iter::repeat_with(status).find(has);
}

#[test]
fn reloads_valid_config_and_keeps_it_over_invalid() {
    let (cluster, folder) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let (path, state) = (folder.path().join("notify.yaml"), folder.path().join("state"));
    std::fs::write(&path, configuration(&cluster, &state, "one", "")).unwrap();
    let notifier = Running::start(skopos().args(["notify", "--config", path.to_str().unwrap()]));
    until_status(&path, "\"name\": \"one\"");
    let config = path.to_str().unwrap();
    let (code, _, err) = run(&["notify", "release", "one", "--yes", "--config", config]);
    assert_eq!(code, 1);
    assert!(err.contains("a notifier runs with the sink one"), "{err}");
    let (code, _, err) = run(&["notify", "release", "other", "--config", config]);
    assert_eq!(code, 1);
    assert!(err.contains("has no sink other") && err.contains("it has one"), "{err}");
    // The file that a sink leaves once it was equal to the cluster.
    std::fs::write(state.join("cluster-of-one"), "uid\n").unwrap();
    let two = configuration(&cluster, &state, "two", "");
    std::fs::write(&path, &two).unwrap();
    until_status(&path, "\"name\": \"two\"");
    let (_, out, _) = run(&["notify", "status", "--config", config]);
    assert!(
        out.contains("one: is in no configuration any more") && out.contains("notify release one"),
        "{out}"
    );
    std::fs::write(&path, two.replace("haproxy:", "haprox:")).unwrap();
    notifier.error_line(|line| line.contains("the new configuration is wrong, and the old one stays"));
    std::fs::write(&path, two).unwrap();
    until_status(&path, "\"name\": \"two\"");
}

#[test]
fn standby_takes_over_from_stopped_notifier() {
    let (cluster, folder) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let start = |name: &str| {
        let path = folder.path().join(format!("{name}.yaml"));
        let election = "election: {lease: default/notify, duration: 2s}";
        let text = configuration(&cluster, &folder.path().join(name), "edge", election);
        std::fs::write(&path, text).unwrap();
        (Running::start(skopos().args(["notify", "--config", path.to_str().unwrap()])), path)
    };
    let (mut first, first_path) = start("first");
    until_status(&first_path, "\"phase\": \"working\"");
    let (_second, second_path) = start("second");
    until_status(&second_path, "\"phase\": \"standby\"");
    first.signal("TERM");
    assert_eq!(first.wait(TIMEOUT).code(), Some(0));
    until_status(&second_path, "\"phase\": \"working\"");
}

/// Starts a receiver that takes messages about anything but `kube-system`. It ends with the test's process.
fn receiver() -> std::net::SocketAddr {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("it works");
    let address = listener.local_addr().expect("it works");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it works");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("it works"));
                loop {
                    let (mut line, mut length) = (String::new(), 0);
                    while line != "\r\n" {
                        line.clear();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().expect("it works");
                        }
                    }
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).expect("it works");
                    let status = if text(&body).contains("\"name\":\"kube-system\"") { 422 } else { 200 };
                    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 4\r\n\r\nnope");
                    stream.write_all(answer.as_bytes()).expect("it works");
                }
            });
        }
    });
    address
}

#[test]
fn webhook_is_planned_sent_and_dead_lettered() {
    let cluster = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (path, state) = (folder.path().join("notify.yaml"), folder.path().join("state"));
    let configuration = format!(
        "cluster: {{kubeconfig: {}}}\nstate: {{folder: {}}}\nsinks:\n- name: audit\n  webhook: {{url: 'http://{}/hook', allow: [127.0.0.0/8]}}\n  from: [{{objects: {{kind: v1/namespaces}}}}]\n",
        cluster.kubeconfig(),
        state.display(),
        receiver()
    );
    std::fs::write(&path, configuration).unwrap();
    let config = path.to_str().unwrap();
    let (code, out, err) = run(&["notify", "--config", config, "--plan"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("audit: created namespaces kube-system\n"), "{out}");
    let mut notifier = Running::start(skopos().args(["notify", "--config", config]));
    until_status(&path, "\"deadCount\": 1");
    let (code, out, _) = run(&["notify", "dead", "--config", config]);
    assert_eq!(code, 0);
    assert!(out.contains("audit: created namespaces kube-system") && out.contains("422"), "{out}");
    let (code, _, err) = run(&["notify", "dead", "retry", "msg_none", "--config", config]);
    assert!(code == 1 && err.contains("there is no dead letter msg_none"), "{err}");
    let (code, out, err) = run(&["notify", "dead", "retry", "--config", config]);
    assert_eq!((code, out.as_str()), (0, "1 tried again\n"), "{err}");
    let (code, _, err) = run(&["notify", "--config", config, "--plan"]);
    assert!(code == 1, "{err}");
    notifier.signal("TERM");
    assert_eq!(notifier.wait(TIMEOUT).code(), Some(0));
    let (code, out, _) = run(&["notify", "--config", config, "--plan"]);
    assert_eq!(
        (code, out.as_str()),
        (0, "audit: created namespaces kube-system\n"),
        "the ledger remembers the others"
    );
}

//! `skopos watch` against `skopos testserver`.
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::support::{Running, Server, TIMEOUT, failure, left, run, skopos, text};

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn of_type<'a>(wanted: &'a str) -> impl Fn(&str) -> bool + 'a {
    move |line| json(line)["type"] == wanted
}

#[test]
fn objects_and_then_their_changes_are_json_lines() {
    let server = Server::start(&["--objects", "5", "--churn", "20"]);
    let watch = server.watch(&["po", "-A", "-o", "json"]);
    for _ in 0..5 {
        let added = json(&watch.line(|_| true));
        assert_eq!(added["type"], "ADDED");
        assert_eq!(added["object"]["kind"], "Pod");
        assert_eq!(added["object"]["apiVersion"], "v1");
        assert!(added["object"]["metadata"]["managedFields"].is_null());
    }
    watch.line(of_type("SYNCED"));
    let modified = json(&watch.line(of_type("MODIFIED")));
    assert!(modified["object"]["metadata"]["resourceVersion"].is_string());
    watch.line(of_type("DELETED"));
}

#[test]
fn table_shows_what_update_changed() {
    let server = Server::start(&["--tls", "--objects", "3", "--churn", "10"]);
    let watch = server.watch(&["pods", "--all-namespaces"]);
    let header = watch.line(|_| true);
    let titles: Vec<&str> = header.split_whitespace().collect();
    assert_eq!(titles, ["EVENT", "NAMESPACE", "NAME", "STATE", "AGE", "CHANGE"]);
    watch.line(|line| line.starts_with("ADDED"));
    watch.line(|line| line.starts_with("UPDATED") && line.contains("metadata.annotations["));
    watch.error_line(|line| line.starts_with("# synced: 3 objects after "));
}

#[test]
fn names_are_kubectls() {
    let server = Server::start(&["--objects", "1"]);
    let watch = server.watch(&["Pod", "-A", "-o", "name"]);
    assert!(watch.line(|_| true).starts_with("pod/"));
    let nothing = server.watch(&["deployments.apps", "-o", "name"]);
    nothing.error_line(|line| line.starts_with("# no deployments in namespace default yet"));
    let one = server.watch(&["nodes/none", "-o", "name"]);
    one.error_line(|line| line == "# no nodes none yet; watching");
}

#[test]
fn each_request_is_logged_on_demand() {
    let server = Server::start(&["--objects", "1"]);
    let watch = server.watch(&["pods", "-A", "-o", "name", "-vv"]);
    let line = watch.error_line(|line| line.contains("path=/api/v1/pods?"));
    for part in ["request", "server=127.0.0.1:", "method=GET", "status=200", "took="] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn server_evaluates_selectors() {
    let server = Server::start(&["--objects", "50"]);
    let watch = server.watch(&["pods", "-A", "-l", "app=nobody", "-o", "json"]);
    assert_eq!(json(&watch.line(|_| true))["objects"], 0);
    let wrong = run(&["watch", "pods", "-l", "a in b", "--kubeconfig", server.kubeconfig()]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn an_unknown_resource_is_answered_with_a_close_one() {
    let server = Server::start(&[]);
    let line = failure(&["watch", "depolyments", "--kubeconfig", server.kubeconfig()]);
    assert_eq!(line, "error: the server has no resource \"depolyments\": did you mean deployments.apps?");
}

#[test]
fn watch_survives_server_restart_and_reports_it() {
    let server = Server::start(&["--objects", "2"]);
    let port = server.port();
    let watch = server.watch(&["pods", "-A", "-o", "json"]);
    watch.line(of_type("SYNCED"));
    drop(server.process);
    watch.line(|line| of_type("STALE")(line) && line.contains("refused"));
    // Another server on the same port, with another history and other objects.
    let another = Server::start(&["--port", &port, "--objects", "3"]);
    let live = json(&watch.line(of_type("LIVE")));
    assert!(live["seconds"].as_f64().unwrap() > 0.0);
    drop(another);
}

#[test]
fn ctrl_c_ends_at_once() {
    let server = Server::start(&["--objects", "2"]);
    let mut watch = server.watch(&["pods", "-A", "-o", "name"]);
    watch.error_line(|line| line.starts_with("# synced"));
    watch.signal("INT");
    assert_eq!(watch.wait(Duration::from_secs(5)).code(), Some(130));
}

#[test]
fn ctrl_c_exits_while_output_is_blocked() {
    let server = Server::start(&["--objects", "2000", "--churn", "200"]);
    let mut command = skopos();
    command.args(["watch", "pods", "-A", "-o", "json", "--kubeconfig", server.kubeconfig()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // One byte shows that it prints; the pipe is full long before all 2000 objects are printed.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap();
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    let stdout = child.stdout.take();
    std::thread::spawn(move || done.send(child.wait()));
    let status = ended.recv_timeout(TIMEOUT).expect("ends although its output is blocked").unwrap();
    assert_eq!(status.code(), Some(130));
    drop(stdout);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let server = Server::start(&["--objects", "500", "--churn", "200"]);
    let mut command = skopos();
    command.args(["watch", "pods", "-A", "-o", "json", "--kubeconfig", server.kubeconfig()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn changes_continue_after_stderr_closes() {
    let server = Server::start(&["--objects", "2", "--churn", "200"]);
    for verbose in ["", "-v"] {
        let mut command = skopos();
        command.args(["watch", "pods", "-A", "-o", "name", "--kubeconfig", server.kubeconfig()]);
        command.args((!verbose.is_empty()).then_some(verbose));
        let mut child = command.stdout(Stdio::piped()).stderr(left()).spawn().unwrap();
        // The notice about the complete view comes long before the last of them.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(200);
        assert_eq!(lines.map_while(Result::ok).count(), 200, "{verbose}");
        assert!(child.wait().unwrap().success(), "{verbose}");
    }
}

#[test]
fn a_port_in_use_is_a_clear_error() {
    let server = Server::start(&[]);
    let line = failure(&["testserver", "--port", &server.port()]);
    assert!(line.contains(&format!("port {} is in use", server.port())), "{line}");
}

#[test]
fn testserver_removes_kubeconfig_on_interrupt() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Running::start(skopos().arg("testserver").env("TMPDIR", dir.path()));
    let line = server.line(|line| line.starts_with("kubeconfig: "));
    let path = line.trim_start_matches("kubeconfig: ").to_owned();
    assert!(std::path::Path::new(&path).exists(), "{path}");
    server.signal("INT");
    assert!(server.wait(Duration::from_secs(5)).success());
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn testserver_survives_closed_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let mut command = skopos();
    let mut child = command
        .arg("testserver")
        .arg("--kubeconfig-out")
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    drop(child.stdout.take());
    let watch =
        Running::start(skopos().args(["watch", "namespaces", "-o", "name", "--kubeconfig"]).arg(&kubeconfig));
    watch.error_line(|line| line.starts_with("# synced"));
    child.kill().unwrap();
    child.wait().unwrap();
}

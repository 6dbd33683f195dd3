//! `skopos serve`: its arguments, its output at the start, and its end.
use std::time::Duration;

use super::support::{Running, Server, failure, run, skopos, text, utf8};

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a quick start, and returns its URL.
fn serve(kubeconfigs: &[&str], further: &[&str]) -> (Running, String) {
    let mut command = skopos();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(further);
    kubeconfigs.iter().for_each(|file| _ = command.args(["--kubeconfig", file]));
    started(Running::start(&mut command))
}

fn started(process: Running) -> (Running, String) {
    let line = process.line(|line| line.starts_with("serving at "));
    let url = line.trim_start_matches("serving at ").trim().to_owned();
    (process, url)
}

#[test]
fn serve_with_nothing_to_serve_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        utf8(&path).to_owned()
    };
    let (empty, broken) = (file("empty", ""), file("broken", "clusters: 7"));
    let config = file("config", "listen: {address: '127.0.0.1:0'}\n");
    for (args, told) in [
        (["--kubeconfig", "/nope"], "/nope cannot be read: No such file"),
        (["--kubeconfig", &empty], "empty defines no contexts: there is nothing to serve"),
        (["--kubeconfig", &broken], "broken: not a kubeconfig"),
        (["--kubeconfig", "/nope/a:/nope/b"], "there is no kubeconfig (/nope/a:/nope/b does not exist)"),
        (["--config", &config], "config names no clusters"),
    ] {
        let line = failure(&[&["serve"], &args[..]].concat());
        assert!(line.contains(told), "{args:?}: {line}");
    }
    let output = skopos().arg("serve").env("KUBECONFIG", "/nope/a").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--kubeconfig FILE"), "{}", text(&output.stderr));
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap();
    let good = file(
        "good",
        "contexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]",
    );
    let line = failure(&["serve", "--kubeconfig", &good, "--listen", &address.to_string()]);
    assert!(
        line.contains(&format!("port {} is in use: choose another with --listen", address.port())),
        "{line}"
    );
}

#[test]
fn start_is_told_in_json_with_json_logs() {
    let server = Server::start(&[]);
    let mut command = skopos();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    let process = Running::start(command.args(["--kubeconfig", server.kubeconfig()]));
    let mut told = Vec::new();
    while !told.iter().any(|line: &serde_json::Value| line["fields"]["message"] == "clusters are known") {
        let line = process.next_error_line().unwrap();
        told.push(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")));
    }
    let serving = told.iter().find(|line| line["fields"]["message"] == "serving").unwrap();
    assert!(serving["fields"]["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{serving}");
    assert!(serving["fields"]["callers"].as_str().unwrap().contains("writes are refused"), "{serving}");
    assert_eq!(told.last().unwrap()["fields"]["count"], 1);
}

#[test]
fn serve_prints_clusters_and_caller_access() {
    let (one, two) = (Server::start(&[]), Server::start(&[]));
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("odd");
    let text = std::fs::read_to_string(&one.kubeconfig).unwrap();
    std::fs::write(&odd, text.replace("skopos-test", "team/prod")).unwrap();
    // Two files with contexts of one name, and one whose context is not a valid cluster name.
    let (process, url) = serve(&[one.kubeconfig(), two.kubeconfig(), utf8(&odd)], &[]);
    process.line(|line| {
        line.contains("anyone on this machine can read these clusters with your credentials")
            && line.contains("--allow-writes")
    });
    let clusters = process.line(|line| line.starts_with("clusters: "));
    assert!(
        clusters.contains("skopos-test,") && clusters.contains("(context \"skopos-test\")"),
        "{clusters}"
    );
    assert!(clusters.contains("(context \"team/prod\")"), "{clusters}");
    let status = run(&["status", "--server", &url]);
    assert!(status.status.success());
    let table = super::support::text(&status.stdout);
    assert!(table.contains("CONTEXT") && table.contains("team/prod"), "{table}");

    let (process, _) = serve(&[one.kubeconfig()], &["--allow-writes"]);
    process.line(|line| line.contains("can read and WRITE"));
    // Kubeconfigs from the environment, as a list with a missing file.
    let list = format!("/nope:{}", one.kubeconfig());
    let mut command = skopos();
    command.args(["serve", "--listen", ":0"]).env("KUBECONFIG", list);
    let (process, _) = started(Running::start(&mut command));
    process.line(|line| line == "clusters: skopos-test");
}

#[test]
fn serve_and_status_report_config_problems() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let text = format!(
        "listen: {{address: '127.0.0.1:0'}}\nauthorization: {{loopback: Trusted}}\n\
         clusters: {{kubeconfigs: [{{path: '{}'}}, {{kubeconfig: /nope}}]}}\n",
        server.kubeconfig()
    );
    std::fs::write(&config, text).unwrap();
    let (process, url) = started(Running::start(skopos().args(["serve", "--config", utf8(&config)])));
    process.error_line(|line| line.starts_with("problem: kubeconfig /nope cannot be read"));
    for form in ["table", "json"] {
        let status = run(&["status", "--server", &url, "-o", form]);
        assert_eq!(status.status.code(), Some(1), "{form}");
        assert!(super::support::text(&status.stderr).contains("error: the gateway has 1 problem"));
        assert!(super::support::text(&status.stdout).contains("skopos-test"), "it is printed all the same");
    }
}

/// Tests `nohup`, and a terminal that goes away.
#[cfg(target_os = "linux")]
#[test]
fn hangup_exits_129_unless_ignored() {
    let server = Server::start(&[]);
    let kubeconfig = server.kubeconfig();
    let ignoring = |args: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("trap '' HUP; exec {} {args}", env!("CARGO_BIN_EXE_skopos"))]);
        command.env_remove("KUBECONFIG");
        Running::start(&mut command)
    };
    let quick = format!("serve --listen :0 --kubeconfig {kubeconfig}");
    let mut ignoring = [
        (ignoring(&quick), "serving at"),
        (ignoring(&format!("watch ns -o name --kubeconfig {kubeconfig}")), "namespace/default"),
        (ignoring("testserver"), "kubeconfig: "),
    ];
    for (process, begun) in &ignoring {
        process.line(|line| line.contains(begun));
        process.signal("HUP");
    }
    let (mut served, url) = serve(&[kubeconfig], &[]);
    served.signal("HUP");
    // Its answers and its end show that the signal had no effect.
    assert!(run(&["status", "--server", &url]).status.success());
    served.signal("TERM");
    assert_eq!(served.wait(TIMEOUT).code(), Some(0));
    for (process, begun) in &mut ignoring {
        process.signal("TERM");
        let code = process.wait(TIMEOUT).code();
        assert!(matches!(code, Some(0 | 143)), "{begun}: {code:?} after a hang-up that is ignored");
    }
    // Commands that do not ignore the signal end with a failure. Under `nohup` the tests themselves would ignore it.
    let heeding = |args: &[&str]| {
        let mut command = std::process::Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_skopos")]).args(args);
        Running::start(command.env_remove("KUBECONFIG"))
    };
    let mut ending = [
        (heeding(&["watch", "ns", "-o", "name", "--kubeconfig", kubeconfig]), "namespace/default"),
        (heeding(&["testserver"]), "kubeconfig: "),
    ];
    for (process, begun) in &mut ending {
        process.line(|line| line.contains(*begun));
        process.signal("HUP");
        assert_eq!(process.wait(TIMEOUT).code(), Some(129), "{begun}");
    }
}

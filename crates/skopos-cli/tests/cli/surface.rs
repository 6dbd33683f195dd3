//! Help, versions, usage and the errors that need no cluster.
#[cfg(target_os = "linux")]
use super::support::Running;
use super::support::{failure, run, skopos, text, utf8};

#[test]
fn help_and_version_go_to_standard_output() {
    let version = run(&["--version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout), format!("skopos {}\n", env!("CARGO_PKG_VERSION")));
    for args in [&["--help"][..], &["help"], &["watch", "--help"], &["demo", "fault", "--help"]] {
        let help = run(args);
        assert!(help.status.success(), "{args:?}");
        assert!(text(&help.stdout).contains("Usage: skopos"), "{args:?}");
    }
    let help = text(&run(&["watch", "--help"]).stdout);
    for word in
        ["--namespace", "--all-namespaces", "--selector", "--field-selector", "--sync-timeout", "Examples:"]
    {
        assert!(help.contains(word), "{word} in\n{help}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let wrong: [&[&str]; 9] = [
        &[],
        &["nonsense"],
        &["watch"],
        &["watch", "pods", "-o", "yaml"],
        &["watch", "pods", "-A", "-n", "x"],
        &["watch", "pods", "--sync-timeout", "soon"],
        &["testserver", "--port", "70000"],
        &["serve", "--config", "a", "--kubeconfig", "b"],
        &["status", "--client-certificate", "a.pem"],
    ];
    for args in wrong {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(
            text(&output.stderr).contains("Usage:") || text(&output.stderr).contains("error:"),
            "{args:?}"
        );
    }
}

#[test]
fn prints_configuration_schema() {
    let output = run(&["serve", "--print-schema"]);
    assert!(output.status.success());
    let shipped = include_str!("../../../skopos-gateway/config.schema.json");
    assert_eq!(text(&output.stdout), shipped);
}

#[test]
fn completions_include_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completion", shell]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("testserver"), "{shell}");
    }
}

#[test]
fn missing_kubeconfig_error_says_what_to_do() {
    let line = failure(&["watch", "pods"]);
    assert!(line.contains("--kubeconfig FILE") && line.contains("skopos testserver"), "{line}");
}

#[test]
fn a_kubeconfig_that_is_missing_or_broken_is_named() {
    let line = failure(&["watch", "pods", "--kubeconfig", "/nonexistent/kubeconfig"]);
    assert!(line.contains("/nonexistent/kubeconfig cannot be read: No such file"), "{line}");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken");
    std::fs::write(&path, "clusters: {{{").unwrap();
    let line = failure(&["watch", "pods", "--kubeconfig", utf8(&path)]);
    assert!(line.contains("broken: not a kubeconfig"), "{line}");

    let listed = skopos().args(["watch", "pods"]).env("KUBECONFIG", "/nonexistent/a").output().unwrap();
    assert!(text(&listed.stderr).contains("/nonexistent/a does not exist"), "{}", text(&listed.stderr));
}

#[test]
fn an_unreachable_server_is_named_with_its_reason() {
    // A port that was free a moment ago, without a listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&path, kubeconfig).unwrap();
    let line = failure(&["watch", "pods", "--kubeconfig", utf8(&path), "--sync-timeout", "1s"]);
    assert!(line.contains("refused") && line.contains(&format!("127.0.0.1:{port}")), "{line}");
    let line = failure(&["watch", "pods", "--kubeconfig", utf8(&path), "--context", "other"]);
    assert!(line.contains("no context \"other\": it has c"), "{line}");
}

#[cfg(feature = "demo")]
#[test]
fn fault_without_demo_says_how_to_start_one() {
    let empty = tempfile::tempdir().unwrap();
    let output = skopos().args(["demo", "fault", "reset"]).env("TMPDIR", empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "error: no demo is running: start `skopos demo` in another terminal\n");
}

#[cfg(target_os = "linux")]
#[test]
fn gateway_disables_core_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gateway.yaml");
    std::fs::write(&config, "listen: {address: '127.0.0.1:0'}\nclusters: {folders: [{path: '.'}]}\n")
        .unwrap();
    let gateway = Running::start(skopos().args(["serve", "--config", utf8(&config)]));
    gateway.line(|line| line.starts_with("serving at "));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let numbers: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(numbers, ["0", "0"], "soft and hard: {core}");
}

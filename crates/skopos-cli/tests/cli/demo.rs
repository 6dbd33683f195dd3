//! `skopos demo` as scripts run it, and its second command.
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use super::support::{Running, run, skopos, text};

#[test]
fn demo_once_completes_every_step_and_exits_0() {
    let output = run(&["demo", "--once", "--clusters", "2", "--port", "0"]);
    let report = text(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", text(&output.stderr));
    for part in [
        "everything is in memory: 3 clusters",
        "pods of 3 clusters",
        "berlin.vcluster-berlin is paused, and its address",
        "Warning: 299",
        "live again",
        "no false DELETED",
        "annotated by hand",
        "scaled to zero",
        "every watch resumed",
    ] {
        assert!(report.contains(part), "{part} in\n{report}");
    }
    let rows: Vec<&str> =
        report.lines().filter(|line| line.contains(".vcluster-") && line.contains("live  ")).collect();
    assert_eq!(rows.len(), 2, "{report}");
    assert!(!report.contains('\u{1b}'), "no colours for scripts");
}

#[test]
fn clusters_are_paused_and_broken_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = skopos();
    let args = ["demo", "--clusters", "2", "--port", "0", "--churn", "1"];
    let mut demo = Running::start(command.args(args).env("TMPDIR", dir.path()));
    let kubeconfig = demo.line(|line| line.contains("export KUBECONFIG="));
    let kubeconfig = kubeconfig.trim().trim_start_matches("export KUBECONFIG=").to_owned();
    let status = demo.line(|line| line.contains(" status --server "));
    let (_, server) = status.split_once("--server ").unwrap();
    let server = server.split_whitespace().next().unwrap().to_owned();
    demo.line(|line| line.contains("everything is in memory"));

    // Through `skopos vc`, with the gateway as its host.
    let shown = |name: &str| {
        let output = run(&["status", "--server", &server, "-o", "json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let clusters = report["clusters"].as_array().cloned().unwrap();
        clusters.into_iter().find(|cluster| cluster["name"] == name).unwrap()
    };
    let vc = |verb: &str| {
        let output = run(&["vc", verb, "lima", "--kubeconfig", &kubeconfig, "--context", "host"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    vc("pause");
    demo.line(|line| line.contains("lima.vcluster-lima: paused: by the vcluster CLI's annotation"));
    let lima = shown("lima.vcluster-lima");
    assert_eq!(
        (&lima["state"], &lima["reason"]),
        (&"paused".into(), &"by the vcluster CLI's annotation".into())
    );
    vc("resume");
    demo.line(|line| line.contains("lima.vcluster-lima: live again"));
    assert_eq!(shown("lima.vcluster-lima")["state"], "live");

    let fault = |name: &str| {
        let output = skopos().args(["demo", "fault", name]).env("TMPDIR", dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(fault("pause").starts_with("berlin.vcluster-berlin: pause:"));
    demo.line(|line| line.contains("berlin.vcluster-berlin: paused: by"));
    assert!(fault("pause").contains("asked to resume it"));
    demo.line(|line| line.contains("berlin.vcluster-berlin: live again"));
    fault("reset");
    demo.line(|line| line.contains("berlin.vcluster-berlin: detected") && line.contains("after the fault"));
    demo.line(|line| line.contains("berlin.vcluster-berlin: well again"));
    let wrong =
        skopos().args(["demo", "fault", "reset", "nowhere"]).env("TMPDIR", dir.path()).output().unwrap();
    assert!(
        text(&wrong.stderr).contains("there is no cluster \"nowhere\": there are"),
        "{}",
        text(&wrong.stderr)
    );

    demo.signal("TERM");
    assert!(demo.wait(Duration::from_secs(10)).success());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(&["demo", "--once", "--clusters", "2", "--port", &port]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains(&format!("error: port {port} is in use")),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_story_that_is_broken_off_is_no_success() {
    let mut story = Running::start(skopos().args(["demo", "--once", "--clusters", "2", "--port", "0"]));
    story.line(|line| line.contains("one list"));
    story.signal("INT");
    assert_eq!(story.wait(Duration::from_secs(10)).code(), Some(130));
}

#[test]
fn closed_output_fails_demo_once() {
    let mut command = skopos();
    command.args(["demo", "--once", "--clusters", "2", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("error: the output was closed before"),
        "{}",
        text(&output.stderr)
    );
}

//! `skopos demo` as scripts see it, and its second command.
use std::time::Duration;

use super::support::{Running, run, skopos, text};

#[test]
fn once_reports_and_exits_with_0() {
    let output = run(&["demo", "--once", "--objects", "50"]);
    let report = text(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", text(&output.stderr));
    for part in [
        "everything synced:",
        "RST: every connection is reset",
        "after the fault: connection reset",
        "live again",
        "LAST TROUBLE",
        "5 of 5 kinds live",
    ] {
        assert!(report.contains(part), "{part} in\n{report}");
    }
    assert!(!report.contains('\u{1b}'), "no colours for scripts");
}

#[test]
fn a_second_command_inflicts_faults() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = skopos();
    let mut demo = Running::of(command.args(["demo", "--objects", "20"]).env("TMPDIR", dir.path()));
    demo.line(|line| line.contains("everything synced"));
    let fault = |name: &str| {
        let output = skopos().args(["demo", "fault", name]).env("TMPDIR", dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(fault("pause"), "pause: the server stops listening\n");
    demo.line(|line| line.contains("after the fault: connection refused"));
    assert_eq!(fault("heal"), "the server listens again\n");
    demo.line(|line| line.contains("live again") && line.contains("after the fault was over"));
    fault("undecodable");
    demo.line(|line| line.contains("pods") && line.contains("broken watch frame"));
    demo.line(|line| line.contains("pods") && line.contains("live again"));
    demo.signal("TERM");
    assert!(demo.wait(Duration::from_secs(5)).success());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

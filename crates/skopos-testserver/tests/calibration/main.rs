//! Plays every script on the test server, and compares the client's view with that on a server made of Kubernetes' own libraries.
//! See `docs/evidence/calibration.md`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod kit;

use std::path::{Path, PathBuf};

use kit::golden::Histories;
use kit::script::Script;
use kit::{compare, contract, golden, play, script};
use skopos_testserver::TestServer;

#[test]
fn test_server_answers_match_real_server() {
    let real = golden::read(&folder().join("tests/calibration/golden")).unwrap();
    let ours: Histories =
        script::all().iter().map(|script| (script.name.clone(), play_alone(script))).collect();
    let forgotten =
        real.keys().filter(|name| !ours.contains_key(*name)).map(|name| format!("{name}: has no script"));
    let complaints: Vec<String> =
        compare::complaints(&real, &ours, &compare::known()).into_iter().chain(forgotten).collect();
    assert!(complaints.is_empty(), "{} complaints:\n\n{}", complaints.len(), complaints.join("\n\n"));
}

#[test]
fn every_contract_line_is_shown_or_excused() {
    assert_eq!(contract::uncovered(&script::all()), [""; 0]);
}

#[test]
fn calibration_page_is_up_to_date() {
    let page = std::fs::read_to_string(folder().join("../../docs/evidence/calibration.md")).unwrap();
    let wanted = contract::page(&script::all(), &compare::known());
    assert!(
        page == wanted,
        "docs/evidence/calibration.md is old: `cargo run -- page` in peers/calibration writes it"
    );
}

/// Plays a script on its own server, under virtual time.
fn play_alone(script: &Script) -> Vec<serde_json::Value> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let server = TestServer::builder().clock_seed(1).start().await.unwrap();
        let history = play::play(&server, script, "calibration-1").await;
        server.stop().await;
        history
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn difference_and_reason_require_each_other() {
    let history = |code: u16| Histories::from([("g/a".to_owned(), vec![serde_json::json!({"code": code})])]);
    let known = |scripts: &str| {
        let reason = "because".to_owned();
        compare::Known { scripts: vec![scripts.to_owned()], entries: Vec::new(), reason }
    };
    let complaints =
        |ours: u16, known: &[compare::Known]| compare::complaints(&history(200), &history(ours), known).len();
    assert_eq!((complaints(200, &[]), complaints(404, &[])), (0, 1));
    assert_eq!((complaints(404, &[known("g/*")]), complaints(200, &[known("g/a")])), (0, 1));
    assert_eq!(complaints(200, &[known("g/b")]), 1, "no such script");
}

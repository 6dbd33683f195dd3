//! A process that is killed while it writes checkpoints leaves the old file or the new one.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::checkpoint::{Checkpoint, CheckpointLimits};
use skopos::{Informer, InformerOptions};
use support::*;

/// The environment variable with the path that the child writes to.
const FILE: &str = "SKOPOS_TEST_CHECKPOINT";

#[tokio::test]
async fn kill_leaves_old_or_new_file_whole() {
    let rounds = std::env::var("SKOPOS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10);
    let directory = std::env::temp_dir().join(format!("skopos-killed-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("maps.skopos");
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut saved = || lines.find_map(|line| line.ok()?.strip_prefix("saved ")?.parse::<u64>().ok());
        let mut last = saved().expect("it writes");
        for _ in 0..random.u32(0..4) {
            last = saved().expect("it goes on");
        }
        // At any moment of the next write.
        tokio::time::sleep(Duration::from_micros(random.u64(0..5000))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let found = Checkpoint::load(&path, &CheckpointLimits::default());
        let found = found.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(found.resource_version().as_u64().unwrap() >= last, "{found:?}, but {last} was saved");
    }
    let files = std::fs::read_dir(&directory).unwrap().count();
    assert!(files <= 2, "what is left behind does not add up: {files} files");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
#[ignore = "the other test runs it, and kills it"]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let world = world().await;
    for n in 0..200 {
        world.create("a", &format!("map-{n}"), "x");
    }
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).unwrap();
    maps.wait_synced(PLENTY).await.unwrap();
    for n in 0u64.. {
        let revision = world.put("a", "counter", &n.to_string());
        maps.wait_for(&revision.into(), PLENTY).await.unwrap();
        maps.checkpoint().unwrap().save(&path).unwrap();
        println!("saved {revision}");
    }
}

//! Violations that the simulation has found: each plan in `tests/plans` broke an invariant of the client, and breaks none now.
//! The name of a plan says what it shows. `skopos-sim run --plan FILE` reproduces one.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::path::PathBuf;

use skopos_sim::oracle::judge;
use skopos_sim::plan::Plan;

#[test]
fn recorded_plans_stay_clean() {
    skopos_sim::quiet_planned_panics();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let plan = Plan::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let verdict = judge(&skopos_sim::run(&plan));
        let first = verdict.violations.first();
        assert!(first.is_none(), "{}: {}", file.display(), first.unwrap());
    }
}

#[test]
#[cfg_attr(
    not(tokio_unstable),
    ignore = "tokio's own choices cannot be seeded; the gate of `cargo xtask sim` can, and compares"
)]
fn one_plan_gives_one_history() {
    skopos_sim::quiet_planned_panics();
    for plan in [Plan::single(1, 0), Plan::single(33, 1), Plan::single(46, 2)].into_iter().flatten() {
        assert_eq!(skopos_sim::run(&plan).digest(), skopos_sim::run(&plan).digest(), "seed {}", plan.seed);
    }
}

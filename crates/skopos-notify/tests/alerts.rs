//! The alert rules: they use existing metrics, and each fires and stays silent where it should.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use skopos_notify::service::control::NotifierPhase;
use skopos_notify::service::metrics;
use skopos_notify::sink::memory::MemorySink;
use support::{Cluster, endpoints, sink};

fn rules() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(include_str!("../alerts.yaml")).expect("YAML");
    rules["groups"][0]["rules"].as_array().expect("rules").clone()
}

#[tokio::test(start_paused = true)]
async fn alerts_are_about_metrics_that_exist() {
    let cluster = Cluster::new().await;
    cluster.put("web", &[("10.0.0.1", "ready")]);
    let zone = endpoints("{service}.{namespace}", false);
    let running = cluster.run(vec![sink("zone", MemorySink::zone(), zone)]);
    running.equal(0).await;
    let working = NotifierPhase::Working(running.handle.clone());
    let text = metrics(&working, Some(std::time::Duration::from_secs(9)));
    running.stop().await;
    cluster.end().await;
    let names = text.lines().filter(|line| !line.starts_with('#'));
    let mut exist: BTreeSet<String> =
        names.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect();
    exist.insert("skopos_controller_longest_running_seconds".to_owned());
    let mut named = BTreeSet::new();
    for rule in rules() {
        let expression = rule["expr"].as_str().unwrap().to_owned();
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        named.extend(words.filter(|word| word.starts_with("skopos_")).map(str::to_owned));
        assert!(
            rule["labels"]["severity"].is_string() && rule["annotations"]["summary"].is_string(),
            "{rule}"
        );
    }
    let wrong: Vec<_> = named.difference(&exist).collect();
    assert!(wrong.is_empty(), "{wrong:?} of {exist:?}");
}

#[test]
fn each_alert_fires_and_stays_silent() {
    let tests = include_str!("../alerts.test.yaml");
    for rule in rules() {
        let alert = rule["alert"].as_str().unwrap();
        for kind in ["fires", "silent"] {
            assert!(
                tests.contains(&format!("- name: {alert} {kind}\n")),
                "{alert} has no test that it {kind}"
            );
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tested =
        Command::new("promtool").args(["test", "rules", "alerts.test.yaml"]).current_dir(folder).output();
    match tested {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIPPED: promtool is not installed (apt-get install prometheus)");
        }
        tested => {
            let tested = tested.unwrap();
            assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
        }
    }
}

//! Alert rules and dashboards: they use metrics that exist. Each alert is tested and has a section in the docs.
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::reference::listed;
use super::support::{text, utf8};

/// The folders with alert rules, and the sections of docs/reference/metrics.md about the programs that they watch.
const ALERTS: [(&str, &[&str]); 2] =
    [("crates/skopos-gateway", &["## Gateway"]), ("crates/skopos-notify", &["## Notifier", "## Controller"])];

const DASHBOARDS: [&str; 2] = ["fleet", "cluster"];

/// The page with a section for each alert.
const PAGE: &str = "docs/how-to/alert.md";

#[test]
fn alerts_use_existing_metrics() {
    for (folder, programs) in ALERTS {
        let exist = series(programs);
        for rule in rules(folder) {
            let named = metrics(rule["expr"].as_str().unwrap());
            assert!(!named.is_empty() && named.is_subset(&exist), "{}: {named:?}", rule["alert"]);
        }
    }
}

#[test]
fn each_alert_fires_and_stays_silent() {
    for (folder, _) in ALERTS {
        let tests = read(&format!("{folder}/alerts.test.yaml"));
        for rule in rules(folder) {
            let alert = rule["alert"].as_str().unwrap();
            for kind in ["fires", "silent"] {
                let test = format!("- name: {alert} {kind}\n");
                assert!(tests.contains(&test), "{folder}/alerts.test.yaml: no test `{alert} {kind}`");
            }
        }
        promtool(&["test", "rules", "alerts.test.yaml"], &root().join(folder));
    }
}

#[test]
fn each_alert_has_a_section_of_the_docs() {
    let page = read(PAGE);
    let mut sections = BTreeSet::new();
    for (folder, _) in ALERTS {
        for rule in rules(folder) {
            let alert = rule["alert"].as_str().unwrap().to_owned();
            let (labels, annotations) = (&rule["labels"], &rule["annotations"]);
            assert!(labels["severity"].is_string() && annotations["summary"].is_string(), "{rule}");
            assert_eq!(annotations["runbook"], format!("{PAGE}#{}", alert.to_lowercase()), "{alert}");
            assert!(sections.insert(alert), "two alerts have one name: {rule}");
        }
    }
    let headings = page.lines().filter_map(|line| line.strip_prefix("### Skopos"));
    assert_eq!(headings.map(|name| format!("Skopos{name}")).collect::<BTreeSet<_>>(), sections);
}

#[test]
fn dashboards_use_existing_metrics() {
    let exist = series(&["## Gateway", "## Notifier"]);
    for name in DASHBOARDS {
        let expressions = expressions(&dashboard(name));
        for expression in &expressions {
            let named = metrics(expression);
            assert!(!named.is_empty() && named.is_subset(&exist), "{name}: {expression}: {named:?}");
        }
        // A recording rule for each, because promtool reads expressions in rules only.
        let rules: Vec<Value> = expressions
            .iter()
            .filter(|expression| !expression.starts_with("label_values("))
            // Grafana sets the variables.
            .map(|expression| expression.replace("$__rate_interval", "5m").replace("$__range", "6h"))
            .enumerate()
            .map(|(number, expr)| json!({"record": format!("expression:{number}"), "expr": expr}))
            .collect();
        assert!(rules.len() > 10, "{name}: this test finds no expressions");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.yaml");
        // JSON is YAML.
        std::fs::write(&file, json!({"groups": [{"name": name, "rules": rules}]}).to_string()).unwrap();
        promtool(&["check", "rules", utf8(&file)], folder.path());
    }
}

#[test]
fn panels_are_explained_and_do_not_overlap() {
    for name in DASHBOARDS {
        let dashboard = dashboard(name);
        assert_eq!(dashboard["uid"], format!("skopos-{name}"));
        let mut cells = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {title}: the id is taken");
            assert!(panel["description"].is_string(), "{name}: {title}: no description");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title}: no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(x + w <= 24, "{name}: {title} is wider than the grid");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                let other = cells.insert(cell, title);
                assert_eq!(other, None, "{name}: {title} covers another panel");
            }
        }
    }
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of the repository.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the alert rules in a folder.
fn rules(folder: &str) -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read(&format!("{folder}/alerts.yaml"))).expect("YAML");
    rules["groups"][0]["rules"].as_array().expect("rules").clone()
}

/// Returns a dashboard of the chart.
fn dashboard(name: &str) -> Value {
    serde_json::from_str(&read(&format!("charts/skopos/files/dashboards/{name}.json"))).expect("JSON")
}

/// Returns the expressions of the panels and the queries of the variables.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let variables = dashboard["templating"]["list"].as_array().into_iter().flatten();
    let queries = variables.filter(|variable| variable["type"] == "query");
    let all = targets.map(|target| &target["expr"]).chain(queries.map(|query| &query["query"]["query"]));
    all.map(|text| text.as_str().expect("an expression").to_owned()).collect()
}

/// Returns the names of the series in the sections of docs/reference/metrics.md. Other tests compare that page with
/// running programs.
fn series(sections: &[&str]) -> BTreeSet<String> {
    let mut series = BTreeSet::new();
    for metric in sections.iter().flat_map(|section| listed(section)) {
        match metric.split_once(' ').expect("name and type") {
            (name, "histogram") => {
                series.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
            }
            (name, _) => _ = series.insert(name.to_owned()),
        }
    }
    series
}

/// Returns the metrics that an expression names: its words with our prefix, and all words before a selector.
fn metrics(expression: &str) -> BTreeSet<String> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut metrics = BTreeSet::new();
    let mut rest = expression;
    while let Some(begin) = rest.find(is_of_word) {
        rest = &rest[begin..];
        let (word, after) = rest.split_at(rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len()));
        if word.starts_with("skopos_") || after.starts_with('{') {
            metrics.insert(word.to_owned());
        }
        rest = after;
    }
    metrics
}

/// Runs promtool, which must succeed. Says so if it is not installed.
fn promtool(arguments: &[&str], folder: &Path) {
    match Command::new("promtool").args(arguments).current_dir(folder).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: promtool is not installed (apt-get install prometheus)");
        }
        output => {
            let output = output.expect("promtool runs");
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        }
    }
}

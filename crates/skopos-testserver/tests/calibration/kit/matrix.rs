//! Generated scripts: every combination of the parameters of a list, and of a watch.

use serde_json::json;

use super::script::{Script, Step};

/// Text in a script's name, and in the query (`None`: nothing).
type Choice = (&'static str, Option<&'static str>);

const VERSIONS: [Choice; 6] = [
    ("unset", None),
    ("zero", Some("resourceVersion=0")),
    ("past", Some("resourceVersion=$2")),
    ("newest", Some("resourceVersion=$4")),
    ("future", Some("resourceVersion=$now+100000")),
    ("word", Some("resourceVersion=x")),
];
const LIST_MATCHES: [Choice; 4] = [
    ("", None),
    ("+not-older", Some("resourceVersionMatch=NotOlderThan")),
    ("+exact", Some("resourceVersionMatch=Exact")),
    ("+odd", Some("resourceVersionMatch=Odd")),
];
const LIMITS: [Choice; 2] = [("", None), ("+limit", Some("limit=2"))];
const CONTINUES: [Choice; 2] = [("", None), ("+continue", Some("continue=$page"))];
const LIST_SENDS: [Choice; 2] = [("", None), ("+send", Some("sendInitialEvents=true"))];

const WATCH_MATCHES: [Choice; 3] = [LIST_MATCHES[0], LIST_MATCHES[1], LIST_MATCHES[2]];
const WATCH_SENDS: [Choice; 3] =
    [("", None), ("+send", Some("sendInitialEvents=true")), ("+no-send", Some("sendInitialEvents=false"))];
const BOOKMARKS: [Choice; 2] = [("", None), ("+bookmarks", Some("allowWatchBookmarks=true"))];

/// Returns all generated scripts.
pub(crate) fn scripts() -> Vec<Script> {
    let mut scripts = Vec::new();
    for version in VERSIONS {
        for matching in LIST_MATCHES {
            for limit in LIMITS {
                for token in CONTINUES {
                    scripts.push(list(&[version, matching, limit, token]));
                }
            }
            if version.0 != "word" {
                scripts.push(list(&[version, matching, LIST_SENDS[1]]));
            }
            if matching.0 != "+odd" {
                scripts.push(compacted_list(&[version, matching]));
            }
        }
        for matching in WATCH_MATCHES {
            for send in WATCH_SENDS {
                for bookmarks in BOOKMARKS {
                    scripts.push(watch(&[version, matching, send, bookmarks]));
                }
            }
        }
        scripts.push(get(version));
    }
    scripts
}

/// Returns the steps that create three objects and change the first of them: versions 1 to 4.
fn state() -> Vec<Step> {
    let make = |name| Step::with("MAKE configmaps", json!({"metadata": {"name": name}}));
    vec![make("a"), make("b"), make("c"), change()]
}

fn change() -> Step {
    Step::with("SET configmaps/a", json!({"data": {"changed": "yes"}}))
}

fn list(choices: &[Choice]) -> Script {
    let mut steps = state();
    if choices.contains(&CONTINUES[1]) {
        steps.push(Step::line("PAGE configmaps?limit=1"));
        // The next page must not show it.
        steps.push(Step::with("MAKE configmaps", json!({"metadata": {"name": "bb"}})));
    }
    steps.push(Step::line(format!("GET configmaps{}", query(choices))));
    script("list", choices, &["L1", "L2", "L3", "L4", "L5", "L6", "L7", "L10"], steps, false)
}

fn compacted_list(choices: &[Choice]) -> Script {
    let mut steps = state();
    steps.push(Step::with("MAKE configmaps", json!({"metadata": {"name": "d"}})));
    steps.push(Step::line("COMPACT"));
    steps.push(Step::line(format!("GET configmaps{}", query(choices))));
    script("list-compacted", choices, &["L8"], steps, true)
}

fn watch(choices: &[Choice]) -> Script {
    let mut steps = state();
    let query = query(choices).replacen('?', "&", 1);
    steps.push(Step::line(format!("WATCH w configmaps?watch=1{query}")));
    steps.push(Step::line("READ w quiet"));
    steps.push(change_again());
    steps.push(Step::line("READ w quiet"));
    script("watch", choices, &["W1", "W2", "W3", "W4", "W11"], steps, false)
}

fn change_again() -> Step {
    Step::with("SET configmaps/b", json!({"data": {"changed": "too"}}))
}

fn get(version: Choice) -> Script {
    let mut steps = state();
    steps.push(Step::line(format!("GET configmaps/a{}", query(&[version]))));
    script("get", &[version], &["L1", "L2", "L5", "L6"], steps, false)
}

fn query(choices: &[Choice]) -> String {
    let chosen: Vec<&str> = choices.iter().filter_map(|(_, parameter)| *parameter).collect();
    if chosen.is_empty() { String::new() } else { format!("?{}", chosen.join("&")) }
}

fn script(group: &str, choices: &[Choice], shows: &[&str], steps: Vec<Step>, alone: bool) -> Script {
    let name: String = choices.iter().map(|(name, _)| *name).collect();
    Script {
        name: format!("matrix-{group}/{name}"),
        shows: shows.iter().map(|line| (*line).to_owned()).collect(),
        alone,
        steps,
    }
}

//! Selectors and resource versions compared with Kubernetes' own libraries on the same texts. `peers/vectors` describes how
//! the file is made; reading it needs no extra tools.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::collections::BTreeMap;

use serde::Deserialize;
use skopos_wire::{FieldSelector, FieldSource, LabelSelector, ResourceVersion};

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Sets { sets: Vec<BTreeMap<String, String>> },
    Label(Vector),
    Field(Vector),
    Version(Vector),
}

/// A text and its result.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Vector {
    text: String,
    error: String,
    printed: String,
    matches: String,
    order: i8,
}

struct Fields<'a>(&'a BTreeMap<String, String>);

impl FieldSource for Fields<'_> {
    fn field(&self, path: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.0.get(path).map(|text| text.into())
    }
}

#[test]
fn parses_selectors_and_versions_like_kubernetes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../peers/vectors/vectors.jsonl");
    // A published crate comes without it.
    let Ok(file) = std::fs::read_to_string(path) else { return };
    let mut sets = Vec::new();
    let mut wrong = Vec::new();
    let mut seen = [0; 3];
    for line in file.lines() {
        let (which, ours, theirs) = match serde_json::from_str(line).unwrap() {
            Line::Sets { sets: read } => {
                sets = read;
                continue;
            }
            Line::Label(vector) => (0, label(&vector.text, &sets), vector),
            Line::Field(vector) => (1, field(&vector.text, &sets), vector),
            // "0" means "any": never an object's version, only one in requests.
            Line::Version(vector) if vector.text.split('|').any(|text| text == "0") => continue,
            Line::Version(vector) => (2, version(&vector.text), vector),
        };
        seen[which] += 1;
        if ours != outcome(&theirs) {
            wrong.push(format!("{:?}\n  ours:   {ours}\n  theirs: {}", theirs.text, outcome(&theirs)));
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    assert!(wrong.is_empty(), "{} of {seen:?} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the result of a text, in words.
fn outcome(vector: &Vector) -> String {
    let Vector { error, printed, matches, order, .. } = vector;
    match error.is_empty() {
        true => format!("{printed:?} selects {matches}, {order}"),
        false => format!("error: {error}"),
    }
}

fn label(text: &str, sets: &[BTreeMap<String, String>]) -> String {
    match LabelSelector::parse(text) {
        Ok(selector) => {
            let matches = sets.iter().map(|set| if selector.matches(set) { '1' } else { '0' }).collect();
            outcome(&Vector { printed: selector.to_string(), matches, ..Vector::default() })
        }
        Err(error) => format!("error: {error}"),
    }
}

fn field(text: &str, sets: &[BTreeMap<String, String>]) -> String {
    match FieldSelector::parse(text) {
        Ok(selector) => {
            let matches =
                sets.iter().map(|set| if selector.matches(&Fields(set)) { '1' } else { '0' }).collect();
            outcome(&Vector { printed: selector.to_string(), matches, ..Vector::default() })
        }
        Err(error) => format!("error: {error}"),
    }
}

/// Compares two versions, separated by a bar.
fn version(text: &str) -> String {
    let (a, b) = text.split_once('|').unwrap();
    match (a.parse::<ResourceVersion>(), b.parse::<ResourceVersion>()) {
        (Ok(a), Ok(b)) => outcome(&Vector { order: a.cmp(&b) as i8, ..Vector::default() }),
        (Err(_), _) => refused(a),
        _ => refused(b),
    }
}

fn refused(text: &str) -> String {
    format!("error: resource version is not well formed: {text}")
}

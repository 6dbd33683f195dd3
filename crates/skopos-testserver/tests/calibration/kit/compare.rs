//! Comparison of two histories of one script, and the known differences with their reasons.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::golden::Histories;

/// Known difference, with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// Scripts whose histories differ; a `*` at the end matches any rest.
    pub(crate) scripts: Vec<String>,
    /// Entries of the histories that differ, from 0 on; all may, unless given.
    #[serde(default)]
    pub(crate) entries: Vec<usize>,
    /// Reason of the difference.
    pub(crate) reason: String,
}

/// Returns the known differences.
///
/// # Panics
/// When the file is not a list of them; it is part of the program.
pub(crate) fn known() -> Vec<Known> {
    let text = include_str!("../differences.yaml");
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("differences.yaml: {error}"))
}

/// Returns the differences without a reason, and the reasons without a difference. Empty if there are none.
pub(crate) fn complaints(real: &Histories, ours: &Histories, known: &[Known]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut excused: BTreeSet<(usize, &str)> = BTreeSet::new();
    for (name, ours) in ours {
        let Some(real) = real.get(name) else {
            complaints.push(format!("{name}: is not recorded"));
            continue;
        };
        for at in 0..real.len().max(ours.len()) {
            let (real, ours) = (real.get(at).unwrap_or(&Value::Null), ours.get(at).unwrap_or(&Value::Null));
            if real == ours {
                continue;
            }
            match known.iter().position(|known| known.covers(name, at)) {
                Some(number) => drop(excused.insert((number, name))),
                None => complaints.push(describe(name, at, real, ours)),
            }
        }
    }
    for (number, known) in known.iter().enumerate() {
        for name in ours.keys().filter(|name| known.names(name)) {
            if !excused.contains(&(number, name)) {
                complaints.push(format!("{name}: no longer differs, though it is listed: {}", known.reason));
            }
        }
        if !ours.keys().any(|name| known.names(name)) {
            complaints.push(format!("{:?}: no script has such a name: {}", known.scripts, known.reason));
        }
    }
    complaints
}

impl Known {
    pub(crate) fn names(&self, script: &str) -> bool {
        self.scripts.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => script.starts_with(start),
            None => script == name,
        })
    }

    fn covers(&self, script: &str, entry: usize) -> bool {
        self.names(script) && (self.entries.is_empty() || self.entries.contains(&entry))
    }
}

fn describe(name: &str, at: usize, real: &Value, ours: &Value) -> String {
    let step = real["step"].as_str().or(ours["step"].as_str()).or(real["read"].as_str()).unwrap_or("?");
    let mut text = format!("{name}: entry {at} ({step}) differs:");
    let mut places = Vec::new();
    differences("", real, ours, &mut places);
    for (place, real, ours) in places {
        let _ = write!(text, "\n    {place}\n      real {real}\n      ours {ours}");
    }
    text
}

/// Collects the smallest places at which two values differ.
fn differences(place: &str, real: &Value, ours: &Value, out: &mut Vec<(String, String, String)>) {
    let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(&format!("{place}/{name}"), a, b, out),
                    (a, b) => out.push((format!("{place}/{name}"), shown(a), shown(b))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for at in 0..a.len().max(b.len()) {
                match (a.get(at), b.get(at)) {
                    (Some(a), Some(b)) => differences(&format!("{place}/{at}"), a, b, out),
                    (a, b) => out.push((format!("{place}/{at}"), shown(a), shown(b))),
                }
            }
        }
        (a, b) if a != b => out.push((place.to_owned(), a.to_string(), b.to_string())),
        _ => {}
    }
}

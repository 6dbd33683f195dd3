//! What was measured, and how it is said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::world::CAP;

/// What became of one notifier in one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Measured values; times in seconds, and none where it did not happen within the time that was waited.
    pub(super) numbers: BTreeMap<String, Option<f64>>,
    /// The evidence in words, made of the numbers.
    pub(super) said: String,
}

impl Outcome {
    /// Keeps a number, and returns how it is said.
    pub(super) fn seconds(&mut self, name: &str, value: Option<f64>) -> String {
        self.numbers.insert(name.to_owned(), value);
        match value {
            Some(value) if value < 1.0 => format!("{value:.2} s"),
            Some(value) => format!("{value:.1} s"),
            None => format!("**not within {} s**", CAP.as_secs()),
        }
    }

    /// Keeps a count, and returns it.
    pub(super) fn count(&mut self, name: &str, value: usize) -> usize {
        self.numbers.insert(name.to_owned(), Some(value as f64));
        value
    }

    pub(super) fn say(mut self, text: impl Into<String>) -> Self {
        self.said = text.into();
        self
    }
}

/// Returns what a log line says, without its time and its level, on one line of a table.
pub(super) fn message(line: Option<String>) -> String {
    const LONGEST: usize = 170;
    let Some(line) = line else { return "nothing".to_owned() };
    let after = |word| line.split_once(word).map(|(_, message)| message);
    let text = after("msg=").or_else(|| after("problem=")).unwrap_or(&line);
    let text: String = text.replace("\\n", " ").replace('\\', "").replace('|', "/").replace('`', "'");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", text[..end].trim_matches('"')),
        None => format!("`{}`", text.trim_matches('"')),
    }
}

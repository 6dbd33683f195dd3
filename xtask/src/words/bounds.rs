//! The bounds of what is measured. They may fall, and they do not rise: each has a goal, below which nothing more is asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::Figures;

/// The most that each figure may be, over all published crates. Shares are in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    banned_in_code: usize,
    banned_in_docs: usize,
    question_docs_percent: f64,
    /// The least share of function docs that begin with a verb.
    verb_docs_percent: f64,
    of_functions: usize,
    circles: usize,
    /// The names that more than two types may have, each with the reason.
    repeated_types: BTreeMap<String, String>,
}

/// The head of the file.
const HEAD: &str = "\
# The bounds of `cargo xtask words`; `cargo xtask words --tighten` lowers them.
# `repeated_types` has the names of more than two types, one of them public, and why they keep the name.
";

/// The shares below and above which nothing more is asked, in percent: first words are told by their form, and some verbs have another.
const QUESTION_DOCS_GOAL: f64 = 3.0;
const VERB_DOCS_GOAL: f64 = 90.0;

impl Bounds {
    pub(super) fn from_figures(figures: &Figures, banned_in_docs: usize) -> Self {
        let percent =
            |part: usize, whole: usize| (part as f64 * 1_000.0 / whole.max(1) as f64).round() / 10.0;
        Self {
            banned_in_code: figures.banned,
            banned_in_docs,
            question_docs_percent: percent(figures.question_docs, figures.docs),
            verb_docs_percent: percent(figures.verb_docs, figures.function_docs),
            of_functions: figures.of_functions,
            circles: figures.circles,
            repeated_types: figures.repeated_types.iter().map(|name| (name.clone(), String::new())).collect(),
        }
    }

    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("no {}", file.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not understood", file.display()))
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let text = format!("{HEAD}{}", toml::to_string(self)?);
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Returns the stricter of two bounds, each. Reasons are those of this one.
    pub(super) fn lowest(&self, other: &Self) -> Self {
        let is_repeated = |(name, _): &(&String, &String)| other.repeated_types.contains_key(*name);
        Self {
            banned_in_code: self.banned_in_code.min(other.banned_in_code),
            banned_in_docs: self.banned_in_docs.min(other.banned_in_docs),
            question_docs_percent: self
                .question_docs_percent
                .min(other.question_docs_percent)
                .max(QUESTION_DOCS_GOAL),
            verb_docs_percent: self.verb_docs_percent.max(other.verb_docs_percent).min(VERB_DOCS_GOAL),
            of_functions: self.of_functions.min(other.of_functions),
            circles: self.circles.min(other.circles),
            repeated_types: self
                .repeated_types
                .iter()
                .filter(is_repeated)
                .map(|(name, reason)| (name.clone(), reason.clone()))
                .collect(),
        }
    }

    /// Returns a line for each figure that is beyond its bound.
    pub(super) fn exceeded(&self, measured: &Self) -> Vec<String> {
        let most = [
            ("banned phrases in the code", measured.banned_in_code, self.banned_in_code),
            ("banned phrases in docs/", measured.banned_in_docs, self.banned_in_docs),
            ("functions named `of` or `of_...`", measured.of_functions, self.of_functions),
            ("circles of files", measured.circles, self.circles),
        ];
        let more = most.into_iter().filter(|(_, measured, bound)| measured > bound);
        let mut problems: Vec<_> = more
            .map(|(what, measured, bound)| format!("{what}: {measured}, at most {bound} are allowed"))
            .collect();
        if measured.question_docs_percent > self.question_docs_percent {
            let (measured, bound) = (measured.question_docs_percent, self.question_docs_percent);
            problems.push(format!(
                "docs that begin with a question word: {measured} %, at most {bound} % are allowed"
            ));
        }
        if measured.verb_docs_percent < self.verb_docs_percent {
            let (measured, bound) = (measured.verb_docs_percent, self.verb_docs_percent);
            problems.push(format!(
                "docs of functions that begin with a verb: {measured} %, at least {bound} % are demanded"
            ));
        }
        problems.extend(self.unlisted_types(measured));
        problems
    }

    /// Returns a line for each name of more than two types that is not listed with a reason, and for each that is listed
    /// and no longer one.
    fn unlisted_types(&self, measured: &Self) -> Vec<String> {
        let mut problems = Vec::new();
        for name in measured.repeated_types.keys() {
            match self.repeated_types.get(name).map(|reason| reason.trim()) {
                None => problems.push(format!(
                    "{name} is the name of more than two types: rename one, or list it in xtask/words.toml with a reason"
                )),
                Some("") => problems.push(format!("{name} is listed in xtask/words.toml without a reason")),
                Some(_) => {}
            }
        }
        let gone = self.repeated_types.keys().filter(|name| !measured.repeated_types.contains_key(*name));
        problems.extend(gone.map(|name| {
            format!("{name} is no longer the name of more than two types: remove it with `cargo xtask words --tighten`")
        }));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_may_fall_but_not_rise() {
        let bounds = Bounds::from_figures(
            &Figures {
                banned: 2,
                docs: 10,
                question_docs: 1,
                function_docs: 4,
                verb_docs: 2,
                circles: 1,
                ..Figures::default()
            },
            3,
        );
        assert_eq!(bounds.exceeded(&bounds), [""; 0]);
        let better = Bounds { banned_in_code: 0, verb_docs_percent: 60.0, ..bounds.clone() };
        assert_eq!(bounds.exceeded(&better), [""; 0]);
        assert_eq!(better.exceeded(&bounds).len(), 2);
        assert_eq!(bounds.lowest(&better), better);
    }

    #[test]
    fn names_of_many_types_need_a_reason() {
        let named = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned()));
            Bounds { repeated_types: pairs.collect(), ..Bounds::from_figures(&Figures::default(), 0) }
        };
        let bounds = named(&[("Kind", "of the API"), ("Step", " "), ("Gone", "was once")]);
        let problems = bounds.exceeded(&named(&[("Kind", ""), ("Step", ""), ("New", "")]));
        let starts = ["New is the name", "Step is listed", "Gone is no longer"];
        assert_eq!(problems.len(), starts.len(), "{problems:?}");
        assert!(
            problems.iter().zip(starts).all(|(problem, start)| problem.starts_with(start)),
            "{problems:?}"
        );
        let left = bounds.lowest(&named(&[("Kind", "")])).repeated_types;
        assert_eq!(left, named(&[("Kind", "of the API")]).repeated_types);
    }
}

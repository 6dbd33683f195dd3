//! The documented differences between the two sides.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde::Deserialize;

use super::commands::Step;
use super::side::Outcome;

/// The entries of `differences.yaml` that count for this cluster, and which of them have occurred.
pub(super) struct Differences {
    entries: Vec<(Difference, bool)>,
}

/// A difference that is meant, or cannot be avoided.
struct Difference {
    command: Regex,
    written: String,
    lines: Vec<Regex>,
    exit: Option<Exit>,
}

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The command, with `*` for any text.
    command: String,
    /// Why it differs.
    reason: String,
    /// Regular expressions of the lines, on both sides, that are not compared.
    #[serde(default)]
    lines: Vec<String>,
    /// Exit codes, where they differ.
    exit: Option<Exit>,
    /// The clusters on which it occurs; without it, on all.
    on: Option<Cluster>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exit {
    direct: i32,
    gateway: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Cluster {
    /// A full one.
    #[serde(rename = "kube-apiserver")]
    Full,
    /// peers/apiserver.
    #[serde(rename = "peers/apiserver")]
    Peer,
}

/// How two outcomes compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    /// They differ as an entry says.
    Documented,
    Different,
    /// The command does on the cluster itself what the file does not say: it fails, or does not fail.
    Unexpected,
}

impl Differences {
    /// Reads the entries that count for the cluster.
    pub(super) fn read(path: &Path, full: bool) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let entries: Vec<Entry> =
            serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let here = if full { Cluster::Full } else { Cluster::Peer };
        let mut read = Vec::new();
        for entry in entries {
            ensure!(!entry.reason.trim().is_empty(), "{}: `{}` has no reason", path.display(), entry.command);
            if entry.on.is_none_or(|on| on == here) {
                read.push((Difference::new(entry)?, false));
            }
        }
        Ok(Self { entries: read })
    }

    /// Compares what a command came to on both sides.
    pub(super) fn judge(&mut self, step: &Step, direct: &Outcome, gateway: &Outcome) -> Verdict {
        if step.fails != (direct.code != Some(0)) {
            return Verdict::Unexpected;
        }
        if direct == gateway {
            return Verdict::Same;
        }
        let entry = self.entries.iter_mut().find(|(entry, _)| entry.explains(step, direct, gateway));
        match entry {
            Some((_, occurred)) => {
                *occurred = true;
                Verdict::Documented
            }
            None => Verdict::Different,
        }
    }

    /// Returns the entries that have not occurred, with what is wrong with them.
    pub(super) fn unused(&self, steps: &[Step]) -> Vec<String> {
        let unused = self.entries.iter().filter(|(_, occurred)| !occurred);
        unused
            .map(|(entry, _)| {
                let known = steps.iter().any(|step| entry.command.is_match(&step.command));
                let why = if known { "the sides no longer differ so" } else { "there is no such command" };
                format!("{}: {why}; remove the entry from differences.yaml", entry.written)
            })
            .collect()
    }
}

impl Difference {
    fn new(entry: Entry) -> Result<Self> {
        let parts: Vec<String> = entry.command.split('*').map(regex::escape).collect();
        let command = Regex::new(&format!("^{}$", parts.join(".*")))?;
        let mut lines = Vec::new();
        for line in &entry.lines {
            lines.push(Regex::new(line).with_context(|| format!("`{}`", entry.command))?);
        }
        Ok(Self { command, written: entry.command, lines, exit: entry.exit })
    }

    /// Returns whether this entry names the command, and nothing but what it says differs.
    fn explains(&self, step: &Step, direct: &Outcome, gateway: &Outcome) -> bool {
        let codes = match self.exit {
            Some(exit) => direct.code == Some(exit.direct) && gateway.code == Some(exit.gateway),
            None => direct.code == gateway.code,
        };
        self.command.is_match(&step.command)
            && codes
            && self.compared(&direct.stdout) == self.compared(&gateway.stdout)
            && self.compared(&direct.stderr) == self.compared(&gateway.stderr)
    }

    /// Returns the lines that are compared.
    fn compared<'a>(&self, text: &'a str) -> Vec<&'a str> {
        text.lines().filter(|line| !self.lines.iter().any(|pattern| pattern.is_match(line))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str) -> Step {
        Step { command: command.to_owned(), fails: false, place: String::new() }
    }

    fn outcome(stdout: &str) -> Outcome {
        Outcome { code: Some(0), stdout: stdout.to_owned(), stderr: String::new() }
    }

    fn differences() -> Differences {
        let entry = "{command: kubectl get *, reason: r, lines: ['^x']}";
        let entry: Entry = serde_saphyr::from_str(entry).expect("an entry");
        Differences { entries: vec![(Difference::new(entry).expect("an entry"), false)] }
    }

    #[test]
    fn an_entry_explains_its_lines_of_its_commands_only() {
        let judge = |command: &str, direct: &str, gateway: &str| {
            differences().judge(&step(command), &outcome(direct), &outcome(gateway))
        };
        assert_eq!(judge("kubectl get a", "a\n", "a\n"), Verdict::Same);
        assert_eq!(judge("kubectl get a", "a\nx1\n", "a\nx2\n"), Verdict::Documented);
        assert_eq!(judge("kubectl get a", "a\nx1\n", "b\nx2\n"), Verdict::Different);
        assert_eq!(judge("kubectl top a", "a\nx1\n", "a\nx2\n"), Verdict::Different);
    }

    #[test]
    fn exit_codes_count() {
        let failed = Outcome { code: Some(1), ..outcome("x") };
        assert_eq!(differences().judge(&step("kubectl get a"), &outcome("x"), &failed), Verdict::Different);
        assert_eq!(differences().judge(&step("kubectl get a"), &failed, &failed), Verdict::Unexpected);
    }

    #[test]
    fn an_entry_that_does_not_occur_is_named() {
        let unused = differences().unused(&[step("kubectl get a")]);
        assert_eq!(
            unused,
            ["kubectl get *: the sides no longer differ so; remove the entry from differences.yaml"]
        );
        let mut occurred = differences();
        occurred.judge(&step("kubectl get a"), &outcome("x1"), &outcome("x2"));
        assert_eq!(occurred.unused(&[step("kubectl get a")]), Vec::<String>::new());
    }
}

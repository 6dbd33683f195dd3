//! The commands, as they are written in files.
//!
//! A line is a command for `sh`. Its folder has the files of `manifests`, and kubectl's current namespace is the side's own; in both,
//! `$NS` is the name of that namespace, with which names of cluster-scoped objects begin;
//! `$ROOT` is the path of the server, which `kubectl get --raw` leaves out. A line that ends with `\` goes on in the next. A line that begins with
//! `!` is a command that fails. Lines that begin with `#` are comments.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// One command, which runs on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) command: String,
    /// Whether the cluster itself refuses it.
    pub(super) fails: bool,
    /// Where it is written, for messages.
    pub(super) place: String,
}

/// The files of commands: name, and whether they need a full kube-apiserver.
const FILES: [(&str, bool); 2] = [("everywhere.txt", false), ("kube-apiserver.txt", true)];

/// Reads the commands of a folder; those for a kube-apiserver only if the cluster is one.
pub(super) fn read(folder: &Path, full: bool) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (name, needs_full) in FILES {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if full || !needs_full {
            steps.extend(parse(name, &text));
        }
    }
    ensure!(!steps.is_empty(), "{} has no commands", folder.display());
    Ok(steps)
}

fn parse(file: &str, text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut command = String::new();
    let mut first = 0;
    for (index, line) in text.lines().enumerate() {
        if command.is_empty() {
            first = index + 1;
        }
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        if let Some(part) = line.strip_suffix('\\') {
            command.push_str(part);
            continue;
        }
        command.push_str(line);
        if command.is_empty() {
            continue;
        }
        let whole = std::mem::take(&mut command);
        let (fails, whole) = match whole.strip_prefix('!') {
            Some(rest) => (true, rest.trim().to_owned()),
            None => (false, whole),
        };
        steps.push(Step { command: whole, fails, place: format!("{file}:{first}") });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_continue_comments_go_and_failures_are_marked() {
        let steps = parse("f", "# a\n\nkubectl get \\\n  pods\n! kubectl get nothing\n");
        let told: Vec<_> = steps.iter().map(|s| (s.command.as_str(), s.fails, s.place.as_str())).collect();
        assert_eq!(told, [("kubectl get pods", false, "f:3"), ("kubectl get nothing", true, "f:5")]);
    }
}

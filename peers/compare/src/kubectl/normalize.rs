//! Replacement of what cannot be the same on both sides.

use std::path::Path;

use anyhow::Result;
use regex::Regex;

/// Replaces a side's own names, and what every object or moment has of its own.
pub(super) struct Normalizer {
    /// Texts of this side, and what stands for them.
    names: Vec<(String, &'static str)>,
    patterns: Vec<(Regex, &'static str)>,
    age: Regex,
    padding: Regex,
}

/// Everything that is replaced beside the names of a side. Nothing else may differ.
const PATTERNS: [(&str, &str); 15] = [
    // The namespaces of both sides, as lists over all namespaces have both.
    (r"\bcompare-[dg][a-z]{4}\b", "compare-x"),
    // uids.
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
    // Resource versions of objects and lists, in YAML, in JSON and in text.
    (r#"(?i)(resource[- ]?version(?:\\?")?[:=]\s*(?:\\?")?)\d+"#, "${1}VERSION"),
    // The cluster's own version in the refusal of one that is too large.
    (r"(Too large resource version: VERSION, current: )\d+", "${1}VERSION"),
    // Tokens that the next page of a list is asked for with.
    (r#"("?continue"?[:=]\s*"?)[A-Za-z0-9_-]{20,}"#, "${1}TOKEN"),
    // Tokens of service accounts.
    (r"\beyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", "JWT"),
    // Times, as objects have them and as `describe` prints them.
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "TIME"),
    (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} UTC", "TIME"),
    // Files that `diff` and `edit` make, with the time that `diff` prints behind.
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "TIME"),
    (r"/tmp/(LIVE|MERGED|kubectl-edit)-[A-Za-z0-9.]+", "/tmp/${1}"),
    // kubectl's log: its letter stays, its time and process go.
    (r"(?m)^([IWE])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (\w+\.go):\d+\]", "${1} ${2}]"),
    // Addresses and ports that the cluster chooses for Services.
    (r"\b10\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "ADDRESS"),
    (r"\b3[0-2]\d{3}\b", "NODEPORT"),
    // Ends of names that the cluster makes from generateName.
    (r"\b(generated-)[a-z0-9]{5}\b", "${1}NAME"),
];

/// Ages and other durations, as tables and `describe` print them.
const AGE: &str = r"\b\d+(?:[smhdy]|ms)(?:\d+[smhd])?\b";

impl Normalizer {
    /// Builds one for a side that has this folder and asks this server. `member` is the server of the cluster itself, which both sides may show.
    pub(super) fn new(folder: &Path, server: &str, member: &str) -> Result<Self> {
        let names = vec![
            (folder.display().to_string(), "FOLDER"),
            (server.to_owned(), "SERVER"),
            (host(server).to_owned(), "HOST"),
            (host(member).to_owned(), "HOST"),
        ];
        let mut patterns = Vec::new();
        for (pattern, with) in PATTERNS {
            patterns.push((Regex::new(pattern)?, with));
        }
        Ok(Self { names, patterns, age: Regex::new(AGE)?, padding: Regex::new(r"(\S) {2,}")? })
    }

    pub(super) fn normalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, with) in &self.names {
            text = text.replace(name, with);
        }
        for (pattern, with) in &self.patterns {
            text = pattern.replace_all(&text, *with).into_owned();
        }
        if !self.age.is_match(&text) {
            return text;
        }
        // An age that is longer by a digit widens its column.
        let text = self.age.replace_all(&text, "AGE");
        self.padding.replace_all(&text, "${1}  ").into_owned()
    }
}

/// Returns the host and port of a URL.
fn host(url: &str) -> &str {
    url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(port: u16, text: &str) -> String {
        let server = format!("http://127.0.0.1:{port}/clusters/c");
        Normalizer::new(Path::new("/tmp/x"), &server, "https://10.9.8.7:6443")
            .expect("patterns")
            .normalize(text)
    }

    #[test]
    fn replaces_run_specific_values() {
        let one = "NAMESPACE   NAME   AGE   NODE\ncompare-dabcd   a      9s    n1\nresourceVersion: \"12\"\n";
        let two =
            "NAMESPACE   NAME   AGE     NODE\ncompare-gwxyz   a      3m12s   n1\nresourceVersion: \"4711\"\n";
        assert_eq!(normal(1, one), normal(2, two));
        let (one, two) =
            [410, 401].map(|at| format!("Too large resource version: 99999, current: {at}")).into();
        assert_eq!(normal(1, &one), normal(2, &two));
        let server = "dial http://127.0.0.1:77/clusters/c: 127.0.0.1:77 refused";
        assert_eq!(normal(77, server), "dial SERVER: HOST refused");
    }

    #[test]
    fn keeps_significant_values() {
        for text in ["replicas: 3\n", "generation: 2\n", "NAME   DATA\nA      1\n", "  - a\n", "code: 404\n"]
        {
            assert_eq!(normal(1, text), text);
        }
    }
}

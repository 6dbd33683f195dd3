//! Checks that the tests that docs/evidence/acceptance.md and docs/evidence/security.md name exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn acceptance_table_names_existing_tests() {
    check("docs/evidence/acceptance.md", 100, 93);
}

#[test]
fn security_table_names_existing_tests() {
    check("docs/evidence/security.md", 80, 36);
}

#[test]
fn no_crate_allows_unsafe_code() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    assert!(workspace.contains("unsafe_code = \"forbid\""), "unsafe code is not forbidden");
    for folder in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let manifest = folder.expect("a crate").path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        assert!(text.contains("[lints]\nworkspace = true"), "{} has lints of its own", manifest.display());
    }
}

/// Checks that the table names more than `least` tests, that all of them exist, and that it has all of its lines.
fn check(table: &str, least: usize, lines: u32) {
    let table = std::fs::read_to_string(root().join(table)).expect("the table");
    let files = files(&table);
    let sources: BTreeMap<&str, String> = files
        .iter()
        .map(|(name, path)| (*name, std::fs::read_to_string(root().join(path)).expect(path)))
        .collect();
    let named: Vec<(&str, &str)> = quoted(&table).filter_map(|text| text.split_once("::")).collect();
    let named: Vec<_> = named.into_iter().filter(|name| *name != ("file", "name")).collect();
    assert!(named.len() > least, "the table names {} tests", named.len());
    let missing: Vec<_> = named
        .iter()
        .filter(|(file, test)| !sources.get(file).is_some_and(|source| is_test(source, test)))
        .collect();
    assert!(missing.is_empty(), "these do not exist: {missing:?}");
    let unused: Vec<_> = files.keys().filter(|file| !named.iter().any(|(named, _)| named == *file)).collect();
    assert!(unused.is_empty(), "no test of these is named: {unused:?}");
    for line in 1..=lines {
        assert!(rows(&table).any(|row| row.contains(&line)), "line {line} is missing");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the short names of files, from the table at the top.
fn files(table: &str) -> BTreeMap<&str, &str> {
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split("` | `");
        Some((cells.next()?, cells.next()?.strip_suffix("` |")?))
    });
    rows.collect()
}

/// Returns the texts between backticks.
fn quoted(table: &str) -> impl Iterator<Item = &str> {
    table.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns the numbers in the first column, row by row.
fn rows(table: &str) -> impl Iterator<Item = Vec<u32>> {
    let numbers = |line: &str| {
        let first = line.strip_prefix("| ")?.split(" |").next()?;
        first.split(", ").map(|number| number.parse().ok()).collect::<Option<Vec<_>>>()
    };
    table.lines().filter_map(numbers)
}

/// Returns whether there is a function of that name with a test attribute just above it.
fn is_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let definition = |line: &str| {
        let rest = line.trim_start_matches("async ").strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let is_attribute = |line: &str| line.starts_with("#[test") || line.starts_with("#[tokio::test");
    let at = lines.iter().position(|line| definition(line));
    at.is_some_and(|at| lines[..at].iter().rev().take(3).any(|line| is_attribute(line)))
}

//! Names on the wire: annotations, labels and HTTP headers.
use std::collections::BTreeSet;
use std::path::Path;

/// The domains of annotations and labels: the project's, and that of vcluster.
const DOMAINS: [&str; 2] = ["skopos.dev/", "loft.sh/"];

/// Returns whether a source file has tests alone.
pub(super) fn is_test(file: &Path) -> bool {
    let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let is_folder = |name: &str| ["tests", "testing", "reference"].contains(&name);
    let folders = file.components().filter_map(|part| part.as_os_str().to_str()).any(is_folder);
    folders || name == "tests" || name.ends_with("_tests")
}

/// Returns the names in source files: annotations and labels, and the headers that the program adds to HTTP.
pub(super) fn in_sources<'a>(sources: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in source.lines() {
            names.extend(domain_names(line));
            names.extend(header_names(line));
        }
    }
    names
}

/// Returns the names in backticks in a page.
pub(super) fn in_page(page: &str) -> BTreeSet<String> {
    page.split('`').skip(1).step_by(2).map(|name| name.to_lowercase()).collect()
}

/// Returns the names of annotations and labels in a line.
fn domain_names(line: &str) -> impl Iterator<Item = String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || ['.', '/', '-'].contains(&letter);
    let words = line.split(move |letter| !is_part(letter)).map(|word| word.trim_end_matches('.'));
    let names = words.filter(|word| DOMAINS.iter().any(|domain| word.contains(domain) && word != domain));
    // A URL is no name.
    names.filter(|word| !word.starts_with('/')).map(str::to_lowercase)
}

/// Returns the names of headers in a line: constants, and all with the prefix of the program.
fn header_names(line: &str) -> impl Iterator<Item = String> {
    let is_of_headers = line.to_lowercase().contains("header");
    let literals = line.split('"').skip(1).step_by(2);
    let is_constant = line.contains("HeaderName::from_static(");
    let names = literals.filter(move |name| is_constant || (is_of_headers && name.starts_with("skopos-")));
    // The name of a program with its version is no header.
    names.filter(|name| !name.contains('/')).map(str::to_lowercase)
}

/// Returns the variants of an enumeration in a source file.
pub(super) fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("\npub enum {name} {{\n")).nth(1).unwrap_or_default();
    let body = body.split("\n}").next().unwrap_or_default();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names =
        lines.map(|line| line.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default());
    names.filter(|name| name.starts_with(char::is_uppercase)).map(str::to_owned).collect()
}

/// Returns the names in the first column of the tables below a heading.
pub(super) fn rows(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split(&format!("\n{heading}\n")).nth(1).unwrap_or_default();
    let section = section.split("\n#").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        let source = "const A: &str = \"skopos.dev/a-b\"; // see skopos.dev/* and skopos.dev/c.\n\
                      headers.insert(\"skopos-d\", value); const E: HeaderName = HeaderName::from_static(\"e\");\n\
                      let name = \"skopos-none\";\n#[cfg(test)]\nmod tests {\n\"skopos.dev/f\"";
        let found: Vec<_> = in_sources([source].into_iter()).into_iter().collect();
        assert_eq!(found, ["e", "skopos-d", "skopos.dev/a-b", "skopos.dev/c"]);
        assert!(in_page("a `Skopos-Age` b").contains("skopos-age"));
    }

    #[test]
    fn variants_and_rows_are_found() {
        let source = "\npub enum Broken {\n    /// A doc.\n    #[error(\"x\")]\n    One {\n        Two: u8,\n    },\n    Three(u8),\n    Four,\n}\n";
        let found: Vec<_> = variants(source, "Broken").into_iter().collect();
        assert_eq!(found, ["Four", "One", "Three"]);
        let page =
            "# E\n\n### `Broken`\n\n| variant | m |\n|---|---|\n| `One` | `no` |\n\n### F\n\n| `G` |\n";
        assert_eq!(rows(page, "### `Broken`").into_iter().collect::<Vec<_>>(), ["One"]);
    }
}

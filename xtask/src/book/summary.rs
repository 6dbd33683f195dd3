//! The book's table of contents: it lists each page of docs/ once, and no other.

use std::collections::BTreeSet;
use std::path::Path;

use super::page::Pages;
use super::problem;

/// Returns a line for each page that is not listed, or not once. Missing files are found as links without a target.
pub(super) fn problems(pages: &Pages, docs: &Path) -> Vec<String> {
    let contents = docs.join("SUMMARY.md");
    let Some(page) = pages.get(&contents) else {
        return vec![problem(&contents, 1, "is missing, list the pages of the book in it")];
    };
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for link in &page.links {
        let path = link.resolve(&contents).map(|(path, _)| path).unwrap_or_default();
        let what = if link.is_external() || !path.starts_with(docs) {
            "is no page of the book, remove it"
        } else if !listed.insert(path) {
            "is listed twice, remove one"
        } else {
            continue;
        };
        problems.push(problem(&contents, link.line, &format!("{} {what}", link.target)));
    }
    let in_book = pages.iter().filter(|(path, _)| path.starts_with(docs) && *path != contents);
    problems.extend(in_book.filter(|(path, _)| !listed.contains(*path)).map(|(path, _)| {
        problem(path, 1, &format!("is not in the table of contents, list it in {}", contents.display()))
    }));
    problems
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let paths = files.iter().map(|(path, _)| PathBuf::from(path)).collect();
        problems(&Pages::read(root.path(), paths).unwrap(), Path::new("docs"))
    }

    #[test]
    fn a_list_of_all_pages_is_no_problem() {
        let summary = "# S\n\n- [A](a.md)\n  - [B](zh-CN/b.md)\n";
        let files = [
            ("README.md", "[not in the book](docs/a.md)"),
            ("docs/SUMMARY.md", summary),
            ("docs/a.md", ""),
            ("docs/zh-CN/b.md", ""),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn each_wrong_entry_is_reported() {
        let summary = "- [A](a.md)\n- [A again](./a.md)\n- [R](../README.md)\n- [W](https://a.example)\n";
        let files = [("docs/SUMMARY.md", summary), ("docs/a.md", ""), ("docs/zh-CN/b.md", "")];
        let expected = [
            "docs/SUMMARY.md:2: ./a.md is listed twice, remove one",
            "docs/SUMMARY.md:3: ../README.md is no page of the book, remove it",
            "docs/SUMMARY.md:4: https://a.example is no page of the book, remove it",
            "docs/zh-CN/b.md:1: is not in the table of contents, list it in docs/SUMMARY.md",
        ];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn a_missing_list_is_reported() {
        let expected = ["docs/SUMMARY.md:1: is missing, list the pages of the book in it"];
        assert_eq!(found(&[("docs/a.md", "")]), expected);
    }
}

//! Links and images: each leads to a file, and each anchor to a heading.

use std::path::Path;

use super::page::{Link, Pages};
use super::problem;

/// Returns a line for each link that leads nowhere.
pub(super) fn problems(pages: &Pages) -> Vec<String> {
    let links = pages.iter().flat_map(|(path, page)| page.links.iter().map(move |link| (path, link)));
    links
        .filter(|(_, link)| !link.is_external())
        .filter_map(|(path, link)| fault(pages, path, link).map(|what| problem(path, link.line, &what)))
        .collect()
}

fn fault(pages: &Pages, page: &Path, link: &Link) -> Option<String> {
    let target = &link.target;
    if target.is_empty() {
        return Some("a link without a target, name a page".to_owned());
    }
    let Some((path, anchor)) = link.resolve(page) else {
        return Some(format!("{target} leads out of the repository, write a path relative to this page"));
    };
    if !pages.has_file(&path) {
        return Some(format!("{target}: there is no {}, correct the path or add the file", path.display()));
    }
    let anchor = anchor?;
    let found = pages.has_anchor(&path, &anchor)?;
    (!found).then(|| format!("{target}: {} has no heading #{anchor}, correct the anchor", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// Writes files, and returns the problems of those that end with `.md`, but for `unread.md`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let is_page = |path: &&str| path.ends_with(".md") && !path.ends_with("unread.md");
        let paths = files.iter().map(|(path, _)| *path).filter(is_page).map(PathBuf::from);
        problems(&Pages::read(root.path(), paths.collect()).unwrap())
    }

    #[test]
    fn good_links_are_no_problem() {
        let page = "# A b\n[1](#a-b) [2](../README.md#x) ![3](p%20q.svg) [4](https://a.example/#no) [5](../docs)\n[6](unread.md#u) [7](a.rs#L3)\n";
        let files = [
            ("docs/page.md", page),
            ("docs/p q.svg", ""),
            ("docs/a.rs", ""),
            ("docs/unread.md", "# U"),
            ("README.md", "# X"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn each_wrong_link_is_reported() {
        let page = "[a](b.md)\n![i](i.svg)\n\n[c](#none)\n[d](../README.md#y)\n[e](../../x)\n[f](/README.md)\n[g]()\n[h](unread.md#no)\n";
        let files = [("docs/page.md", page), ("README.md", "# X"), ("docs/unread.md", "")];
        let expected = [
            "docs/page.md:1: b.md: there is no docs/b.md, correct the path or add the file",
            "docs/page.md:2: i.svg: there is no docs/i.svg, correct the path or add the file",
            "docs/page.md:4: #none: docs/page.md has no heading #none, correct the anchor",
            "docs/page.md:5: ../README.md#y: README.md has no heading #y, correct the anchor",
            "docs/page.md:6: ../../x leads out of the repository, write a path relative to this page",
            "docs/page.md:7: /README.md leads out of the repository, write a path relative to this page",
            "docs/page.md:8: a link without a target, name a page",
            "docs/page.md:9: unread.md#no: docs/unread.md has no heading #no, correct the anchor",
        ];
        assert_eq!(found(&files), expected);
    }
}

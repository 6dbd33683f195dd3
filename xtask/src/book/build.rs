//! The build of the book, from a copy of docs/ in which links to other files of the repository lead to its server.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::page::{Link, Page, Pages};
use crate::run;

const COPY: &str = "target/book-source";
const BOOK: &str = "target/book";

/// The files of the repository on its server.
const FILES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD");

/// Builds the book in target/book if mdBook is installed.
pub(super) fn build(pages: &Pages, docs: &Path) -> Result<()> {
    match Command::new("mdbook").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: mdbook is not installed: the book is not built (cargo install mdbook)");
            return Ok(());
        }
        version => version.context("mdbook cannot be run")?,
    };
    let copy = Path::new(COPY);
    if copy.exists() {
        fs::remove_dir_all(copy).context("the copy of docs/ cannot be removed")?;
    }
    copy_folder(docs, copy).context("docs/ cannot be copied")?;
    for (path, page) in pages.iter() {
        if let Ok(inside) = path.strip_prefix(docs) {
            let copied = copy.join(inside);
            let text = fs::read_to_string(&copied)?;
            fs::write(copied, with_links_to_server(text, path, page, docs))?;
        }
    }
    // Versions of mdBook differ in where a relative path begins.
    let book = std::path::absolute(BOOK)?;
    run(Command::new("mdbook").arg("build").arg(copy).arg("--dest-dir").arg(book))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// Returns the text of a page in which links out of docs/ lead to the repository's server.
fn with_links_to_server(mut text: String, path: &Path, page: &Page, docs: &Path) -> String {
    for link in &page.links {
        if let Some(url) = url_on_server(link, path, docs) {
            for (before, after) in [("](", ")"), ("]: ", "\n"), ("=\"", "\"")] {
                let (old, new) = (format!("{before}{}{after}", link.target), format!("{before}{url}{after}"));
                text = text.replace(&old, &new);
            }
        }
    }
    text
}

fn url_on_server(link: &Link, page: &Path, docs: &Path) -> Option<String> {
    let (path, anchor) = link.resolve(page).filter(|_| !link.is_external())?;
    let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
    (!path.starts_with(docs)).then(|| format!("{FILES}/{}{anchor}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_book_lead_to_server() {
        let text = "[a](../../README.md#x) [b](../how-to/c.md) [d](https://a.example)\n\n[e]\n\n<img src=\"../../e.svg\">\n\n[e]: ../../peers\n";
        let (path, docs) = (Path::new("docs/evidence/page.md"), Path::new("docs"));
        let found = with_links_to_server(text.to_owned(), path, &Page::parse(text), docs);
        let expected = text
            .replace("../../README.md", "SERVER/README.md")
            .replace("../../e.svg", "SERVER/e.svg")
            .replace("../../peers", "SERVER/peers");
        assert_eq!(found, expected.replace("SERVER", FILES));
        assert!(FILES.starts_with("https://"), "{FILES}");
    }
}

//! The docs for users: links, table of contents and pictures are checked, and the book is built.

mod build;
mod links;
mod page;
mod pictures;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::page::Pages;
use super::files;

/// Options of `cargo xtask book`.
#[derive(Args)]
pub(crate) struct Book {
    /// Draw the pictures in docs/pictures, and check nothing.
    #[arg(long)]
    write: bool,
}

/// The folder of the book.
const DOCS: &str = "docs";

impl Book {
    pub(crate) fn run(&self) -> Result<()> {
        let pictures = Path::new(DOCS).join("pictures");
        if self.write {
            return pictures::write(&pictures);
        }
        let pages = Pages::read(Path::new("."), sources(Path::new("."))?)?;
        let mut problems = links::problems(&pages);
        problems.extend(summary::problems(&pages, Path::new(DOCS)));
        problems.extend(pictures::problems(&pictures));
        problems.extend(pictures::unused(&pictures, &pages));
        if !problems.is_empty() {
            bail!("{} problems in the docs:\n{}", problems.len(), problems.join("\n"));
        }
        println!("{} pages: links, table of contents and pictures are right", pages.len());
        build::build(&pages, Path::new(DOCS))
    }
}

/// Returns the Markdown files for users, relative to the repository.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = files::with_extension(&root.join(DOCS), "md")?;
    for entry in fs::read_dir(root).context("the repository cannot be read")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let is_readme = name.starts_with("README") && name.ends_with(".md");
        if is_readme || ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].contains(&&*name) {
            found.push(root.join(&*name));
        }
    }
    for entry in fs::read_dir(root.join("crates")).context("crates/ cannot be read")? {
        let readme = entry?.path().join("README.md");
        found.extend(readme.is_file().then_some(readme));
    }
    found.push(root.join("peers/README.md"));
    found.sort();
    Ok(found.iter().map(|file| file.strip_prefix(root).unwrap_or(file).to_path_buf()).collect())
}

/// Returns the line of a problem: place, fault, and what to do.
fn problem(file: &Path, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_pages_for_users() {
        let root = tempfile::tempdir().unwrap();
        let of_users = [
            "CHANGELOG.md",
            "README.md",
            "README.zh-CN.md",
            "crates/a/README.md",
            "docs/start/demo.md",
            "peers/README.md",
        ];
        for file in of_users.into_iter().chain(["NOTES.md", "crates/a/src/notes.md", "docs/book.toml"]) {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        assert_eq!(sources(root.path()).unwrap(), of_users.map(PathBuf::from));
    }
}

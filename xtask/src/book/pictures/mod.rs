//! The pictures of the docs. Each is drawn once in English and once in Chinese.

mod addresses;
mod age;
mod canvas;
mod request;
mod states;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use self::canvas::{Canvas, Language};
use super::page::Pages;
use super::problem;

/// The pictures: names of their files without language and ending, and the functions that draw them.
const PICTURES: [(&str, Draw); 4] = [
    ("addresses", addresses::draw),
    ("age", age::draw),
    ("request", request::draw),
    ("states", states::draw),
];

type Draw = fn(Language) -> Canvas;

/// Writes the pictures.
pub(super) fn write(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, canvas) in all() {
        let file = folder.join(name);
        fs::write(&file, canvas.svg()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Returns a line for each picture whose file is not what is drawn, and for each text that does not fit.
pub(super) fn problems(folder: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, canvas) in all() {
        let file = folder.join(name);
        if fs::read_to_string(&file).ok().is_none_or(|written| written != canvas.svg()) {
            let what = "is not what the program draws, run `cargo xtask book --write`";
            problems.push(problem(&file, 1, what));
        }
        let misfits = canvas.misfits().iter();
        problems.extend(misfits.map(|text| {
            problem(&file, 1, &format!("{text:?} is wider than its place, shorten it or widen the place"))
        }));
    }
    problems
}

/// Returns a line for each picture that no page shows.
pub(super) fn unused(folder: &Path, pages: &Pages) -> Vec<String> {
    let links = pages.iter().flat_map(|(path, page)| page.links.iter().filter_map(|link| link.resolve(path)));
    let shown: BTreeSet<PathBuf> = links.map(|(target, _)| target).collect();
    let files = all().map(|(name, _)| folder.join(name)).filter(|file| !shown.contains(file));
    files.map(|file| problem(&file, 1, "is shown by no page, show it or do not draw it")).collect()
}

fn all() -> impl Iterator<Item = (String, Canvas)> {
    PICTURES.into_iter().flat_map(|(name, draw)| {
        [
            (format!("{name}.svg"), draw(Language::English)),
            (format!("{name}.zh-CN.svg"), draw(Language::Chinese)),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_pictures_that_no_page_shows() {
        let root = tempfile::tempdir().unwrap();
        let shown = all().skip(1).map(|(name, _)| format!("![x](pictures/{name})")).collect::<Vec<_>>();
        fs::write(root.path().join("page.md"), shown.join("\n")).unwrap();
        let pages = Pages::read(root.path(), vec!["page.md".into()]).unwrap();
        let expected =
            problem(Path::new("pictures/addresses.svg"), 1, "is shown by no page, show it or do not draw it");
        assert_eq!(unused(Path::new("pictures"), &pages), [expected]);
    }

    #[test]
    fn reports_files_that_differ_from_pictures() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        assert_eq!(problems(folder.path()), [""; 0]);
        fs::write(folder.path().join("age.svg"), "<svg/>").unwrap();
        fs::remove_file(folder.path().join("states.zh-CN.svg")).unwrap();
        let found = problems(folder.path());
        let what = "is not what the program draws, run `cargo xtask book --write`";
        let expected =
            ["age.svg", "states.zh-CN.svg"].map(|name| problem(&folder.path().join(name), 1, what));
        assert_eq!(found, expected);
    }
}

//! Circles of files that import each other by `use crate::` and `use super::`. Names that a module imports only to pass them on lead to the
//! file that has them.

use std::collections::BTreeMap;
use std::path::Path;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

use super::source::Source;

/// The path of a module in its crate; empty for the crate's root.
type ModulePath = Vec<String>;

/// Smaller circles are those of a module and its own parts.
const SMALLEST: usize = 3;

/// Returns the circles of three or more files, each as the names of its files.
pub(super) fn circles(sources: &[&Source]) -> Vec<Vec<String>> {
    let mut of_crates: BTreeMap<&Path, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some(root) = &source.root {
            of_crates.entry(root).or_default().push(source);
        }
    }
    of_crates.into_iter().flat_map(|(root, sources)| of_crate(root, &sources)).collect()
}

fn of_crate(root: &Path, sources: &[&Source]) -> Vec<Vec<String>> {
    let modules: BTreeMap<ModulePath, Module> = sources
        .iter()
        .filter_map(|source| Some((module_path(root, &source.file)?, Module::read(&source.syntax))))
        .collect();
    let mut graph = DiGraphMap::<&ModulePath, ()>::new();
    for (path, module) in &modules {
        for import in &module.imports {
            let to = import.absolute(path).and_then(|target| resolve(&modules, &target, 0));
            if let Some(to) = to.filter(|to| *to != path) {
                graph.add_edge(path, to, ());
            }
        }
    }
    let name = |path: &&ModulePath| format!("{}/{}", root.display(), path.join("/"));
    let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() >= SMALLEST);
    let mut circles: Vec<Vec<_>> = circles.map(|circle| circle.iter().map(name).collect()).collect();
    circles.iter_mut().for_each(|circle| circle.sort());
    circles.sort();
    circles
}

/// Returns the module that a file is; `None` for files of tests and programs.
fn module_path(root: &Path, file: &Path) -> Option<ModulePath> {
    let inside = file.strip_prefix(root).ok()?.with_extension("");
    let mut path: ModulePath = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_test = |part: &String| part == "tests" || part.ends_with("_tests") || part == "bin";
    if path.iter().any(is_test) {
        return None;
    }
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    Some(path)
}

/// A file's imports from its own crate.
#[derive(Default)]
struct Module {
    imports: Vec<Import>,
    /// The names that it passes on, with what they are.
    passes_on: BTreeMap<String, Import>,
    /// How many modules deep within the file.
    depth: usize,
}

/// A path after `use`.
#[derive(Clone)]
struct Import {
    parts: Vec<String>,
    depth: usize,
}

impl Module {
    fn read(file: &syn::File) -> Self {
        let mut module = Self::default();
        module.visit_file(file);
        module
    }

    fn add(&mut self, tree: &UseTree, before: &[String], is_passed_on: bool) {
        let with = |part: &syn::Ident| [before, &[part.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add(&path.tree, &with(&path.ident), is_passed_on),
            UseTree::Name(name) => self.import(with(&name.ident), name.ident.to_string(), is_passed_on),
            UseTree::Rename(name) => self.import(with(&name.ident), name.rename.to_string(), is_passed_on),
            UseTree::Glob(_) => self.import(before.to_vec(), String::new(), is_passed_on),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add(tree, before, is_passed_on)),
        }
    }

    fn import(&mut self, parts: Vec<String>, name: String, is_passed_on: bool) {
        let first = parts.first().map(String::as_str);
        let import = Import { parts: parts.clone(), depth: self.depth };
        if is_passed_on {
            self.passes_on.insert(name, import.clone());
        }
        if matches!(first, Some("crate" | "super")) {
            self.imports.push(import);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if super::items::is_test(&module.attrs) => {}
            Item::Mod(_) => {
                self.depth += 1;
                visit::visit_item(self, item);
                self.depth -= 1;
            }
            Item::Use(import) => {
                let is_passed_on = self.depth == 0 && !matches!(import.vis, Visibility::Inherited);
                self.add(&import.tree, &[], is_passed_on);
            }
            _ => visit::visit_item(self, item),
        }
    }
}

impl Import {
    /// Returns the path from the crate's root, as seen from a module.
    fn absolute(&self, from: &ModulePath) -> Option<ModulePath> {
        let ups = self.parts.iter().take_while(|part| *part == "super").count();
        match self.parts.first()?.as_str() {
            "crate" => Some(self.parts[1..].to_vec()),
            "self" => Some([from, &self.parts[1..]].concat()),
            "super" => {
                // The first steps may lead out of modules within the file.
                let out = ups.saturating_sub(self.depth);
                let kept = from.len().checked_sub(out)?;
                Some([&from[..kept], &self.parts[ups..]].concat())
            }
            _ => Some([from, &self.parts[..]].concat()),
        }
    }
}

/// Returns the file that has what a path names.
fn resolve<'a>(
    modules: &'a BTreeMap<ModulePath, Module>,
    target: &ModulePath,
    steps: usize,
) -> Option<&'a ModulePath> {
    let (path, module) =
        (0..=target.len()).rev().find_map(|length| modules.get_key_value(&target[..length]))?;
    let passed_on = target.get(path.len()).and_then(|name| module.passes_on.get(name));
    // So long a chain is a circle of names.
    match passed_on.filter(|_| steps < 8).and_then(|import| import.absolute(path)) {
        Some(next) if next != *target => resolve(modules, &next, steps + 1).or(Some(path)),
        _ => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn source(file: &str, code: &str) -> Source {
        let syntax = syn::parse_file(code).unwrap();
        let root = Some(PathBuf::from("a/src"));
        Source { file: file.into(), root, is_test: false, comments: Vec::new(), messages: Vec::new(), syntax }
    }

    fn circles_of(sources: &[Source]) -> Vec<Vec<String>> {
        circles(&sources.iter().collect::<Vec<_>>())
    }

    #[test]
    fn finds_circles_through_names_that_are_passed_on() {
        let files = |last: &str| {
            vec![
                source("a/src/lib.rs", "mod one; mod two; mod three; pub use self::three::Three;"),
                source("a/src/one.rs", "use crate::two::Two;"),
                source("a/src/two/mod.rs", "use crate::Three; mod part;"),
                source("a/src/two/part.rs", "use super::Two;"),
                source("a/src/three.rs", last),
            ]
        };
        assert_eq!(
            circles_of(&files("use std::fmt; #[cfg(test)] mod tests { use crate::one::One; }")),
            Vec::<Vec<String>>::new()
        );
        assert_eq!(
            circles_of(&files("use super::one::{self, One};")),
            [["a/src/one", "a/src/three", "a/src/two"]]
        );
        assert_eq!(circles_of(&files("mod inner { use super::super::one::One; }")).len(), 1);
    }
}

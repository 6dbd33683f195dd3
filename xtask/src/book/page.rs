//! Markdown pages: their links, and the anchors of their headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use percent_encoding::percent_decode_str;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The pages of a repository, by their paths in it.
pub(super) struct Pages {
    root: PathBuf,
    pages: BTreeMap<PathBuf, Page>,
}

/// A Markdown page.
pub(super) struct Page {
    pub(super) links: Vec<Link>,
    anchors: BTreeSet<String>,
}

/// A link or an image.
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

impl Pages {
    pub(super) fn read(root: &Path, paths: Vec<PathBuf>) -> Result<Self> {
        let read = |path: PathBuf| Ok((path.clone(), Page::read(&root.join(path))?));
        let pages = paths.into_iter().map(read).collect::<Result<_>>()?;
        Ok(Self { root: root.to_path_buf(), pages })
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &Page)> {
        self.pages.iter().map(|(path, page)| (path.as_path(), page))
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Page> {
        self.pages.get(path)
    }

    /// Returns whether the repository has this file or folder.
    pub(super) fn has_file(&self, path: &Path) -> bool {
        self.root.join(path).exists()
    }

    /// Returns whether a page of the repository has a heading with this anchor; `None` if the file is not Markdown.
    pub(super) fn has_anchor(&self, path: &Path, anchor: &str) -> Option<bool> {
        path.extension().filter(|extension| *extension == "md")?;
        match self.get(path) {
            Some(page) => Some(page.anchors.contains(anchor)),
            None => Some(Page::read(&self.root.join(path)).ok()?.anchors.contains(anchor)),
        }
    }
}

impl Page {
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self { links: Vec::new(), anchors: BTreeSet::new() };
        let mut heading = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_GFM | TABLES).into_offset_iter() {
            let line = text[..range.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Link { line, target: dest_url.into_string() });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_heading(&heading.take().unwrap_or_default()),
                Event::Text(text) | Event::Code(text) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&text));
                }
                Event::Html(html) | Event::InlineHtml(html) => page.read_html(&html, line),
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor that GitHub and mdBook give to a heading.
    fn add_heading(&mut self, heading: &str) {
        let slug = slug(heading);
        let numbered =
            (0..).map(|number| if number == 0 { slug.clone() } else { format!("{slug}-{number}") });
        let free = numbered.into_iter().find(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(free);
    }

    fn read_html(&mut self, html: &str, line: usize) {
        let values = |name: &'static str| {
            let after = html.match_indices(name).map(|(at, _)| &html[at + name.len()..]);
            after.filter_map(|rest| rest.split_once('"').map(|(value, _)| value.to_owned()))
        };
        for name in [" href=\"", " src=\"", " srcset=\""] {
            self.links.extend(values(name).map(|target| Link { line, target }));
        }
        self.anchors.extend([" id=\"", " name=\""].into_iter().flat_map(values));
    }
}

const TABLES: Options = Options::ENABLE_TABLES.union(Options::ENABLE_FOOTNOTES);

/// Returns the anchor of a heading by GitHub's rule: letters in lower case, hyphens for blanks, no punctuation.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

impl Link {
    /// Returns whether the link leads out of the repository, to another server.
    pub(super) fn is_external(&self) -> bool {
        self.target.contains("://") || self.target.starts_with("mailto:")
    }

    /// Returns the path of the target in the repository and its anchor; `None` if the path leads out of the repository.
    pub(super) fn resolve(&self, page: &Path) -> Option<(PathBuf, Option<String>)> {
        let (path, anchor) = match self.target.split_once('#') {
            Some((path, anchor)) => (path, Some(decoded(anchor))),
            None => (self.target.as_str(), None),
        };
        if path.is_empty() {
            return Some((page.to_path_buf(), anchor));
        }
        let mut resolved = page.parent().unwrap_or(Path::new("")).to_path_buf();
        for component in Path::new(&decoded(path)).components() {
            match component {
                Component::Normal(part) => resolved.push(part),
                Component::ParentDir if resolved.pop() => {}
                Component::CurDir => {}
                _ => return None,
            }
        }
        Some((resolved, anchor))
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_follow_githubs_rule() {
        let cases = [
            ("What is answered, and from where", "what-is-answered-and-from-where"),
            ("client-go on a gateway: `a_b`", "client-go-on-a-gateway-a_b"),
            ("A – B", "a--b"),
            ("年龄 (age)", "年龄-age"),
        ];
        for (heading, anchor) in cases {
            let page = Page::parse(&format!("# {heading}\n"));
            assert!(page.anchors.contains(anchor), "{:?}", page.anchors);
        }
    }

    #[test]
    fn anchors_of_equal_headings_are_numbered() {
        let page = Page::parse("# A\n## [A](b.md)\n\nA\n-\n<a id=\"own\"></a>\n```md\n# Not one\n```\n");
        assert_eq!(page.anchors.iter().collect::<Vec<_>>(), ["a", "a-1", "a-2", "own"]);
    }

    #[test]
    fn links_are_found_in_markdown_and_html() {
        let text = "[a](a.md) `[no](no.md)`\n\n| t |\n|---|\n| ![i](i.svg) |\n\n[r]\n\n<img src=\"h.svg\">\n\n[r]: r.md#x\n";
        let page = Page::parse(text);
        let found: Vec<_> = page.links.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(found, [(1, "a.md"), (5, "i.svg"), (7, "r.md#x"), (9, "h.svg")]);
    }
}

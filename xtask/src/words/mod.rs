//! Measurements of names and prose, by the rules in CONTRIBUTING.md: banned phrases, first words of docs, names of types,
//! constructors, and circles of imports. A figure may fall but not rise: `words.toml` has the bounds.

mod bounds;
mod circles;
mod items;
mod phrases;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::bounds::Bounds;
use self::items::Items;
use self::source::Source;

/// Options of `cargo xtask words`.
#[derive(Args)]
pub(crate) struct Words {
    /// Folders of Rust code to measure, such as another crate's, without comparing them with the bounds; none: this repository's.
    paths: Vec<PathBuf>,
    /// Print each place.
    #[arg(long)]
    list: bool,
    /// Lower the bounds to what is measured now.
    #[arg(long, conflicts_with = "paths")]
    tighten: bool,
}

/// The figures of some code.
#[derive(Debug, Default)]
struct Figures {
    /// Words in comments and docs.
    words: usize,
    banned: usize,
    docs: usize,
    question_docs: usize,
    function_docs: usize,
    verb_docs: usize,
    /// Functions `of` and `of_*`.
    of_functions: usize,
    /// Names of more than two types.
    repeated_types: Vec<String>,
    circles: usize,
    /// Each place with what is wrong there.
    places: Vec<String>,
}

impl Words {
    pub(crate) fn run(self) -> Result<()> {
        if !self.paths.is_empty() {
            println!("{TABLE_HEAD}");
            for path in &self.paths {
                let sources = Source::read(path)?;
                Figures::measure(&sources.iter().collect::<Vec<_>>())
                    .print(&path.display().to_string(), self.list);
            }
            return Ok(());
        }
        let folders = published_crates()?;
        println!("{TABLE_HEAD}");
        let mut sources = Vec::new();
        for folder in &folders {
            let of_crate = Source::read(folder)?;
            Figures::measure(&of_crate.iter().collect::<Vec<_>>()).print(&name_of(folder), false);
            sources.extend(of_crate);
        }
        let all = Figures::measure(&sources.iter().collect::<Vec<_>>());
        all.print("all", self.list);
        let docs = phrases::in_markdown(Path::new("docs"))?;
        println!("banned phrases in docs/: {}", docs.len());
        if self.list {
            docs.iter().for_each(|place| println!("{place}"));
        }
        let measured = Bounds::from_figures(&all, docs.len());
        let file = Path::new("xtask/words.toml");
        if self.tighten {
            return Bounds::read(file)?.lowest(&measured).write(file);
        }
        let problems = Bounds::read(file)?.exceeded(&measured);
        if !problems.is_empty() {
            bail!("{}\nsee the places with `cargo xtask words --list`", problems.join("\n"));
        }
        Ok(())
    }
}

const TABLE_HEAD: &str = "| | words in comments | banned, of 10,000 words | docs with a question word first | function docs with a verb first | `fn of` | names of more than two types | circles of three files or more |\n|---|--:|--:|--:|--:|--:|--:|--:|";

impl Figures {
    fn measure(sources: &[&Source]) -> Self {
        let mut figures = Self::default();
        let mut all = Items::default();
        for source in sources {
            for comment in &source.comments {
                figures.words += comment.text.split_whitespace().count();
                figures.find_banned(source, comment.line, &comment.text);
            }
            for message in &source.messages {
                figures.find_banned(source, message.line, &message.text);
            }
            all.add(source);
        }
        (figures.docs, figures.function_docs) =
            (all.docs.len(), all.docs.iter().filter(|doc| doc.is_of_function).count());
        for doc in &all.docs {
            if doc.begins_with_question_word() {
                figures.question_docs += 1;
                figures
                    .places
                    .push(format!("{}: begins with a question word: {}", doc.place, doc.first_line));
            } else if doc.is_of_function && doc.begins_with_verb() {
                figures.verb_docs += 1;
            } else if doc.is_of_function {
                figures.places.push(format!("{}: does not begin with a verb: {}", doc.place, doc.first_line));
            }
        }
        figures.of_functions = all.of_functions.len();
        figures.places.extend(
            all.of_functions
                .iter()
                .map(|place| format!("{place}: a function `of`: call it `new` or `from_...`")),
        );
        for (name, places) in all.repeated_types() {
            figures.repeated_types.push(name.to_owned());
            let count = places.len();
            figures.places.push(format!("{name} is the name of {count} types: {}", places.join(", ")));
        }
        let circles = circles::circles(sources);
        figures.circles = circles.len();
        figures
            .places
            .extend(circles.into_iter().map(|files| format!("a circle of files: {}", files.join(", "))));
        figures
    }

    fn find_banned(&mut self, source: &Source, line: usize, text: &str) {
        for phrase in phrases::banned(text) {
            self.banned += 1;
            self.places.push(format!("{}:{line}: banned phrase {phrase:?}", source.file.display()));
        }
    }

    fn print(&self, name: &str, list: bool) {
        let share = |part: usize, whole: usize, of: f64| part as f64 * of / whole.max(1) as f64;
        println!(
            "| {name} | {} | {:.1} | {:.1} % | {:.1} % | {} | {} | {} |",
            self.words,
            share(self.banned, self.words, 10_000.0),
            share(self.question_docs, self.docs, 100.0),
            share(self.verb_docs, self.function_docs, 100.0),
            self.of_functions,
            self.repeated_types.len(),
            self.circles
        );
        if list {
            self.places.iter().for_each(|place| println!("{place}"));
        }
    }
}

/// Returns the folders of the crates that are published.
fn published_crates() -> Result<Vec<PathBuf>> {
    let manifest: toml::Table =
        std::fs::read_to_string("Cargo.toml").context("no Cargo.toml: run it in the repository")?.parse()?;
    let members = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("default-members"))
        .and_then(toml::Value::as_array);
    let members = members.context("Cargo.toml has no default-members")?;
    Ok(members.iter().filter_map(toml::Value::as_str).map(PathBuf::from).collect())
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

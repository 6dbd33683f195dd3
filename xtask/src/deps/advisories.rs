//! A check of `Cargo.lock` against a local copy of the RustSec advisory database, for machines without a network.
//!
//! It follows the section `advisories` of `deny.toml`, as cargo-deny does, but for `yanked`: which versions are yanked is in the
//! registry's index and not in the database.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rustsec::advisory::Informational;
use rustsec::database::Query;
use rustsec::package::Package;
use rustsec::{Advisory, Collection, Database, Lockfile};
use serde::Deserialize;

/// What a check found.
#[derive(Debug)]
pub(super) struct Report {
    /// What is wrong, one line each.
    pub(super) problems: Vec<String>,
    /// Advisories that apply and are ignored: each with its reason.
    pub(super) ignored: Vec<String>,
    pub(super) advisories: usize,
    /// The date of the newest advisory in the database.
    pub(super) newest: String,
}

/// Checks the lock file of `root` by the rules of its `deny.toml`.
pub(super) fn check(root: &Path, database: &Path) -> Result<Report> {
    let lock = Lockfile::load(root.join("Cargo.lock")).context("Cargo.lock")?;
    let rules = Rules::read(&std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?)?;
    Ok(report(&lock, &open(database)?, &rules))
}

/// The section `advisories` of `deny.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default)]
    unmaintained: Scope,
    #[serde(default)]
    unsound: Scope,
    #[serde(default)]
    ignore: Vec<Ignored>,
    /// Read by cargo-deny alone.
    #[serde(rename = "yanked")]
    _yanked: Option<String>,
    #[serde(rename = "unused-ignored-advisory")]
    _unused: Option<String>,
}

/// The crates to which advisories of one class apply. cargo-deny has more scopes, which need the graph of crates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    All,
    None,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ignored {
    id: String,
    reason: String,
}

/// Opens the copy at `path`.
fn open(path: &Path) -> Result<Database> {
    let wanted = "give the root of a copy of https://github.com/RustSec/advisory-db, such as `git clone` or an unpacked \
                  archive of it makes";
    let crates = path.join("crates");
    ensure!(
        crates.is_dir(),
        "{} is no advisory database: {} is no folder; {wanted}",
        path.display(),
        crates.display()
    );
    let database = match Database::open(path) {
        Ok(database) => database,
        Err(error) => bail!("{} cannot be read as an advisory database: {error}; {wanted}", path.display()),
    };
    ensure!(
        database.iter().next().is_some(),
        "{} is no advisory database: no advisory is in {}; {wanted}",
        path.display(),
        crates.display()
    );
    Ok(database)
}

fn report(lock: &Lockfile, database: &Database, rules: &Rules) -> Report {
    let mut unused: BTreeMap<&str, &str> =
        rules.ignore.iter().map(|one| (one.id.as_str(), one.reason.as_str())).collect();
    let mut problems = Vec::new();
    let mut ignored = Vec::new();
    for package in &lock.packages {
        for advisory in applicable(package, database).filter(|advisory| rules.deny(advisory)) {
            let id = advisory.id().as_str();
            match rules.ignore.iter().find(|one| one.id == id) {
                Some(one) => {
                    unused.remove(id);
                    ignored.push(format!("{}: {}", line(package, advisory), one.reason));
                }
                None => problems.push(line(package, advisory)),
            }
        }
    }
    problems.extend(
        rules
            .ignore
            .iter()
            .filter(|one| one.reason.trim().is_empty())
            .map(|one| format!("deny.toml ignores {} without a reason: say why it does not apply", one.id)),
    );
    problems.extend(
        unused.keys().map(|id| format!("deny.toml ignores {id}, which applies to no crate: remove it")),
    );
    let newest = database.iter().map(|one| one.date().as_str()).max().unwrap_or_default().to_owned();
    Report { problems, ignored, advisories: database.iter().count(), newest }
}

/// Returns the advisories, none of them withdrawn, that affect this version of a crate of crates.io.
fn applicable<'a>(package: &'a Package, database: &'a Database) -> impl Iterator<Item = &'a Advisory> {
    let registry = package.source.as_ref().is_some_and(rustsec::SourceId::is_default_registry);
    let query = Query::new().collection(Collection::Crates).withdrawn(false).package(package);
    let found = if registry { database.query(&query) } else { Vec::new() };
    found.into_iter()
}

/// Says what applies, to what, and what to do.
fn line(package: &Package, advisory: &Advisory) -> String {
    let Package { name, version, .. } = package;
    let class = advisory.metadata.informational.as_ref().map_or("vulnerable", Informational::as_str);
    let patched: Vec<String> = advisory.versions.patched().iter().map(ToString::to_string).collect();
    let remedy = match patched.as_slice() {
        [] => "no version without it is known".to_owned(),
        patched => format!("update it to {}", patched.join(" or ")),
    };
    format!("{name} {version} is {class}: {} ({}); {remedy}", advisory.title(), advisory.id())
}

impl Rules {
    fn read(deny: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Deny {
            advisories: Rules,
        }
        let deny: Deny = toml::from_str(deny).context(
            "the section `advisories` of deny.toml: an ignored advisory has an id and a reason; unmaintained and unsound are \
             \"all\" or \"none\"",
        )?;
        Ok(deny.advisories)
    }

    /// Returns whether advisories of this class are errors: vulnerabilities and notices always are.
    fn deny(&self, advisory: &Advisory) -> bool {
        match &advisory.metadata.informational {
            Some(Informational::Unmaintained) => self.unmaintained == Scope::All,
            Some(Informational::Unsound) => self.unsound == Scope::All,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const LOCK: &str = r#"
version = 4

[[package]]
name = "good"
version = "1.2.3"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "0000000000000000000000000000000000000000000000000000000000000000"

[[package]]
name = "own"
version = "1.2.3"
"#;

    /// Writes an advisory on all versions of a crate before 1.3.0.
    fn advise(database: &TempDir, id: &str, package: &str, more: &str, patched: &str) {
        let folder = database.path().join("crates").join(package);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "```toml\n[advisory]\nid = \"{id}\"\npackage = \"{package}\"\ndate = \"2024-05-06\"\n{more}\n\
             [versions]\npatched = [{patched}]\n```\n\n# It does harm\n\nIndeed.\n"
        );
        fs::write(folder.join(format!("{id}.md")), text).unwrap();
    }

    fn judge(database: &TempDir, rules: &str) -> Report {
        let rules = Rules::read(&format!("[advisories]\n{rules}")).unwrap();
        report(&LOCK.parse().unwrap(), &open(database.path()).unwrap(), &rules)
    }

    fn problems(database: &TempDir, rules: &str) -> Vec<String> {
        judge(database, rules).problems
    }

    const VULNERABLE: &str =
        "good 1.2.3 is vulnerable: It does harm (RUSTSEC-2024-0001); update it to >=1.3.0";

    #[test]
    fn affected_versions_are_named() {
        let database = TempDir::new().unwrap();
        advise(&database, "RUSTSEC-2024-0001", "good", "", "\">=1.3.0\"");
        assert_eq!(problems(&database, ""), [VULNERABLE]);
        advise(&database, "RUSTSEC-2024-0001", "good", "", "");
        let unpatched =
            "good 1.2.3 is vulnerable: It does harm (RUSTSEC-2024-0001); no version without it is known";
        assert_eq!(problems(&database, ""), [unpatched]);
        let report = judge(&database, "");
        assert_eq!((report.advisories, report.newest.as_str()), (1, "2024-05-06"));
    }

    #[test]
    fn ignores_patched_foreign_and_withdrawn_advisories() {
        let database = TempDir::new().unwrap();
        advise(&database, "RUSTSEC-2024-0001", "good", "", "\">=1.2.3\"");
        advise(&database, "RUSTSEC-2024-0002", "good", "withdrawn = \"2024-06-01\"", "");
        advise(&database, "RUSTSEC-2024-0003", "absent", "", "");
        // A crate of the workspace that is called like one of crates.io is another.
        advise(&database, "RUSTSEC-2024-0004", "own", "", "");
        assert_eq!(problems(&database, ""), [""; 0]);
    }

    #[test]
    fn deny_toml_judges_unmaintained_and_unsound_crates() {
        let database = TempDir::new().unwrap();
        let classes = [
            ("RUSTSEC-2024-0001", "unmaintained"),
            ("RUSTSEC-2024-0002", "unsound"),
            ("RUSTSEC-2024-0003", "notice"),
        ];
        for (id, class) in classes {
            advise(&database, id, "good", &format!("informational = \"{class}\""), "");
        }
        let found = |rules: &str| {
            let problems = problems(&database, rules);
            classes.map(|(id, class)| {
                problems.iter().any(|line| line.contains(id) && line.contains(&format!("is {class}")))
            })
        };
        assert_eq!(found(""), [true, true, true]);
        assert_eq!(found("unmaintained = \"none\""), [false, true, true]);
        assert_eq!(found("unsound = \"none\"\nyanked = \"deny\""), [true, false, true]);
    }

    #[test]
    fn ignored_advisories_have_a_reason_and_apply() {
        let database = TempDir::new().unwrap();
        advise(&database, "RUSTSEC-2024-0001", "good", "", "\">=1.3.0\"");
        let ignore =
            |id: &str, reason: &str| format!("ignore = [{{ id = \"{id}\", reason = \"{reason}\" }}]");
        let report = judge(&database, &ignore("RUSTSEC-2024-0001", "it is not called"));
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.ignored, [format!("{VULNERABLE}: it is not called")]);
        let unused = "deny.toml ignores RUSTSEC-2024-0009, which applies to no crate: remove it";
        assert_eq!(problems(&database, &ignore("RUSTSEC-2024-0009", "it is old")), [VULNERABLE, unused]);
        assert_eq!(problems(&database, &ignore("RUSTSEC-2024-0001", " ")).len(), 1);
        for unclear in ["ignore = [\"RUSTSEC-2024-0001\"]", "unmaintained = \"transitive\"", "ingore = []"] {
            assert!(Rules::read(&format!("[advisories]\n{unclear}")).is_err(), "{unclear}");
        }
    }

    #[test]
    fn folder_without_database_error_names_remedy() {
        let message = |path: &Path| open(path).unwrap_err().to_string();
        let folder = TempDir::new().unwrap();
        for wrong in [folder.path().to_owned(), folder.path().join("absent")] {
            let said = message(&wrong);
            assert!(said.starts_with(&format!("{} is no advisory database", wrong.display())), "{said}");
            assert!(said.contains("https://github.com/RustSec/advisory-db"), "{said}");
        }
        fs::create_dir(folder.path().join("crates")).unwrap();
        assert!(message(folder.path()).contains("no advisory is in"), "{}", message(folder.path()));
        // One that cannot be read may be the one that applies.
        advise(&folder, "RUSTSEC-2024-0001", "good", "", "");
        let broken = folder.path().join("crates/good/RUSTSEC-2024-0002.md");
        fs::write(&broken, "```toml\n[advisory]\n```\n").unwrap();
        assert!(message(folder.path()).contains("RUSTSEC-2024-0002"), "{}", message(folder.path()));
    }

    #[test]
    fn reads_rules_of_this_repository() {
        Rules::read(&fs::read_to_string(crate::deps::root().join("deny.toml")).unwrap()).unwrap();
    }
}

//! The crates of the program, as cargo knows them, and what may be said against them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use crate::cargo;

/// What is in the binary or builds it, on any platform. Tests and benches use more.
#[derive(Debug)]
pub(super) struct Program {
    crates: BTreeMap<Id, Crate>,
}

/// Name and version. No two crates have both in common: cargo's lock file would name both sources, and one is not allowed.
pub(super) type Id = (String, String);

#[derive(Debug)]
pub(super) struct Crate {
    /// The SPDX expression of its manifest.
    pub(super) licence: Option<String>,
    /// Where it came from; nothing: a folder.
    pub(super) source: Option<String>,
    /// Whether it is one of this workspace.
    pub(super) own: bool,
    /// SHA-256 of what the registry gave.
    pub(super) checksum: Option<String>,
    /// What it uses directly.
    pub(super) uses: BTreeSet<Id>,
}

/// The package whose binary is shipped.
pub(super) const NAME: &str = "skopos-cli";

/// As cargo writes it, whatever mirror it is read from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

impl Program {
    /// Asks cargo. The lock file is not changed.
    pub(super) fn read(root: &Path) -> Result<Self> {
        // The tree has the crates that are built; `metadata` also those of features that nobody switches on.
        let tree = ["tree", "--locked", "--package", NAME, "--edges", "normal,build", "--target", "all"];
        let format = ["--prefix", "depth", "--format", " {p}"];
        let mut crates = uses(&said(cargo().current_dir(root).args(tree).args(format))?)?;
        let metadata = ["metadata", "--locked", "--format-version", "1"];
        let metadata: Value = serde_json::from_str(&said(cargo().current_dir(root).args(metadata))?)?;
        let checksums = checksums(&std::fs::read_to_string(root.join("Cargo.lock"))?)?;
        let own = metadata["workspace_members"].as_array().context("no members")?;
        let mut known = BTreeMap::new();
        for package in metadata["packages"].as_array().context("no packages")? {
            let text = |field: &str| package[field].as_str().map(ToOwned::to_owned);
            let id = text("name").zip(text("version")).context("a package without a name")?;
            if let Some(uses) = crates.remove(&id) {
                let checksum = checksums.get(&id).cloned();
                let (licence, source) = (text("license"), text("source"));
                known
                    .insert(id, Crate { licence, source, own: own.contains(&package["id"]), checksum, uses });
            }
        }
        ensure!(crates.is_empty(), "cargo metadata does not know {crates:?}");
        Ok(Self { crates: known })
    }

    pub(super) fn len(&self) -> usize {
        self.crates.len()
    }

    pub(super) fn own(&self) -> usize {
        self.crates.values().filter(|one| one.own).count()
    }

    pub(super) fn crates(&self) -> &BTreeMap<Id, Crate> {
        &self.crates
    }

    /// What speaks against its crates, one line each.
    pub(super) fn problems(&self, allowed: &[Licensee]) -> Vec<String> {
        let lines = self
            .crates
            .iter()
            .filter_map(|((name, version), one)| Some(format!("{name} {version} {}", one.problem(allowed)?)));
        lines.collect()
    }
}

impl Crate {
    fn problem(&self, allowed: &[Licensee]) -> Option<String> {
        if !self.own && self.source.as_deref() != Some(REGISTRY) {
            return Some(format!("comes from {}", self.source.as_deref().unwrap_or("a folder elsewhere")));
        }
        if !self.own && self.checksum.is_none() {
            return Some("has no checksum in Cargo.lock".to_owned());
        }
        let Some(licence) = &self.licence else { return Some("names no licence".to_owned()) };
        match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(parsed) if parsed.evaluate(|wanted| allowed.iter().any(|one| one.satisfies(wanted))) => None,
            Ok(_) => Some(format!("is under {licence}")),
            Err(error) => Some(format!("has a licence that cannot be read: {licence:?}: {}", error.reason)),
        }
    }
}

/// The licences that `deny.toml` allows.
pub(super) fn allowed_licences(root: &Path) -> Result<Vec<Licensee>> {
    let rules: toml::Table = std::fs::read_to_string(root.join("deny.toml"))?.parse()?;
    let allowed = rules.get("licenses").and_then(|rules| rules.get("allow")?.as_array());
    let names = allowed.context("deny.toml allows no licences")?.iter().filter_map(toml::Value::as_str);
    names.map(|name| Ok(Licensee::parse(name)?)).collect()
}

/// Who uses what, of lines such as `2 serde v1.0.0 (*)`: the depth, the crate, and whether its own lines stand elsewhere.
fn uses(tree: &str) -> Result<BTreeMap<Id, BTreeSet<Id>>> {
    let mut all: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let depth = words.next().and_then(|depth| depth.parse().ok());
        let version = |word: &str| word.strip_prefix('v').map(ToOwned::to_owned);
        let id = words.next().map(ToOwned::to_owned).zip(words.next().and_then(version));
        let (depth, id): (usize, Id) = depth.zip(id).with_context(|| format!("cargo tree: {line:?}"))?;
        ensure!(depth <= above.len(), "cargo tree: {line:?} stands too deep");
        above.truncate(depth);
        if let Some(user) = above.last() {
            all.entry(user.clone()).or_default().insert(id.clone());
        }
        all.entry(id.clone()).or_default();
        above.push(id);
    }
    Ok(all)
}

fn checksums(lock: &str) -> Result<BTreeMap<Id, String>> {
    let lock: toml::Table = lock.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("an empty lock file")?;
    let text = |package: &toml::Value, field: &str| Some(package.get(field)?.as_str()?.to_owned());
    let checksums = packages.iter().filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Ok(checksums.collect())
}

/// What a command writes.
fn said(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deps::root;

    fn of_the_registry(licence: &str) -> Crate {
        Crate {
            licence: Some(licence.into()),
            source: Some(REGISTRY.into()),
            own: false,
            checksum: Some("1234".into()),
            uses: BTreeSet::new(),
        }
    }

    #[test]
    fn program_crates_are_from_registry_and_licensed() {
        let program = Program::read(&root()).unwrap();
        let problems = program.problems(&allowed_licences(&root()).unwrap());
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        let has = |wanted: &str| program.crates().keys().any(|(name, _)| name == wanted);
        // What builds it and what only other platforms have is looked at too; what tests alone use, and what no feature
        // switches on, is not in it.
        assert!(["skopos-gateway", "rustls", "cc", "windows-sys"].into_iter().all(has));
        assert!(!["proptest", "xtask", "terminfo"].into_iter().any(has));
    }

    #[test]
    fn a_licence_counts_by_its_meaning() {
        let allowed = ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"];
        let allowed = allowed.map(|name| Licensee::parse(name).unwrap());
        let judge = |licence: &str| of_the_registry(licence).problem(&allowed);
        for good in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "Apache-2.0 AND ISC",
            "Apache-2.0 / MIT",
            "MPL-2.0 OR (ISC AND MIT)",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(judge(good), None, "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "ISC WITH LLVM-exception", "as you like", ""] {
            assert!(judge(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn reports_crates_from_other_sources() {
        let allowed = [Licensee::parse("MIT").unwrap()];
        let from = |source: Option<&str>, own| {
            Crate { source: source.map(ToOwned::to_owned), own, ..of_the_registry("MIT") }.problem(&allowed)
        };
        assert_eq!(from(Some(REGISTRY), false), None);
        assert_eq!(from(None, true), None);
        assert_eq!(from(None, false).as_deref(), Some("comes from a folder elsewhere"));
        for other in ["git+https://example.com/it#1234", "registry+https://example.com/index"] {
            assert_eq!(from(Some(other), false), Some(format!("comes from {other}")));
        }
        let nameless = Crate { licence: None, ..of_the_registry("") };
        assert_eq!(nameless.problem(&allowed).as_deref(), Some("names no licence"));
        let unknown = Crate { checksum: None, ..of_the_registry("MIT") };
        assert_eq!(unknown.problem(&allowed).as_deref(), Some("has no checksum in Cargo.lock"));
    }

    #[test]
    fn reads_dependencies_from_tree() {
        let id = |name: &str| (name.to_owned(), "1.0.0".to_owned());
        let tree = "0 a v1.0.0 (/it)\n1 b v1.0.0\n2 c v1.0.0 (proc-macro)\n1 d v1.0.0\n2 b v1.0.0 (*)\n";
        let wanted = [
            (id("a"), vec![id("b"), id("d")]),
            (id("b"), vec![id("c")]),
            (id("c"), vec![]),
            (id("d"), vec![id("b")]),
        ];
        let wanted: BTreeMap<Id, BTreeSet<Id>> =
            wanted.into_iter().map(|(user, used)| (user, used.into_iter().collect())).collect();
        assert_eq!(uses(tree).unwrap(), wanted);
        assert!(uses("0 a v1.0.0\n2 b v1.0.0\n").is_err());
        assert!(uses("warning: something\n").is_err());
    }
}

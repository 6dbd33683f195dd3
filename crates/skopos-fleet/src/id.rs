//! Cluster names.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// Name of a cluster in a fleet: 1 to 253 of `A-Z a-z 0-9 . _ : @ -`, and neither `.` nor `..`. So it is valid as a
/// path segment, as the value of a metric's label and as a file name, without escaping.
///
/// An external name that is not valid, such as the context `team/prod`, becomes the nearest valid name with a hash of
/// the original appended: `team-prod-4f2a91c0` ([`ClusterId::from_name`]).
#[derive(Clone)]
pub struct ClusterId {
    name: Arc<str>,
    /// The label value of this name.
    label: Arc<str>,
}

/// Error of a text that is not a valid cluster name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be a cluster's name: use 1 to 253 of letters, digits and . _ : @ -")]
pub struct InvalidClusterId {
    /// The name, cut after 64 characters.
    pub name: String,
}

/// The limit for DNS names.
const MAX_LENGTH: usize = 253;

/// The limit of Kubernetes.
const MAX_LABEL_LENGTH: usize = 63;

/// Numbers of hash digits appended to a name. Longer hashes are for names that another cluster has already.
const HASH_LENGTHS: [usize; 3] = [8, 16, 64];

/// Text before a hash if nothing else is left of a name.
const STEM: &str = "cluster";

impl ClusterId {
    /// Validates a name.
    ///
    /// # Errors
    /// If it is too long or has characters that are not allowed.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidClusterId> {
        let name = name.as_ref();
        match is_valid(name) {
            true => Ok(Self::new_unchecked(name)),
            false => Err(InvalidClusterId { name: name.chars().take(64).collect() }),
        }
    }

    /// Converts an external name, such as a kubeconfig's context. A valid name stays the same. Any other becomes the
    /// nearest valid name, `-` and eight hexadecimal digits of its SHA-256. The result depends on nothing else, so it
    /// stays the same when other names come and go.
    pub fn from_name(name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        Self::new(name).unwrap_or_else(|_| Self::hashed(name, name, HASH_LENGTHS[0]))
    }

    /// Converts external names to distinct names, in their order. Valid names are always preserved. A generated name
    /// that equals another name gets more digits. Repetitions get the same name.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str> + Clone) -> Vec<Self> {
        let mut taken: BTreeSet<String> =
            names.clone().into_iter().filter(|name| is_valid(name)).map(str::to_owned).collect();
        let mut generated: std::collections::BTreeMap<&str, Self> = std::collections::BTreeMap::new();
        let mut name_for = |name: &'a str| {
            if is_valid(name) {
                return Self::new_unchecked(name);
            }
            let id = generated.entry(name).or_insert_with(|| {
                let mut candidates = HASH_LENGTHS.iter().map(|digits| Self::hashed(name, name, *digits));
                let free = candidates.find(|id| !taken.contains(id.as_str()));
                free.unwrap_or_else(|| Self::hashed(name, name, HASH_LENGTHS[2]))
            });
            taken.insert(id.as_str().to_owned());
            id.clone()
        };
        names.into_iter().map(&mut name_for).collect()
    }

    /// Returns names for a cluster whose own name belongs to another cluster, best first. They depend only on the
    /// cluster's origin (`place`).
    pub(crate) fn alternatives(&self, original: &str, place: &str) -> impl Iterator<Item = Self> {
        let text = format!("{place}\0{original}");
        let stem = if is_valid(original) { original } else { self.as_str() }.to_owned();
        HASH_LENGTHS.into_iter().map(move |digits| Self::hashed(&stem, &text, digits))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Returns the label value of this name, for selecting objects. It is the name itself if that is a valid label
    /// value. Otherwise it is the nearest valid value with a hash of the name appended, such as
    /// `kubernetes-admin-kubernetes-6d0f3a58` for `kubernetes-admin@kubernetes`.
    pub fn label_value(&self) -> &str {
        &self.label
    }

    fn hashed(stem: &str, text: &str, digits: usize) -> Self {
        Self::new_unchecked(&with_hash(stem, text, digits, is_allowed, MAX_LENGTH))
    }

    fn new_unchecked(name: &str) -> Self {
        let name: Arc<str> = name.into();
        let label = match is_label_value(&name) {
            true => name.clone(),
            false => with_hash(&name, &name, HASH_LENGTHS[0], is_allowed_in_label, MAX_LABEL_LENGTH).into(),
        };
        Self { name, label }
    }
}

fn is_valid(name: &str) -> bool {
    let is_dots = name == "." || name == "..";
    (1..=MAX_LENGTH).contains(&name.len()) && name.chars().all(is_allowed) && !is_dots
}

fn is_label_value(name: &str) -> bool {
    let at_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= MAX_LABEL_LENGTH
        && name.chars().all(is_allowed_in_label)
        && at_end(name.chars().next())
        && at_end(name.chars().last())
}

fn is_allowed(c: char) -> bool {
    is_allowed_in_label(c) || matches!(c, ':' | '@')
}

fn is_allowed_in_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Returns the allowed characters of `stem`, `-`, and the given number of digits of the hash of `text`.
fn with_hash(stem: &str, text: &str, digits: usize, allowed: fn(char) -> bool, most: usize) -> String {
    let mut name = String::new();
    for c in stem.chars() {
        let c = if allowed(c) { c } else { '-' };
        if c != '-' || !name.ends_with('-') {
            name.push(c);
        }
    }
    name.truncate(most - 1 - digits);
    let trimmed = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut name = if trimmed.is_empty() { STEM } else { trimmed }.to_owned();
    name.push('-');
    for byte in Sha256::digest(text).iter().take(digits / 2) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

impl PartialEq for ClusterId {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ClusterId {}

impl Hash for ClusterId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for ClusterId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ClusterId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

impl Borrow<str> for ClusterId {
    fn borrow(&self) -> &str {
        &self.name
    }
}

impl AsRef<str> for ClusterId {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_one_segment_of_a_path() {
        for good in ["a", "shop.team-a", "admin@prod", "arn:aws:eks:x", "A_1", "..."] {
            assert_eq!(ClusterId::new(good).unwrap().as_str(), good);
            assert_eq!(ClusterId::from_name(good).as_str(), good);
        }
        let long = "x".repeat(254);
        for bad in ["", ".", "..", "a/b", "a b", "a%2f", "ä", "a\n", long.as_str()] {
            assert!(ClusterId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn invalid_names_are_sanitized_and_hashed() {
        for (name, id) in [
            ("team/prod", "team-prod-71879f88"),
            ("arn:aws:eks:eu:1:cluster/x y", "arn:aws:eks:eu:1:cluster-x-y-"),
            ("生产", "cluster-"),
            ("测试", "cluster-"),
            ("", "cluster-e3b0c442"),
            ("..", "cluster-"),
            ("/a//b/", "a-b-"),
        ] {
            let found = ClusterId::from_name(name);
            let (stem, hash) = found.as_str().rsplit_once('-').unwrap();
            assert!(id.starts_with(stem) && hash.len() == 8, "{name}: {found}");
        }
        assert_ne!(ClusterId::from_name("生产"), ClusterId::from_name("测试"));
        assert!(ClusterId::from_name("x/".repeat(300)).as_str().len() <= 253);
    }

    #[test]
    fn exact_name_wins_over_generated_id() {
        let generated = ClusterId::from_name("team/prod");
        let names = ["team/prod", generated.as_str(), "team-prod", "team/prod"];
        let ids = ClusterId::from_names(names);
        assert_eq!((ids[1].as_str(), ids[2].as_str()), (generated.as_str(), "team-prod"));
        assert!(ids[0] == ids[3] && ids[0].as_str().starts_with(generated.as_str()), "{ids:?}");
        assert_eq!(ClusterId::from_names(["team/prod"]), [generated]);
    }

    #[test]
    fn every_name_has_a_label_value() {
        assert_eq!(ClusterId::from_name("north").label_value(), "north");
        let kubeadm = ClusterId::new("kubernetes-admin@kubernetes").unwrap();
        assert!(kubeadm.label_value().starts_with("kubernetes-admin-kubernetes-"));
        for name in ["_", "a:b", "-a", &"x".repeat(64), "生产"] {
            let id = ClusterId::from_name(name);
            assert!(is_label_value(id.label_value()), "{name}: {}", id.label_value());
        }
        let (one, other) = (ClusterId::new("a:b").unwrap(), ClusterId::new("a@b").unwrap());
        assert_ne!(one.label_value(), other.label_value());
    }

    proptest! {
        #[test]
        fn ids_are_stable_and_unique(
            names in prop::collection::btree_set("[a-c/ä.]{0,4}", 1..20), more in prop::collection::btree_set("[a-c/ä.]{0,4}", 0..20),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let ids = ClusterId::from_names(names.iter().copied());
            let distinct: BTreeSet<_> = ids.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
            let all = names.iter().copied().chain(more.iter().map(String::as_str).filter(|name| !names.contains(name)));
            let all: Vec<&str> = all.collect();
            prop_assert_eq!(&ClusterId::from_names(all)[..names.len()], &ids[..]);
        }
    }
}

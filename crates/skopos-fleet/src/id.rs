//! The name of a cluster.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The name of a cluster in a fleet: 1 to 253 of `A-Z a-z 0-9 . _ : @ -`, and neither `.` nor `..`, so that it is one
/// segment of a path, one value of a metric's label, and one file name, without any escaping.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(Arc<str>);

/// Not a name that a cluster can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be a cluster's name: use 1 to 253 of letters, digits and . _ : @ -")]
pub struct InvalidClusterId {
    /// The name, cut after 64 characters.
    pub name: String,
}

impl ClusterId {
    /// This name.
    ///
    /// # Errors
    /// If it has characters that a name cannot have, or is too long.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidClusterId> {
        let name = name.as_ref();
        let fits = (1..=MOST).contains(&name.len()) && name.chars().all(is_allowed) && !is_dots(name);
        match fits {
            true => Ok(Self(name.into())),
            false => Err(InvalidClusterId { name: name.chars().take(64).collect() }),
        }
    }

    /// The name that comes nearest to one from elsewhere, such as a kubeconfig's context: what a name cannot have becomes
    /// a `-`. Two different names may become the same.
    ///
    /// # Errors
    /// If nothing is left of it.
    pub fn nearest(name: impl AsRef<str>) -> Result<Self, InvalidClusterId> {
        let near = |c: char| if is_allowed(c) { c } else { '-' };
        Self::new(name.as_ref().chars().take(MOST).map(near).collect::<String>())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// As for a DNS name.
const MOST: usize = 253;

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '@' | '-')
}

fn is_dots(name: &str) -> bool {
    name == "." || name == ".."
}

impl Borrow<str> for ClusterId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ClusterId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment_of_a_path() {
        for good in ["a", "shop.team-a", "admin@prod", "arn:aws:eks:x", "A_1", "..."] {
            assert_eq!(ClusterId::new(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(254);
        for bad in ["", ".", "..", "a/b", "a b", "a%2f", "ä", "a\n", long.as_str()] {
            assert!(ClusterId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn foreign_names_become_near_ones() {
        assert_eq!(
            ClusterId::nearest("arn:aws:eks:eu:1:cluster/x y").unwrap().as_str(),
            "arn:aws:eks:eu:1:cluster-x-y"
        );
        assert_eq!(ClusterId::nearest("é").unwrap().as_str(), "-");
        assert!(ClusterId::nearest("").is_err() && ClusterId::nearest("..").is_err());
        assert_eq!(ClusterId::nearest("x".repeat(300)).unwrap().as_str().len(), 253);
    }
}

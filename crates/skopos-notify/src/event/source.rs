//! The objects for a receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use skopos::RawObject;

use super::content::FieldPath;
use super::delivery::ChangeKind;

/// The objects of one resource for a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource {
    /// The resource.
    pub resource: ResourceName,
    /// The namespaces. Empty: all, and objects without a namespace.
    pub namespaces: Vec<String>,
    /// Labels that the objects must have; `*` is any value.
    pub labels: BTreeMap<String, String>,
    /// The kinds of changes. Empty: all.
    pub changes: BTreeSet<ChangeKind>,
    /// The fields that are reported, and whose changes are. Empty: the whole object.
    pub fields: Vec<FieldPath>,
}

/// A resource in the form of API paths: `apps/v1/deployments`, or `v1/pods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceName {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub plural: String,
}

impl EventSource {
    /// Selects all objects of a resource.
    pub fn all(resource: ResourceName) -> Self {
        Self {
            resource,
            namespaces: Vec::new(),
            labels: BTreeMap::new(),
            changes: BTreeSet::new(),
            fields: Vec::new(),
        }
    }

    /// Returns whether an object has the labels.
    pub(crate) fn selects(&self, object: &RawObject) -> bool {
        let has = |(key, value): (&String, &String)| {
            object.label(key).is_some_and(|known| value == "*" || known == value)
        };
        self.labels.iter().all(has)
    }
}

impl ResourceName {
    /// Returns the group and version, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

impl FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |part: &&str| {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            let ends = |part: &str| part.starts_with(['.', '-']) || part.ends_with(['.', '-']);
            !part.is_empty() && part.bytes().all(plain) && !ends(part)
        };
        let parts: Vec<_> = text.split('/').collect();
        let (group, version, plural) = match parts.as_slice() {
            [version, plural] => ("", *version, *plural),
            [group, version, plural] => (*group, *version, *plural),
            _ => ("", "", ""),
        };
        let is_version = version.starts_with('v') && version[1..].starts_with(|c: char| c.is_ascii_digit());
        if !is_version || !parts.iter().all(is_plain) {
            return Err(format!(
                "{text:?} is no resource: write GROUP/VERSION/PLURAL as in apps/v1/deployments, or v1/pods"
            ));
        }
        Ok(Self { group: group.to_owned(), version: version.to_owned(), plural: plural.to_owned() })
    }
}

impl fmt::Display for ResourceName {
    /// Writes it as kubectl does: `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_written_as_in_paths() {
        let of = |text: &str| text.parse::<ResourceName>().map(|name| (name.api_version(), name.to_string()));
        assert_eq!(of("apps/v1/deployments"), Ok(("apps/v1".to_owned(), "deployments.apps".to_owned())));
        assert_eq!(of("v1/pods"), Ok(("v1".to_owned(), "pods".to_owned())));
        for wrong in ["pods", "apps/v1/Deployment", "apps/deployments", "v1/", "a/v1/b/c", "../v1/pods"] {
            assert!(of(wrong).is_err_and(|error| error.contains("apps/v1/deployments")), "{wrong}");
        }
    }
}

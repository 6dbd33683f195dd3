//! Resolution of a name as typed (`po`, `Pod`, `deployments.apps`) to one of the server's resources.
use std::fmt;

use strsim::levenshtein;

/// A resource as discovery describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// API group; empty for the core group
    pub(crate) group: String,
    /// Version of the group
    pub(crate) version: String,
    /// Name in URLs
    pub(crate) plural: String,
    /// Singular name; may be empty
    pub(crate) singular: String,
    /// Kind of its objects
    pub(crate) kind: String,
    /// Abbreviations
    pub(crate) short_names: Vec<String>,
    /// True if its objects live in namespaces
    pub(crate) namespaced: bool,
    /// True if it can be listed and watched
    pub(crate) watchable: bool,
}

impl Resource {
    /// Returns the API version: `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the part before the slash in kubectl's `-o name`: `pod`, `deployment.apps`.
    pub(crate) fn name_prefix(&self) -> String {
        let singular =
            if self.singular.is_empty() { self.kind.to_lowercase() } else { self.singular.to_lowercase() };
        if self.group.is_empty() { singular } else { format!("{singular}.{}", self.group) }
    }

    fn is_called(&self, name: &str) -> bool {
        name == self.plural
            || name == self.singular.to_lowercase()
            || name == self.kind.to_lowercase()
            || self.short_names.iter().any(|short| name == short)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        [self.plural.as_str(), self.singular.as_str()]
            .into_iter()
            .filter(|name| !name.is_empty())
            .chain(self.short_names.iter().map(String::as_str))
    }
}

/// Reason for which a name selects no resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnknownResource {
    /// No resource has this name; `close` are similar ones
    NoSuchName { name: String, close: Vec<String> },
    /// The resource exists, but cannot be watched
    NotWatchable { name: String },
    /// The text is not a valid resource name
    Malformed { name: String },
}

impl fmt::Display for UnknownResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName { name, close } if close.is_empty() => {
                write!(
                    f,
                    "the server has no resource \"{name}\": `kubectl api-resources` lists those that it has"
                )
            }
            Self::NoSuchName { name, close } => {
                write!(f, "the server has no resource \"{name}\": did you mean {}?", close.join(" or "))
            }
            Self::NotWatchable { name } => write!(f, "the server cannot list and watch {name}"),
            Self::Malformed { name } => match name.split_once('/') {
                Some((resource, object)) if !object.contains('/') => {
                    write!(f, "one resource at a time; for one object write: {resource} {object}")
                }
                _ if name.contains(',') => {
                    write!(f, "\"{name}\": one resource at a time; write it as pods, po or deployments.apps")
                }
                _ => write!(f, "\"{name}\" is no resource name: write it as pods, po or deployments.apps"),
            },
        }
    }
}

/// Finds the resource of a name among those of the server, in the server's order of preference.
///
/// The name is a plural, singular, short name or kind in any case, alone or followed by `.group` or `.version.group`,
/// as in kubectl. Without a group the first match wins, the core group before all others.
pub(crate) fn resolve<'a>(name: &str, known: &'a [Resource]) -> Result<&'a Resource, UnknownResource> {
    let wanted = name.trim().to_lowercase();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if wanted.is_empty() || !wanted.chars().all(legal) || wanted.starts_with('.') {
        return Err(UnknownResource::Malformed { name: name.into() });
    }
    let matches = |resource: &&Resource| {
        let (head, rest) = wanted.split_once('.').unwrap_or((&wanted, ""));
        resource.is_called(head)
            && (rest.is_empty()
                || rest == resource.group
                || rest == resource.version
                || rest.split_once('.') == Some((&resource.version, &resource.group)))
    };
    let candidates: Vec<_> = known.iter().filter(matches).collect();
    let watchable = candidates.iter().find(|resource| resource.watchable && resource.group.is_empty());
    match watchable.or_else(|| candidates.iter().find(|resource| resource.watchable)) {
        Some(resource) => Ok(resource),
        None if candidates.is_empty() => {
            Err(UnknownResource::NoSuchName { name: name.into(), close: close_names(&wanted, known) })
        }
        None => Err(UnknownResource::NotWatchable { name: name.into() }),
    }
}

/// Returns up to three names that differ from the wanted one by a typing error.
fn close_names(wanted: &str, known: &[Resource]) -> Vec<String> {
    const MOST: usize = 3;
    let head = wanted.split('.').next().unwrap_or(wanted);
    let slips = 1 + head.len() / 5;
    let mut close: Vec<(usize, String)> = known
        .iter()
        .filter(|resource| resource.watchable)
        .filter_map(|resource| {
            let distance = resource.names().map(|name| levenshtein(head, name)).min()?;
            let contained = head.len() >= 4 && resource.plural.contains(head);
            let full = match resource.group.as_str() {
                "" => resource.plural.clone(),
                group => format!("{}.{group}", resource.plural),
            };
            (contained || distance <= slips).then_some((distance, full))
        })
        .collect();
    close.sort();
    close.dedup_by(|a, b| a.1 == b.1);
    close.into_iter().take(MOST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, plural: &str, kind: &str, short: &[&str]) -> Resource {
        Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind: kind.into(),
            short_names: short.iter().map(|name| (*name).into()).collect(),
            namespaced: true,
            watchable: true,
        }
    }

    fn cluster() -> Vec<Resource> {
        vec![
            resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", &[]),
            resource("", "v1", "pods", "Pod", &["po"]),
            resource("", "v1", "events", "Event", &["ev"]),
            resource("events.k8s.io", "v1", "events", "Event", &["ev"]),
            resource("apps", "v1", "deployments", "Deployment", &["deploy"]),
            resource("apps", "v1beta1", "deployments", "Deployment", &["deploy"]),
            Resource { watchable: false, ..resource("", "v1", "bindings", "Binding", &[]) },
        ]
    }

    fn found(name: &str) -> (String, String) {
        let known = cluster();
        let resource = resolve(name, &known).unwrap_or_else(|error| panic!("{error}"));
        (resource.api_version(), resource.plural.clone())
    }

    #[test]
    fn every_name_form_resolves_to_resource() {
        for name in ["pods", "pod", "po", "Pod", "PODS", "pods.v1"] {
            assert_eq!(found(name), ("v1".into(), "pods".into()), "{name}");
        }
        for name in ["deployments.apps", "deploy.apps", "deployment.v1.apps", "Deployment"] {
            assert_eq!(found(name), ("apps/v1".into(), "deployments".into()), "{name}");
        }
        assert_eq!(found("deployments.v1beta1.apps").0, "apps/v1beta1");
    }

    #[test]
    fn core_group_wins_unless_group_is_given() {
        assert_eq!(found("events").0, "v1");
        assert_eq!(found("events.events.k8s.io").0, "events.k8s.io/v1");
        assert_eq!(found("pods.metrics.k8s.io").0, "metrics.k8s.io/v1beta1");
    }

    #[test]
    fn misspelled_resource_suggests_match() {
        let known = cluster();
        let error = resolve("deploymnets", &known).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server has no resource \"deploymnets\": did you mean deployments.apps?"
        );
        assert!(resolve("xyzzy", &known).unwrap_err().to_string().contains("kubectl api-resources"));
        assert_eq!(
            resolve("pods/x", &known).unwrap_err(),
            UnknownResource::Malformed { name: "pods/x".into() }
        );
        assert!(matches!(resolve("bindings", &known), Err(UnknownResource::NotWatchable { .. })));
    }

    #[test]
    fn names_are_printed_as_kubectl_does() {
        let known = cluster();
        assert_eq!(resolve("po", &known).unwrap().name_prefix(), "pod");
        assert_eq!(resolve("deploy", &known).unwrap().name_prefix(), "deployment.apps");
    }
}

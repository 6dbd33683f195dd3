//! Registry of a server's resources, with lookup by path, by kind, or by a kubectl argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use thiserror::Error;

use super::{ResourceType, builtin, split_api_version};

/// Resources of one server. CustomResourceDefinitions change it while the server runs.
#[derive(Debug)]
pub struct Registry {
    /// In discovery's order: built-in ones first, then in the order of registration.
    resources: RwLock<Arc<Vec<Arc<ResourceType>>>>,
    generation: AtomicU64,
}

/// A resource that the server does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the server has no resource {0:?}: use PLURAL, PLURAL.GROUP or a kind that is registered")]
pub struct UnknownResource(pub String);

impl Registry {
    /// Creates a registry of the built-in resources.
    pub fn builtin() -> Self {
        Self {
            resources: RwLock::new(Arc::new(builtin::resources().into_iter().map(Arc::new).collect())),
            generation: AtomicU64::new(1),
        }
    }

    /// Returns a snapshot of all resources, in discovery's order.
    pub fn all(&self) -> Arc<Vec<Arc<ResourceType>>> {
        self.resources.read().clone()
    }

    /// Returns a number that grows with every change, so that documents derived from the registry can be cached.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the resource that is served at `/apis/GROUP/VERSION/PLURAL` (`group` empty: `/api/VERSION/PLURAL`).
    pub fn resolve(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceType>> {
        self.find(|r| r.plural == plural && r.version == version && r.group == group)
    }

    /// Returns the resource whose objects have this `apiVersion` and `kind`.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceType>> {
        let (group, version) = split_api_version(api_version);
        self.find(|r| r.kind == kind && r.version == version && r.group == group)
    }

    /// Returns the resource of that group and kind, in any version, as an `ownerReference` names it.
    pub fn by_group_kind(&self, group: &str, kind: &str) -> Option<Arc<ResourceType>> {
        self.find(|r| r.kind == kind && r.group == group)
    }

    /// Finds a resource by a kubectl argument: `pods`, `po`, `Pod`, `deployments.apps`, `deployments.v1.apps`. The first match in
    /// discovery's order wins, so `events` are those of the core group.
    ///
    /// # Errors
    /// When nothing matches.
    pub fn lookup(&self, name: &str) -> Result<Arc<ResourceType>, UnknownResource> {
        let matches = |r: &ResourceType| {
            let (head, group) = match name.split_once('.') {
                None => (name, None),
                Some((head, group)) => (head, Some(group)),
            };
            let named = r.plural == head
                || r.singular == head
                || r.kind == head
                || r.short_names.iter().any(|short| short == head);
            named && group.is_none_or(|g| g == r.group || g == format!("{}.{}", r.version, r.group))
        };
        self.find(matches).ok_or_else(|| UnknownResource(name.to_owned()))
    }

    /// Adds a resource, or replaces the one with the same group, version and plural.
    pub fn register(&self, resource: ResourceType) -> Arc<ResourceType> {
        let resource = Arc::new(resource);
        self.change(|all| {
            let same = |r: &Arc<ResourceType>| {
                r.group == resource.group && r.version == resource.version && r.plural == resource.plural
            };
            match all.iter_mut().find(|r| same(r)) {
                Some(place) => *place = resource.clone(),
                None => all.push(resource.clone()),
            }
        });
        resource
    }

    /// Removes all versions of a resource; returns whether there was one.
    pub fn unregister(&self, group: &str, plural: &str) -> bool {
        let mut removed = false;
        self.change(|all| {
            let before = all.len();
            all.retain(|r| !(r.group == group && r.plural == plural));
            removed = all.len() != before;
        });
        removed
    }

    fn find(&self, matches: impl Fn(&ResourceType) -> bool) -> Option<Arc<ResourceType>> {
        self.resources.read().iter().find(|r| matches(r)).cloned()
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<Arc<ResourceType>>)) {
        let mut guard = self.resources.write();
        edit(Arc::make_mut(&mut guard));
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_find_resources_by_every_name() {
        let registry = Registry::builtin();
        for name in
            ["deployments", "deploy", "Deployment", "deployment", "deployments.apps", "deployments.v1.apps"]
        {
            assert_eq!(
                registry.lookup(name).map(|r| r.group_resource()),
                Ok("deployments.apps".into()),
                "{name}"
            );
        }
        assert_eq!(registry.lookup("events").map(|r| r.group.clone()), Ok(String::new()));
        assert!(registry.lookup("deployments.batch").is_err());
    }

    #[test]
    fn registry_tracks_registration_and_removal() {
        let registry = Registry::builtin();
        let before = registry.generation();
        registry.register(ResourceType::new("demo.example", "v1", "widgets", "Widget"));
        assert!(registry.generation() > before);
        assert!(registry.by_kind("demo.example/v1", "Widget").is_some());
        assert!(registry.unregister("demo.example", "widgets"));
        assert!(registry.resolve("demo.example", "v1", "widgets").is_none());
        assert!(!registry.unregister("demo.example", "widgets"));
    }
}

//! Objects without HTTP: direct calls of the same write path.

use serde_json::{Value, json};
use skopos_serve::{ResourceType, object_key};
use skopos_wire::{GroupResource, Status};
use thiserror::Error;

use super::TestServer;
use crate::cluster::generate::PodGenerator;
use crate::object_ref::ObjectRef;
use crate::storage::{Draft, ReadScope, ResourceKey};
use crate::write;

/// A resourceVersion that the server cannot roll back to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the server cannot go back to resourceVersion {requested}: it must be at least {oldest} and not in the future"
)]
pub struct UnknownRevision {
    /// Requested resourceVersion.
    pub requested: u64,
    /// Oldest resourceVersion that is not compacted.
    pub oldest: u64,
}

impl TestServer {
    /// Creates an object, as a POST does.
    ///
    /// # Errors
    /// The API server's errors: 409 if it exists, 422 if it is invalid, 404 if its kind is not served.
    pub fn create(&self, object: Value) -> Result<Value, Status> {
        write::create_object(self.state(), object)
    }

    /// Replaces an object, as a PUT does; with `metadata.resourceVersion`, only if it is still that version.
    ///
    /// # Errors
    /// The API server's errors.
    pub fn update(&self, object: Value) -> Result<Value, Status> {
        write::update_object(self.state(), object)
    }

    /// Creates an object, or merges it into the existing one, as a server-side apply does.
    ///
    /// # Errors
    /// The API server's errors.
    pub fn apply(&self, object: Value) -> Result<Value, Status> {
        write::apply_object(self.state(), object)
    }

    /// Deletes an object, as a DELETE without a grace period does. With finalizers it only gets its deletionTimestamp.
    ///
    /// # Errors
    /// The API server's errors.
    pub fn delete(&self, resource: &str, namespace: Option<&str>, name: &str) -> Result<Value, Status> {
        write::delete_object(self.state(), &self.resource_type(resource)?, namespace, name)
    }

    /// Expires the lease of these objects (resource, namespace, name). etcd deletes all keys of a lease at one revision, in
    /// order, and ignores finalizers and grace periods. So the deletions that watchers see share one resourceVersion. Returns the
    /// last states of those that existed; if none did, nothing happens.
    ///
    /// # Errors
    /// 404 if one of the resources is not served: nothing is deleted then.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use skopos_testserver::TestServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = TestServer::builder().start_in_memory()?;
    /// for name in ["a", "b"] {
    ///     server.create(json!({"apiVersion": "v1", "kind": "ConfigMap",
    ///         "metadata": {"name": name, "namespace": "default"}}))?;
    /// }
    /// let gone = server.expire(["a", "b"].map(|name| ("configmaps", Some("default"), name)))?;
    /// assert_eq!(gone[0]["metadata"]["resourceVersion"], gone[1]["metadata"]["resourceVersion"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire<'a>(
        &self,
        lease: impl IntoIterator<Item = (&'a str, Option<&'a str>, &'a str)>,
    ) -> Result<Vec<Value>, Status> {
        let object_ref =
            |(resource, namespace, name)| Ok(ObjectRef::new(&self.resource_type(resource)?, namespace, name));
        let object_refs = lease.into_iter().map(object_ref).collect::<Result<Vec<_>, Status>>()?;
        Ok(write::expire(self.state(), object_refs))
    }

    /// Returns an object.
    ///
    /// # Errors
    /// 404.
    pub fn get(&self, resource: &str, namespace: Option<&str>, name: &str) -> Result<Value, Status> {
        let resource = self.resource_type(resource)?;
        let object = self.state().storage.get(&ResourceKey::from(&*resource), &object_key(namespace, name));
        let not_found = || Status::not_found(GroupResource::new(&resource.group, &resource.plural), name);
        Ok(object.ok_or_else(not_found)?.to_value())
    }

    /// Returns all objects of a resource (in one namespace), in key order, and the resourceVersion of that state.
    ///
    /// # Errors
    /// 404 if the resource is not served.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Result<(Vec<Value>, u64), Status> {
        let resource = self.resource_type(resource)?;
        let (objects, revision) =
            self.state().storage.list(&ResourceKey::from(&*resource), ReadScope::new(namespace));
        Ok((objects.iter().map(|object| object.to_value()).collect(), revision))
    }

    /// Returns the number of objects of a resource; 0 if it is not served.
    pub fn count(&self, resource: &str) -> usize {
        self.resource_type(resource)
            .map_or(0, |resource| self.state().storage.len(&ResourceKey::from(&*resource)))
    }

    /// Creates `n` realistic pods of about 4.4 KB each, directly in the storage: 100,000 in a few seconds. A second call adds `n`
    /// more. Their namespaces are created too.
    pub fn load_pods(&self, n: usize) {
        let generator = PodGenerator::new(0).created_before(self.state().clock.now());
        for name in generator.namespace_names() {
            // It exists already after the first call.
            let _ = self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        let pods = ResourceKey::new("", "pods");
        let first = self.state().storage.len(&pods);
        for index in first..first + n {
            match Draft::from_bytes(&generator.pod(index)) {
                Ok(draft) => drop(self.state().storage.create(&pods, draft)),
                Err(error) => tracing::warn!(%error, "a generated pod is not stored"),
            }
        }
    }

    /// Stores JSON unchanged, and replaces the object of that name if there is one. Nothing is checked or defaulted, and watchers
    /// see an event even if nothing changed. Takes some 20 µs, where [`update`](TestServer::update) takes 200: for tests that
    /// want more events than a server can make.
    ///
    /// # Errors
    /// 400 if it is not an object with kind, apiVersion and name; 404 if the resource is not served.
    pub fn store_json(&self, resource: &str, json: &[u8]) -> Result<(), Status> {
        let resource = ResourceKey::from(&*self.resource_type(resource)?);
        let draft = Draft::from_bytes(json).map_err(|error| Status::bad_request(error.to_string()))?;
        // The previous version does not matter.
        self.state().storage.put(&resource, draft).map(drop).map_err(|_| Status::internal_error("not stored"))
    }

    /// Returns the newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.state().storage.revision()
    }

    /// Forgets all history: reads of older versions, and watches from them, get 410.
    pub fn compact(&self) {
        self.state().storage.compact();
    }

    /// Forgets old versions but keeps the events of watches, as a compaction of etcd alone does.
    pub fn compact_versions(&self) {
        self.state().storage.compact_versions();
    }

    /// Forgets the events of watches but no versions, as a restarted server with an empty watch cache does. Watches from older
    /// versions get 410; open ones continue.
    pub fn forget_events(&self) {
        self.state().storage.forget_events();
    }

    /// Rolls back to an earlier resourceVersion, as a restored etcd does. Open watches get no event: they hang until the server's
    /// resourceVersion has passed theirs again.
    ///
    /// # Errors
    /// When that version is compacted or in the future.
    pub fn roll_back(&self, resource_version: u64) -> Result<(), UnknownRevision> {
        let rolled = self.state().storage.roll_back(resource_version);
        rolled.map_err(|e| UnknownRevision { requested: e.requested, oldest: e.oldest })
    }

    /// Ends all watches in order, without an event, as a server that relists or shuts down does.
    pub fn close_watches(&self) {
        self.state().storage.close_watches();
    }

    fn resource_type(&self, name: &str) -> Result<std::sync::Arc<ResourceType>, Status> {
        self.registry().lookup(name).map_err(|_| Status::resource_not_served())
    }
}

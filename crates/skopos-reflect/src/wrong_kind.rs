//! Checks that a response is of the requested kind, as far as it states its kind.

use skopos_wire::{ListMeta, RawObject};

use crate::{Form, Target};

/// A response of another kind than requested. The server is at fault, or a proxy in front of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("asked for {asked}, got {got}")]
pub struct WrongKind {
    /// The requested kind, such as `v1 PodList`.
    pub asked: String,
    /// The kind that the response states.
    pub got: String,
}

const METADATA: &str = "meta.k8s.io/";

impl Target {
    /// Checks that a list is of this target's objects, as far as both state their kind.
    ///
    /// # Errors
    /// When the list's `apiVersion` or `kind` is present and differs.
    pub fn check_list(&self, list: &ListMeta) -> Result<(), WrongKind> {
        // A custom resource may name its list freely; its items state their kind.
        let kind = self.kind.as_deref().filter(|_| self.is_built_in()).map(|kind| format!("{kind}List"));
        self.check(&list.api_version, &list.kind, kind.as_deref(), "PartialObjectMetadataList")
    }

    /// Checks that an object is one of this target's, as far as both state their kind.
    ///
    /// # Errors
    /// When the object's `apiVersion` or `kind` is present and differs.
    pub fn check_object(&self, object: &RawObject) -> Result<(), WrongKind> {
        let (version, kind) = (object.api_version().unwrap_or_default(), object.kind().unwrap_or_default());
        self.check(version, kind, self.kind.as_deref(), "PartialObjectMetadata")
    }

    fn check(
        &self,
        got_version: &str,
        got_kind: &str,
        asked_kind: Option<&str>,
        metadata_kind: &str,
    ) -> Result<(), WrongKind> {
        let other_version = !got_version.is_empty() && !self.is_of_version(got_version);
        let other_kind = !got_kind.is_empty() && asked_kind.is_some_and(|asked| asked != got_kind);
        let metadata = self.form == Form::MetadataOnly
            && got_version.starts_with(METADATA)
            && (got_kind == metadata_kind || got_kind.is_empty());
        if !(other_version || other_kind) || metadata {
            return Ok(());
        }
        let asked = match self.form {
            Form::MetadataOnly => format!("{METADATA}v1 {metadata_kind}"),
            _ => format!("{} {}", self.api_version(), asked_kind.unwrap_or(&self.plural)),
        };
        Err(WrongKind { asked, got: format!("{got_version} {got_kind}").trim().to_owned() })
    }

    fn is_of_version(&self, api_version: &str) -> bool {
        api_version.rsplit_once('/').unwrap_or(("", api_version)) == (&*self.group, &*self.version)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    fn is_built_in(&self) -> bool {
        !self.group.contains('.') || self.group.ends_with(".k8s.io")
    }
}

#[cfg(test)]
mod tests {
    use skopos_wire::Limits;

    use super::*;

    fn list(api_version: &str, kind: &str) -> ListMeta {
        ListMeta {
            resource_version: 1.into(),
            continue_token: None,
            remaining_item_count: None,
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        }
    }

    fn object(fields: &str) -> RawObject {
        let json = format!(r#"{{{fields}"metadata":{{"name":"a","uid":"u","resourceVersion":"1"}}}}"#);
        RawObject::scan(json.into(), &Limits::default()).unwrap()
    }

    #[test]
    fn lists_of_something_else_are_refused() {
        let pods = Target::new("", "v1", "pods").with_kind("Pod");
        assert_eq!(pods.check_list(&list("v1", "PodList")), Ok(()));
        assert_eq!(pods.check_list(&list("", "")), Ok(()), "it does not say");
        let error = pods.check_list(&list("v1", "ServiceList")).unwrap_err();
        assert_eq!(error.to_string(), "asked for v1 PodList, got v1 ServiceList");
        assert!(pods.check_list(&list("apps/v1", "PodList")).is_err());
        assert!(pods.check_list(&list("meta.k8s.io/v1", "PartialObjectMetadataList")).is_err());
        let unknown = Target::new("", "v1", "pods");
        assert_eq!(
            unknown.check_list(&list("v1", "ServiceList")),
            Ok(()),
            "no document names the kind of pods"
        );
        assert!(unknown.check_list(&list("apps/v1", "DeploymentList")).is_err());
    }

    #[test]
    fn custom_resources_name_their_lists_as_they_like() {
        let custom = Target::new("example.com", "v1", "widgets").with_kind("Widget");
        assert_eq!(custom.check_list(&list("example.com/v1", "Widgets")), Ok(()));
        assert_eq!(custom.check_object(&object(r#""apiVersion":"example.com/v1","kind":"Widget","#)), Ok(()));
        assert!(custom.check_object(&object(r#""apiVersion":"example.com/v1","kind":"Gadget","#)).is_err());
        assert!(custom.check_object(&object(r#""apiVersion":"example.com/v2","kind":"Widget","#)).is_err());
        assert_eq!(custom.check_object(&object("")), Ok(()), "items of typed lists do not say");
    }

    #[test]
    fn metadata_may_come_as_such_or_whole() {
        let pods = Target::new("", "v1", "pods").with_kind("Pod").metadata_only();
        assert_eq!(pods.check_list(&list("meta.k8s.io/v1", "PartialObjectMetadataList")), Ok(()));
        assert_eq!(pods.check_list(&list("v1", "PodList")), Ok(()));
        assert!(pods.check_list(&list("meta.k8s.io/v1", "Table")).is_err());
        assert!(pods.check_list(&list("v1", "ServiceList")).is_err());
        let partial = object(r#""apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","#);
        assert_eq!(pods.check_object(&partial), Ok(()));
    }
}

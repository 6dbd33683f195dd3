use std::fmt;
use std::time::Duration;

use http::{Method, Request, header};
use kube::client::Body;
use skopos_wire::{FieldRequirement, FieldSelector, LabelSelector, ObjectKey};

use crate::{ListRequest, WatchRequest, WatchStart};

/// The objects to list and watch: a resource of one API version, in one namespace or all, filtered by selectors, whole
/// or metadata only. Also the key under which reflectors are shared: equal targets see the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version in the group, such as `v1`.
    pub version: String,
    /// The resource: the plural as in URL paths, such as `pods`.
    pub plural: String,
    /// The kind of its objects, such as `Pod`, if known: responses of another kind are then refused.
    pub kind: Option<String>,
    /// One namespace, or all of them (and cluster-scoped resources) when absent.
    pub namespace: Option<String>,
    /// Canonical text of the label selector; empty for all objects.
    pub labels: String,
    /// Canonical text of the field selector; empty for all objects.
    pub fields: String,
    /// The form of each object.
    pub form: Form,
}

/// The part of each object that is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// The whole object.
    #[default]
    Full,
    /// Its metadata only (`PartialObjectMetadata`), from servers that support that form; from others the whole object.
    MetadataOnly,
}

impl Target {
    /// Makes a target of all objects of a resource, in all namespaces. The group is empty for core resources.
    pub fn new(group: impl Into<String>, version: impl Into<String>, plural: impl Into<String>) -> Self {
        Target {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: None,
            namespace: None,
            labels: String::new(),
            fields: String::new(),
            form: Form::Full,
        }
    }

    /// Makes a target of all objects of a Kubernetes type, in all namespaces.
    pub fn for_resource<K: kube::Resource>(dynamic: &K::DynamicType) -> Self {
        Target::new(K::group(dynamic), K::version(dynamic), K::plural(dynamic)).with_kind(K::kind(dynamic))
    }

    /// Sets the kind of the objects.
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Restricts the target to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Restricts the target to objects whose labels match the selector.
    #[must_use]
    pub fn with_labels(mut self, selector: &LabelSelector) -> Self {
        self.labels = selector.to_string();
        self
    }

    /// Restricts the target to objects whose fields match the selector.
    #[must_use]
    pub fn with_fields(mut self, selector: &FieldSelector) -> Self {
        self.fields = selector.to_string();
        self
    }

    /// Selects metadata only.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.form = Form::MetadataOnly;
        self
    }

    /// Returns the path of the collection, without query: `/api/v1/namespaces/default/pods`.
    pub fn path(&self) -> String {
        self.path_in(self.namespace.as_deref())
    }

    /// Returns the path of one object.
    pub fn object_path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.path_in(key.namespace()), encode(key.name()))
    }

    /// Returns the request for a list or a page of it.
    pub fn list(&self, request: &ListRequest) -> Request<Body> {
        self.page(request.limit, request.continue_token.as_deref())
    }

    /// Returns the request for a consistent list of at most `limit` objects, or for its next page.
    pub fn page(&self, limit: Option<u32>, continue_token: Option<&str>) -> Request<Body> {
        let mut query = self.query();
        if let Some(limit) = limit {
            query.add("limit", &limit.to_string());
        }
        if let Some(token) = continue_token {
            query.add("continue", token);
        }
        self.get(self.path(), query, Shape::List)
    }

    /// Returns the request for a watch.
    pub fn watch(&self, request: &WatchRequest) -> Request<Body> {
        let mut query = self.query();
        query.add("watch", "true");
        query.add("allowWatchBookmarks", "true");
        match &request.start {
            WatchStart::After(resource_version) => {
                query.add("resourceVersion", &resource_version.to_string())
            }
            WatchStart::InitialEvents => {
                query.add("sendInitialEvents", "true");
                query.add("resourceVersionMatch", "NotOlderThan");
            }
        }
        query.add("timeoutSeconds", &whole_seconds(request.timeout).to_string());
        self.get(self.path(), query, Shape::Watch)
    }

    /// Returns the request for the current state of one object.
    pub fn object(&self, key: &ObjectKey) -> Request<Body> {
        self.get(self.object_path(key), Query::default(), Shape::Object)
    }

    /// Returns the request of a probe: the smallest consistent read of the collection. It has no selectors, because the
    /// RV of a list is that of the whole storage. It has the namespace, and the name if the field selector requires
    /// one, because the caller may have the right to read nothing else.
    pub fn probe(&self) -> Request<Body> {
        let mut query = Query::default();
        if let Some(Ok(only)) = self.name().map(|name| FieldRequirement::new("metadata.name", true, name)) {
            query.add("fieldSelector", &only.to_string());
        }
        query.add("limit", "1");
        let accept = Target { form: Form::MetadataOnly, ..self.clone() };
        accept.get(self.path(), query, Shape::List)
    }

    /// Returns the name that the field selector requires, if any. The caller may have rights for that name only
    /// (`resourceNames`).
    pub fn name(&self) -> Option<String> {
        let fields = FieldSelector::parse(&self.fields).ok()?;
        fields.exact("metadata.name").map(str::to_owned)
    }

    fn path_in(&self, namespace: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", encode(&self.version))
        } else {
            format!("/apis/{}/{}", encode(&self.group), encode(&self.version))
        };
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            path.push_str(&encode(namespace));
        }
        path.push('/');
        path.push_str(&encode(&self.plural));
        path
    }

    fn query(&self) -> Query {
        let mut query = Query::default();
        if !self.labels.is_empty() {
            query.add("labelSelector", &self.labels);
        }
        if !self.fields.is_empty() {
            query.add("fieldSelector", &self.fields);
        }
        query
    }

    fn get(&self, path: String, query: Query, shape: Shape) -> Request<Body> {
        let uri = if query.0.is_empty() { path } else { format!("{path}?{}", query.0) };
        let accept = match (self.form, shape) {
            (Form::Full, _) => "application/json",
            (Form::MetadataOnly, Shape::List) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;q=0.5"
            }
            (Form::MetadataOnly, _) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0.5"
            }
        };
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::GET;
        // Every byte that is not unreserved was percent-encoded, so this is always a URI. Should it not be, the
        // transport refuses the request `/` with a 404, which is reported as such.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
        if matches!(shape, Shape::Watch) {
            // Kubernetes 1.37 compresses each flush of a watch as a gzip member of its own, which is not worth the delay.
            headers.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("identity"));
        }
        request
    }
}

/// `pods`, `deployments.v1.apps in prod`, with selectors: for logs and tables.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}.{}", self.version, self.group)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        if !self.labels.is_empty() {
            write!(f, " with labels {}", self.labels)?;
        }
        if !self.fields.is_empty() {
            write!(f, " with fields {}", self.fields)?;
        }
        Ok(())
    }
}

/// The expected shape of the response.
#[derive(Clone, Copy)]
enum Shape {
    List,
    Watch,
    Object,
}

#[derive(Default)]
struct Query(String);

impl Query {
    fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&encode(value));
    }
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// Returns a valid `timeoutSeconds`: a whole number above 0, since 0 leaves the length to the server.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_keeps_only_name_field_selector() {
        let probe = |fields: &str| {
            let fields = FieldSelector::parse(fields).unwrap();
            Target::new("", "v1", "secrets").in_namespace("a").with_fields(&fields).probe().uri().to_string()
        };
        assert_eq!(probe(""), "/api/v1/namespaces/a/secrets?limit=1");
        assert_eq!(probe("type=Opaque"), "/api/v1/namespaces/a/secrets?limit=1");
        assert_eq!(probe("metadata.name!=x"), "/api/v1/namespaces/a/secrets?limit=1");
        let one = "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Dx&limit=1";
        assert_eq!(probe("metadata.name=x"), one);
        assert_eq!(probe("type=Opaque,metadata.name=x"), one);
    }

    #[test]
    fn metadata_request_also_accepts_plain_json() {
        let pods = Target::new("", "v1", "pods").metadata_only();
        for request in [pods.probe(), pods.page(Some(500), None)] {
            let accept = request.headers()[header::ACCEPT].to_str().unwrap();
            assert!(accept.starts_with("application/json;as=PartialObjectMetadataList;"), "{accept}");
            assert!(accept.ends_with(",application/json;q=0.5"), "{accept}");
        }
    }
}

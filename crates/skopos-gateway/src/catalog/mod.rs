//! Catalog of the resources that a cluster serves. Built-in resources are compiled in. Others come from the discovery document
//! if the cluster defines them itself, with columns from its CustomResourceDefinitions.

mod definitions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use skopos::{ObjectKey, ResourceId};
use skopos_fleet::{Cluster, ClusterId, Document, DocumentRequest, Fleet, FleetError};
use skopos_serve::{Registry, ResourceType, Verb};
use tokio::time::Instant;

pub(crate) use self::definitions::{Definitions, DefinitionsCache, is_builtin};
use crate::response::reasons;

/// The resources that a cluster serves beyond the built-in ones, if they can be listed and watched.
///
/// Members are not trusted. A malformed name is ignored, and a malformed or oversized document gives no catalog at all.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Catalog {
    /// The resources by group, plural and version.
    types: BTreeMap<Names, Arc<ResourceType>>,
    /// The resources that another server stores, behind an aggregated API.
    aggregated: BTreeSet<Names>,
}

/// Group, plural and version.
type Names = (String, String, String);

/// The reason why a discovery document gives no catalog. It contains nothing of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("its discovery document has more than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    #[error("its discovery document names more than {MAX_TYPES} resources, or {MAX_GROUPS} groups of them")]
    TooMany,
    #[error("its discovery document is none of the aggregated form, which Kubernetes has since 1.26")]
    OfAnotherForm,
    #[error("its server refuses discovery: {0}")]
    Refused(http::StatusCode),
}

/// The catalogs of a fleet's clusters, parsed once per version of their documents. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Catalogs {
    fleet: Fleet,
    /// The request sent to all members.
    request: Option<DocumentRequest>,
    definitions: DefinitionsCache,
    known: Arc<Mutex<BTreeMap<ClusterId, ParsedDocument>>>,
}

/// The required recency of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recency {
    /// The current document, or the last one received.
    Known,
    /// The current document if the server answers.
    Current,
}

/// The parsed form of a document.
struct ParsedDocument {
    /// The document. While it is held, no other document can have the same address.
    body: Bytes,
    /// All resources in the document.
    offered: Result<Arc<Catalog>, Malformed>,
    /// The cluster's own resources in it, according to these definitions.
    own: Option<(Definitions, Arc<Catalog>)>,
}

/// The maximum size of a discovery document, in bytes: far more than a large cluster has.
const MAX_BYTES: usize = 8 << 20;

/// The maximum number of resources of a cluster beyond the built-in ones, in all versions: ten times the 500 definitions in
/// Kubernetes' scale targets.
const MAX_TYPES: usize = 5_000;

/// The maximum number of groups of such resources.
const MAX_GROUPS: usize = 1_000;

/// The maximum number of short names, and of categories, of a resource.
const MAX_NAMES: usize = 16;

/// Returns a resource of `cluster` with its columns. Returns `None` if it is neither built in nor defined in the cluster, or
/// if its definition cannot be read within `within`.
pub(crate) async fn resolve(
    cluster: &Cluster,
    group: &str,
    version: &str,
    plural: &str,
    within: Duration,
) -> Option<Arc<ResourceType>> {
    if let Some(known) = BUILTIN.with(|builtin| builtin.resolve(group, version, plural)) {
        return Some(known);
    }
    if !group.contains('.') {
        return None;
    }
    let definitions = cluster.kind(&definitions(), within).await.ok()?;
    let key = ObjectKey::checked(None, &format!("{plural}.{group}")).ok()?;
    let definition = definitions.informer().snapshot().get(&key)?;
    let definition: Value = serde_json::from_slice(&definition.raw().json()).ok()?;
    let versions = ResourceType::from_crd(&definition).ok()?;
    versions.into_iter().find(|resource| resource.version == version).map(Arc::new)
}

/// Returns whether `cluster` defines a resource, or (without `plural`) any resource of the group. Reads the definitions of the
/// cluster, and waits for them at most `within`.
///
/// # Errors
/// The errors of reading the definitions.
pub(crate) async fn is_defined(
    cluster: &Cluster,
    group: &str,
    plural: Option<&str>,
    within: Duration,
) -> Result<bool, FleetError> {
    let definitions = cluster.kind(&definitions(), within).await?;
    let snapshot = definitions.informer().snapshot();
    Ok(match plural {
        Some(plural) => ObjectKey::checked(None, &format!("{plural}.{group}"))
            .is_ok_and(|key| snapshot.get(&key).is_some()),
        None => {
            let of_group = |name: &str| name.split_once('.').is_some_and(|(_, own)| own == group);
            snapshot.iter().any(|definition| of_group(definition.key().name()))
        }
    })
}

/// Returns whether the definitions of `cluster` are in memory, so that [`resolve`] does not have to wait.
pub(crate) fn has_definitions(cluster: &Cluster) -> bool {
    cluster.cached(&definitions()).is_some_and(|kind| kind.has_content())
}

std::thread_local! {
    /// A copy for each thread, so that reading takes no contended lock.
    static BUILTIN: Registry = Registry::builtin();
}

fn definitions() -> ResourceId {
    ResourceId {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        plural: "customresourcedefinitions".into(),
        kind: "CustomResourceDefinition".into(),
    }
}

impl Catalogs {
    pub(crate) fn new(fleet: Fleet, definitions: DefinitionsCache) -> Self {
        let request = DocumentRequest::discovery().into_iter().find(|request| request.path() == "/apis");
        Self { fleet, request, definitions, known: Arc::default() }
    }

    /// Returns the resources that `cluster` serves itself, within `within`: current, or as of its last answer.
    ///
    /// # Errors
    /// The reason why they are not known.
    pub(crate) async fn get(&self, cluster: &Cluster, within: Duration) -> Result<Arc<Catalog>, Arc<str>> {
        self.at(Recency::Known, cluster, within).await
    }

    /// Returns the current resources, or those of the last answer if the server does not answer.
    ///
    /// # Errors
    /// The reason why they are not known.
    pub(crate) async fn current(
        &self,
        cluster: &Cluster,
        within: Duration,
    ) -> Result<Arc<Catalog>, Arc<str>> {
        self.at(Recency::Current, cluster, within).await
    }

    async fn at(
        &self,
        recency: Recency,
        cluster: &Cluster,
        within: Duration,
    ) -> Result<Arc<Catalog>, Arc<str>> {
        let Some(request) = &self.request else { return Err("discovery is no document".into()) };
        let deadline = Instant::now() + within;
        let document = recency.document(cluster, request, within).await;
        let document = document.map_err(|error| reasons::describe_error(&error))?;
        let offered = self.read(cluster.id(), &document)?;
        // Most clusters of a fleet have no resources of their own.
        if offered.types.is_empty() {
            return Ok(offered);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let definitions = self.definitions.get(recency, cluster, left).await?;
        Ok(self.own(cluster.id(), offered, definitions))
    }

    /// Returns the catalog from memory, however old; `None` if there is none. Sends no request.
    pub(crate) fn peek(&self, cluster: &Cluster) -> Option<Result<Arc<Catalog>, Arc<str>>> {
        let document = cluster.kept_document(self.request.as_ref()?)?;
        let offered = match self.read(cluster.id(), &document) {
            Ok(offered) if !offered.types.is_empty() => offered,
            known => return Some(known),
        };
        let definitions = self.definitions.peek(cluster)?;
        Some(definitions.map(|definitions| self.own(cluster.id(), offered, definitions)))
    }

    fn read(&self, id: &ClusterId, document: &Document) -> Result<Arc<Catalog>, Arc<str>> {
        if !document.status.is_success() {
            return Err(Malformed::Refused(document.status).to_string().into());
        }
        let body = &document.body;
        let same =
            |known: &&ParsedDocument| known.body.as_ptr() == body.as_ptr() && known.body.len() == body.len();
        let known = self.known.lock().get(id).filter(same).map(|known| known.offered.clone());
        let offered = match known {
            Some(offered) => offered,
            None => self.read_anew(id, body),
        };
        offered.map_err(|malformed| malformed.to_string().into())
    }

    fn read_anew(&self, id: &ClusterId, body: &Bytes) -> Result<Arc<Catalog>, Malformed> {
        // Most clusters of a fleet have the same document, so equal ones share one catalog.
        let twin = self.known.lock().values().find(|known| known.body == body).map(|k| k.offered.clone());
        let offered = match twin {
            Some(offered) => offered,
            None => Catalog::parse(body).map(Arc::new),
        };
        let mut known = self.known.lock();
        known.insert(id.clone(), ParsedDocument { body: body.clone(), offered: offered.clone(), own: None });
        let members = self.fleet.members();
        if known.len() > members.len() {
            known.retain(|id, _| members.contains_key(id.as_str()));
            self.definitions.retain(|id| members.contains_key(id.as_str()));
        }
        offered
    }

    /// Returns the resources of `offered` that the cluster stores itself. Equal results of several clusters are shared.
    fn own(&self, id: &ClusterId, offered: Arc<Catalog>, definitions: Definitions) -> Arc<Catalog> {
        let mut known = self.known.lock();
        let is_same = |known: &&ParsedDocument| {
            let of_same = known.offered.as_ref().is_ok_and(|own| Arc::ptr_eq(own, &offered));
            of_same && known.own.as_ref().is_some_and(|(own, _)| own.is(&definitions))
        };
        let same = known.get(id).filter(is_same).or_else(|| known.values().find(is_same));
        let same = same.and_then(|known| known.own.as_ref()).map(|(_, own)| own.clone());
        let own = same.unwrap_or_else(|| Arc::new(offered.defined_by(&definitions)));
        if let Some(known) =
            known.get_mut(id).filter(|known| known.offered.as_ref().is_ok_and(|o| Arc::ptr_eq(o, &offered)))
        {
            known.own = Some((definitions, own.clone()));
        }
        own
    }
}

impl Recency {
    async fn document(
        self,
        cluster: &Cluster,
        request: &DocumentRequest,
        within: Duration,
    ) -> Result<Document, FleetError> {
        match self {
            Self::Known => cluster.document(request, within).await,
            Self::Current => cluster.current_document(request, within).await,
        }
    }
}

impl Catalog {
    /// Reads an aggregated discovery document.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, Malformed> {
        if document.len() > MAX_BYTES {
            return Err(Malformed::TooLarge);
        }
        let listed: Listed = serde_json::from_slice(document).map_err(|_| Malformed::OfAnotherForm)?;
        if listed.kind != "APIGroupDiscoveryList" {
            return Err(Malformed::OfAnotherForm);
        }
        let mut catalog = Self::default();
        for group in listed.items.iter().flatten() {
            for version in group.versions.iter().flatten() {
                for described in version.resources.iter().flatten() {
                    catalog.add(&group.metadata.name, &version.version, described);
                    if catalog.types.len() > MAX_TYPES {
                        return Err(Malformed::TooMany);
                    }
                }
            }
        }
        match catalog.groups() {
            0..=MAX_GROUPS => Ok(catalog),
            _ => Err(Malformed::TooMany),
        }
    }

    /// Returns the resources that a cluster stores itself, according to its definitions.
    fn defined_by(&self, definitions: &Definitions) -> Self {
        let mut own = Self::default();
        for (names, resource) in &self.types {
            let (group, plural, version) = names;
            match definitions.has(group, version, plural) {
                true => drop(own.types.insert(names.clone(), resource.clone())),
                false => drop(own.aggregated.insert(names.clone())),
            }
        }
        own
    }

    /// Returns whether another server stores the objects of the resource, behind an aggregated API.
    pub(crate) fn is_aggregated(&self, group: &str, version: &str, plural: &str) -> bool {
        self.aggregated.contains(&(group.to_owned(), plural.to_owned(), version.to_owned()))
    }

    /// Returns the number of groups.
    fn groups(&self) -> usize {
        let names: Vec<&String> = self.types.keys().map(|(group, _, _)| group).collect();
        names.chunk_by(|a, b| a == b).count()
    }

    /// Returns the resource with these names.
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        self.types.get(&(group.to_owned(), plural.to_owned(), version.to_owned()))
    }

    /// Returns the versions of a resource.
    pub(crate) fn versions(&self, group: &str, plural: &str) -> impl Iterator<Item = &str> {
        let from = (group.to_owned(), plural.to_owned(), String::new());
        let same = move |own: &(String, String, String)| own.0 == from.0 && own.1 == from.1;
        let from = (group.to_owned(), plural.to_owned(), String::new());
        self.types.range(from..).map(|(names, _)| names).take_while(move |own| same(own)).map(|own| &*own.2)
    }

    /// Returns all resources, by group, plural and version.
    pub(crate) fn types(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.types.values()
    }

    /// Adds a resource unless it is built in or cannot be listed and watched.
    fn add(&mut self, group: &str, version: &str, described: &Described) {
        let plural = described.resource.as_str();
        let Some(kind) = &described.response_kind else { return };
        let reads = |verb: Verb| described.verbs.iter().flatten().any(|own| own == verb.as_str());
        let namespaced = match described.scope.as_str() {
            "Namespaced" => true,
            "Cluster" => false,
            _ => return,
        };
        let named = is_subdomain(group) && is_label(version) && is_label(plural) && is_kind(&kind.kind);
        let own = (kind.group.is_empty() || kind.group == group)
            && (kind.version.is_empty() || kind.version == version);
        let builtin = || BUILTIN.with(|builtin| builtin.resolve(group, version, plural)).is_some();
        if !named || !own || !reads(Verb::List) || !reads(Verb::Watch) || builtin() {
            return;
        }
        let names = |all: &Option<Vec<String>>| {
            all.iter().flatten().filter(|name| is_label(name)).take(MAX_NAMES).cloned().collect()
        };
        let mut resource = ResourceType::new(group, version, plural, &kind.kind);
        if is_label(&described.singular_resource) {
            resource.singular.clone_from(&described.singular_resource);
        }
        resource.namespaced = namespaced;
        resource.short_names = names(&described.short_names);
        resource.categories = names(&described.categories);
        resource.verbs = vec![Verb::Get, Verb::List, Verb::Watch];
        resource.subresources = Vec::new();
        resource.custom = true;
        let names = (group.to_owned(), plural.to_owned(), version.to_owned());
        self.types.entry(names).or_insert_with(|| Arc::new(resource));
    }
}

/// The fields read of an `APIGroupDiscoveryList`. An empty list may be `null`.
#[derive(Deserialize)]
struct Listed {
    kind: String,
    items: Option<Vec<Group>>,
}

#[derive(Deserialize)]
struct Group {
    metadata: Metadata,
    versions: Option<Vec<Version>>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    resources: Option<Vec<Described>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Described {
    resource: String,
    response_kind: Option<Kind>,
    scope: String,
    singular_resource: String,
    verbs: Option<Vec<String>>,
    short_names: Option<Vec<String>>,
    categories: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

/// Returns whether the text is a DNS label, as names of resources and versions are.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63 && text.bytes().all(inner) && ends.iter().all(|end| end.is_some_and(|end| end != b'-'))
}

/// Returns whether the text is DNS labels joined by dots, as names of groups are.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Returns whether the text is the name of a kind: a label, in any case.
fn is_kind(text: &str) -> bool {
    is_label(&text.to_ascii_lowercase()) && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Lab;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn crd() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "boats.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": ["bt"]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "additionalPrinterColumns": [{"name": "Sails", "type": "integer", "jsonPath": ".spec.sails"}],
                }],
            },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn catalog_matches_discovery_while_cluster_is_down() {
        let lab = Lab::trusting(&["a", "b"]);
        for name in ["a", "b"] {
            lab.member(name).create(crd()).unwrap();
        }
        let catalogs = Catalogs::new(lab.services.fleet.clone(), DefinitionsCache::default());
        let cluster = lab.services.fleet.cluster("a").unwrap();
        let catalog = catalogs.get(&cluster, TIMEOUT).await.unwrap();
        let boats = catalog.get("example.com", "v1", "boats").unwrap();
        assert!(boats.custom && boats.namespaced && boats.allows(Verb::Watch));
        assert_eq!(boats.short_names, ["bt"]);
        assert!(catalog.get("example.com", "v2", "boats").is_none());
        assert_eq!(catalog.versions("example.com", "boats").collect::<Vec<_>>(), ["v1"]);
        assert_eq!(catalog.types().count(), 1, "what is built in is known without");
        let twin = catalogs.get(&lab.services.fleet.cluster("b").unwrap(), TIMEOUT).await.unwrap();
        assert!(Arc::ptr_eq(&catalog, &twin), "what is the same is kept once");
        let columns = resolve(&cluster, "example.com", "v1", "boats", TIMEOUT).await.unwrap();
        assert_eq!(columns.columns[0].name, "Sails");

        lab.member("a").pause().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(Arc::ptr_eq(&catalog, &catalogs.get(&cluster, TIMEOUT).await.unwrap()));
        assert!(Arc::ptr_eq(&catalog, &catalogs.peek(&cluster).unwrap().unwrap()));
        assert!(has_definitions(&cluster));
        assert!(resolve(&cluster, "example.com", "v1", "boats", TIMEOUT).await.is_some());
        assert!(resolve(&cluster, "example.com", "v1", "cars", TIMEOUT).await.is_none());
    }

    fn document(group: &str, version: &str, resource: Value) -> Vec<u8> {
        let described = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": group},
            "versions": [{"version": version, "resources": [resource]}]}]});
        described.to_string().into_bytes()
    }

    fn resource(plural: &str, kind: &str) -> Value {
        json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": "Namespaced", "singularResource": "", "verbs": ["list", "watch"]})
    }

    #[test]
    fn names_that_are_more_than_names_are_none() {
        let count = |group: &str, version: &str, resource| {
            Catalog::parse(&document(group, version, resource)).unwrap().types().count()
        };
        assert_eq!(count("example.com", "v1", resource("boats", "Boat")), 1);
        for group in
            ["", "a/b", "..", "a..b", "a b", "A.com", "-a.com", "a.com\r\nx: y", "é.com", &"a.".repeat(200)]
        {
            assert_eq!(count(group, "v1", resource("boats", "Boat")), 0, "{group:?}");
        }
        for name in ["", "..", "a.b", "a/b", "a%2Fb", "a\0", "a\n", "Boats", &"a".repeat(64)] {
            assert_eq!(count("example.com", name, resource("boats", "Boat")), 0, "{name:?}");
            assert_eq!(count("example.com", "v1", resource(name, "Boat")), 0, "{name:?}");
        }
        for kind in ["", "1Boat", "Boat/x", "Bo at", "Boat\u{7f}", &"B".repeat(64)] {
            assert_eq!(count("example.com", "v1", resource("boats", kind)), 0, "{kind:?}");
        }
        let with = |name: &str, value: Value| {
            let mut resource = resource("boats", "Boat");
            resource[name] = value;
            resource
        };
        for (name, value) in [
            ("scope", json!("Planet")),
            ("verbs", json!(["get", "list"])),
            ("verbs", json!(null)),
            ("responseKind", json!(null)),
            ("responseKind", json!({"group": "other.com", "version": "v1", "kind": "Boat"})),
        ] {
            assert_eq!(count("example.com", "v1", with(name, value.clone())), 0, "{name} {value}");
        }
        // Built-in resources cannot be overridden.
        assert_eq!(count("apps", "v1", resource("deployments", "Trap")), 0);
        let many: Vec<String> = (0..100).map(|n| format!("s{n}")).chain(["a/b".into()]).collect();
        let catalog = document("example.com", "v1", with("shortNames", json!(many)));
        let catalog = Catalog::parse(&catalog).unwrap();
        assert_eq!(catalog.types().next().unwrap().short_names.len(), MAX_NAMES);
    }

    #[test]
    fn rejects_malformed_or_oversized_document() {
        for other in ["", "{}", "[]", "null", "nonsense", r#"{"kind":"APIGroupList","groups":[]}"#] {
            assert_eq!(Catalog::parse(other.as_bytes()), Err(Malformed::OfAnotherForm), "{other}");
        }
        for wrong in [
            r#"{"kind":"APIGroupDiscoveryList","items":{"a":1}}"#,
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":7}}]}"#,
            &format!(r#"{{"kind":"APIGroupDiscoveryList","items":{}"#, "[".repeat(100_000)),
        ] {
            assert_eq!(Catalog::parse(wrong.as_bytes()), Err(Malformed::OfAnotherForm));
        }
        let empty = r#"{"kind":"APIGroupDiscoveryList","items":null}"#;
        assert_eq!(Catalog::parse(empty.as_bytes()), Ok(Catalog::default()));
        assert_eq!(Catalog::parse(&vec![b' '; MAX_BYTES + 1]), Err(Malformed::TooLarge));
        let resources: Vec<Value> = (0..=MAX_TYPES).map(|n| resource(&format!("r{n}"), "Boat")).collect();
        let many = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "example.com"},
            "versions": [{"version": "v1", "resources": resources}]}]});
        assert_eq!(Catalog::parse(many.to_string().as_bytes()), Err(Malformed::TooMany));
        let wide = |groups: usize| {
            let group = |n| {
                json!({"metadata": {"name": format!("g{n}.example")},
                "versions": [{"version": "v1", "resources": [resource("boats", "Boat")]}]})
            };
            let items: Vec<Value> = (0..groups).map(group).collect();
            let document = json!({"kind": "APIGroupDiscoveryList", "items": items});
            Catalog::parse(document.to_string().as_bytes()).map(|catalog| catalog.types().count())
        };
        assert_eq!((wide(MAX_GROUPS), wide(MAX_GROUPS + 1)), (Ok(MAX_GROUPS), Err(Malformed::TooMany)));
    }
}

//! Resources that a cluster stores itself. A server behind an aggregated API may answer each caller differently, so the
//! gateway must not share its own view of such resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use skopos_fleet::{Cluster, ClusterId, Document, DocumentRequest};
use tokio::time::Instant;

use super::Recency;
use crate::response::reasons;

/// The resources that a cluster defines, and the group versions that it delegates to other servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    /// `PLURAL.GROUP` of each CustomResourceDefinition.
    defined: Names,
    /// `VERSION.GROUP` of each APIService with a service.
    aggregated: Names,
}

/// The definitions of a fleet's clusters, parsed once per version of their documents. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct DefinitionsCache {
    known: Arc<Mutex<BTreeMap<ClusterId, ClusterDocuments>>>,
}

type Names = Arc<BTreeSet<String>>;

/// The parsed documents of a cluster.
struct ClusterDocuments {
    /// The cluster's connection. Another cluster with the same name has another one.
    generation: u64,
    lists: BTreeMap<DocumentRequest, NameList>,
}

/// A list of names, with its source.
#[derive(Clone)]
struct NameList {
    source: Source,
    names: Names,
}

/// The source of a list.
#[derive(Clone)]
enum Source {
    /// This document. While it is held, no other document can have the same address.
    Document(Bytes),
    /// The server does not have the list, or does not show it to the gateway.
    Refused(StatusCode, Instant),
}

/// The maximum size of a list, in bytes.
const MAX_BYTES: usize = 8 << 20;

/// The time during which a server that refused a list is not asked for it again.
const REFUSAL_TTL: Duration = Duration::from_secs(30);

/// The groups that kube-apiserver serves itself. Apart from the caller's rights, their answers do not depend on the caller.
const BUILTIN_GROUPS: [&str; 22] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Returns whether the group is built into kube-apiserver.
pub(crate) fn is_builtin(group: &str) -> bool {
    BUILTIN_GROUPS.contains(&group)
}

impl Definitions {
    /// Returns whether the cluster itself stores the objects of a resource that is not built in.
    pub(crate) fn has(&self, group: &str, version: &str, plural: &str) -> bool {
        self.defined.contains(&format!("{plural}.{group}"))
            && !self.aggregated.contains(&format!("{version}.{group}"))
    }

    /// Returns whether the cluster defines a resource, or (without `plural`) any resource of the group, in any version.
    pub(crate) fn defines(&self, group: &str, plural: Option<&str>) -> bool {
        match plural {
            Some(plural) => self.defined.contains(&format!("{plural}.{group}")),
            None => self.defined.iter().any(|name| name.split_once('.').is_some_and(|(_, own)| own == group)),
        }
    }

    /// Returns whether both have the same content.
    pub(super) fn is(&self, other: &Self) -> bool {
        let is_same =
            |own: &Names, other: &Names| Arc::ptr_eq(own, other) || own.is_empty() && other.is_empty();
        is_same(&self.defined, &other.defined) && is_same(&self.aggregated, &other.aggregated)
    }
}

impl DefinitionsCache {
    /// Returns the definitions of `cluster`, within `within`.
    ///
    /// # Errors
    /// The reason why they are not known.
    pub(super) async fn get(
        &self,
        recency: Recency,
        cluster: &Cluster,
        within: Duration,
    ) -> Result<Definitions, Arc<str>> {
        let (definitions, api_services) = (DocumentRequest::definitions(), DocumentRequest::api_services());
        let (defined, aggregated) = tokio::join!(
            self.fetch(recency, cluster, &definitions, within),
            self.fetch(recency, cluster, &api_services, within)
        );
        let defined = defined?;
        match defined.source {
            Source::Refused(code, _) if code != StatusCode::NOT_FOUND => {
                Err(format!("its CustomResourceDefinitions cannot be listed: {code}").into())
            }
            // Without the APIServices, the definitions decide.
            _ => {
                let aggregated = aggregated.ok().or_else(|| self.last(cluster, &api_services));
                Ok(Definitions { defined: defined.names, aggregated: names_of(aggregated) })
            }
        }
    }

    /// Returns the definitions in memory, however old; `None` if there are none. Sends no request.
    pub(crate) fn peek(&self, cluster: &Cluster) -> Option<Result<Definitions, Arc<str>>> {
        let defined = self.find(cluster, &DocumentRequest::definitions())?;
        let aggregated = self.find(cluster, &DocumentRequest::api_services());
        let with = |defined: NameList| Definitions {
            defined: defined.names,
            aggregated: names_of(aggregated.and_then(Result::ok)),
        };
        Some(defined.map(with))
    }

    /// Returns whether another server answers for a group version in `cluster`, as far as that is known. A cached answer is
    /// returned at once and refreshed in the background; an unknown one is fetched within `within`.
    pub(crate) async fn is_aggregated(
        &self,
        cluster: &Cluster,
        group: &str,
        version: &str,
        within: Duration,
    ) -> bool {
        let request = DocumentRequest::api_services();
        let entry = match self.fetch(Recency::Known, cluster, &request, Duration::ZERO).await {
            Err(_) => self.fetch(Recency::Known, cluster, &request, within).await,
            known => known,
        };
        let entry = entry.ok().or_else(|| self.last(cluster, &request));
        names_of(entry).contains(&format!("{version}.{group}"))
    }

    async fn fetch(
        &self,
        recency: Recency,
        cluster: &Cluster,
        request: &DocumentRequest,
        within: Duration,
    ) -> Result<NameList, Arc<str>> {
        if let Some(refusal) = self.refusal(cluster, request) {
            return Ok(refusal);
        }
        match recency.document(cluster, request, within).await {
            Ok(document) => self.read(cluster, request, document),
            Err(error) => Err(reasons::describe_error(&error).into()),
        }
    }

    /// Returns a list in memory.
    fn find(&self, cluster: &Cluster, request: &DocumentRequest) -> Option<Result<NameList, Arc<str>>> {
        match cluster.kept_document(request) {
            Some(document) => Some(self.read(cluster, request, document)),
            None => self.refusal(cluster, request).map(Ok),
        }
    }

    /// Returns the refusal of a list that is too recent to ask again.
    fn refusal(&self, cluster: &Cluster, request: &DocumentRequest) -> Option<NameList> {
        self.last(cluster, request).filter(NameList::is_young_refusal)
    }

    /// Returns the list that was read last, however old.
    fn last(&self, cluster: &Cluster, request: &DocumentRequest) -> Option<NameList> {
        let known = self.known.lock();
        let known = known.get(cluster.id()).filter(|known| known.generation == cluster.generation())?;
        known.lists.get(request).cloned()
    }

    fn read(
        &self,
        cluster: &Cluster,
        request: &DocumentRequest,
        document: Document,
    ) -> Result<NameList, Arc<str>> {
        let source = match document.status.is_success() {
            true => Source::Document(document.body),
            false => Source::Refused(document.status, Instant::now()),
        };
        let generation = cluster.generation();
        let mut known = self.known.lock();
        let own = known.get(cluster.id()).filter(|known| known.generation == generation);
        let names = match own.and_then(|known| known.lists.get(request)).filter(|own| own.source.is(&source))
        {
            Some(same) => same.names.clone(),
            None => {
                let parsed = source.parse(request)?;
                // Most clusters of a fleet have the same names, and the names of a cluster rarely change.
                let mut others = known.values().filter_map(|known| known.lists.get(request));
                let twin = others.find(|entry| *entry.names == parsed);
                twin.map_or_else(|| Arc::new(parsed), |twin| twin.names.clone())
            }
        };
        let entry = NameList { source, names };
        let own = known
            .entry(cluster.id().clone())
            .or_insert_with(|| ClusterDocuments { generation, lists: BTreeMap::new() });
        if own.generation != generation {
            *own = ClusterDocuments { generation, lists: BTreeMap::new() };
        }
        own.lists.insert(request.clone(), entry.clone());
        Ok(entry)
    }

    /// Removes the clusters that are gone.
    pub(super) fn retain(&self, is_member: impl Fn(&ClusterId) -> bool) {
        self.known.lock().retain(|id, _| is_member(id));
    }
}

fn names_of(entry: Option<NameList>) -> Names {
    entry.map(|entry| entry.names).unwrap_or_default()
}

impl NameList {
    fn is_young_refusal(&self) -> bool {
        matches!(self.source, Source::Refused(_, at) if at.elapsed() < REFUSAL_TTL)
    }
}

impl Source {
    /// Returns whether both are the same document.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Document(own), Self::Document(other)) => {
                own.as_ptr() == other.as_ptr() && own.len() == other.len()
            }
            _ => false,
        }
    }

    fn parse(&self, request: &DocumentRequest) -> Result<BTreeSet<String>, Arc<str>> {
        let Self::Document(body) = self else { return Ok(BTreeSet::new()) };
        if body.len() > MAX_BYTES {
            return Err(format!("its list of kinds has more than {} MiB", MAX_BYTES >> 20).into());
        }
        let list: List = serde_json::from_slice(body).map_err(|_| "its list of kinds cannot be read")?;
        Ok(match *request == DocumentRequest::api_services() {
            true => list.aggregated(),
            false => list.names(),
        })
    }
}

/// A list of definitions or APIServices: a table, or the objects if the server does not support tables.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct List {
    column_definitions: Option<Vec<Column>>,
    rows: Option<Vec<Row>>,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// The table cell of an APIService that kube-apiserver answers itself.
const LOCAL: &str = "Local";

impl List {
    fn names(&self) -> BTreeSet<String> {
        let items = self.items.iter().flatten().map(|item| item.metadata.name.clone());
        items.chain(self.cells("Name").into_iter().flatten()).collect()
    }

    /// Returns the names of the APIServices that delegate to another server, including unclear ones.
    fn aggregated(&self) -> BTreeSet<String> {
        let has_service = |item: &&Item| item.spec.get("service").is_some_and(|service| !service.is_null());
        let items = self.items.iter().flatten().filter(has_service).map(|item| item.metadata.name.clone());
        let names = self.cells("Name").into_iter().flatten();
        let rows = match self.cells("Service") {
            Some(services) => {
                names.zip(services).filter(|(_, service)| service != LOCAL).map(|(name, _)| name).collect()
            }
            None => names.collect::<Vec<_>>(),
        };
        items.chain(rows).collect()
    }

    /// Returns the cells of a column, if it exists. A cell that is not text is empty.
    fn cells(&self, column: &str) -> Option<Vec<String>> {
        let columns = self.column_definitions.as_deref()?;
        let at = columns.iter().position(|own| own.name == column)?;
        let text = |row: &Row| row.cells.get(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(self.rows.iter().flatten().map(text).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(request: &DocumentRequest, list: &Value) -> Result<BTreeSet<String>, Arc<str>> {
        Source::Document(list.to_string().into()).parse(request)
    }

    fn read(definitions: &Value, api_services: &Value) -> Definitions {
        let defined = parsed(&DocumentRequest::definitions(), definitions).unwrap();
        let aggregated = parsed(&DocumentRequest::api_services(), api_services).unwrap();
        Definitions { defined: Arc::new(defined), aggregated: Arc::new(aggregated) }
    }

    #[test]
    fn definitions_without_a_remote_api_service_count() {
        let tables = read(
            &json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Created At"}],
                "rows": [{"cells": ["boats.sea.example", "x"]}, {"cells": ["routes.route.example", "x"]}]}),
            &json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Service"}, {"name": "Available"}],
                "rows": [{"cells": ["v1.sea.example", "Local", "True"]},
                    {"cells": ["v1.route.example", "shop/server", "True"]},
                    {"cells": ["v1.project.example", "shop/server", "False"]}]}),
        );
        let metadata = |name: &str| json!({"name": name});
        let lists = read(
            &json!({"items": [{"metadata": metadata("boats.sea.example"), "spec": {"group": "sea.example"}},
                {"metadata": metadata("routes.route.example")}]}),
            &json!({"items": [{"metadata": metadata("v1.sea.example"), "spec": {"service": null}},
                {"metadata": metadata("v1.route.example"), "spec": {"service": {"name": "server"}}},
                {"metadata": metadata("v1.project.example"), "spec": {"service": {"name": "server"}}}]}),
        );
        assert_eq!((&tables.defined, &tables.aggregated), (&lists.defined, &lists.aggregated));
        assert!(tables.has("sea.example", "v1", "boats") && tables.has("sea.example", "v2", "boats"));
        assert!(tables.has("route.example", "v2", "routes"));
        assert!(!tables.has("route.example", "v1", "routes"), "another server answers for this version");
        assert!(!tables.has("project.example", "v1", "projects") && !tables.has("sea.example", "v1", "cars"));
        assert!(tables.defines("sea.example", None) && !tables.defines("project.example", None));
    }

    #[test]
    fn unclear_api_services_count_as_remote() {
        for services in [
            json!({"columnDefinitions": [{"name": "Name"}], "rows": [{"cells": ["v1.sea.example"]}]}),
            json!({"columnDefinitions": [{"name": "Name"}, {"name": "Service"}], "rows": [{"cells": ["v1.sea.example"]}]}),
            json!({"columnDefinitions": [{"name": "Name"}, {"name": "Service"}],
                "rows": [{"cells": ["v1.sea.example", null]}]}),
        ] {
            let defined = json!({"items": [{"metadata": {"name": "boats.sea.example"}}]});
            assert!(!read(&defined, &services).has("sea.example", "v1", "boats"), "{services}");
        }
        for empty in [json!({}), json!({"items": null}), json!({"rows": null, "columnDefinitions": null})] {
            let none = read(&empty, &empty);
            assert!(none.defined.is_empty() && none.aggregated.is_empty());
        }
        for wrong in [json!(null), json!({"items": 7}), json!({"rows": [{"cells": 1}]})] {
            assert!(parsed(&DocumentRequest::definitions(), &wrong).is_err(), "{wrong}");
        }
    }
}

//! Discovery API: `/api`, `/apis` and below in the classic form. In the aggregated form each of the two is one document
//! (`apidiscovery.k8s.io`, v2 and v2beta1, chosen by the Accept header).

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::resources::{ResourceType, Subresource, Verb, group_version};
use crate::respond::{self, Response};

const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Answers discovery requests; `None` for other paths.
pub fn answer(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    resources: &[Arc<ResourceType>],
) -> Option<Response> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (content_type, document) = document(path, accept, resources)?;
    Some(respond::bytes(StatusCode::OK, content_type, Bytes::from(document.to_string() + "\n")))
}

/// Returns the document at a path and its content type; `None` for other paths. The preferred version of a group is the most
/// stable, then the newest.
pub fn document(path: &str, accept: &str, resources: &[Arc<ResourceType>]) -> Option<(&'static str, Value)> {
    document_in_order(path, accept, &ordered(resources))
}

/// Returns the resources in group order of appearance; the versions of each group are sorted most stable first, then newest.
pub fn ordered(resources: &[Arc<ResourceType>]) -> Vec<Arc<ResourceType>> {
    let mut groups = Groups::new(resources);
    for group in &mut groups.all {
        group.versions.sort_by(|a, b| by_stability(a.name, b.name));
    }
    let core = groups.all.iter().filter(|group| group.name.is_empty());
    let groups = core.chain(groups.named());
    let resources = groups.flat_map(|group| &group.versions).flat_map(|version| &version.resources);
    resources.map(|resource| Arc::clone(resource)).collect()
}

/// Returns the same as [`document`], with groups and versions in order of appearance: the first version of a group is the
/// preferred one.
pub fn document_in_order(
    path: &str,
    accept: &str,
    resources: &[Arc<ResourceType>],
) -> Option<(&'static str, Value)> {
    let plain = |document: Value| Some(("application/json", document));
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let served = |group: &str, version: &str| {
        resources.iter().any(|r| r.group == group && (version.is_empty() || r.version == version))
    };
    match segments.as_slice() {
        [] => plain(json!({"paths": paths(resources)})),
        ["api"] => match AggregatedVersion::from_accept(accept) {
            Some(form) => {
                let core = resources.iter().filter(|resource| resource.group.is_empty());
                let mut groups = Groups::new(core);
                // The core group is listed even if it is empty.
                if groups.all.is_empty() {
                    groups.all.push(GroupEntry { name: "", versions: Vec::new() });
                }
                Some((form.content_type(), form.list(groups.all.iter())))
            }
            None => plain(json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
            })),
        },
        ["apis"] => {
            let groups = Groups::new(resources);
            match AggregatedVersion::from_accept(accept) {
                Some(form) => Some((form.content_type(), form.list(groups.named()))),
                None => plain(json!({
                    "kind": "APIGroupList",
                    "apiVersion": "v1",
                    "groups": groups.named().filter_map(group).collect::<Vec<_>>(),
                })),
            }
        }
        ["apis", name] if served(name, "") => {
            let groups = Groups::new(resources.iter().filter(|resource| resource.group == *name));
            let mut document = groups.all.first().and_then(group)?;
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            plain(document)
        }
        ["api", version] if served("", version) => plain(resource_list("", version, resources)),
        ["apis", group, version] if served(group, version) => plain(resource_list(group, version, resources)),
        _ => None,
    }
}

fn paths(resources: &[Arc<ResourceType>]) -> BTreeSet<String> {
    let mut paths: BTreeSet<String> =
        ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .into();
    for resource in resources {
        if resource.group.is_empty() {
            paths.insert(format!("/api/{}", resource.version));
        } else {
            paths.insert(format!("/apis/{}", resource.group));
            paths.insert(format!("/apis/{}/{}", resource.group, resource.version));
        }
    }
    paths
}

/// Resources by group and version, each in order of appearance. Built in one pass, because a client may control how many there
/// are.
struct Groups<'a> {
    all: Vec<GroupEntry<'a>>,
}

struct GroupEntry<'a> {
    /// Group name; empty for core.
    name: &'a str,
    versions: Vec<VersionEntry<'a>>,
}

struct VersionEntry<'a> {
    name: &'a str,
    resources: Vec<&'a Arc<ResourceType>>,
}

impl<'a> Groups<'a> {
    fn new(resources: impl IntoIterator<Item = &'a Arc<ResourceType>>) -> Self {
        let mut all: Vec<GroupEntry<'a>> = Vec::new();
        let mut groups: HashMap<&str, usize> = HashMap::new();
        let mut versions: HashMap<(&str, &str), usize> = HashMap::new();
        for resource in resources {
            let (group, version) = (resource.group.as_str(), resource.version.as_str());
            let index = *groups.entry(group).or_insert_with(|| {
                all.push(GroupEntry { name: group, versions: Vec::new() });
                all.len() - 1
            });
            let group_versions = &mut all[index].versions;
            let index = *versions.entry((group, version)).or_insert_with(|| {
                group_versions.push(VersionEntry { name: version, resources: Vec::new() });
                group_versions.len() - 1
            });
            group_versions[index].resources.push(resource);
        }
        Self { all }
    }

    /// Returns all groups but core.
    fn named(&self) -> impl Iterator<Item = &GroupEntry<'a>> {
        self.all.iter().filter(|group| !group.name.is_empty())
    }
}

/// Compares versions: stable before beta before alpha, newer before older, other names last.
pub fn by_stability(a: &str, b: &str) -> Ordering {
    let rank = |version: &str| -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let (major, stage, minor) = match rest.find(|c: char| !c.is_ascii_digit()) {
            None => (rest, 2, "0"),
            Some(at) => {
                let (major, tail) = rest.split_at(at);
                let beta = tail.strip_prefix("beta").map(|n| (1, n));
                let (stage, minor) = beta.or_else(|| tail.strip_prefix("alpha").map(|n| (0, n)))?;
                (major, stage, minor)
            }
        };
        Some((stage, major.parse().ok()?, minor.parse().ok()?))
    };
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Returns the group's entry; `None` if it has no versions.
fn group(group: &GroupEntry<'_>) -> Option<Value> {
    let version = |version: &VersionEntry<'_>| json!({"groupVersion": group_version(group.name, version.name), "version": version.name});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": group.name, "versions": versions, "preferredVersion": preferred}))
}

fn resource_list(group: &str, version: &str, resources: &[Arc<ResourceType>]) -> Value {
    let mut entries = Vec::new();
    for resource in resources.iter().filter(|r| r.group == group && r.version == version) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": names(&resource.verbs),
        });
        insert_nonempty(&mut entry, "shortNames", &resource.short_names);
        insert_nonempty(&mut entry, "categories", &resource.categories);
        entries.push(entry);
        for sub in &resource.subresources {
            let (group, version, kind) = response_kind(resource, sub);
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name()),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": names(sub.verbs()),
            });
            if (group, version) != (&resource.group, &resource.version) {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            entries.push(entry);
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": entries,
    })
}

/// Returns the group, version and kind of a subresource's request and response.
fn response_kind<'a>(resource: &'a ResourceType, sub: &Subresource) -> (&'a str, &'a str, &'a str) {
    match sub {
        Subresource::Scale(_) => ("autoscaling", "v1", "Scale"),
        Subresource::Eviction => ("policy", "v1", "Eviction"),
        Subresource::Binding => ("", "v1", "Binding"),
        Subresource::Token => ("authentication.k8s.io", "v1", "TokenRequest"),
        _ => (&resource.group, &resource.version, &resource.kind),
    }
}

/// Version of the aggregated form.
#[derive(Clone, Copy)]
enum AggregatedVersion {
    V2,
    V2Beta1,
}

impl AggregatedVersion {
    /// Returns the first aggregated form in the Accept header, if it comes before plain JSON.
    fn from_accept(accept: &str) -> Option<Self> {
        for media_type in accept.split(',') {
            let mut parameters = media_type.split(';').map(str::trim);
            let base = parameters.next().unwrap_or_default();
            let parameters: Vec<&str> = parameters.collect();
            let aggregated = parameters.contains(&"g=apidiscovery.k8s.io")
                && parameters.contains(&"as=APIGroupDiscoveryList");
            match base {
                "application/json" if aggregated && parameters.contains(&"v=v2") => return Some(Self::V2),
                "application/json" if aggregated && parameters.contains(&"v=v2beta1") => {
                    return Some(Self::V2Beta1);
                }
                "application/json" if !aggregated => return None,
                _ => {}
            }
        }
        None
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::V2 => AGGREGATED_V2,
            Self::V2Beta1 => AGGREGATED_V2BETA1,
        }
    }

    fn list<'a, 'b: 'a>(self, groups: impl Iterator<Item = &'a GroupEntry<'b>>) -> Value {
        let version = match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        };
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": groups.map(Self::group).collect::<Vec<_>>(),
        })
    }

    fn group(group: &GroupEntry<'_>) -> Value {
        let version = |version: &VersionEntry<'_>| {
            json!({
                "version": version.name,
                "resources": version.resources.iter().map(|resource| Self::resource(resource)).collect::<Vec<_>>(),
                "freshness": "Current",
            })
        };
        let versions: Vec<Value> = group.versions.iter().map(version).collect();
        json!({"metadata": {"name": group.name, "creationTimestamp": null}, "versions": versions})
    }

    fn resource(resource: &ResourceType) -> Value {
        let subresource = |sub: &Subresource| {
            let (group, version, kind) = response_kind(resource, sub);
            json!({
                "subresource": sub.name(),
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": names(sub.verbs()),
            })
        };
        let mut entry = json!({
            "resource": resource.plural,
            "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.singular,
            "verbs": names(&resource.verbs),
        });
        insert_nonempty(&mut entry, "shortNames", &resource.short_names);
        insert_nonempty(&mut entry, "categories", &resource.categories);
        if !resource.subresources.is_empty() {
            entry["subresources"] = resource.subresources.iter().map(subresource).collect();
        }
        entry
    }
}

fn names(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.as_str()).collect()
}

fn insert_nonempty(entry: &mut Value, field: &str, values: &[String]) {
    if let (Some(entry), false) =
        (entry.as_object_mut().map(|e: &mut Map<String, Value>| e), values.is_empty())
    {
        entry.insert(field.to_owned(), values.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Registry;

    fn get(path: &str, accept: &str) -> Option<(&'static str, Value)> {
        document(path, accept, &Registry::builtin().all())
    }

    #[test]
    fn serves_classic_discovery_documents() {
        assert_eq!(get("/api", "application/json").unwrap().1["versions"], json!(["v1"]));
        let groups = get("/apis", "*/*").unwrap().1;
        assert_eq!(groups["groups"][2]["preferredVersion"]["groupVersion"], "apps/v1");
        let core = get("/api/v1", "").unwrap().1;
        let names: Vec<&str> =
            core["resources"].as_array().unwrap().iter().filter_map(|r| r["name"].as_str()).collect();
        assert!(names.contains(&"pods") && names.contains(&"pods/eviction"), "{names:?}");
        assert_eq!(get("/apis/apps", "").unwrap().1["kind"], "APIGroup");
        assert!(get("/apis/nothing", "").is_none() && get("/apis/apps/v2", "").is_none());
        assert!(get("/", "").unwrap().1["paths"].as_array().unwrap().contains(&json!("/apis/apps/v1")));
    }

    #[test]
    fn accept_header_selects_aggregated_discovery() {
        let kubectl = format!("{AGGREGATED_V2},{AGGREGATED_V2BETA1},application/json");
        let (content_type, document) = get("/apis", &kubectl).unwrap();
        assert_eq!(content_type, AGGREGATED_V2);
        let apps =
            document["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps").unwrap();
        let deployments = apps["versions"][0]["resources"].as_array().unwrap();
        let deployments = deployments.iter().find(|r| r["resource"] == "deployments").unwrap();
        assert_eq!(deployments["subresources"][1]["responseKind"]["group"], "autoscaling");
        let (content_type, document) =
            get("/api", &format!("{AGGREGATED_V2BETA1},application/json")).unwrap();
        assert_eq!(content_type, AGGREGATED_V2BETA1);
        assert_eq!(document["items"][0]["versions"][0]["resources"][0]["resource"], "bindings");
    }

    #[test]
    fn preferred_version_is_most_stable_or_first() {
        let of = |version: &str| Arc::new(ResourceType::new("demo.example", version, "widgets", "Widget"));
        let resources = [of("v1beta1"), of("v2"), of("v1")];
        let preferred = |document: Option<(&str, Value)>| {
            document.unwrap().1["preferredVersion"]["version"].as_str().map(str::to_owned)
        };
        assert_eq!(preferred(document("/apis/demo.example", "", &resources)).as_deref(), Some("v2"));
        let in_order = document_in_order("/apis/demo.example", "", &resources);
        assert_eq!(preferred(in_order).as_deref(), Some("v1beta1"));
    }

    #[test]
    fn groups_and_versions_are_listed_once() {
        let of = |group: &str, version: &str, plural: &str| {
            Arc::new(ResourceType::new(group, version, plural, "Widget"))
        };
        let mixed = [
            of("b.example", "v1", "x"),
            of("a.example", "v1", "x"),
            of("b.example", "v2", "x"),
            of("", "v1", "pods"),
            of("b.example", "v1", "y"),
            of("b.example", "v01", "x"),
            of("a.example", "v1", "y"),
        ];
        let told = |resources: &[Arc<ResourceType>]| -> Vec<String> {
            let accept = format!("{AGGREGATED_V2},application/json");
            let document = document_in_order("/apis", &accept, resources).unwrap().1;
            let groups = document["items"].as_array().unwrap().iter();
            groups
                .flat_map(|group| {
                    let name = group["metadata"]["name"].as_str().unwrap();
                    group["versions"].as_array().unwrap().iter().map(move |version| {
                        let resources = version["resources"].as_array().unwrap().iter();
                        let resources: Vec<_> = resources.map(|r| r["resource"].as_str().unwrap()).collect();
                        format!("{name}/{} {}", version["version"].as_str().unwrap(), resources.join(","))
                    })
                })
                .collect()
        };
        let (b, a) = (["b.example/v1 x,y", "b.example/v2 x", "b.example/v01 x"], "a.example/v1 x,y");
        assert_eq!(told(&mixed), [b[0], b[1], b[2], a]);
        let in_order = ordered(&mixed);
        assert_eq!(in_order[0].plural, "pods", "core comes first");
        // Equally stable versions as before, in their order.
        assert_eq!(told(&in_order), [b[1], b[0], b[2], a]);
        let classic = document_in_order("/apis", "", &in_order).unwrap().1;
        assert_eq!(classic["groups"][0]["preferredVersion"]["version"], "v2");
        assert_eq!(classic["groups"].as_array().unwrap().len(), 2);
        assert_eq!(
            document_in_order("/apis/b.example", "", &mixed).unwrap().1["versions"][2]["version"],
            "v01"
        );
    }

    /// Checks that no group is searched for linearly, because a client may control how many there are.
    #[test]
    fn many_groups_are_as_quick_as_many_resources() {
        let of = |n: usize| {
            let (group, version) = (format!("g{n}.example"), format!("v{}", n % 7));
            Arc::new(ResourceType::new(&group, &version, "widgets", "Widget"))
        };
        let wide = ordered(&(0..5_000).map(of).collect::<Vec<_>>());
        for accept in ["", AGGREGATED_V2] {
            let document = document_in_order("/apis", accept, &wide).unwrap().1;
            let groups = document["items"].as_array().or(document["groups"].as_array());
            assert_eq!(groups.unwrap().len(), 5_000);
        }
    }

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha1", "v2beta2", "foo", "v1", "v2beta10", "v2"];
        versions.sort_by(|a, b| by_stability(a, b));
        assert_eq!(versions, ["v2", "v1", "v2beta10", "v2beta2", "v1alpha1", "foo"]);
    }
}

//! Discovery of the resources that a server has.
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroupList, APIResource, APIResourceList, APIVersions,
};
use kube::core::discovery::v2::{
    ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList, APIResourceDiscovery,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::resource::Resource;

/// Returns all resources of the server, preferred versions first.
///
/// Sends two requests if the server has aggregated discovery (Kubernetes 1.26 and later), otherwise one per group version. A
/// group version that does not answer (an aggregated API server that is down) is left out.
pub(crate) async fn resources(client: &kube::Client) -> kube::Result<Vec<Resource>> {
    let (core, groups) =
        futures::future::try_join(document(client, "/api"), document(client, "/apis")).await?;
    let mut found = read_document(client, core, "/api").await?;
    found.extend(read_document(client, groups, "/apis").await?);
    Ok(found)
}

async fn document(client: &kube::Client, path: &str) -> kube::Result<Value> {
    get(client, path, ACCEPT_AGGREGATED_DISCOVERY_V2).await
}

async fn get<T: DeserializeOwned>(client: &kube::Client, path: &str, accept: &str) -> kube::Result<T> {
    let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new());
    client.request(request.map_err(kube::Error::HttpError)?).await
}

async fn read_document(client: &kube::Client, document: Value, root: &str) -> kube::Result<Vec<Resource>> {
    if document["kind"] == "APIGroupDiscoveryList" {
        let list = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
        return Ok(aggregated(list));
    }
    let paths = classic_paths(document, root).map_err(kube::Error::SerdeError)?;
    let lists = join_all(paths.iter().map(|(path, group, version)| async move {
        let list: APIResourceList = get(client, path, "application/json").await.ok()?;
        Some(classic(list, group, version))
    }));
    Ok(lists.await.into_iter().flatten().flatten().collect())
}

fn aggregated(list: APIGroupDiscoveryList) -> Vec<Resource> {
    let mut found = Vec::new();
    for group in list.items {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            let label = version.version.unwrap_or_default();
            found.extend(
                version.resources.into_iter().map(|resource| from_aggregated(resource, &name, &label)),
            );
        }
    }
    found
}

fn from_aggregated(resource: APIResourceDiscovery, group: &str, version: &str) -> Resource {
    Resource {
        group: group.into(),
        version: version.into(),
        plural: resource.resource.unwrap_or_default(),
        singular: resource.singular_resource.unwrap_or_default(),
        kind: resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
        short_names: resource.short_names,
        namespaced: resource.scope.as_deref() == Some("Namespaced"),
        watchable: is_watchable(&resource.verbs),
    }
}

/// Returns the path, group and version of everything that a classic root document names, preferred versions first.
fn classic_paths(document: Value, root: &str) -> serde_json::Result<Vec<(String, String, String)>> {
    if root == "/api" {
        let versions: APIVersions = serde_json::from_value(document)?;
        return Ok(versions
            .versions
            .into_iter()
            .map(|version| (format!("/api/{version}"), String::new(), version))
            .collect());
    }
    let list: APIGroupList = serde_json::from_value(document)?;
    let mut paths = Vec::new();
    for group in list.groups {
        let preferred = group.preferred_version.map(|version| version.version);
        let mut versions: Vec<_> = group.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        for version in versions {
            paths.push((format!("/apis/{}/{version}", group.name), group.name.clone(), version));
        }
    }
    Ok(paths)
}

fn classic(list: APIResourceList, group: &str, version: &str) -> Vec<Resource> {
    let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    whole.map(|resource| from_classic(resource, group, version)).collect()
}

fn from_classic(resource: APIResource, group: &str, version: &str) -> Resource {
    Resource {
        group: group.into(),
        version: version.into(),
        plural: resource.name,
        singular: resource.singular_name,
        kind: resource.kind,
        short_names: resource.short_names.unwrap_or_default(),
        namespaced: resource.namespaced,
        watchable: is_watchable(&resource.verbs),
    }
}

fn is_watchable(verbs: &[String]) -> bool {
    ["list", "watch"].iter().all(|wanted| verbs.iter().any(|verb| verb == wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn aggregated_documents_are_read() {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "items": [{
                "metadata": {"name": "apps"},
                "versions": [{"version": "v1", "resources": [{
                    "resource": "deployments", "singularResource": "deployment", "scope": "Namespaced",
                    "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                    "shortNames": ["deploy"], "verbs": ["get", "list", "watch"],
                    "subresources": [{"subresource": "scale", "verbs": ["get"]}]
                }]}]
            }]
        });
        let found = aggregated(serde_json::from_value(list).unwrap());
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].api_version(), found[0].namespaced, found[0].watchable),
            ("apps/v1".into(), true, true)
        );
    }

    #[test]
    fn classic_documents_are_read_preferred_version_first() {
        let groups = json!({"kind": "APIGroupList", "groups": [{
            "name": "batch",
            "versions": [
                {"groupVersion": "batch/v1beta1", "version": "v1beta1"},
                {"groupVersion": "batch/v1", "version": "v1"}
            ],
            "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"}
        }]});
        let paths = classic_paths(groups, "/apis").unwrap();
        assert_eq!(
            paths.iter().map(|path| path.0.as_str()).collect::<Vec<_>>(),
            ["/apis/batch/v1", "/apis/batch/v1beta1"]
        );
        let list = json!({"groupVersion": "batch/v1", "resources": [
            {"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "verbs": ["list"]},
            {"name": "jobs/status", "singularName": "", "namespaced": true, "kind": "Job", "verbs": ["get"]}
        ]});
        let found = classic(serde_json::from_value(list).unwrap(), "batch", "v1");
        assert_eq!(found.len(), 1);
        assert!(!found[0].watchable);
    }
}

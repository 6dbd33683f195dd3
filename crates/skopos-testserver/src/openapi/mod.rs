//! OpenAPI documents, enough for kubectl to create, apply, validate and explain: `/openapi/v2` and `/openapi/v3`, as JSON;
//! version 2 as protobuf too.
//!
//! `fields.txt` describes the fields of built-in kinds; those of custom kinds come from their definitions.

mod catalog;
mod document;
mod protobuf;
mod strict;
mod types;
mod wire;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use skopos_serve::respond::{self, Response};
use skopos_serve::{RequestInfo, ResourceType};
use skopos_wire::Status;

use self::document::Dialect;
pub(crate) use self::protobuf::to_json;
pub(crate) use self::strict::{drop_unknown_fields, unknown_fields};
pub(crate) use self::types::{check_scale_types, check_types};
use crate::state::ServerState;

/// Answers requests for OpenAPI documents; `None` for other paths.
pub(crate) fn handle(state: &ServerState, info: &RequestInfo, headers: &HeaderMap) -> Option<Response> {
    if !matches!(info.method, Method::GET | Method::HEAD) || !info.path.starts_with("/openapi/") {
        return None;
    }
    let document = document(&info.path, &state.registry.all())?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_v2 = info.path.starts_with("/openapi/v2");
    Some(match Encoding::negotiate(accept, is_v2) {
        Some(Encoding::Json) => {
            respond::bytes(StatusCode::OK, "application/json", Bytes::from(document.to_string()))
        }
        Some(Encoding::Protobuf) => {
            respond::bytes(StatusCode::OK, PROTOBUF_V2, wire::document(&document).into())
        }
        None if is_v2 => respond::status(&Status::not_acceptable(&["application/json", PROTOBUF_V2])),
        // kubectl accepts protobuf only, and works without the document if it is unavailable.
        None => respond::status(&Status::not_acceptable(&["application/json"])),
    })
}

/// Encoding of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Json,
    /// Version 2 only.
    Protobuf,
}

/// Media type of OpenAPI v2 in protobuf. Clients may also write an `@` in place of the second dot before `v1.0`.
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

impl Encoding {
    /// Returns the first form that the client accepts.
    fn negotiate(accept: &str, is_v2: bool) -> Option<Self> {
        if accept.trim().is_empty() {
            return Some(Self::Json);
        }
        accept.split(',').find_map(|clause| {
            match clause.split(';').next().unwrap_or_default().trim().replace('@', ".").as_str() {
                "application/json" | "application/*" | "*/*" => Some(Self::Json),
                PROTOBUF_V2 if is_v2 => Some(Self::Protobuf),
                _ => None,
            }
        })
    }
}

fn document(path: &str, resources: &[Arc<ResourceType>]) -> Option<Value> {
    match path.trim_end_matches('/') {
        "/openapi/v2" => return Some(Dialect::V2.document(resources)),
        "/openapi/v3" => return Some(index(resources)),
        _ => {}
    }
    let wanted = path.strip_prefix("/openapi/v3/")?;
    let here: Vec<_> = resources.iter().filter(|r| document_key(r) == wanted).cloned().collect();
    (!here.is_empty()).then(|| Dialect::V3.document(&here))
}

/// Returns the index of the OpenAPI v3 documents. The hash in a URL changes with its document, because clients use it as cache
/// key.
fn index(resources: &[Arc<ResourceType>]) -> Value {
    let mut hashes: BTreeMap<String, DefaultHasher> = BTreeMap::new();
    for resource in resources {
        let hash = hashes.entry(document_key(resource)).or_default();
        format!("{resource:?}").hash(hash);
        env!("CARGO_PKG_VERSION").hash(hash);
    }
    let path = |(key, hash): (String, DefaultHasher)| {
        let url = format!("/openapi/v3/{key}?hash={:016X}", hash.finish());
        (key, json!({"serverRelativeURL": url}))
    };
    json!({"paths": hashes.into_iter().map(path).collect::<serde_json::Map<_, _>>()})
}

fn document_key(resource: &ResourceType) -> String {
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", resource.api_version())
}

#[cfg(test)]
mod tests {
    use skopos_serve::Registry;

    use super::*;

    #[test]
    fn index_leads_to_documents_with_schemas_and_paths() {
        let resources = Registry::builtin().all();
        let index = document("/openapi/v3", &resources).unwrap();
        assert!(
            index["paths"]["apis/apps/v1"]["serverRelativeURL"]
                .as_str()
                .unwrap()
                .starts_with("/openapi/v3/apis/apps/v1?")
        );
        let core = document("/openapi/v3/api/v1", &resources).unwrap();
        let pod = &core["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
        assert!(
            core["components"]["schemas"]["io.k8s.api.core.v1.Container"]["properties"]["image"].is_object()
        );
        let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert!(patch["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
        assert!(document("/openapi/v3/apis/nothing/v1", &resources).is_none());
        let all = document("/openapi/v2", &resources).unwrap();
        assert!(all["definitions"]["io.k8s.api.apps.v1.Deployment"].is_object());
    }

    #[test]
    fn version_2_is_served_in_protobuf_too() {
        const NEW: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        assert_eq!(Encoding::negotiate(NEW, true), Some(Encoding::Protobuf));
        assert_eq!(Encoding::negotiate(PROTOBUF_V2, true), Some(Encoding::Protobuf));
        assert_eq!(Encoding::negotiate(NEW, false), None);
        assert_eq!(Encoding::negotiate("application/json, */*", true), Some(Encoding::Json));
        assert_eq!(Encoding::negotiate("", true), Some(Encoding::Json));
        assert_eq!(Encoding::negotiate("text/html", true), None);
    }
}

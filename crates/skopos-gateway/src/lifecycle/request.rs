//! Bodies and parameters of requests for virtual clusters.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use skopos_vcluster::{Chart, CreateOptions, DeleteOptions, Manifests, RemovalOptions, Source};
use skopos_wire::Status;

use crate::request::body::LimitedBody;
use crate::request::query::Query;
use crate::response::media_type;

/// A request to create a virtual cluster.
pub(super) struct Creation {
    pub(super) name: String,
    pub(super) options: CreateOptions,
}

/// A request to delete a virtual cluster.
pub(super) struct Deletion {
    pub(super) options: DeleteOptions,
}

/// The body of a creation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    /// The chart's version.
    #[serde(default)]
    version: Option<String>,
    /// The chart's values.
    #[serde(default)]
    values: Option<Value>,
    /// Rendered manifests instead of the chart.
    #[serde(default)]
    manifests: Option<Vec<Value>>,
    #[serde(default)]
    upgrade: bool,
}

impl Creation {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Status> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| Status::bad_request(format!("the body is no virtual cluster: {error}")))?;
        let Body { name, namespace, version, values, manifests, upgrade } = body;
        let source = match manifests {
            Some(_) if version.is_some() || values.is_some() => {
                return Err(Status::bad_request("either manifests, or version and values of the chart"));
            }
            Some(objects) => {
                let manifests = Manifests::new(objects);
                Source::Manifests(manifests.map_err(|error| Status::bad_request(error.to_string()))?)
            }
            // Charts from other repositories and files of this machine are reserved for the operator.
            None => Source::Chart(Chart { version, inline: values, ..Chart::default() }),
        };
        Ok(Self { name, options: CreateOptions { namespace, upgrade, ..CreateOptions::new(source) } })
    }
}

impl Deletion {
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        let removal = RemovalOptions {
            keep_claims: flag(query, "keepClaims")?,
            config_map: flag(query, "deleteConfigMap")?,
            own_namespace: !flag(query, "keepNamespace")?,
            any_namespace: false,
        };
        Ok(Self { options: DeleteOptions { removal, ..DeleteOptions::default() } })
    }
}

/// Reads the body of a request, which must be declared as JSON. A web page cannot send that without permission of the gateway.
pub(super) async fn body(headers: &HeaderMap, body: LimitedBody, limit: Duration) -> Result<Bytes, Status> {
    let body = body.collect_all(limit).await?;
    if !body.is_empty() {
        media_type::require_json(headers)?;
    }
    Ok(body)
}

/// Returns how long the caller waits for an operation, at most a minute.
pub(super) fn wait(query: &Query) -> Result<Option<Duration>, Status> {
    let Some(text) = query.single("wait")? else { return Ok(None) };
    let seconds: Option<u64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds =
        seconds.ok_or_else(|| Status::bad_request("wait has to be a number of seconds, such as 30s"))?;
    Ok(Some(Duration::from_secs(seconds.min(60))))
}

fn flag(query: &Query, name: &str) -> Result<bool, Status> {
    match query.single(name)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Status::bad_request(format!("{name} has to be true or false"))),
    }
}

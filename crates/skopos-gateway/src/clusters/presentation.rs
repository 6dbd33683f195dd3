//! Presentation of a kind by a member: the columns of its tables, and its warnings. These depend on the member's version,
//! so the gateway asks once for a table of one object.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;
use skopos::transport::{RequestClass, RequestOptions};
use skopos_fleet::{Cluster, ClusterId};
use skopos_serve::ResourceType;
use skopos_serve::table::{IncludeObject, TableWriter};

use crate::ttl_cache::{Fetched, Ttl, TtlCache};

/// The presentations of all kinds of all members. Cheap to clone.
#[derive(Clone)]
pub(super) struct Presentations {
    known: Arc<TtlCache<Key, Option<Arc<Presentation>>>>,
}

/// The presentation of a kind by one member.
#[derive(Debug)]
pub(super) struct Presentation {
    /// True if the member's tables have other columns than ours.
    pub(super) has_other_columns: bool,
    /// The member's `Warning` headers: that the version is deprecated.
    pub(super) warnings: Vec<HeaderValue>,
}

/// The cluster, its connection generation, and the resource: group, version, plural.
type Key = (ClusterId, u64, String, String, String);

/// A column of a table, without its description.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Column {
    name: String,
    r#type: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    priority: i64,
}

/// Lifetime of an answer, because an upgrade of the member changes its presentation.
const COLUMNS_TTL: Duration = Duration::from_secs(3600);

/// Delay until a member without an answer is asked again.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Timeout of a read's wait for the member's presentation, once per kind.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of presentations in memory.
const MAX_KNOWN: usize = 10_000;

/// The maximum size of an answer: column definitions and one row without its object.
const MAX_BYTES: usize = 1 << 20;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

impl Presentations {
    pub(super) fn new() -> Self {
        Self { known: Arc::new(TtlCache::new(MAX_KNOWN, ASK_TIMEOUT)) }
    }

    /// Returns the member's presentation of a kind; `None` if it does not answer.
    pub(super) async fn get(
        &self,
        cluster: &Cluster,
        resource: &Arc<ResourceType>,
    ) -> Option<Arc<Presentation>> {
        let key = key(cluster, resource);
        let (cluster, resource) = (cluster.clone(), resource.clone());
        let ask = || {
            async move {
                let asked = tokio::time::timeout(ASK_TIMEOUT, ask(&cluster, &resource)).await;
                let value = asked.ok().flatten().map(Arc::new);
                let ttl = if value.is_some() { COLUMNS_TTL } else { RETRY_DELAY };
                Fetched { value, ttl: Ttl::FromResponse(ttl) }
            }
            .boxed()
        };
        self.known.get(key, ask).await.value
    }

    /// Returns the last answer of the member on this kind.
    pub(super) fn kept(&self, cluster: &Cluster, resource: &ResourceType) -> Option<Arc<Presentation>> {
        self.known.peek(&key(cluster, resource))?.value
    }
}

fn key(cluster: &Cluster, resource: &ResourceType) -> Key {
    let ResourceType { group, version, plural, .. } = resource;
    (cluster.id().clone(), cluster.generation(), group.clone(), version.clone(), plural.clone())
}

async fn ask(cluster: &Cluster, resource: &ResourceType) -> Option<Presentation> {
    let ResourceType { group, version, plural, .. } = resource;
    let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let request = Request::get(format!("{root}/{version}/{plural}?limit=1&includeObject=None"));
    let options = RequestOptions {
        class: Some(RequestClass::Read),
        deadline: Some(ASK_TIMEOUT),
        ..RequestOptions::default()
    };
    let request = request.header(header::ACCEPT, TABLE).extension(options).body(Body::empty()).ok()?;
    let answer = cluster.request(request, ASK_TIMEOUT).await.ok()?;
    let (parts, body) = answer.into_parts();
    let body: Bytes = Limited::new(body, MAX_BYTES).collect().await.ok()?.to_bytes();
    let warnings = parts.headers.get_all(header::WARNING).iter().take(MAX_WARNINGS).cloned().collect();
    let columns = parts.status.is_success().then(|| columns_of(&body)).flatten();
    let own = TableWriter::new(resource, IncludeObject::None).definitions();
    let own = serde_json::from_value::<Vec<Column>>(own).ok();
    Some(Presentation { has_other_columns: columns.is_some() && columns != own, warnings })
}

/// Maximum number of warnings that are kept per member and kind.
const MAX_WARNINGS: usize = 4;

fn columns_of(body: &[u8]) -> Option<Vec<Column>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Table {
        kind: String,
        column_definitions: Vec<Column>,
    }
    let table: Table = serde_json::from_slice(body).ok()?;
    (table.kind == "Table").then_some(table.column_definitions)
}

//! Requests for `/fleet`, parsed once from path, query and headers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use skopos::LabelSelector;
use skopos_fleet::{Cluster, ClusterId};
use skopos_wire::{GroupResource, Status, StatusReason};
use tokio_util::sync::CancellationToken;

use super::merged_version::MergedVersion;
use super::openapi;
use super::visibility_log::QueryKey;
use crate::auth::Identity;
use crate::authz::Attributes;
use crate::config::Cache;
use crate::consistency::requested_age;
use crate::gateway::route::{Audited, Call};
use crate::request::headers::wants_table;
use crate::request::query::Query;
use crate::request::target::Target;
use crate::request::via;
use crate::request::watch_path::spelled_as_list;

/// A request for `/fleet`.
pub(super) enum FleetRequest {
    /// The version of the API.
    Version,
    /// A discovery document; without a review if it has only built-in kinds.
    Discovery { path: String, accept: String, review: Option<AccessReview> },
    /// The index of the OpenAPI documents, or the document of this name; `known` is the value of `If-None-Match`.
    OpenApi { document: Option<String>, accept: String, known: Option<HeaderValue>, review: AccessReview },
    /// Objects or their changes.
    Read(Box<ReadRequest>),
}

/// A request for objects.
pub(super) struct ReadRequest {
    pub(super) review: Arc<AccessReview>,
    pub(super) verb: ReadVerb,
    pub(super) wants_table: bool,
    /// The maximum age of the content that the client accepts, if it names one.
    pub(super) max_age: Option<Duration>,
    /// True if the newest state is read: the request names neither a version nor a page. This error and the next are
    /// reported only to a caller who may read.
    pub(super) wants_newest: Result<bool, Status>,
    /// The start, if the verb is watch.
    pub(super) start: Result<WatchStart, Status>,
    /// The key of the query; it is the same for lists and watches.
    pub(super) query_key: QueryKey,
    /// The operation and the selectors, for which a continue token is valid.
    pub(super) list: [String; 5],
    /// The parameters for `skopos-serve`: without those of the merged view.
    parameters: Query,
    /// The headers for `skopos-serve`, which negotiates the form.
    pub(super) headers: HeaderMap,
    /// Cancelled when the gateway is about to stop.
    pub(super) draining: CancellationToken,
}

/// The verb of a read. Only a read with a name in its path is a get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadVerb {
    Get,
    List,
    Watch,
}

/// The start of a watch.
#[derive(Clone)]
pub(super) enum WatchStart {
    /// The state, as `sendInitialEvents` demands.
    InitialEvents,
    /// The merged version of `resourceVersion`, with its spelling.
    After(MergedVersion, String),
    /// No version, or an invalid one, which `skopos-serve` refuses.
    Unversioned,
}

/// The caller and the operation, which each of the selected clusters has to permit.
#[derive(Clone)]
pub(crate) struct AccessReview {
    pub(crate) who: Arc<Identity>,
    pub(crate) what: Attributes,
    pub(crate) clusters: ClusterSelection,
}

/// The clusters that a request selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterSelection {
    /// The names of `?clusters=a,b`; `None` for all clusters.
    pub(crate) names: Option<BTreeSet<String>>,
    /// The label selector of `?clusterSelector=`.
    labels: LabelSelector,
}

/// The parameters that are for the merged view alone.
const CLUSTERS: &str = "clusters";
const SELECTOR: &str = "clusterSelector";

impl FleetRequest {
    /// Parses a request. `audited` gets its operation as soon as that is known, also if the request is refused later.
    ///
    /// # Errors
    /// 508 for another gateway; 405 for writes; 404 and 403 for what no merged view has; 400 for malformed parameters.
    pub(super) fn parse(call: Call, cache: &Cache, audited: &mut Audited) -> Result<Self, Status> {
        let Call { method, path, query, headers, identity: who, draining, .. } = call;
        via::refuse_gateways(&headers)?;
        if method != Method::GET && method != Method::HEAD {
            let message = "the fleet as a whole is read only: write to one cluster, below /clusters/NAME";
            return Err(Status::failure(405, StatusReason::MethodNotAllowed, message));
        }
        let (path, query) = spelled_as_list(&method, path, query)?;
        let target = Target::parse(&method, &path, &query)?;
        let what = target.attributes().clone();
        audited.what = what.to_string().into();
        let selection = || ClusterSelection::parse(&query);
        if matches!(target, Target::Path(_)) {
            let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
            let path = what.path.clone();
            if path == "/version" {
                return Ok(Self::Version);
            }
            let review = || Ok::<_, Status>(AccessReview { who, what, clusters: selection()? });
            if openapi::is_below(&path) {
                let document = openapi::name_of(&path).map(str::to_owned);
                let known = headers.get(header::IF_NONE_MATCH).cloned();
                let accept = accept.unwrap_or("*/*").to_owned();
                return Ok(Self::OpenApi { document, accept, known, review: review()? });
            }
            let has_own_kinds = path == "/" || path == "/apis" || path.starts_with("/apis/");
            let review = has_own_kinds.then(review).transpose()?;
            return Ok(Self::Discovery { path, accept: accept.unwrap_or_default().to_owned(), review });
        }
        if !what.subresource.is_empty() {
            return Err(Status::resource_not_served());
        }
        if !cache.keeps(&what.group, &what.resource) {
            let why = "this kind is not kept in memory, so there is no merged view of it: ask one cluster";
            return Err(Status::forbidden(GroupResource::new(&what.group, &what.resource), &what.name, why));
        }
        let value = |name| query.all(name).collect::<Vec<_>>().join(",");
        let [clusters, selector] = [CLUSTERS, SELECTOR].map(value);
        let caller = serde_json::to_vec(&*who).unwrap_or_default();
        let parts = [&what.group, &what.resource, &what.namespace, &what.name, &clusters, &selector];
        let parts: Vec<&[u8]> =
            std::iter::once(&*caller).chain(parts.iter().map(|part| part.as_bytes())).collect();
        Ok(Self::Read(Box::new(ReadRequest {
            verb: match what.verb.as_str() {
                "watch" => ReadVerb::Watch,
                "list" => ReadVerb::List,
                _ => ReadVerb::Get,
            },
            wants_table: wants_table(&headers),
            max_age: requested_age(&headers),
            wants_newest: wants_newest(&query),
            start: WatchStart::parse(&query),
            query_key: QueryKey::from_parts(&parts),
            list: [what.to_string(), clusters, selector, value("labelSelector"), value("fieldSelector")],
            parameters: query.without(&[CLUSTERS, SELECTOR]),
            review: Arc::new(AccessReview { who, what, clusters: selection()? }),
            headers,
            draining,
        })))
    }
}

impl ReadRequest {
    /// Returns whether the path names an object: only then is the verb get.
    pub(super) fn is_get(&self) -> bool {
        self.verb == ReadVerb::Get
    }

    /// Returns the continue token of a list, if the request has one.
    pub(super) fn continue_token(&self) -> Option<&str> {
        let token = self.parameters.single("continue").ok().flatten();
        token.filter(|token| self.verb == ReadVerb::List && !token.is_empty())
    }

    /// Returns the parameters for `skopos-serve`, with the merged version to resume from, if given.
    pub(super) fn parameters(&self, from: Option<MergedVersion>) -> skopos_serve::Query {
        let mut query = self.parameters.clone();
        if let Some(merged_version) = from {
            query = query.without(&["resourceVersion"]).with("resourceVersion", merged_version.to_string());
        }
        skopos_serve::Query::parse(&query.to_string())
    }
}

impl WatchStart {
    fn parse(query: &Query) -> Result<Self, Status> {
        if query.flag("sendInitialEvents")? {
            return Ok(Self::InitialEvents);
        }
        let spelled = query.single("resourceVersion")?.unwrap_or_default();
        Ok(match spelled.parse() {
            Ok(version) if version > 0 => Self::After(MergedVersion::new(version), spelled.to_owned()),
            _ => Self::Unversioned,
        })
    }
}

impl ClusterSelection {
    fn parse(query: &Query) -> Result<Self, Status> {
        let mut names = query.all(CLUSTERS).peekable();
        let names = names.peek().is_some().then(|| {
            let names = names.flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        });
        let labels = LabelSelector::parse(query.single(SELECTOR)?.unwrap_or_default());
        let labels = labels.map_err(|error| Status::bad_request(format!("clusterSelector: {error}")))?;
        Ok(Self { names, labels })
    }

    /// Returns whether the cluster is named: by its own name, or by a context that cannot be a cluster's name, such as
    /// `team/prod`. Its labels do not matter.
    pub(crate) fn names(&self, cluster: &Cluster) -> bool {
        let Some(names) = &self.names else { return true };
        names.contains(cluster.id().as_str())
            || cluster
                .original_name()
                .is_some_and(|name| names.contains(&*name) && ClusterId::new(&*name).is_err())
    }

    /// Returns whether the cluster is named and has the labels. Only for clusters that the caller may read: for others,
    /// the answer would reveal their labels.
    pub(crate) fn matches(&self, cluster: &Cluster) -> bool {
        self.names(cluster) && cluster.matches(&self.labels)
    }
}

fn wants_newest(query: &Query) -> Result<bool, Status> {
    let is_unset = |name| Ok::<_, Status>(query.single(name)?.unwrap_or_default().is_empty());
    Ok(is_unset("resourceVersion")? && is_unset("continue")?)
}

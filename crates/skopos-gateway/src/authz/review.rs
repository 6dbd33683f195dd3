//! SubjectAccessReview: decisions of the member itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Attributes;
use crate::auth::Identity;
use crate::authz::ask::{self, Ask, AskError};

/// Returns whether `cluster` allows the request, and why.
pub(super) async fn review(
    ask: &dyn Ask,
    cluster: &str,
    who: &Identity,
    what: &Attributes,
    within: Duration,
) -> Result<(bool, String), AskError> {
    let question = Review {
        api_version: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: Spec {
            user: &who.user,
            uid: &who.uid,
            groups: &who.groups,
            extra: &who.extra,
            resource_attributes: what.path.is_empty().then_some(ResourceAttributes {
                verb: &what.verb,
                group: &what.group,
                version: &what.version,
                resource: &what.resource,
                subresource: &what.subresource,
                namespace: &what.namespace,
                name: &what.name,
            }),
            non_resource_attributes: (!what.path.is_empty())
                .then_some(NonResourceAttributes { verb: &what.verb, path: &what.path }),
        },
    };
    let reviewed: Reviewed = ask::review(ask, cluster, PATH, &question, within).await?;
    let Outcome { allowed, denied, reason } = reviewed.status;
    Ok((allowed && !denied, reason))
}

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    user: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ResourceAttributes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<NonResourceAttributes<'a>>,
}

#[derive(Serialize)]
struct ResourceAttributes<'a> {
    verb: &'a str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct NonResourceAttributes<'a> {
    verb: &'a str,
    path: &'a str,
}

#[derive(Deserialize)]
struct Reviewed {
    status: Outcome,
}

/// The status of a review. A missing field allows nothing.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Outcome {
    allowed: bool,
    denied: bool,
    reason: String,
}

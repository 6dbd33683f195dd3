//! Authentication and authorization of callers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::Span;

/// Authentication of callers. Several methods may be enabled; the first that knows the caller counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authentication {
    /// Client certificates: the CN is the user, the Os are the groups.
    pub client_certificates: Option<ClientCertificates>,
    /// Bearer tokens that a cluster reviews.
    pub token_review: Option<TokenReview>,
    /// Bearer tokens of an OpenID provider.
    pub oidc: Option<Oidc>,
}

/// Client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCertificates {
    /// PEM file with the CAs that sign them; read again when it changes. Connections of clients that are no longer accepted
    /// are closed then. There are no revocation lists.
    #[schemars(with = "String")]
    pub ca: PathBuf,
    /// The cluster whose CA signs them. Users and groups that begin with `system:`, such as nodes and `system:masters`, belong
    /// to this cluster and have rights in it alone. Without it, and without `sharedAccounts`, such certificates are refused:
    /// otherwise a CA of one cluster would make its nodes and administrators those of all clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_of: Option<String>,
    /// Treat users and groups that begin with `system:` as the same in all clusters.
    #[serde(default)]
    pub shared_accounts: bool,
}

/// Bearer tokens that a cluster reviews.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenReview {
    /// The cluster that reviews tokens: a host cluster, or one of `clusters.kubeconfigs`. Other sources could list a cluster
    /// of this name, and would be sent tokens.
    pub cluster: String,
    /// Accepted audiences. A token must have one of them. Default: those of the cluster itself.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Treat its service accounts, and other users and groups that begin with `system:`, as those of the same names in all
    /// other clusters. Otherwise they have rights in this cluster alone.
    #[serde(default)]
    pub shared_accounts: bool,
    /// Refuse tokens that are not JWTs without a review. Kubernetes' service account tokens are JWTs; webhook, bootstrap and
    /// static tokens are not.
    #[serde(default)]
    pub only_jwt: bool,
}

/// Bearer tokens of an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Oidc {
    /// The issuer's URL, exactly as in the tokens; https.
    pub issuer: String,
    /// Accepted audiences. A token must have one of them.
    pub audiences: Vec<String>,
    /// PEM file with the CA of the issuer. Default: the system's.
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// The claim with the name of the user.
    #[serde(default = "Oidc::sub")]
    pub username_claim: String,
    /// Prefix of user names, so that they cannot be confused with those of another source.
    #[serde(default = "Oidc::prefix")]
    pub username_prefix: String,
    /// The claim with the list of groups.
    #[serde(default = "Oidc::groups")]
    pub groups_claim: String,
    /// Prefix of group names.
    #[serde(default = "Oidc::prefix")]
    pub groups_prefix: String,
}

/// Rights of callers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authorization {
    /// Decision maker for requests.
    pub mode: AuthorizationMode,
    /// Decisions while the member cannot be asked.
    pub when_member_is_down: MemberDown,
    /// Treatment of a caller from loopback without credentials: whether it counts as the gateway itself. Only without
    /// `authentication`.
    pub loopback: LoopbackTrust,
    /// Lifetime of a cached decision of a member; at most 10s.
    pub cache: Span,
    /// The rules, for `mode: Policy` and `whenMemberIsDown: Policy`. Everything that no rule allows is denied.
    pub policy: Vec<PolicyRule>,
    /// Callers that may read the metrics and the state of all clusters, including their names. Without `authentication`: all
    /// callers on this machine.
    pub observers: Observers,
}

/// Decision maker for requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AuthorizationMode {
    /// The member's own policy, by SubjectAccessReview.
    #[default]
    Member,
    /// The rules of this file alone, for all clusters.
    Policy,
}

/// Decisions while the member cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MemberDown {
    /// Everything is denied.
    #[default]
    Deny,
    /// The rules of this file decide.
    Policy,
}

/// Identity of a caller from loopback without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum LoopbackTrust {
    /// `skopos:loopback-anonymous`, a user without rights in the members unless they grant it some.
    #[default]
    Anonymous,
    /// The operator of the gateway: nothing is reviewed, as with `kubectl proxy`. All users of this machine may do what the
    /// gateway's own credentials may.
    Trusted,
}

/// One permission. An empty list means everything, except in `users` and `groups`: one of them must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyRule {
    /// Users; `*` means all.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Clusters. Default: all.
    pub clusters: Vec<String>,
    /// Verbs: get, list, watch, create, ... Default: get, list and watch.
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group. Default: all.
    #[schemars(extend("items" = serde_json::json!({"type": "string", "format": "maybe-empty"})))]
    pub api_groups: Vec<String>,
    /// Resources, with their subresource behind a slash: `pods`, `pods/log`. Default: all.
    pub resources: Vec<String>,
    /// Namespaces. If any are named, requests over all namespaces are not allowed. Default: all.
    pub namespaces: Vec<String>,
}

/// Callers that may read the state of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Observers {
    /// Users.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
}

impl Authentication {
    /// Returns whether any method of authentication is enabled.
    pub fn is_configured(&self) -> bool {
        self.client_certificates.is_some() || self.token_review.is_some() || self.oidc.is_some()
    }
}

impl ClientCertificates {
    /// Makes the settings for certificates signed by the CAs in this file. System users and groups are refused.
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), system_of: None, shared_accounts: false }
    }
}

impl Oidc {
    fn sub() -> String {
        "sub".into()
    }

    fn prefix() -> String {
        "oidc:".into()
    }

    fn groups() -> String {
        "groups".into()
    }
}

impl Default for Authorization {
    fn default() -> Self {
        Self {
            mode: AuthorizationMode::Member,
            when_member_is_down: MemberDown::Deny,
            loopback: LoopbackTrust::Anonymous,
            cache: Span::seconds(10),
            policy: Vec::new(),
            observers: Observers::default(),
        }
    }
}

//! Who asks, and may they.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use skopos_config::Span;

/// How callers prove who they are. Several ways may be on; the first that knows the caller counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authentication {
    /// Client certificates: the CN is the user, the Os are the groups.
    pub client_certificates: Option<ClientCertificates>,
    /// Bearer tokens that a cluster knows.
    pub token_review: Option<TokenReview>,
    /// Bearer tokens of an OpenID provider.
    pub oidc: Option<Oidc>,
}

/// Client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCertificates {
    /// PEM file with the CAs that sign them; read again when it changes. Connections of clients that are not accepted any more are
    /// closed then. There are no revocation lists.
    #[schemars(with = "String")]
    pub ca: PathBuf,
    /// The cluster whose CA signs them. Users and groups that begin with `system:`, such as nodes and `system:masters`, are those of
    /// this cluster and may do something in it alone. Without it, and without `sharedAccounts`, such certificates are refused:
    /// otherwise a CA of one cluster would make its nodes and administrators those of all clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_of: Option<String>,
    /// Whether users and groups that begin with `system:` are the same in all clusters.
    #[serde(default)]
    pub shared_accounts: bool,
}

/// Bearer tokens that a cluster knows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenReview {
    /// The cluster that is asked: a host cluster, or one of `clusters.kubeconfigs`. Others could list one of this name, and
    /// be sent tokens.
    pub cluster: String,
    /// Audiences of which the token must have one; those of the cluster itself if empty.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Whether its service accounts, and whoever else is a user or in a group that begins with `system:`, are taken for those of
    /// the same names in all other clusters. Otherwise they may do something in this cluster alone.
    #[serde(default)]
    pub shared_accounts: bool,
    /// Refuse tokens that are not JWTs without a review. Kubernetes' service account tokens are JWTs; tokens of webhooks, of
    /// bootstrapping and of static files are not.
    #[serde(default)]
    pub only_jwt: bool,
}

/// Bearer tokens of an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Oidc {
    /// The issuer's URL, exactly as the tokens name it; https.
    pub issuer: String,
    /// The audiences of which a token must have one.
    pub audiences: Vec<String>,
    /// PEM file with the CA of the issuer; the system's if absent.
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// The claim that is the user.
    #[serde(default = "Oidc::sub")]
    pub username_claim: String,
    /// What is put before the user, so that it cannot be taken for one of another source.
    #[serde(default = "Oidc::prefix")]
    pub username_prefix: String,
    /// The claim that lists the groups.
    #[serde(default = "Oidc::groups")]
    pub groups_claim: String,
    /// What is put before each group.
    #[serde(default = "Oidc::prefix")]
    pub groups_prefix: String,
}

/// What callers may do.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authorization {
    /// Who decides.
    pub mode: AuthorizationMode,
    /// What happens while the member cannot be asked.
    pub when_member_is_down: MemberDown,
    /// Whether a caller from loopback who proved nothing counts as the gateway itself. Only without `authentication`.
    pub loopback: LoopbackTrust,
    /// How long a decision of a member is kept; at most 10s.
    pub cache: Span,
    /// The rules, for `mode: Policy` and `whenMemberIsDown: Policy`. Whatever no rule allows is denied.
    pub policy: Vec<PolicyRule>,
    /// Who may read the metrics and the state of all clusters, and their names with them. Without `authentication`:
    /// everybody on this machine.
    pub observers: Observers,
}

/// Who decides what a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AuthorizationMode {
    /// The member's own policy, by SubjectAccessReview.
    #[default]
    Member,
    /// The rules of this file alone, for all clusters.
    Policy,
}

/// What happens while the member cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MemberDown {
    /// Everything is denied.
    #[default]
    Deny,
    /// The rules of this file decide.
    Policy,
}

/// Who a caller from loopback is who proved nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum LoopbackTrust {
    /// `skopos:loopback-anonymous`, of whom the members know nothing unless told.
    #[default]
    Anonymous,
    /// Whoever runs the gateway: nothing is reviewed, as with `kubectl proxy`. Everybody on this machine may do what the
    /// gateway's own credentials may.
    Trusted,
}

/// One thing that is allowed. An empty list means everything, except in `users` and `groups`: one of them must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyRule {
    /// Users; `*` is everybody.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Clusters.
    pub clusters: Vec<String>,
    /// Verbs: get, list, watch, create, ...; read only if absent.
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group.
    #[schemars(extend("items" = serde_json::json!({"type": "string", "format": "maybe-empty"})))]
    pub api_groups: Vec<String>,
    /// Resources, with their subresource behind a slash: `pods`, `pods/log`.
    pub resources: Vec<String>,
    /// Namespaces. With any named, nothing is allowed over all namespaces.
    pub namespaces: Vec<String>,
}

/// Who may read the state of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Observers {
    /// Users.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
}

// === impl Authentication ===

impl Authentication {
    /// Whether there is any way to prove who one is.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.client_certificates.is_some() || self.token_review.is_some() || self.oidc.is_some()
    }
}

// === impl ClientCertificates ===

impl ClientCertificates {
    /// Returns certificates that CAs in this file sign. None is of the system of a cluster.
    #[must_use]
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), system_of: None, shared_accounts: false }
    }
}

// === impl Oidc ===

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

// === impl Authorization ===

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

//! The shape of a kubeconfig. Fields that are not here are not looked at.

use std::collections::HashMap;

use kube::config::{AuthProviderConfig, ExecConfig};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

use super::error::KubeconfigError;

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct File {
    #[serde(default, deserialize_with = "null_is_none")]
    clusters: Vec<NamedCluster>,
    #[serde(default, deserialize_with = "null_is_none")]
    users: Vec<NamedUser>,
    #[serde(default, rename = "contexts", deserialize_with = "null_is_empty")]
    named_contexts: Option<Vec<NamedContext>>,
    pub(super) current_context: Option<String>,
    #[serde(skip)]
    pub(super) contexts: Vec<ContextEntry>,
    /// It says which they are, if only that there are none.
    #[serde(skip)]
    pub(super) has_contexts: bool,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default, deserialize_with = "null_is_none")]
    cluster: ClusterEntry,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default, deserialize_with = "null_is_none")]
    user: UserEntry,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default, deserialize_with = "null_is_none")]
    context: ContextParts,
}

#[derive(Default, Deserialize)]
struct ContextParts {
    #[serde(default)]
    cluster: String,
    user: Option<String>,
    namespace: Option<String>,
}

pub(super) struct ContextEntry {
    pub(super) name: String,
    pub(super) cluster: String,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ClusterEntry {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) proxy_url: Option<String>,
    pub(super) tls_server_name: Option<String>,
    pub(super) disable_compression: Option<bool>,
    #[serde(default, deserialize_with = "null_is_none")]
    pub(super) extensions: Vec<Extension>,
}

#[derive(Deserialize)]
pub(super) struct Extension {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) extension: serde_json::Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct UserEntry {
    pub(super) token: Option<SecretString>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<SecretString>,
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) client_key_data: Option<SecretString>,
    #[serde(rename = "as")]
    pub(super) impersonate: Option<String>,
    #[serde(rename = "as-uid")]
    pub(super) impersonate_uid: Option<String>,
    #[serde(rename = "as-groups")]
    pub(super) impersonate_groups: Option<Vec<String>>,
    #[serde(rename = "as-user-extra")]
    pub(super) impersonate_user_extra: Option<HashMap<String, Vec<String>>>,
    pub(super) exec: Option<ExecConfig>,
    pub(super) auth_provider: Option<AuthProviderConfig>,
}

impl File {
    pub(super) fn parse(bytes: &[u8], limit: usize) -> Result<Self, KubeconfigError> {
        if bytes.len() > limit {
            return Err(KubeconfigError::TooLarge { bytes: bytes.len(), limit });
        }
        // Errors show where, never what: the text of the line may be a token.
        let options = serde_saphyr::options! {
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_depth: 32,
                max_events: 200_000,
                max_aliases: 100,
                max_anchors: 100,
                max_recorded_anchor_events: 10_000,
            },
        };
        let parsed: Result<Option<File>, _> = serde_saphyr::from_slice_with_options(bytes, options);
        let mut file = parsed.map_err(|error| malformed(&error))?.unwrap_or_default();
        let named = file.named_contexts.take();
        file.has_contexts = named.is_some();
        file.contexts = named.into_iter().flatten().map(ContextEntry::from).collect();
        Ok(file)
    }

    /// The context of this name, or the only one.
    pub(super) fn context(&self, name: Option<&str>) -> Result<&ContextEntry, KubeconfigError> {
        let found = match (name, self.contexts.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), contexts) => contexts.iter().find(|context| context.name == name),
        };
        found.ok_or_else(|| missing("context", name.unwrap_or_default()))
    }

    pub(super) fn cluster(&self, name: &str) -> Result<&ClusterEntry, KubeconfigError> {
        let found = self.clusters.iter().find(|cluster| cluster.name == name);
        found.map(|found| &found.cluster).ok_or_else(|| missing("cluster", name))
    }

    pub(super) fn user(&self, name: &str) -> Result<&UserEntry, KubeconfigError> {
        let found = self.users.iter().find(|user| user.name == name);
        found.map(|found| &found.user).ok_or_else(|| missing("user", name))
    }
}

impl From<NamedContext> for ContextEntry {
    fn from(named: NamedContext) -> Self {
        let ContextParts { cluster, user, namespace } = named.context;
        Self { name: named.name, cluster, user, namespace }
    }
}

fn missing(what: &'static str, name: &str) -> KubeconfigError {
    KubeconfigError::Missing { what, name: name.to_owned() }
}

fn malformed(error: &serde_saphyr::Error) -> KubeconfigError {
    let at = error.location();
    KubeconfigError::Malformed {
        reason: "no YAML of the expected shape",
        line: at.as_ref().map_or(0, serde_saphyr::Location::line),
        column: at.as_ref().map_or(0, serde_saphyr::Location::column),
    }
}

/// `users:` without a value is none.
fn null_is_none<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The same where it differs from no such key at all.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    null_is_none(deserializer).map(Some)
}

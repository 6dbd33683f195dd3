//! The format of a kubeconfig. Unknown fields are ignored, as in kubectl.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

use super::error::KubeconfigError;

/// The content of one kubeconfig, or of several merged ones.
#[derive(Clone, Default)]
pub(super) struct File {
    pub(super) clusters: Vec<NamedCluster>,
    pub(super) users: Vec<NamedUser>,
    pub(super) contexts: Vec<NamedContext>,
    pub(super) current_context: Option<String>,
    /// Set if the file has a list of contexts, even an empty one.
    pub(super) has_contexts: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawFile {
    #[serde(default, rename = "apiVersion")]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    clusters: Vec<NamedCluster>,
    #[serde(default, deserialize_with = "null_as_default")]
    users: Vec<NamedUser>,
    #[serde(default, deserialize_with = "null_as_empty")]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    current_context: Option<String>,
}

/// An entry of a list that is looked up by name.
pub(super) trait Named {
    /// The word for the entry in messages.
    const SECTION: &'static str;

    fn name(&self) -> &str;
}

#[derive(Clone, Deserialize)]
pub(super) struct NamedCluster {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) cluster: ClusterEntry,
}

#[derive(Clone, Deserialize)]
pub(super) struct NamedUser {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) user: UserEntry,
}

#[derive(Clone, Deserialize)]
pub(super) struct NamedContext {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) context: ContextEntry,
}

#[derive(Clone, Default, Deserialize)]
pub(super) struct ContextEntry {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) cluster: String,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ClusterEntry {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) proxy_url: Option<String>,
    pub(super) tls_server_name: Option<String>,
    pub(super) disable_compression: Option<bool>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) extensions: Vec<Extension>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Extension {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) extension: serde_json::Value,
}

#[derive(Clone, Default, Deserialize)]
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
    pub(super) exec: Option<ExecEntry>,
    pub(super) auth_provider: Option<AuthProviderEntry>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecEntry {
    pub(super) api_version: Option<String>,
    pub(super) command: Option<String>,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<EnvVar>>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive_mode: Option<String>,
    pub(super) provide_cluster_info: Option<bool>,
}

#[derive(Clone, Deserialize)]
pub(super) struct EnvVar {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

#[derive(Clone, Default, Deserialize)]
pub(super) struct AuthProviderEntry {
    #[serde(default)]
    pub(super) name: String,
    pub(super) config: Option<HashMap<String, String>>,
}

impl File {
    /// Parses YAML or JSON. Only the first document counts, as in kubectl.
    pub(super) fn parse(bytes: &[u8], limit: usize) -> Result<Self, KubeconfigError> {
        if bytes.len() > limit {
            return Err(KubeconfigError::TooLarge { bytes: bytes.len(), limit });
        }
        // Errors show the position, never the content: the text of the line may be a token.
        let options = serde_saphyr::options! {
            with_snippet: false,
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
            budget: serde_saphyr::budget! {
                max_depth: 32,
                max_events: 200_000,
                max_aliases: 100,
                max_anchors: 100,
                max_recorded_anchor_events: 10_000,
            },
        };
        let mut reader = bytes;
        let mut documents = serde_saphyr::read_with_options::<_, RawFile>(&mut reader, options);
        let first = documents.next().transpose().map_err(|error| malformed(&error))?;
        first.unwrap_or_default().check()
    }

    /// Converts a kubeconfig that kube has parsed.
    pub(super) fn from_kube(kubeconfig: &kube::config::Kubeconfig) -> Result<Self, KubeconfigError> {
        let malformed = |_| KubeconfigError::Malformed { reason: UNEXPECTED_SHAPE, line: 0, column: 0 };
        let value = serde_json::to_value(kubeconfig).map_err(malformed)?;
        serde_json::from_value::<RawFile>(value).map_err(malformed)?.check()
    }

    /// Resolves relative paths against a folder.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        let resolve = |path: &mut Option<String>| {
            if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
                *path = folder.join(&*path).to_string_lossy().into_owned();
            }
        };
        for cluster in &mut self.clusters {
            resolve(&mut cluster.cluster.certificate_authority);
        }
        for NamedUser { user, .. } in &mut self.users {
            resolve(&mut user.token_file);
            resolve(&mut user.client_certificate);
            resolve(&mut user.client_key);
            // A command without a separator is searched for in PATH.
            let command = user.exec.as_mut().map(|exec| &mut exec.command);
            if let Some(command) = command
                && command.as_ref().is_some_and(|command| command.contains(std::path::is_separator))
            {
                resolve(command);
            }
        }
    }

    /// Returns the context with this name, or the only one.
    pub(super) fn context(&self, name: Option<&str>) -> Result<&ContextEntry, KubeconfigError> {
        let found = match (name, self.contexts.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), contexts) => find(contexts, name),
        };
        found.map(|found| &found.context).ok_or_else(|| missing("context", name.unwrap_or_default()))
    }

    pub(super) fn cluster(&self, name: &str) -> Result<&ClusterEntry, KubeconfigError> {
        let found = find(&self.clusters, name).ok_or_else(|| missing("cluster", name))?;
        Ok(&found.cluster)
    }

    /// Returns the user with this name; with `None` the caller is anonymous, as in kubectl.
    pub(super) fn user(&self, name: &str) -> Option<&UserEntry> {
        find(&self.users, name).map(|found| &found.user)
    }
}

impl RawFile {
    fn check(self) -> Result<File, KubeconfigError> {
        let is = |text: &Option<String>, wanted| text.as_deref().is_none_or(|t| t.is_empty() || t == wanted);
        if !is(&self.kind, "Config") || !is(&self.api_version, "v1") {
            let reason = "its kind or apiVersion is another than Config of v1";
            return Err(KubeconfigError::Malformed { reason, line: 0, column: 0 });
        }
        let has_contexts = self.contexts.is_some();
        let contexts = self.contexts.unwrap_or_default();
        check_unique(&self.clusters)?;
        check_unique(&self.users)?;
        check_unique(&contexts)?;
        let current_context = self.current_context.filter(|name| !name.is_empty());
        Ok(File { clusters: self.clusters, users: self.users, contexts, current_context, has_contexts })
    }
}

impl Named for NamedCluster {
    const SECTION: &'static str = "clusters";

    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for NamedUser {
    const SECTION: &'static str = "users";

    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for NamedContext {
    const SECTION: &'static str = "contexts";

    fn name(&self) -> &str {
        &self.name
    }
}

fn find<'a, T: Named>(entries: &'a [T], name: &str) -> Option<&'a T> {
    entries.iter().find(|entry| entry.name() == name)
}

fn check_unique<T: Named>(entries: &[T]) -> Result<(), KubeconfigError> {
    let mut seen = BTreeSet::new();
    match entries.iter().find(|entry| !seen.insert(entry.name())) {
        Some(entry) => Err(KubeconfigError::Duplicate { what: T::SECTION, name: entry.name().to_owned() }),
        None => Ok(()),
    }
}

const UNEXPECTED_SHAPE: &str = "no YAML of the expected shape";

fn missing(what: &'static str, name: &str) -> KubeconfigError {
    KubeconfigError::Missing { what, name: name.to_owned() }
}

fn malformed(error: &serde_saphyr::Error) -> KubeconfigError {
    let at = error.location();
    KubeconfigError::Malformed {
        reason: UNEXPECTED_SHAPE,
        line: at.as_ref().map_or(0, serde_saphyr::Location::line),
        column: at.as_ref().map_or(0, serde_saphyr::Location::column),
    }
}

/// Parses a key without a value as the default.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses a key without a value as the default, where a missing key means something else.
fn null_as_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    null_as_default(deserializer).map(Some)
}

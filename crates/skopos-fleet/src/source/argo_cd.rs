//! Cluster Secrets of Argo CD, as its documentation of the declarative setup describes them.
//!
//! ```text
//!  name, server, config (JSON) ──▶ a kubeconfig with one context ──▶ the same policy as for all other kubeconfigs
//! ```
//!
//! `namespaces`, `clusterResources`, `project` and `shard` divide Argo CD's own work and say nothing about the connection, so they
//! are not read.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use skopos::RawObject;

use super::generated;
use super::secret::{NotText, Secret};
use crate::kubeconfig::{KubeconfigError, KubeconfigPolicy};
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// The label selector of these Secrets.
pub(super) const SELECTOR: &str = "argocd.argoproj.io/secret-type=cluster";

/// A cluster of Argo CD.
pub(super) struct ArgoCdCluster {
    /// The name in Argo CD, if the Secret has one.
    pub(super) name: Option<String>,
    pub(super) spec: Result<ClusterSpec, SpecError>,
}

/// Reads a cluster Secret.
pub(super) fn read(secret: &RawObject, policy: &KubeconfigPolicy) -> ArgoCdCluster {
    let unreadable = |reason: &str| SpecError::Unreadable {
        place: format!("Secret {} of Argo CD", secret.key()),
        reason: reason.to_owned(),
    };
    let Ok(content) = secret.decode::<Secret>() else {
        return ArgoCdCluster { name: None, spec: Err(unreadable("it is no Secret")) };
    };
    let name = content.text("name").ok().filter(|name| !name.is_empty()).map(|name| name.to_string());
    ArgoCdCluster { name, spec: spec(&content, policy, &unreadable) }
}

fn spec(
    content: &Secret,
    policy: &KubeconfigPolicy,
    unreadable: &dyn Fn(&str) -> SpecError,
) -> Result<ClusterSpec, SpecError> {
    let no_text = |key: &str| unreadable(&format!("key {key} is not a text in base64"));
    let server = content.text("server").map_err(|NotText| no_text("server"))?;
    if server.is_empty() {
        return Err(unreadable("key server is missing: write the URL of the cluster's API server"));
    }
    let config = content.text("config").map_err(|NotText| no_text("config"))?;
    // The reason would show a part of the value.
    let config: ArgoCdConfig = match config.is_empty() {
        true => ArgoCdConfig::default(),
        false => serde_json::from_str(&config)
            .map_err(|_| unreadable("key config is not JSON as Argo CD documents it"))?,
    };
    if config.is_empty() && is_in_cluster(&server) {
        return Err(unreadable(
            "it is the cluster of Argo CD itself, without credentials: name that cluster by its kubeconfig instead",
        ));
    }
    if config.aws_auth_config.is_some() {
        return Err(unreadable(
            "config.awsAuthConfig is not supported: use bearerToken, or execProviderConfig where programs are allowed",
        ));
    }
    let (cluster, user) = config.into_cluster_and_user(&server);
    let parsed = generated::spec("argo-cd", &cluster, &user, policy);
    parsed.map_err(|error| SpecError::Kubeconfig(in_words_of_argo_cd(error)))
}

/// Returns whether the server is the one that Argo CD reaches with its own service account.
fn is_in_cluster(server: &str) -> bool {
    let host = server.strip_prefix("https://").unwrap_or(server);
    host.split([':', '/']).next().is_some_and(|host| host.starts_with("kubernetes.default.svc"))
}

/// The JSON in key `config`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ArgoCdConfig {
    username: Option<SecretString>,
    password: Option<SecretString>,
    bearer_token: Option<SecretString>,
    tls_client_config: Option<TlsClientConfig>,
    aws_auth_config: Option<Value>,
    exec_provider_config: Option<ExecProviderConfig>,
    proxy_url: Option<String>,
    disable_compression: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TlsClientConfig {
    insecure: Option<bool>,
    server_name: Option<String>,
    ca_data: Option<String>,
    cert_data: Option<String>,
    key_data: Option<SecretString>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecProviderConfig {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    api_version: Option<String>,
    install_hint: Option<String>,
}

impl ArgoCdConfig {
    /// Returns whether there are neither credentials nor a CA.
    fn is_empty(&self) -> bool {
        let tls = self.tls_client_config.as_ref();
        let tls = tls.is_none_or(|tls| tls.ca_data.is_none() && tls.cert_data.is_none());
        let user = self.username.is_none() && self.bearer_token.is_none();
        tls && user && self.exec_provider_config.is_none() && self.aws_auth_config.is_none()
    }

    /// Returns the cluster and the user of a kubeconfig with the same meaning.
    fn into_cluster_and_user(self, server: &str) -> (Value, Value) {
        let tls = self.tls_client_config.unwrap_or_default();
        let exposed =
            |secret: &Option<SecretString>| secret.as_ref().map(|secret| json!(secret.expose_secret()));
        let cluster = fields([
            ("server", Some(json!(server))),
            ("insecure-skip-tls-verify", tls.insecure.map(Value::from)),
            ("tls-server-name", tls.server_name.map(Value::from)),
            ("certificate-authority-data", tls.ca_data.map(Value::from)),
            ("proxy-url", self.proxy_url.map(Value::from)),
            ("disable-compression", self.disable_compression.map(Value::from)),
        ]);
        let user = fields([
            ("username", exposed(&self.username)),
            ("password", exposed(&self.password)),
            ("token", exposed(&self.bearer_token)),
            ("client-certificate-data", tls.cert_data.map(Value::from)),
            ("client-key-data", exposed(&tls.key_data)),
            ("exec", self.exec_provider_config.map(ExecProviderConfig::into_exec)),
        ]);
        (cluster, user)
    }
}

impl ExecProviderConfig {
    /// Returns the plugin as a kubeconfig has it. Argo CD has no terminal, so its plugins never ask.
    fn into_exec(self) -> Value {
        let env = self.env.unwrap_or_default();
        let env: Vec<Value> =
            env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!({
            "command": self.command,
            "args": self.args,
            "env": env,
            "apiVersion": self.api_version,
            "installHint": self.install_hint,
            "interactiveMode": "Never",
        })
    }
}

/// Returns an object with the fields that are present.
fn fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}

/// Returns the error with the names that the fields have in Argo CD's Secret.
fn in_words_of_argo_cd(error: KubeconfigError) -> KubeconfigError {
    let renamed = |field| match field {
        "exec" => "config.execProviderConfig",
        "insecure-skip-tls-verify" => "config.tlsClientConfig.insecure",
        "certificate-authority-data" => "config.tlsClientConfig.caData",
        "client-certificate" | "client-certificate-data" => "config.tlsClientConfig.certData",
        "client-key" | "client-key-data" => "config.tlsClientConfig.keyData",
        "proxy-url" => "config.proxyUrl",
        "token" => "config.bearerToken",
        other => other,
    };
    match error {
        KubeconfigError::Refused { field, reason, switch } => {
            KubeconfigError::Refused { field: renamed(field), reason, switch }
        }
        KubeconfigError::Invalid { field, reason } => {
            KubeconfigError::Invalid { field: renamed(field), reason }
        }
        KubeconfigError::NoCertificateAuthority => KubeconfigError::Invalid {
            field: "config.tlsClientConfig.caData",
            reason: "is missing, so that any public CA could vouch for the server: add the CA of the cluster",
        },
        other => other,
    }
}

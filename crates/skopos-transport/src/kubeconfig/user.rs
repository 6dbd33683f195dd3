//! The credentials of a kubeconfig's user, by kubectl's rules.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};

use kube::config::{AuthInfo, AuthProviderConfig, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret as _, SecretString};

use super::error::KubeconfigError;
use super::file::{AuthProviderEntry, ClusterEntry, ExecEntry, UserEntry};
use super::{AUTHORITY_DATA, MAX_BYTES, base64_text, decode, invalid, some};

/// The extension of a cluster that is meant for the plugin.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Checks a user as kubectl does before it parses the server's URL.
pub(super) fn check(user: &UserEntry) -> Result<(), KubeconfigError> {
    let basic = some(&user.username).is_some() || secret(&user.password).is_some();
    if basic && (secret(&user.token).is_some() || some(&user.token_file).is_some()) {
        return Err(invalid("token", "is given beside username and password: remove one of them"));
    }
    if has_certificate(user) {
        check_certificate(user)?;
    }
    if let Some(exec) = &user.exec {
        check_exec(exec, user.auth_provider.is_some())?;
    }
    let others = some(&user.impersonate_uid).is_some()
        || user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        || user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    match others && some(&user.impersonate).is_none() {
        true => Err(invalid("as-uid, as-groups or as-user-extra", "needs a user to impersonate (`as`)")),
        false => Ok(()),
    }
}

/// Returns the user's credentials. Over plain HTTP kubectl sends none, and neither does Skopos.
pub(super) fn credentials(
    user: &UserEntry,
    cluster: &ClusterEntry,
    over_tls: bool,
) -> Result<AuthInfo, KubeconfigError> {
    let mut auth = impersonation(user);
    if !over_tls {
        return Ok(auth);
    }
    auth.token = secret(&user.token);
    auth.token_file = text(&user.token_file);
    if some(&user.username).is_some() || secret(&user.password).is_some() {
        auth.username = Some(user.username.clone().unwrap_or_default());
        auth.password = Some(secret(&user.password).unwrap_or_default());
    }
    if has_certificate(user) {
        auth.client_certificate = text(&user.client_certificate);
        auth.client_certificate_data = some(&user.client_certificate_data).map(base64_text);
        auth.client_key = text(&user.client_key);
        let key = secret(&user.client_key_data);
        auth.client_key_data = key.map(|key| base64_text(key.expose_secret()).into());
    }
    auth.exec = user.exec.as_ref().map(|exec| plugin(exec, cluster)).transpose()?;
    auth.auth_provider = user.auth_provider.as_ref().map(auth_provider);
    check_pem("client-certificate-data", auth.client_certificate_data.as_deref())?;
    check_pem("client-key-data", auth.client_key_data.as_ref().map(|key| key.expose_secret()))?;
    check_token(auth.token.as_ref())?;
    Ok(auth)
}

fn impersonation(user: &UserEntry) -> AuthInfo {
    AuthInfo {
        impersonate: text(&user.impersonate),
        impersonate_uid: text(&user.impersonate_uid),
        impersonate_groups: user.impersonate_groups.clone(),
        impersonate_user_extra: user.impersonate_user_extra.clone(),
        ..AuthInfo::default()
    }
}

/// Returns whether the user has a client certificate. A key alone is ignored, as in kubectl.
fn has_certificate(user: &UserEntry) -> bool {
    some(&user.client_certificate).is_some() || some(&user.client_certificate_data).is_some()
}

fn check_certificate(user: &UserEntry) -> Result<(), KubeconfigError> {
    let twice = "is given twice, as a file and as data: remove one of them";
    let key_data = secret(&user.client_key_data).is_some();
    if some(&user.client_certificate).is_some() && some(&user.client_certificate_data).is_some() {
        return Err(invalid("client-certificate", twice));
    }
    match (some(&user.client_key).is_some(), key_data) {
        (true, true) => Err(invalid("client-key", twice)),
        (false, false) => Err(invalid("client-certificate", "has no client-key beside it")),
        _ => Ok(()),
    }
}

fn check_exec(exec: &ExecEntry, auth_provider: bool) -> Result<(), KubeconfigError> {
    let bad = |reason| Err(invalid("exec", reason));
    if auth_provider {
        return bad("is given beside auth-provider: remove one of them");
    }
    if some(&exec.command).is_none() {
        return bad("has no command");
    }
    if exec.env.iter().flatten().any(|variable| variable.name.is_empty()) {
        return bad("has an environment variable without a name");
    }
    match (some(&exec.api_version), some(&exec.interactive_mode)) {
        (None, _) => bad("has no apiVersion: write client.authentication.k8s.io/v1"),
        (Some(V1), None) => bad("has no interactiveMode, which v1 needs: Never, IfAvailable or Always"),
        (Some(V1 | V1BETA1), None | Some("Never" | "IfAvailable" | "Always")) => Ok(()),
        (Some(V1 | V1BETA1), Some(_)) => {
            bad("has an unknown interactiveMode: write Never, IfAvailable or Always")
        }
        (Some(_), _) => {
            bad("has an apiVersion that is not supported: write client.authentication.k8s.io/v1 or v1beta1")
        }
    }
}

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// Returns the plugin with the cluster data that it gets.
fn plugin(exec: &ExecEntry, cluster: &ClusterEntry) -> Result<ExecConfig, KubeconfigError> {
    let env = exec.env.as_ref().map(|env| {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let both = |variable: &super::file::EnvVar| {
            HashMap::from([pair("name", &variable.name), pair("value", &variable.value)])
        };
        env.iter().map(both).collect()
    });
    let interactive_mode = match some(&exec.interactive_mode) {
        Some("Never") => ExecInteractiveMode::Never,
        Some("Always") => ExecInteractiveMode::Always,
        _ => ExecInteractiveMode::IfAvailable,
    };
    let provide_cluster_info = exec.provide_cluster_info.unwrap_or_default();
    Ok(ExecConfig {
        api_version: exec.api_version.clone(),
        command: exec.command.clone(),
        args: exec.args.clone(),
        env,
        install_hint: text(&exec.install_hint),
        interactive_mode: Some(interactive_mode),
        provide_cluster_info,
        cluster: provide_cluster_info.then(|| cluster_info(cluster)).transpose()?,
        ..ExecConfig::default()
    })
}

/// Returns the cluster data that a plugin gets (`provideClusterInfo`).
fn cluster_info(cluster: &ClusterEntry) -> Result<ExecAuthCluster, KubeconfigError> {
    let extension = cluster.extensions.iter().find(|extension| extension.name == EXTENSION);
    Ok(ExecAuthCluster {
        server: cluster.server.clone(),
        insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
        certificate_authority_data: authority(cluster)?,
        proxy_url: text(&cluster.proxy_url),
        tls_server_name: text(&cluster.tls_server_name),
        config: extension.map(|extension| extension.extension.clone()),
    })
}

fn authority(cluster: &ClusterEntry) -> Result<Option<Vec<u8>>, KubeconfigError> {
    match (some(&cluster.certificate_authority_data), some(&cluster.certificate_authority)) {
        (Some(data), _) => decode(AUTHORITY_DATA, data).map(|pem| Some(pem.to_vec())),
        // A file that cannot be read is an error when the connection is made, and may be readable by then.
        (None, Some(path)) => Ok(read(path).ok()),
        (None, None) => Ok(None),
    }
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES as u64).read_to_end(&mut content)?;
    Ok(content)
}

fn auth_provider(entry: &AuthProviderEntry) -> AuthProviderConfig {
    let config = entry.config.clone().unwrap_or_default();
    AuthProviderConfig { name: entry.name.clone(), config, ..AuthProviderConfig::default() }
}

/// Returns the secret if it is not empty: kubeconfigs are written by tools that leave empty fields.
fn secret(secret: &Option<SecretString>) -> Option<SecretString> {
    secret.clone().filter(|secret| !secret.expose_secret().is_empty())
}

fn text(text: &Option<String>) -> Option<String> {
    some(text).map(str::to_owned)
}

/// Checks that a text is PEM in base64.
fn check_pem(field: &'static str, text: Option<&str>) -> Result<(), KubeconfigError> {
    let Some(text) = text else { return Ok(()) };
    let pem = decode(field, text)?;
    match pem.windows(11).any(|window| window == b"-----BEGIN ") {
        true => Ok(()),
        false => Err(invalid(field, "is not PEM")),
    }
}

/// Checks that a token can be part of a header.
fn check_token(token: Option<&SecretString>) -> Result<(), KubeconfigError> {
    match token.is_none_or(|token| token.expose_secret().bytes().all(|b| b.is_ascii_graphic())) {
        true => Ok(()),
        false => Err(invalid("token", "has characters that no token has")),
    }
}

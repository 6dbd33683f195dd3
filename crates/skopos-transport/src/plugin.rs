//! Exec plugins: programs that return credentials, run by client-go's rules.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

/// The credentials that a plugin returned: a token, a client certificate with its key, or both.
#[derive(Clone)]
pub(crate) struct PluginCredentials {
    pub(crate) token: Option<SecretString>,
    /// Certificate and key, in PEM.
    pub(crate) identity: Option<(String, SecretString)>,
    expires: Option<Timestamp>,
}

/// The reason why a plugin returned no credentials. It shows nothing of the plugin's standard output, which may contain a
/// token or a part of one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    #[error("exec plugin: the kubeconfig names no command")]
    NoCommand,
    #[error(
        "exec plugin: apiVersion {0:?} is not supported, only client.authentication.k8s.io/v1 and v1beta1"
    )]
    Version(String),
    #[error("exec plugin {command} needs a terminal (interactiveMode: Always), and standard input is none")]
    NoTerminal { command: String },
    #[error("exec plugin {command} was not found{hint}")]
    NotFound { command: String, hint: String },
    #[error("exec plugin {command} cannot be started: {error}")]
    Start { command: String, error: io::Error },
    #[error("exec plugin {command} failed with {status}: {stderr}")]
    Failed { command: String, status: std::process::ExitStatus, stderr: String },
    #[error("exec plugin {command}: its output cannot be read{at}")]
    Unreadable { command: String, at: String },
    #[error("exec plugin {command} answered with another kind or apiVersion than ExecCredential of {wanted}")]
    OtherVersion { command: String, wanted: String },
    #[error("exec plugin {command} gave neither a token nor a certificate with its key")]
    NoCredentials { command: String },
    #[error("exec plugin {command} gave a certificate without its key, or a key without its certificate")]
    UnpairedCertificate { command: String },
    #[error("exec plugin {command}: the time when its credentials expire is not a time")]
    Expiration { command: String },
}

/// Time before expiry at which credentials are renewed.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// Maximum number of characters of a plugin's message or install hint.
const MAX_TEXT: usize = 500;

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// Runs a plugin. Blocks until it has ended, which may take as long as a person needs to log in.
pub(crate) fn run(exec: &ExecConfig) -> Result<PluginCredentials, PluginError> {
    let command = exec.command.clone().filter(|name| !name.is_empty()).ok_or(PluginError::NoCommand)?;
    let version = exec.api_version.clone().unwrap_or_default();
    if version != V1 && version != V1BETA1 {
        return Err(PluginError::Version(version));
    }
    let interactive = is_interactive(exec, io::stdin().is_terminal())
        .ok_or_else(|| PluginError::NoTerminal { command: command.clone() })?;
    let output = start(exec, &command, &version, interactive)?;
    if !output.status.success() {
        let (status, stderr) = (output.status, single_line(&String::from_utf8_lossy(&output.stderr)));
        return Err(PluginError::Failed { command, status, stderr });
    }
    parse(&output.stdout, &command, &version)
}

/// Returns whether the plugin may use the terminal; `None` if it requires one and there is none.
fn is_interactive(exec: &ExecConfig, terminal: bool) -> Option<bool> {
    match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => Some(false),
        Some(ExecInteractiveMode::Always) => terminal.then_some(true),
        Some(ExecInteractiveMode::IfAvailable) | None => Some(terminal),
    }
}

fn start(exec: &ExecConfig, program: &str, version: &str, interactive: bool) -> Result<Output, PluginError> {
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    exec.drop_env.iter().flatten().for_each(|name| _ = command.env_remove(name));
    let mut spec = json!({ "interactive": interactive });
    if let Some(cluster) = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        spec["cluster"] = json!(cluster);
    }
    let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdout(Stdio::piped());
    match interactive {
        true => command.stdin(Stdio::inherit()).stderr(Stdio::inherit()),
        // Its output is reported with its failure.
        false => command.stdin(Stdio::null()).stderr(Stdio::piped()),
    };
    command.spawn().and_then(std::process::Child::wait_with_output).map_err(|error| {
        let command = program.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => {
                let hint = exec.install_hint.as_deref().map(single_line).filter(|hint| !hint.is_empty());
                PluginError::NotFound {
                    command,
                    hint: hint.map_or(String::new(), |hint| format!(": {hint}")),
                }
            }
            _ => PluginError::Start { command, error },
        }
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<SecretString>,
}

fn parse(stdout: &[u8], command: &str, wanted: &str) -> Result<PluginCredentials, PluginError> {
    use secrecy::ExposeSecret as _;
    let command = || command.to_owned();
    let parsed: Result<ExecCredential, serde_saphyr::Error> = serde_saphyr::from_slice(stdout);
    let credential = parsed.map_err(|error| {
        let at = error.location();
        let at = at.map_or(String::new(), |at| format!(" (line {}, column {})", at.line(), at.column()));
        PluginError::Unreadable { command: command(), at }
    })?;
    if credential.kind != "ExecCredential" || credential.api_version != wanted {
        return Err(PluginError::OtherVersion { command: command(), wanted: wanted.to_owned() });
    }
    let status = credential.status.ok_or_else(|| PluginError::NoCredentials { command: command() })?;
    let expires = status.expiration_timestamp.filter(|time| !time.is_empty());
    let expires = expires.map(|time| time.parse()).transpose();
    let expires = expires.map_err(|_| PluginError::Expiration { command: command() })?;
    let certificate = status.client_certificate_data.filter(|pem| !pem.is_empty());
    let key = status.client_key_data.filter(|key| !key.expose_secret().is_empty());
    let token = status.token.filter(|token| !token.is_empty()).map(SecretString::from);
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(PluginError::UnpairedCertificate { command: command() }),
    };
    match token.is_none() && identity.is_none() {
        true => Err(PluginError::NoCredentials { command: command() }),
        false => Ok(PluginCredentials { token, identity, expires }),
    }
}

/// Makes text of a plugin or a kubeconfig fit for one line of a log or terminal.
fn single_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_TEXT).collect()
}

impl PluginCredentials {
    /// Returns whether the plugin must run again before the credentials are sent.
    pub(crate) fn is_expiring(&self) -> bool {
        self.expires.is_some_and(|expires| Timestamp::now() + RENEW_BEFORE_EXPIRY >= expires)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn answer(status: serde_json::Value) -> String {
        json!({"apiVersion": V1, "kind": "ExecCredential", "status": status}).to_string()
    }

    fn read(text: &str) -> Result<PluginCredentials, String> {
        parse(text.as_bytes(), "aws", V1).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_tokens_and_certificates() {
        let both = json!({"token": "t", "clientCertificateData": "c", "clientKeyData": "k"});
        let both = read(&answer(both)).unwrap();
        assert_eq!(both.token.unwrap().expose_secret(), "t");
        assert_eq!(both.identity.unwrap().0, "c");
        let yaml = format!("apiVersion: {V1}\nkind: ExecCredential\nstatus: {{token: t}}\n");
        assert!(!read(&yaml).unwrap().is_expiring());
        let expired = answer(json!({"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"}));
        assert!(read(&expired).unwrap().is_expiring());
    }

    #[test]
    fn rejects_invalid_exec_credentials() {
        let good = answer(json!({"token": "canary"}));
        for (text, told) in [
            (good.replace(V1, V1BETA1), "another kind or apiVersion"),
            (good.replace("ExecCredential", "Pod"), "another kind or apiVersion"),
            (answer(json!(null)), "neither a token"),
            (answer(json!({})), "neither a token"),
            (answer(json!({"token": ""})), "neither a token"),
            (answer(json!({"token": "canary", "clientKeyData": "canary"})), "without"),
            (answer(json!({"token": "canary", "expirationTimestamp": "canary"})), "not a time"),
            ("canary: [".into(), "cannot be read (line 1"),
        ] {
            let error = read(&text).map(|_| ()).unwrap_err();
            assert!(error.contains(told) && !error.contains("canary"), "{text}: {error}");
        }
    }

    #[test]
    fn interactive_mode_controls_terminal_use() {
        let mode = |mode| ExecConfig { interactive_mode: mode, ..ExecConfig::default() };
        for (interactive_mode, with, without) in [
            (None, Some(true), Some(false)),
            (Some(ExecInteractiveMode::IfAvailable), Some(true), Some(false)),
            (Some(ExecInteractiveMode::Never), Some(false), Some(false)),
            (Some(ExecInteractiveMode::Always), Some(true), None),
        ] {
            let exec = mode(interactive_mode);
            assert_eq!((is_interactive(&exec, true), is_interactive(&exec, false)), (with, without));
        }
    }

    #[test]
    fn shows_install_hint_of_missing_plugin() {
        let exec = ExecConfig {
            api_version: Some(V1.into()),
            command: Some("/nowhere/plugin".into()),
            install_hint: Some("brew install\n\u{1b}[31mplugin".into()),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        };
        let error = run(&exec).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, "exec plugin /nowhere/plugin was not found: brew install [31mplugin");
        let error =
            run(&ExecConfig { api_version: Some("v1alpha1".into()), ..exec }).map(|_| ()).unwrap_err();
        assert!(matches!(error, PluginError::Version(_)), "{error}");
    }
}

//! Receivers of webhooks, as the file has them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

use super::http;
use super::secret::read_secret;
use crate::event::{MessageFormat, WebhookOptions, WebhookSink};

/// A receiver of webhooks, by Standard Webhooks 1.0.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookConfig {
    /// The URL of the receiver.
    pub url: String,
    /// Files with secrets in base64, with or without `whsec_`. Each of them signs every message, for a rotation. Default: no signature.
    #[serde(default)]
    pub secrets: Vec<PathBuf>,
    /// The format of the bodies. Default `cloudEvents`.
    #[serde(default)]
    pub body: MessageFormat,
    /// Deadline of a delivery, from the connection to the answer. Default 15s.
    pub timeout: Option<Span>,
    /// Number of messages in flight at the same time; at least 1. Default 16.
    pub parallel: Option<u16>,
    /// File with the CAs of the receiver, in PEM. Default: the system's.
    pub certificate_authority: Option<PathBuf>,
    /// Permitted networks among those that are denied by default: private ones and this machine. Default: none.
    #[serde(default)]
    pub allow: Vec<String>,
}

impl WebhookConfig {
    pub(super) fn sink(&self) -> Result<WebhookSink, String> {
        let url = self.url.parse().map_err(|error| format!("url {:?}: {error}", self.url))?;
        let mut options = WebhookOptions::new(url);
        options.format = self.body;
        options.http = http(self.timeout, self.certificate_authority.as_deref(), &self.allow)?;
        options.secrets = self.secrets.iter().map(|file| read_secret(file)).collect::<Result<_, _>>()?;
        WebhookSink::new(options).map_err(|error| error.to_string())
    }
}

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
    /// The URL.
    pub url: String,
    /// Files with secrets in base64, with or without `whsec_`. Each signs, so that a receiver can move to the next. Default: no signature.
    #[serde(default)]
    pub secrets: Vec<PathBuf>,
    /// The form of the bodies. Default `cloudEvents`.
    #[serde(default)]
    pub body: MessageFormat,
    /// Bound on a delivery, from the connection to the answer. Default 15 s.
    pub timeout: Option<Span>,
    /// Number of messages that are under way at the same time. Default 16.
    pub parallel: Option<u16>,
    /// File with the CAs of the receiver, in PEM. Default: the system's.
    pub certificate_authority: Option<PathBuf>,
    /// Networks that may be connected to, though they are private or this machine. Default: none.
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

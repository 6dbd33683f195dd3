//! DNS sinks, as the file has them.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

use super::secret::read_secret;
use crate::sink::dns::{DnsKey, DnsOptions, DnsSink};

/// A zone of a DNS server, by RFC 2136.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsConfig {
    /// The zone.
    pub zone: String,
    /// The primary server.
    pub server: SocketAddr,
    /// The key of updates and transfers.
    pub key: Option<KeyConfig>,
    /// The TTL. Default 30 s.
    pub ttl: Option<Span>,
    /// The owner in the marks. Names with another owner's mark are left alone. Default `skopos`.
    pub owner: Option<String>,
}

/// A TSIG key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyConfig {
    /// Its name.
    pub name: String,
    /// Its algorithm. Default `hmac-sha256`.
    pub algorithm: Option<String>,
    /// The file with its secret in base64, as `tsig-keygen` writes it between the quotes.
    pub secret: PathBuf,
}

impl DnsConfig {
    pub(super) fn sink(&self) -> Result<DnsSink, String> {
        let mut options = DnsOptions::new(&self.zone, self.server, self.owner.as_deref().unwrap_or("skopos"));
        options.key = self.key.as_ref().map(KeyConfig::read).transpose()?;
        options.ttl = self.ttl.map_or(options.ttl, |span| span.0);
        DnsSink::new(options)
    }
}

impl KeyConfig {
    fn read(&self) -> Result<DnsKey, String> {
        let text = read_secret(&self.secret)?;
        let secret = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text.trim())
            .map_err(|_| {
                format!(
                    "the secret in {} is not base64: it is what tsig-keygen writes between the quotes",
                    self.secret.display()
                )
            })?;
        DnsKey::new(&self.name, self.algorithm.as_deref().unwrap_or("hmac-sha256"), &secret)
    }
}

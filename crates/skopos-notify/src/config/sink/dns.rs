//! DNS sinks, as the file has them.

use std::collections::BTreeSet;
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
    /// The primary, if it is the only server.
    pub server: Option<SocketAddr>,
    /// The servers, in place of `server`. The one that accepts updates, the primary, is read and written; the others are compared with it.
    #[serde(default)]
    pub servers: Vec<SocketAddr>,
    /// The key of updates, transfers and queries. Default: unsigned messages.
    pub key: Option<KeyConfig>,
    /// The TTL of records. Default 30s.
    pub ttl: Option<Span>,
    /// The owner in the marks. Names with another owner's mark are left alone. Default `skopos`.
    pub owner: Option<String>,
    /// Address for NOTIFY messages of the servers, which show a change by others at once. Default: none.
    pub notify: Option<SocketAddr>,
}

/// A TSIG key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyConfig {
    /// Its name.
    pub name: String,
    /// Its algorithm. Default `hmac-sha256`.
    pub algorithm: Option<String>,
    /// The file with its secret in base64, as `tsig-keygen` writes it between the quotes. During a rotation it has two lines: the new secret, and
    /// the old one, which is tried once if a server does not accept the new one.
    pub secret: PathBuf,
}

impl DnsConfig {
    pub(super) fn sink(&self) -> Result<DnsSink, String> {
        let mut servers = self.servers()?;
        let owner = self.owner.as_deref().unwrap_or("skopos");
        let mut options = DnsOptions::new(&self.zone, servers.remove(0), owner);
        options.servers.append(&mut servers);
        options.notify = self.notify;
        options.key = self.key.as_ref().map(KeyConfig::read).transpose()?;
        options.ttl = self.ttl.map_or(options.ttl, |span| span.0);
        DnsSink::new(options)
    }

    /// Returns the servers, at least one.
    pub(super) fn servers(&self) -> Result<Vec<SocketAddr>, String> {
        let all: Vec<_> = self.server.iter().chain(&self.servers).copied().collect();
        match (&self.server, all.len()) {
            (_, 0) => Err("has no server: name them in servers".into()),
            (Some(_), 2..) => Err("has server and servers: name all in servers".into()),
            _ if all.iter().collect::<BTreeSet<_>>().len() < all.len() => Err("names a server twice".into()),
            _ => Ok(all),
        }
    }
}

impl KeyConfig {
    fn read(&self) -> Result<DnsKey, String> {
        let text = read_secret(&self.secret)?;
        let path = self.secret.display();
        let key = |line: &str| {
            let secret = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, line);
            let secret = secret.map_err(|_| {
                format!(
                    "the secret in {path} is not base64: it is what tsig-keygen writes between the quotes"
                )
            })?;
            DnsKey::new(&self.name, self.algorithm.as_deref().unwrap_or("hmac-sha256"), &secret)
        };
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines[..] {
            [only] => key(only),
            [new, old] => Ok(key(new)?.or(key(old)?)),
            _ => Err(format!(
                "{path} has {} lines: the secret, and during a rotation the old one below it",
                lines.len()
            )),
        }
    }
}

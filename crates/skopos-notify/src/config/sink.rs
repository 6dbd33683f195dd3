//! Sinks, as the file has them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

use super::source::{EndpointsConfig, SourceConfig};
use super::{GuardConfig, StateConfig};
use crate::desired::{ClaimSource, EndpointSource, Template};
use crate::event::{MessageFormat, WebhookOptions, WebhookSink};
use crate::service::{EventSinkOptions, NotifierSink, SinkOptions};
use crate::sink::Sink;
use crate::sink::dns::{DnsKey, DnsOptions, DnsSink};
use crate::sink::haproxy::{HaproxyOptions, HaproxySink};

/// A sink and its sources. It has exactly one of `dns`, `haproxy` and `webhook`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SinkConfig {
    /// Its name, for people and metrics.
    pub name: String,
    /// A zone of a DNS server.
    pub dns: Option<DnsConfig>,
    /// A running HAProxy.
    pub haproxy: Option<HaproxyConfig>,
    /// A receiver of webhooks.
    pub webhook: Option<WebhookConfig>,
    /// Interval between two observations of everything. Default 10 s, and 5 s for HAProxy.
    pub observe: Option<Span>,
    /// The sources of its names.
    pub from: Vec<SourceConfig>,
}

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

/// A running HAProxy.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HaproxyConfig {
    /// The socket of `stats socket PATH level admin`.
    pub socket: PathBuf,
    /// The name of a backend, with `{service}`, `{namespace}` and `{port}`. Default `k8s_{namespace}_{service}_{port}`.
    pub backend: Option<String>,
    /// Health checks by HAProxy itself. Default true.
    pub check: Option<bool>,
    /// Time for which a draining server may keep its connections. Default 60 s.
    pub drain: Option<Span>,
}

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

/// Size of a file with a secret.
const MAX_SECRET: u64 = 64 * 1024;

impl SinkConfig {
    /// Makes the sink, with the secrets that its files have now.
    pub(super) fn options(
        &self,
        guard: &GuardConfig,
        state: Option<&StateConfig>,
    ) -> Result<NotifierSink, String> {
        if let Some(webhook) = &self.webhook {
            return self.receiver(webhook, guard, state).map(NotifierSink::Events);
        }
        let mut plan = guard.options();
        let sink: Arc<dyn Sink> = match (&self.dns, &self.haproxy) {
            (Some(dns), _) => Arc::new(dns.sink()?),
            (None, Some(haproxy)) => {
                plan.drain = haproxy.drain.map_or(plan.drain, |span| span.0);
                Arc::new(haproxy.sink())
            }
            (None, None) => return Err(ONE_SINK.into()),
        };
        let sources = self.from.iter().map(|source| self.claims(source)).collect::<Result<_, _>>()?;
        let mut options = SinkOptions::new(&self.name, sink, sources);
        options.plan = plan;
        options.state = state.map(|state| state.folder.clone());
        if self.haproxy.is_some() {
            options.observe_every /= 2;
        }
        options.observe_every = self.observe.map_or(options.observe_every, |span| span.0);
        Ok(options.into())
    }

    /// Returns what is wrong with a source for this sink.
    pub(super) fn check(&self, source: &SourceConfig) -> Result<(), String> {
        match (&self.webhook, &source.objects) {
            (Some(_), Some(objects)) => objects.source().map(drop),
            (Some(_), None) => Err("a webhook is fed with objects: name objects".into()),
            (None, _) => self.claims(source).map(drop),
        }
    }

    fn receiver(
        &self,
        webhook: &WebhookConfig,
        guard: &GuardConfig,
        state: Option<&StateConfig>,
    ) -> Result<EventSinkOptions, String> {
        let state = state.ok_or("a webhook needs state.folder: there it remembers what was delivered")?;
        let objects = self.from.iter().filter_map(|source| source.objects.as_ref());
        let sources = objects.map(|objects| objects.source()).collect::<Result<_, _>>()?;
        let mut options =
            EventSinkOptions::new(&self.name, Arc::new(webhook.sink()?), sources, &state.folder);
        options.parallel = webhook.parallel.map_or(options.parallel, usize::from);
        options.confirm = guard.confirm.map_or(options.confirm, |span| span.0);
        Ok(options)
    }

    fn claims(&self, source: &SourceConfig) -> Result<ClaimSource, String> {
        match (&source.services, &source.endpoints) {
            (Some(services), _) => Ok(ClaimSource::Services(services.source())),
            (None, Some(endpoints)) => self.endpoints(endpoints).map(ClaimSource::Endpoints),
            (None, None) => Err("must have one of services and endpoints".into()),
        }
    }

    fn endpoints(&self, endpoints: &EndpointsConfig) -> Result<EndpointSource, String> {
        let name = match (&self.haproxy, &self.dns) {
            (Some(haproxy), _) => {
                let text = haproxy.backend.as_deref().unwrap_or("k8s_{namespace}_{service}_{port}");
                Template::parse(text, &["service", "namespace", "port"])
            }
            (None, dns) => {
                let zone = dns.as_ref().map_or("", |dns| &dns.zone);
                let text = endpoints.name.as_deref().unwrap_or("{service}.{namespace}");
                Template::parse(&format!("{text}.{zone}"), &["service", "namespace"])
            }
        };
        Ok(EndpointSource {
            headless: endpoints.headless,
            labels: endpoints.labels.clone(),
            name: name.map_err(|error| error.to_string())?,
            ports: self.haproxy.is_some(),
        })
    }

    /// Returns the files with secrets.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let key = self.dns.as_ref().and_then(|dns| dns.key.as_ref());
        let webhook = self.webhook.as_ref();
        let key = key.into_iter().map(|key| key.secret.as_path());
        let webhooks = webhook.into_iter().flat_map(|webhook| &webhook.secrets).map(PathBuf::as_path);
        let authority = webhook.and_then(|webhook| webhook.certificate_authority.as_deref());
        key.chain(webhooks).chain(authority)
    }
}

/// The problem of a sink without a kind, or with several.
pub(super) const ONE_SINK: &str = "must have exactly one of dns, haproxy and webhook";

impl DnsConfig {
    fn sink(&self) -> Result<DnsSink, String> {
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

impl HaproxyConfig {
    fn sink(&self) -> HaproxySink {
        let mut options = HaproxyOptions::at(&self.socket);
        options.check = self.check.unwrap_or(options.check);
        HaproxySink::new(options)
    }
}

impl WebhookConfig {
    fn sink(&self) -> Result<WebhookSink, String> {
        let url = self.url.parse().map_err(|error| format!("url {:?}: {error}", self.url))?;
        let mut options = WebhookOptions::new(url);
        options.format = self.body;
        options.http.time_limit = self.timeout.map_or(options.http.time_limit, |span| span.0);
        options.http.ca.clone_from(&self.certificate_authority);
        options.http.allow = self.networks()?;
        options.secrets = self.secrets.iter().map(|file| read_secret(file)).collect::<Result<_, _>>()?;
        WebhookSink::new(options).map_err(|error| error.to_string())
    }

    /// Returns the networks of `allow`.
    pub(super) fn networks(&self) -> Result<Vec<ipnet::IpNet>, String> {
        let network = |text: &String| {
            text.parse().map_err(|_| format!("{text:?} is no network, such as 10.0.0.0/8 or 127.0.0.1/32"))
        };
        self.allow.iter().map(network).collect()
    }
}

fn read_secret(file: &Path) -> Result<String, String> {
    let unreadable =
        |error: std::io::Error| format!("the secret in {} cannot be read: {error}", file.display());
    if std::fs::metadata(file).map_err(unreadable)?.len() > MAX_SECRET {
        return Err(format!("{} is too large for a secret", file.display()));
    }
    std::fs::read_to_string(file).map_err(unreadable)
}

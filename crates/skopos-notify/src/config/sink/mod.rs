//! Sinks, as the file has them.

mod dns;
mod haproxy;
mod ipvs;
mod rest;
mod secret;
mod webhook;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

pub use self::dns::{DnsConfig, KeyConfig};
pub use self::haproxy::HaproxyConfig;
pub use self::ipvs::IpvsConfig;
pub use self::rest::RestConfig;
pub use self::webhook::WebhookConfig;
use super::source::{EndpointsConfig, SourceConfig};
use super::{GuardConfig, OpenState};
use crate::desired::{ClaimSource, EndpointSource, Template};
use crate::http::HttpOptions;
use crate::service::{EventSinkOptions, NotifierSink, SinkOptions};
use crate::sink::Sink;

/// A sink and its sources. It has exactly one of `dns`, `haproxy`, `ipvs`, `rest` and `webhook`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SinkConfig {
    /// Its name, for people and metrics.
    pub name: String,
    /// A zone of a DNS server.
    pub dns: Option<DnsConfig>,
    /// A running HAProxy.
    pub haproxy: Option<HaproxyConfig>,
    /// The IPVS of this machine's kernel.
    pub ipvs: Option<IpvsConfig>,
    /// An inventory behind HTTP.
    pub rest: Option<RestConfig>,
    /// A receiver of webhooks.
    pub webhook: Option<WebhookConfig>,
    /// Interval at which the whole sink is read back. Default 10s, and 5s for HAProxy and IPVS.
    pub observe: Option<Span>,
    /// Its sources, at least one.
    pub from: Vec<SourceConfig>,
}

impl SinkConfig {
    /// Makes the sink, with the secrets that its files have now.
    pub(super) fn options(
        &self,
        guard: &GuardConfig,
        state: Option<&OpenState>,
    ) -> Result<NotifierSink, String> {
        if let Some(webhook) = &self.webhook {
            return self.receiver(webhook, guard, state).map(NotifierSink::Events);
        }
        let mut plan = guard.options();
        let mut drain = |configured: Option<Span>| plan.drain = configured.map_or(plan.drain, |span| span.0);
        let sink: Arc<dyn Sink> = if let Some(dns) = &self.dns {
            Arc::new(dns.sink()?)
        } else if let Some(haproxy) = &self.haproxy {
            drain(haproxy.drain);
            Arc::new(haproxy.sink())
        } else if let Some(ipvs) = &self.ipvs {
            drain(ipvs.drain);
            Arc::new(ipvs.sink()?)
        } else if let Some(rest) = &self.rest {
            // An item is one pod, so there is no last one to keep.
            plan.keep_last = false;
            Arc::new(rest.sink()?)
        } else {
            return Err(ONE_SINK.into());
        };
        let sources = self.from.iter().map(|source| self.claims(source)).collect::<Result<_, _>>()?;
        let mut options = SinkOptions::new(&self.name, sink, sources);
        options.plan = plan;
        options.state = state.map(|state| state.folder.clone());
        if self.haproxy.is_some() || self.ipvs.is_some() {
            options.observe_every /= 2;
        }
        options.observe_every = self.observe.map_or(options.observe_every, |span| span.0);
        Ok(options.into())
    }

    /// Returns the number of kinds that are named.
    pub(super) fn kinds(&self) -> usize {
        let kinds = [
            self.dns.is_some(),
            self.haproxy.is_some(),
            self.ipvs.is_some(),
            self.rest.is_some(),
            self.webhook.is_some(),
        ];
        kinds.into_iter().filter(|is_there| *is_there).count()
    }

    /// Returns the problem of the sink itself, and its field.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let of = |field, checked: Result<(), String>| checked.err().map(|problem| (field, problem));
        let webhook =
            self.webhook.as_ref().and_then(|webhook| of("webhook.allow", networks(&webhook.allow).map(drop)));
        let ipvs = self.ipvs.as_ref().and_then(|ipvs| of("ipvs", ipvs.sink().map(drop)));
        let rest = self.rest.as_ref().and_then(|rest| of("rest", rest.options().map(drop)));
        let dns = self.dns.as_ref().and_then(|dns| of("dns", dns.servers().map(drop)));
        webhook.or(ipvs).or(rest).or(dns)
    }

    /// Returns the problem of a source for this sink.
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
        state: Option<&OpenState>,
    ) -> Result<EventSinkOptions, String> {
        let state = state.ok_or("a webhook needs state.folder: there it remembers what was delivered")?;
        let objects = self.from.iter().filter_map(|source| source.objects.as_ref());
        let sources = objects.map(|objects| objects.source()).collect::<Result<_, _>>()?;
        let (receiver, ledgers) = (Arc::new(webhook.sink()?), state.ledgers.clone());
        let mut options = EventSinkOptions::new(&self.name, receiver, sources, ledgers);
        options.parallel = webhook.parallel.map_or(options.parallel, usize::from);
        options.confirm = guard.confirm.map_or(options.confirm, |span| span.0);
        Ok(options)
    }

    fn claims(&self, source: &SourceConfig) -> Result<ClaimSource, String> {
        if let Some(rest) = &self.rest {
            let pods = source.pods.as_ref().ok_or("an inventory is fed with pods: name pods")?;
            return rest.source(pods).map(ClaimSource::Pods);
        }
        match (&source.services, &source.endpoints) {
            (Some(services), _) if self.ipvs.is_some() => {
                services.virtual_source().map(ClaimSource::VirtualServices)
            }
            (Some(services), _) => Ok(ClaimSource::Services(services.source())),
            (None, Some(_)) if self.ipvs.is_some() => {
                Err("IPVS is fed with services, which say their virtual address: name services".into())
            }
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
        let rest = self.rest.as_ref();
        let rest = rest.into_iter().flat_map(|rest| [&rest.token, &rest.certificate_authority]).flatten();
        key.chain(webhooks).chain(authority).chain(rest.map(PathBuf::as_path))
    }
}

/// The problem of a sink without a kind, or with several.
pub(super) const ONE_SINK: &str = "must have exactly one of dns, haproxy, ipvs, rest and webhook";

/// Parses networks.
fn networks(texts: &[String]) -> Result<Vec<IpNet>, String> {
    let network = |text: &String| {
        text.parse().map_err(|_| format!("{text:?} is no network, such as 10.0.0.0/8 or 127.0.0.1/32"))
    };
    texts.iter().map(network).collect()
}

/// Returns the connection options of a receiver or an inventory.
fn http(timeout: Option<Span>, ca: Option<&Path>, allow: &[String]) -> Result<HttpOptions, String> {
    let mut options = HttpOptions::default();
    options.time_limit = timeout.map_or(options.time_limit, |span| span.0);
    options.ca = ca.map(Path::to_owned);
    options.allow = networks(allow)?;
    Ok(options)
}

//! The configuration file of a notifier.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::{ConfigError, Configuration, ModelFault, Span};

use crate::desired::{ClaimSource, EndpointSource, ServiceSource, Template};
use crate::plan::PlanOptions;
use crate::service::SinkOptions;
use crate::sink::Sink;
use crate::sink::dns::{DnsKey, DnsOptions, DnsSink};
use crate::sink::haproxy::{HaproxyOptions, HaproxySink};

/// Configuration of a notifier.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NotifyConfig {
    /// The cluster. Default: as kubectl finds it.
    #[serde(default)]
    pub cluster: ClusterConfig,
    /// Leader election: the notifier that holds the Lease works. Default: none, for a notifier beside its balancer.
    pub election: Option<ElectionConfig>,
    /// State on disk.
    pub state: Option<StateConfig>,
    /// Address of health and metrics. Default: none.
    pub listen: Option<SocketAddr>,
    /// Limits of removals.
    #[serde(default)]
    pub guard: GuardConfig,
    /// The sinks.
    pub sinks: Vec<SinkConfig>,
}

/// The cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterConfig {
    /// The kubeconfig. Default: `$KUBECONFIG`, then `~/.kube/config`, then the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The context. Default: its current one.
    pub context: Option<String>,
}

/// Leader election.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElectionConfig {
    /// The Lease, as `NAMESPACE/NAME`.
    pub lease: String,
    /// Time that other candidates wait after the last renewal. Default 15 s.
    pub duration: Option<Span>,
}

/// State on disk.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateConfig {
    /// A folder of its own. `skopos notify status` finds the notifier by the socket in it.
    pub folder: PathBuf,
}

/// Limits of removals.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuardConfig {
    /// Removals are done only if the view is proven to be at most this old. Default 30 s.
    pub max_age: Option<Span>,
    /// Additions are done as long as the view is at most this old. Default 1 h.
    pub add_when_stale: Option<Span>,
    /// Delay until a list may confirm a removal that was not seen. Default 30 s.
    pub confirm: Option<Span>,
    /// Share of all serving values that may be lost within ten minutes, in percent. Default 30.
    pub percent: Option<u8>,
    /// Number of values that may be lost in any case. Default 10.
    pub at_least: Option<u32>,
    /// Number of values that may be removed in a minute. Default 60.
    pub per_minute: Option<u32>,
    /// The last value of a name stays as long as its owner is there. Default true.
    pub keep_last: Option<bool>,
    /// Time for which a value may fail its checks before it loses its traffic. Default 5 s.
    pub settle: Option<Span>,
}

/// A sink and its sources. It has exactly one of `dns` and `haproxy`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SinkConfig {
    /// Its name, for people and metrics.
    pub name: String,
    /// A zone of a DNS server.
    pub dns: Option<DnsConfig>,
    /// A running HAProxy.
    pub haproxy: Option<HaproxyConfig>,
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

/// Objects that ask for names. It has exactly one of `services` and `endpoints`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceConfig {
    /// Services that say their names in an annotation.
    pub services: Option<ServicesConfig>,
    /// The endpoints of Services.
    pub endpoints: Option<EndpointsConfig>,
}

/// Services that say their names in an annotation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServicesConfig {
    /// The annotation. Default `external-dns.alpha.kubernetes.io/hostname`, as external-dns has it.
    pub annotation: Option<String>,
    /// Types: `LoadBalancer`, `ClusterIP`, `NodePort`, `ExternalName`. Default: all.
    #[serde(default)]
    pub types: Vec<String>,
    /// Labels that they have to have; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The endpoints of Services.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointsConfig {
    /// Only of headless Services, or only of others. Default: all.
    pub headless: Option<bool>,
    /// Labels of the Service; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For DNS: the name within the zone, with `{service}` and `{namespace}`. Default `{service}.{namespace}`.
    pub name: Option<String>,
}

/// The annotation of external-dns, so that existing Services work.
const HOSTNAME: &str = "external-dns.alpha.kubernetes.io/hostname";
const SERVICE_TYPES: [&str; 4] = ["LoadBalancer", "ClusterIP", "NodePort", "ExternalName"];
/// Size of a file with a secret.
const MAX_SECRET: u64 = 64 * 1024;

impl Configuration for NotifyConfig {
    const TITLE: &'static str = "Configuration of the Skopos notifier";

    fn faults(&self) -> Vec<ModelFault> {
        let mut faults = Vec::new();
        let mut fault = |field: String, problem: String| faults.push(ModelFault { field, problem });
        let mut names = BTreeSet::new();
        for (index, sink) in self.sinks.iter().enumerate() {
            let at = format!("sinks[{index}]");
            if sink.name.is_empty() || !names.insert(sink.name.as_str()) {
                fault(format!("{at}.name"), format!("{:?} is empty or the name of another sink", sink.name));
            }
            if usize::from(sink.dns.is_some()) + usize::from(sink.haproxy.is_some()) != 1 {
                fault(at.clone(), "must have exactly one of dns and haproxy".into());
            }
            if sink.from.is_empty() {
                fault(
                    format!("{at}.from"),
                    "is empty: the sink would have nothing; name services or endpoints".into(),
                );
            }
            for (number, source) in sink.from.iter().enumerate() {
                let at = format!("{at}.from[{number}]");
                if source.services.is_some() == source.endpoints.is_some() {
                    fault(at.clone(), "must have exactly one of services and endpoints".into());
                }
                if sink.haproxy.is_some() && source.services.is_some() {
                    fault(at.clone(), "a balancer is fed with endpoints: name endpoints".into());
                }
                let types = source.services.iter().flat_map(|services| &services.types);
                for wrong in types.filter(|name| !SERVICE_TYPES.contains(&name.as_str())) {
                    fault(
                        format!("{at}.services.types"),
                        format!("{wrong:?} is no type of Services: {}", SERVICE_TYPES.join(", ")),
                    );
                }
                if let Err(problem) = sink.source(source) {
                    fault(at, problem);
                }
            }
        }
        if self.sinks.is_empty() {
            fault("sinks".into(), "is empty: there would be nothing to do; name a sink".into());
        }
        if self.guard.percent.is_some_and(|percent| percent > 100) {
            fault("guard.percent".into(), "is more than 100".into());
        }
        if let Some(election) = &self.election
            && election.lease().is_none()
        {
            fault("election.lease".into(), format!("{:?} is not NAMESPACE/NAME", election.lease));
        }
        faults
    }
}

impl NotifyConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read or anything in it is wrong: all of it is told.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        skopos_config::read(path)
    }

    /// Checks a text.
    ///
    /// # Errors
    /// When anything in it is wrong: all of it is told.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        skopos_config::parse(text)
    }

    /// Makes the sinks, with the secrets that their files have now.
    ///
    /// # Errors
    /// When a file cannot be read, or what is in it cannot be used; with the name of the sink.
    pub fn sinks(&self) -> Result<Vec<SinkOptions>, String> {
        let made = self.sinks.iter().map(|sink| {
            sink.options(&self.guard, self.state.as_ref())
                .map_err(|problem| format!("sink {}: {problem}", sink.name))
        });
        made.collect()
    }

    /// Returns the files with secrets: what is in them belongs to the configuration.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let keys = self.sinks.iter().filter_map(|sink| sink.dns.as_ref()?.key.as_ref());
        keys.map(|key| key.secret.clone()).collect()
    }

    /// Returns the socket of commands, if there is a folder for it.
    pub fn socket(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|state| state.folder.join("notify.sock"))
    }
}

impl ElectionConfig {
    /// Returns the namespace and the name of the Lease.
    pub fn lease(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.lease.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some((namespace, name))
    }
}

impl GuardConfig {
    fn options(&self) -> PlanOptions {
        let default = PlanOptions::default();
        let span = |span: Option<Span>, default| span.map_or(default, |span| span.0);
        PlanOptions {
            max_age: span(self.max_age, default.max_age),
            add_when_stale: span(self.add_when_stale, default.add_when_stale),
            confirm: span(self.confirm, default.confirm),
            fraction: self.percent.map_or(default.fraction, |percent| f64::from(percent) / 100.0),
            at_least: self.at_least.map_or(default.at_least, |count| count as usize),
            per_minute: self.per_minute.unwrap_or(default.per_minute),
            keep_last: self.keep_last.unwrap_or(default.keep_last),
            settle: span(self.settle, default.settle),
            drain: default.drain,
        }
    }
}

impl SinkConfig {
    fn options(&self, guard: &GuardConfig, state: Option<&StateConfig>) -> Result<SinkOptions, String> {
        let mut plan = guard.options();
        let sink: Arc<dyn Sink> = match (&self.dns, &self.haproxy) {
            (Some(dns), _) => Arc::new(dns.sink()?),
            (None, Some(haproxy)) => {
                plan.drain = haproxy.drain.map_or(plan.drain, |span| span.0);
                Arc::new(haproxy.sink())
            }
            (None, None) => return Err("must have exactly one of dns and haproxy".into()),
        };
        let sources = self.from.iter().map(|source| self.source(source)).collect::<Result<_, _>>()?;
        let mut options = SinkOptions::new(&self.name, sink, sources);
        options.plan = plan;
        options.state = state.map(|state| state.folder.clone());
        if self.haproxy.is_some() {
            options.observe_every /= 2;
        }
        options.observe_every = self.observe.map_or(options.observe_every, |span| span.0);
        Ok(options)
    }

    fn source(&self, source: &SourceConfig) -> Result<ClaimSource, String> {
        if let Some(services) = &source.services {
            return Ok(ClaimSource::Services(ServiceSource {
                annotation: services.annotation.clone().unwrap_or_else(|| HOSTNAME.into()),
                types: services.types.clone(),
                labels: services.labels.clone(),
            }));
        }
        let Some(endpoints) = &source.endpoints else {
            return Err("must have one of services and endpoints".into());
        };
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
        Ok(ClaimSource::Endpoints(EndpointSource {
            headless: endpoints.headless,
            labels: endpoints.labels.clone(),
            name: name.map_err(|error| error.to_string())?,
            ports: self.haproxy.is_some(),
        }))
    }
}

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
        let file = self.secret.display();
        let unreadable = |error: std::io::Error| format!("the secret in {file} cannot be read: {error}");
        if std::fs::metadata(&self.secret).map_err(unreadable)?.len() > MAX_SECRET {
            return Err(format!("{file} is too large for a secret"));
        }
        let text = std::fs::read_to_string(&self.secret).map_err(unreadable)?;
        let secret = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text.trim())
            .map_err(|_| {
                format!(
                    "the secret in {file} is not base64: it is what tsig-keygen writes between the quotes"
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
sinks:
- name: zone
  dns: {zone: apps.example.test, server: '127.0.0.1:53', ttl: 30s}
  from:
  - services: {types: [LoadBalancer]}
  - endpoints: {headless: true, name: '{service}'}
- name: edge
  haproxy: {socket: /run/haproxy/admin.sock, drain: 2m}
  from: [{endpoints: {labels: {edge: 'true'}}}]
";

    #[test]
    fn a_good_file_makes_sinks() {
        let sinks = NotifyConfig::parse(GOOD).unwrap().sinks().unwrap();
        assert_eq!(sinks.iter().map(|sink| sink.name.as_str()).collect::<Vec<_>>(), ["zone", "edge"]);
        assert_eq!(sinks[1].plan.drain.as_secs(), 120);
    }

    #[test]
    fn the_example_loads_and_names_every_field() {
        let example = include_str!("../../../docs/notify.example.yaml");
        NotifyConfig::parse(example).unwrap_or_else(|error| panic!("{error}"));
        let schema = skopos_config::json_schema::<NotifyConfig>();
        let definitions =
            schema["$defs"].as_object().into_iter().flat_map(|all| all.values()).chain([&schema]);
        let fields =
            definitions.filter_map(|part| part["properties"].as_object()).flat_map(|fields| fields.keys());
        let missing: Vec<_> = fields.filter(|field| !example.contains(&format!("{field}:"))).collect();
        assert!(missing.is_empty(), "docs/notify.example.yaml does not name {missing:?}");
    }

    #[test]
    fn every_problem_is_told_with_its_line() {
        let bad = GOOD
            .replace("ttl: 30s", "ttl: soon")
            .replace("name: edge", "name: edge\n  dnss: {}")
            .replace("{labels: {edge: 'true'}}", "{headles: true}");
        let error = NotifyConfig::parse(&bad).unwrap_err().to_string();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines.len(), 3, "{error}");
        assert!(lines[0].starts_with("line 3, ") && lines[0].contains("sinks[0].dns.ttl"), "{error}");
        assert!(lines[1].starts_with("line 8, ") && lines[1].contains("dns"), "{error}");
        assert!(lines[2].contains("headless"), "{error}");
    }

    #[test]
    fn what_cannot_be_meant_is_told_too() {
        let bad = "election: {lease: notify}\nguard: {percent: 200}\nsinks:\n- {name: a, from: []}\n- name: a\n  haproxy: {socket: /s, backend: '{pod}'}\n  from: [{services: {types: [Loadbalancer]}}, {endpoints: {}}]\n";
        let error = NotifyConfig::parse(bad).unwrap_err().to_string();
        for part in [
            "NAMESPACE/NAME",
            "more than 100",
            "exactly one of dns and haproxy",
            "is empty",
            "another sink",
            "fed with endpoints",
            "Loadbalancer",
            "there is no {pod}",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

//! The configuration file of a notifier.

mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use skopos_bucket::BucketConfig;
use skopos_config::{ConfigError, Configuration, ModelFault, Span};

use self::sink::ONE_SINK;
pub use self::sink::{
    DnsConfig, HaproxyConfig, IpvsConfig, KeyConfig, RestConfig, SinkConfig, WebhookConfig,
};
use self::source::SERVICE_TYPES;
pub use self::source::{EndpointsConfig, ObjectsConfig, PodsConfig, ServicesConfig, SourceConfig};
use crate::event::{LedgerBucket, LedgerFolder, LedgerStore};
use crate::plan::PlanOptions;
use crate::service::NotifierSink;

/// Configuration of a notifier.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NotifyConfig {
    /// The cluster. Default: as kubectl finds it.
    #[serde(default)]
    pub cluster: ClusterConfig,
    /// Leader election: the notifier that holds the Lease works. Default: none, for a notifier beside its balancer.
    pub election: Option<ElectionConfig>,
    /// State that outlives the process. Webhooks and the commands to a running notifier need it. Default: none is kept.
    pub state: Option<StateConfig>,
    /// Address of `/healthz`, `/readyz` and `/metrics`. Default: none.
    pub listen: Option<SocketAddr>,
    /// Limits of additions and removals.
    #[serde(default)]
    pub guard: GuardConfig,
    /// The sinks, at least one.
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
    /// Time that other candidates wait after the last renewal. Default 15s.
    pub duration: Option<Span>,
}

/// State that outlives the process.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateConfig {
    /// A folder of its own. `skopos notify status` finds the notifier by the socket in it.
    pub folder: PathBuf,
    /// The place of the ledgers of webhooks, for replicas that elect a leader: each continues where the one before has ended.
    /// The service must have conditional writes (`If-Match`). Default: the folder.
    pub bucket: Option<BucketConfig>,
}

/// The state of all sinks.
struct OpenState {
    folder: PathBuf,
    ledgers: Arc<dyn LedgerStore>,
}

/// Limits of removals.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuardConfig {
    /// Maximum proven age of the view for removals. Default 30s.
    pub max_age: Option<Span>,
    /// Maximum age of the view for additions. Default 1h.
    pub add_when_stale: Option<Span>,
    /// Delay after which a list may confirm a removal that the watch did not show. Default 30s.
    pub confirm: Option<Span>,
    /// Share of all serving values that may be lost within ten minutes, in percent; at most 100. Default 30.
    pub percent: Option<u8>,
    /// Number of values that may be lost in any case. Default 10.
    pub at_least: Option<u32>,
    /// Number of values that may be removed in a minute. Default 60.
    pub per_minute: Option<u32>,
    /// Keep the last value of a name while its owner exists. Default true.
    pub keep_last: Option<bool>,
    /// Time that an endpoint may be not ready before it loses traffic. Default 5s.
    pub settle: Option<Span>,
}

impl Configuration for NotifyConfig {
    const TITLE: &'static str = "Configuration of the Skopos notifier";

    fn faults(&self) -> Vec<ModelFault> {
        let mut faults = Vec::new();
        let mut fault = |field: String, problem: String| faults.push(ModelFault { field, problem });
        let mut names = BTreeSet::new();
        for (index, sink) in self.sinks.iter().enumerate() {
            let at = format!("sinks[{index}]");
            // Names of ledgers are made of it.
            if sink.name.is_empty() || !names.insert(crate::file_name(&sink.name)) {
                let problem = "is empty or the name of another sink; only letters, digits and - count";
                fault(format!("{at}.name"), format!("{:?} {problem}", sink.name));
            }
            if sink.kinds() != 1 {
                fault(at.clone(), ONE_SINK.into());
            }
            if let Some((field, problem)) = sink.problem() {
                fault(format!("{at}.{field}"), problem);
            }
            if let Some(webhook) = &sink.webhook {
                if self.state.is_none() {
                    fault(
                        at.clone(),
                        "a webhook needs state.folder: there it remembers what was delivered".into(),
                    );
                }
                if webhook.parallel == Some(0) {
                    fault(format!("{at}.webhook.parallel"), "is 0: nothing would be delivered".into());
                }
            }
            if sink.from.is_empty() {
                fault(
                    format!("{at}.from"),
                    "is empty: the sink would have nothing; name services, endpoints, pods or objects".into(),
                );
            }
            let mut resources = BTreeSet::new();
            for (number, source) in sink.from.iter().enumerate() {
                let at = format!("{at}.from[{number}]");
                if source.kinds() != 1 {
                    fault(
                        at.clone(),
                        "must have exactly one of services, endpoints, pods and objects".into(),
                    );
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
                if let Some(objects) = &source.objects
                    && !resources.insert(&objects.kind)
                {
                    fault(
                        format!("{at}.objects.kind"),
                        format!("{:?} is there already: name each resource once in a sink", objects.kind),
                    );
                }
                if let Err(problem) = sink.check(source) {
                    fault(at, problem);
                }
            }
        }
        let bucket = self.state.as_ref().and_then(|state| state.bucket.as_ref());
        for (field, problem) in bucket.into_iter().flat_map(BucketConfig::problems) {
            fault(format!("state.bucket.{field}"), problem);
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
    /// When the file cannot be read or is invalid. The error has all problems.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        skopos_config::read(path)
    }

    /// Checks a text.
    ///
    /// # Errors
    /// When the text is invalid. The error has all problems.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        skopos_config::parse(text)
    }

    /// Makes the sinks, with the secrets that their files have now.
    ///
    /// # Errors
    /// When a file cannot be read, or what is in it cannot be used; with the name of the sink.
    pub fn sinks(&self) -> Result<Vec<NotifierSink>, String> {
        let state = self.state.as_ref().map(OpenState::new).transpose()?;
        let made = self.sinks.iter().map(|sink| {
            sink.options(&self.guard, state.as_ref())
                .map_err(|problem| format!("sink {}: {problem}", sink.name))
        });
        made.collect()
    }

    /// Returns the files with secrets. Their content is part of the configuration.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let bucket = self.state.as_ref().and_then(|state| state.bucket.as_ref());
        let sinks = self.sinks.iter().flat_map(SinkConfig::secret_files);
        sinks.chain(bucket.into_iter().flat_map(BucketConfig::files)).map(Path::to_owned).collect()
    }

    /// Returns the socket of commands, if there is a folder for it.
    pub fn socket(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|state| state.folder.join("notify.sock"))
    }
}

impl OpenState {
    fn new(config: &StateConfig) -> Result<Self, String> {
        let ledgers: Arc<dyn LedgerStore> = match &config.bucket {
            Some(bucket) => {
                let bucket = bucket.open().map_err(|problem| format!("state.bucket: {problem}"))?;
                Arc::new(LedgerBucket::new(bucket))
            }
            None => Arc::new(LedgerFolder::new(&config.folder)),
        };
        Ok(Self { folder: config.folder.clone(), ledgers })
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
            steps: default.steps,
        }
    }
}

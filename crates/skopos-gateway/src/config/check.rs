//! Validation of the configuration beyond the schema.

use std::time::Duration;

use skopos_config::ModelFault;
use skopos_wire::label_problems;

use super::{AccessProvider, AuthorizationMode, Clusters, Config, LoopbackTrust, MemberDown, Span};

/// Returns every setting that the schema allows and that makes no sense.
pub(super) fn check(config: &Config) -> Vec<ModelFault> {
    let mut faults = Faults(Vec::new());
    faults.listen(config);
    faults.authentication(config);
    faults.authorization(config);
    faults.times(config);
    faults.checkpoints(config);
    faults.labels(config);
    faults.cluster_profiles(config);
    faults.0
}

/// The maximum lifetime of a cached decision. A longer one would outlive a revoked right.
const MAX_CACHE_TTL: Duration = Duration::from_secs(10);

/// The maximum shutdown delay. Service managers kill a process that takes longer to end.
const MAX_SHUTDOWN_DELAY: Duration = Duration::from_secs(60);

/// The shortest interval of checkpoints. A shorter one would cause constant writing.
const MIN_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

struct Faults(Vec<ModelFault>);

impl Faults {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(ModelFault { field: field.into(), problem: problem.into() });
    }

    fn listen(&mut self, config: &Config) {
        if config.listen.shutdown_delay() > MAX_SHUTDOWN_DELAY {
            self.add("listen.shutdownDelay", format!("must be at most {}", Span(MAX_SHUTDOWN_DELAY)));
        }
        let address = config.listen.address;
        if !address.ip().is_loopback() {
            if config.listen.tls.is_none() {
                self.add("listen.address", format!("{address} is not loopback, so it needs listen.tls"));
            }
            if !config.authentication.is_configured() {
                self.add(
                    "listen.address",
                    format!("{address} is not loopback, so it needs an authentication"),
                );
            }
        }
    }

    fn authentication(&mut self, config: &Config) {
        let ways = &config.authentication;
        if config.listen.tls.is_none() {
            for (name, on) in [
                ("clientCertificates", ways.client_certificates.is_some()),
                ("tokenReview", ways.token_review.is_some()),
                ("oidc", ways.oidc.is_some()),
            ] {
                if on {
                    self.add(
                        format!("authentication.{name}"),
                        "needs listen.tls: without it secrets travel in the clear",
                    );
                }
            }
        }
        let certificates = ways.client_certificates.as_ref();
        if certificates.is_some_and(|own| own.shared_accounts && own.system_of.is_some()) {
            self.add(
                "authentication.clientCertificates.systemOf",
                "names one cluster, and sharedAccounts means all of them: leave one of them out",
            );
        }
        if let Some(oidc) = &ways.oidc {
            if !oidc.issuer.starts_with("https://") || oidc.issuer.parse::<http::Uri>().is_err() {
                self.add("authentication.oidc.issuer", "must be a URL that begins with https://");
            }
            if oidc.audiences.is_empty() {
                self.add(
                    "authentication.oidc.audiences",
                    "must name at least one: tokens for others would do otherwise",
                );
            }
        }
    }

    fn authorization(&mut self, config: &Config) {
        let rules = &config.authorization;
        let used = rules.mode == AuthorizationMode::Policy || rules.when_member_is_down == MemberDown::Policy;
        if used && rules.policy.is_empty() {
            self.add("authorization.policy", "has no rule, so everything would be denied");
        }
        if !used && !rules.policy.is_empty() {
            self.add(
                "authorization.policy",
                "is not used: set mode or whenMemberIsDown to Policy, or leave it out",
            );
        }
        for (n, rule) in rules.policy.iter().enumerate() {
            if rule.users.is_empty() && rule.groups.is_empty() {
                self.add(
                    format!("authorization.policy[{n}]"),
                    "names neither users nor groups, so it allows no user anything",
                );
            }
        }
        if rules.cache.0 > MAX_CACHE_TTL {
            self.add("authorization.cache", format!("must be at most {}", Span(MAX_CACHE_TTL)));
        }
        if rules.loopback == LoopbackTrust::Trusted && config.authentication.is_configured() {
            self.add("authorization.loopback", "Trusted is for gateways without authentication only");
        }
        if rules.loopback == LoopbackTrust::Trusted && !config.listen.address.ip().is_loopback() {
            self.add("authorization.loopback", "Trusted is for gateways that listen on loopback only");
        }
    }

    fn labels(&mut self, config: &Config) {
        let Clusters { kubeconfigs, folders, .. } = &config.clusters;
        let files = kubeconfigs.iter().enumerate();
        let files = files.map(|(n, file)| (format!("clusters.kubeconfigs[{n}].labels"), &file.labels));
        let folders = folders.iter().enumerate();
        let folders = folders.map(|(n, folder)| (format!("clusters.folders[{n}].labels"), &folder.labels));
        for (field, labels) in files.chain(folders) {
            for problem in labels.iter().flat_map(|(key, value)| label_problems(key, value)) {
                self.add(field.clone(), problem);
            }
        }
    }

    fn cluster_profiles(&mut self, config: &Config) {
        for (n, source) in config.clusters.cluster_profiles.iter().enumerate() {
            let field = format!("clusters.clusterProfiles[{n}]");
            if source.providers.is_empty() {
                self.add(format!("{field}.providers"), "must name at least one, with its credentials");
            }
            for (m, provider) in source.providers.iter().enumerate() {
                let field = format!("{field}.providers[{m}]");
                let AccessProvider { name, exec, token_file, secret } = provider;
                let ways = [exec.is_some(), token_file.is_some(), secret.is_some()];
                if ways.into_iter().filter(|way| *way).count() != 1 {
                    self.add(field.clone(), "must have one of exec, tokenFile and secret");
                }
                if source.providers.iter().take(m).any(|earlier| earlier.name == *name) {
                    self.add(field.clone(), format!("{name:?} is named before: remove one of them"));
                }
                if secret.is_some() && source.namespaces.is_empty() {
                    self.add(
                        field,
                        "has tokens in Secrets, and all Secrets beside the profiles are watched: set namespaces",
                    );
                }
            }
        }
    }

    fn times(&mut self, config: &Config) {
        let limits = &config.listen.limits;
        for (field, span) in [
            ("listen.limits.handshake", limits.handshake),
            ("listen.limits.idle", limits.idle),
            ("listen.limits.stalled", limits.stalled),
            ("cache.memberDeadline", config.cache.member_deadline),
            ("cache.firstUseDeadline", config.cache.first_use_deadline),
            ("outbound.deadline", config.outbound.deadline),
            ("outbound.streams.lifetime", config.outbound.streams.lifetime),
            ("outbound.streams.idle", config.outbound.streams.idle),
        ] {
            if span.0.is_zero() {
                self.add(field, "must be more than nothing");
            }
        }
        if limits.header_bytes.0 < 8 * 1024 || limits.header_bytes.0 > 1024 * 1024 {
            self.add("listen.limits.headerBytes", "must be between 8Ki and 1Mi");
        }
    }

    fn checkpoints(&mut self, config: &Config) {
        let Some(checkpoints) = &config.checkpoints else { return };
        if checkpoints.every.0 < MIN_CHECKPOINT_INTERVAL {
            self.add("checkpoints.every", format!("must be at least {}", Span(MIN_CHECKPOINT_INTERVAL)));
        }
        match (&checkpoints.folder, &checkpoints.bucket) {
            (None, None) => self.add("checkpoints", "must name a folder or a bucket"),
            (Some(_), Some(_)) => {
                self.add("checkpoints.bucket", "is in place of a folder: there is one already")
            }
            _ => {}
        }
        let Some(bucket) = &checkpoints.bucket else { return };
        for (field, problem) in bucket.problems() {
            self.add(format!("checkpoints.bucket.{field}"), problem);
        }
    }
}

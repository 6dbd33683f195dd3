//! A zone of a DNS server, by dynamic updates (RFC 2136) with TSIG (RFC 8945).
//!
//! A name is a fully qualified name of the zone, and a value an address or the target of a CNAME. Beside each name stands a mark,
//! `_skopos.NAME TXT "heritage=skopos,v=1,owner=…,res=service/ns/name,uid=…"`. It is a *prerequisite* of every write, which the server checks
//! itself: what bears no mark of ours is never changed, whoever wrote it, and whenever. One message changes one name.

mod client;
mod message;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use domain::base::iana::Rcode;
use domain::tsig;

use self::client::{DnsClient, ExchangeError};
use self::records::Zone;
use super::{EntryMark, Observed, Sink, SinkError, SinkStep, SinkTraits, StepAction, StepOutcome};
use crate::entry::{EntryName, EntryValue, Readiness};

/// A zone of a DNS server.
pub struct DnsSink {
    options: DnsOptions,
    client: DnsClient,
}

/// Options of a DNS sink.
#[derive(Clone)]
#[non_exhaustive]
pub struct DnsOptions {
    /// The zone, without the dot at its end.
    pub zone: String,
    /// The primary server.
    pub server: SocketAddr,
    /// The key of updates and transfers.
    pub key: Option<DnsKey>,
    /// The TTL of what is written. Default 30 s.
    pub ttl: Duration,
    /// The owner in our marks. Names with another owner's mark are left alone.
    pub owner: String,
    /// Bound on an exchange; a transfer may take ten times as long. Default 5 s.
    pub time_limit: Duration,
    /// The clock of signatures.
    pub clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// A TSIG key.
#[derive(Clone, Debug)]
pub struct DnsKey {
    key: Arc<tsig::Key>,
}

/// Addresses of one name. BIND 9.18 answers SERVFAIL to more in one RRset, and stores none.
const MAX_VALUES: usize = 100;

impl DnsOptions {
    /// Returns the defaults for a zone on a server.
    pub fn new(zone: impl Into<String>, server: SocketAddr, owner: impl Into<String>) -> Self {
        Self {
            zone: zone.into().trim_end_matches('.').to_ascii_lowercase(),
            server,
            key: None,
            ttl: Duration::from_secs(30),
            owner: owner.into(),
            time_limit: Duration::from_secs(5),
            clock: Arc::new(SystemTime::now),
        }
    }
}

impl DnsKey {
    /// Makes a key of its name, its algorithm (such as `hmac-sha256`) and its secret.
    ///
    /// # Errors
    /// When the name is no domain name, or the algorithm is not known.
    pub fn new(name: &str, algorithm: &str, secret: &[u8]) -> Result<Self, String> {
        let algorithm: tsig::Algorithm = algorithm.parse().map_err(|_| {
            format!(
                "algorithm {algorithm:?} of the key is not known: hmac-sha256, hmac-sha384 or hmac-sha512"
            )
        })?;
        let parsed =
            name.parse().map_err(|error| format!("the key's name {name:?} is no domain name: {error}"))?;
        let key = tsig::Key::new(algorithm, secret, parsed, None, None).map_err(|error| error.to_string())?;
        Ok(Self { key: Arc::new(key) })
    }
}

impl DnsSink {
    /// Makes a sink; it connects with the first call.
    ///
    /// # Errors
    /// When the zone is no domain name.
    pub fn new(options: DnsOptions) -> Result<Self, String> {
        message::name(&options.zone).map_err(|error| format!("zone {:?}: {error}", options.zone))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if options.owner.is_empty() || options.owner.len() > 63 || !options.owner.bytes().all(is_plain) {
            return Err(format!(
                "owner {:?} has to be of 1 to 63 letters, digits, '-', '_', '.' and '/'",
                options.owner
            ));
        }
        let client = DnsClient::new(&options);
        Ok(Self { options, client })
    }

    fn zone(&self) -> Zone<'_> {
        Zone { origin: &self.options.zone, owner: &self.options.owner, ttl: self.options.ttl }
    }
}

#[async_trait]
impl Sink for DnsSink {
    fn traits(&self) -> SinkTraits {
        SinkTraits { drains: false, most_values: Some(MAX_VALUES) }
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        let zone = &self.options.zone;
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(is_plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name == *zone {
            return Err(format!("{name} is the zone itself, which is not written"));
        }
        let Some(relative) = name.strip_suffix(zone.as_str()).and_then(|rest| rest.strip_suffix('.')) else {
            return Err(format!("{text:?} is not in zone {zone}"));
        };
        if relative.starts_with("*.") || relative == "*" {
            return Err(format!("{name} is a wildcard, which is not written"));
        }
        if relative.starts_with(&format!("{}.", records::MARK)) {
            return Err(format!("{name} is where marks stand"));
        }
        // The mark needs room before the name (RFC 1035 2.3.4: 255 octets on the wire).
        if name.len() + records::MARK.len() + 1 > 253 || !relative.split('.').all(label) {
            return Err(format!("{text:?} is no host name"));
        }
        Ok(name.into())
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.to_string().into());
        }
        let target = text.trim_end_matches('.').to_ascii_lowercase();
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !target.bytes().all(is_host) || message::name(&target).is_err() || !target.contains('.') {
            return Err(format!("{text:?} is neither an address nor a host name"));
        }
        Ok(target.into())
    }

    fn select(&self, members: &mut BTreeMap<EntryValue, Readiness>) {
        let is_address = |value: &EntryValue| value.parse::<IpAddr>().is_ok();
        if members.keys().any(is_address) {
            // A CNAME cannot stand beside anything (RFC 1034 3.6.2).
            members.retain(|value, _| is_address(value));
        } else if let Some(first) = members.keys().next().cloned() {
            members.retain(|value, _| *value == first);
        }
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let records = self.client.transfer().await.map_err(ExchangeError::into_error)?;
        Ok(self.zone().observed(records))
    }

    async fn read(&self, names: &BTreeSet<EntryName>) -> Result<Observed, SinkError> {
        let records = self.client.query(names).await.map_err(ExchangeError::into_error)?;
        let mut observed = self.zone().observed(records);
        observed.entries.retain(|name, _| names.contains(name));
        Ok(observed)
    }

    async fn apply(&self, step: &SinkStep) -> StepOutcome {
        let before = match step.before.as_ref().map(|entry| &entry.mark) {
            None => None,
            Some(EntryMark::Ours(Some(mark))) => Some(mark),
            Some(_) => return StepOutcome::Conflict(format!("{} bears no mark of ours", step.name)),
        };
        let zone = self.zone();
        let update = match &step.action {
            StepAction::Put { owner, members } if !members.is_empty() => {
                let values: Vec<_> = members.keys().collect();
                message::Update { name: &step.name, before, after: Some((owner, values)) }
            }
            _ => message::Update { name: &step.name, before, after: None },
        };
        let request = match update.build(&zone) {
            Ok(request) => request,
            Err(error) => return StepOutcome::Refused(format!("{}: {error}", step.name)),
        };
        match self.client.update(request).await {
            Ok(Rcode::NOERROR) => StepOutcome::Done,
            Ok(rcode @ (Rcode::NXRRSET | Rcode::YXRRSET | Rcode::YXDOMAIN | Rcode::NXDOMAIN)) => {
                StepOutcome::Conflict(format!("{} is not as it was last seen ({rcode})", step.name))
            }
            Ok(rcode) => {
                StepOutcome::Refused(format!("{}: {}", step.name, self.client.explain(rcode, "updates")))
            }
            Err(ExchangeError::Before(problem)) => StepOutcome::Unreachable(problem),
            Err(ExchangeError::After(problem)) => StepOutcome::Unknown(problem),
            Err(ExchangeError::Refused(problem) | ExchangeError::Incomplete(problem)) => {
                StepOutcome::Refused(problem)
            }
        }
    }
}

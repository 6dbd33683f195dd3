//! A zone of a DNS server, by dynamic updates (RFC 2136) with TSIG (RFC 8945).
//!
//! A name is a fully qualified name of the zone, and a value is an address or the target of a CNAME. Each name has a mark,
//! `_skopos.NAME TXT "heritage=skopos,v=1,owner=…,res=service/ns/name,uid=…"`. The mark is a *prerequisite* of every write, which
//! the server checks: a record without our mark is never changed, even one that was just added. One message changes one name. The
//! fence is another prerequisite: the server refuses writes of an earlier leader.

mod client;
mod fence;
mod message;
mod notices;
mod records;
mod servers;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use domain::base::iana::Rcode;
use domain::tsig;
use tokio::time::Instant;

use self::client::{DnsClient, ExchangeError};
use self::fence::{FenceHolder, Standing, Verdict};
use self::message::FenceCheck;
use self::notices::NoticeListener;
use self::records::Zone;
use self::servers::Servers;
use self::version::ZoneVersion;
use super::{EntryMark, Fence, Observed, Sink, SinkError, SinkStep, SinkTraits, StepAction, StepOutcome};
use crate::entry::{EntryName, EntryValue, Readiness};

/// A zone of a DNS server.
pub struct DnsSink {
    options: DnsOptions,
    servers: Servers,
    fence: FenceHolder,
    version: ZoneVersion,
    notices: Option<NoticeListener>,
}

/// Options of a DNS sink.
#[derive(Clone)]
#[non_exhaustive]
pub struct DnsOptions {
    /// The zone, without the dot at its end.
    pub zone: String,
    /// The servers of the zone. The one that accepts updates, the primary, is read and written.
    pub servers: Vec<SocketAddr>,
    /// The key of updates and transfers.
    pub key: Option<DnsKey>,
    /// The TTL of written records. Default 30 s.
    pub ttl: Duration,
    /// The owner in our marks. Names with another owner's mark are left alone.
    pub owner: String,
    /// Time limit of an exchange; a transfer may take ten times as long. Default 5 s.
    pub time_limit: Duration,
    /// Address at which NOTIFY messages of the servers are received. Default: none.
    pub notify: Option<SocketAddr>,
    /// Time for which another server may lack what the primary has before this is a problem. Default 60 s.
    pub lag_limit: Duration,
    /// The clock of signatures.
    pub clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// A TSIG key.
#[derive(Clone, Debug)]
pub struct DnsKey {
    /// The key, and then the previous one, if any.
    keys: Vec<Arc<tsig::Key>>,
}

/// Maximum number of attempts to take over the fence. Each failure means that another writer was faster.
const FENCE_ATTEMPTS: usize = 4;
/// Maximum number of addresses of one name. BIND 9.18 answers SERVFAIL to more in one RRset, and stores none.
const MAX_VALUES: usize = 100;

impl DnsOptions {
    /// Returns the defaults for a zone with one server.
    pub fn new(zone: impl Into<String>, server: SocketAddr, owner: impl Into<String>) -> Self {
        Self {
            zone: zone.into().trim_end_matches('.').to_ascii_lowercase(),
            servers: vec![server],
            key: None,
            ttl: Duration::from_secs(30),
            owner: owner.into(),
            time_limit: Duration::from_secs(5),
            notify: None,
            lag_limit: Duration::from_secs(60),
            clock: Arc::new(SystemTime::now),
        }
    }
}

impl DnsKey {
    /// Makes a key from its name, its algorithm (such as `hmac-sha256`) and its secret.
    ///
    /// # Errors
    /// When the name is not a domain name, or the algorithm is unknown.
    pub fn new(name: &str, algorithm: &str, secret: &[u8]) -> Result<Self, String> {
        let algorithm: tsig::Algorithm = algorithm.parse().map_err(|_| {
            format!(
                "algorithm {algorithm:?} of the key is not known: hmac-sha256, hmac-sha384 or hmac-sha512"
            )
        })?;
        let parsed =
            name.parse().map_err(|error| format!("the key's name {name:?} is no domain name: {error}"))?;
        let key = tsig::Key::new(algorithm, secret, parsed, None, None).map_err(|error| error.to_string())?;
        Ok(Self { keys: vec![Arc::new(key)] })
    }

    /// Adds the previous key, which is tried once if a server does not accept this one.
    #[must_use]
    pub fn or(mut self, before: Self) -> Self {
        self.keys.extend(before.keys);
        self
    }
}

impl DnsSink {
    /// Makes a sink; it connects with the first call.
    ///
    /// # Errors
    /// When the zone is not a domain name.
    pub fn new(options: DnsOptions) -> Result<Self, String> {
        message::name(&options.zone).map_err(|error| format!("zone {:?}: {error}", options.zone))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if options.owner.is_empty() || options.owner.len() > 63 || !options.owner.bytes().all(is_plain) {
            return Err(format!(
                "owner {:?} has to be of 1 to 63 letters, digits, '-', '_', '.' and '/'",
                options.owner
            ));
        }
        if options.servers.is_empty() {
            return Err(format!("zone {:?} has no server: name the primary", options.zone));
        }
        let fence = FenceHolder::new(&options.zone, &options.owner);
        message::name(&fence.at).map_err(|error| format!("{}: {error}: choose a shorter owner", fence.at))?;
        let notices = options.notify.map(|at| NoticeListener::new(at, &options.zone, &options.servers));
        Ok(Self { servers: Servers::new(&options), fence, version: ZoneVersion::default(), notices, options })
    }

    fn zone(&self) -> Zone<'_> {
        Zone { origin: &self.options.zone, owner: &self.options.owner, ttl: self.options.ttl }
    }

    /// Returns the fence that writes to this server require. The first write in a term takes it over.
    async fn hold_fence(
        &self,
        (server, client): (usize, &DnsClient),
        fence: Option<&Fence>,
    ) -> Result<Option<String>, StepOutcome> {
        match self.fence.standing() {
            Standing::Held { fence: held, server: at, text } if held.as_ref() == fence && at == server => {
                return Ok(text);
            }
            Standing::Lost { fence: lost, problem } if Some(&lost) == fence => {
                return Err(StepOutcome::Fenced(problem));
            }
            _ => {}
        }
        let text = match fence {
            Some(fence) => Some(self.take_fence(client, fence).await?),
            None => client.text(&self.fence.at).await.map_err(not_sent)?,
        };
        self.fence.set(Standing::Held { fence: fence.cloned(), server, text: text.clone() });
        Ok(text)
    }

    /// Evaluates the answer of the primary. If it does not answer as a primary, the primary is chosen again.
    fn exchanged<T>(&self, server: usize, answer: Result<T, ExchangeError>) -> Result<T, SinkError> {
        answer.inspect_err(|_| self.servers.doubt(server)).map_err(ExchangeError::into_error)
    }

    /// Sets the fence to that of this term, unless a later term has it.
    async fn take_fence(&self, client: &DnsClient, fence: &Fence) -> Result<String, StepOutcome> {
        let (at, ours) = (&self.fence.at, self.fence.text(fence));
        for _ in 0..FENCE_ATTEMPTS {
            // The fence is read back, because a secondary that forwards updates does not have it yet.
            let found = client.text(at).await.map_err(not_sent)?;
            match self.fence.judge(fence, found.as_deref()).map_err(StepOutcome::Refused)? {
                Verdict::Ours => return Ok(ours),
                Verdict::Fenced(problem) => return Err(self.lost(Some(fence), problem)),
                Verdict::TakeOver => {}
            }
            tracing::info!(zone = self.options.zone, found, ours, "takes the fence over");
            let before = FenceCheck { at, text: found.as_deref() };
            let request = message::replace_fence(&self.zone(), before, Some(&ours));
            let request = request.map_err(|error| StepOutcome::Refused(format!("{at}: {error}")))?;
            self.version.written();
            match client.update(request).await.map_err(not_sent)? {
                // Another writer was faster: its record is read.
                Rcode::NOERROR | Rcode::NXRRSET | Rcode::YXRRSET => {}
                rcode => {
                    return Err(StepOutcome::Refused(format!("{at}: {}", client.explain(rcode, "updates"))));
                }
            }
        }
        Err(StepOutcome::Refused(format!(
            "{at}: DNS server {} takes an update of it and does not show it, or other writers change it all the time: name the primary in `servers`, and one `owner` for each deployment",
            client.server
        )))
    }

    /// Explains why a prerequisite of a write was not met: the fence, or the name.
    async fn unmet(
        &self,
        client: &DnsClient,
        fence: Option<&Fence>,
        held: Option<&str>,
        conflict: String,
    ) -> StepOutcome {
        // If the fence cannot be read, the next write compares it again.
        let Ok(found) = client.text(&self.fence.at).await else { return StepOutcome::Conflict(conflict) };
        if found.as_deref() == held {
            return StepOutcome::Conflict(conflict);
        }
        let problem = match fence {
            Some(fence) => self.fence.lost(fence, found.as_deref()),
            None => self.fence.guest_lost(),
        };
        self.lost(fence, problem)
    }

    /// Remembers that another process writes.
    fn lost(&self, fence: Option<&Fence>, problem: String) -> StepOutcome {
        self.fence.set(match fence {
            Some(fence) => Standing::Lost { fence: fence.clone(), problem: problem.clone() },
            None => Standing::Unclaimed,
        });
        StepOutcome::Fenced(problem)
    }
}

/// Returns the outcome of a write whose preceding exchange failed, so that nothing was sent.
fn not_sent(error: ExchangeError) -> StepOutcome {
    match error {
        ExchangeError::Before(problem) | ExchangeError::After(problem) => StepOutcome::Unreachable(problem),
        ExchangeError::Refused(problem)
        | ExchangeError::KeyRefused(problem)
        | ExchangeError::Incomplete(problem) => StepOutcome::Refused(problem),
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
        if records::is_within(relative, records::FENCE) {
            return Err(format!("{name} is where fences stand"));
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
            // A CNAME excludes all other records of its name (RFC 1034 3.6.2).
            members.retain(|value, _| is_address(value));
        } else if let Some(first) = members.keys().next().cloned() {
            members.retain(|value, _| *value == first);
        }
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let begun = Instant::now();
        let (server, client) = self.servers.confirmed_primary().await.map_err(ExchangeError::into_error)?;
        let (serial, records) = self.exchanged(server, client.transfer().await)?;
        self.version.transferred(server, serial, begun);
        Ok(self.zone().observed(records))
    }

    async fn is_unchanged(&self) -> Result<bool, SinkError> {
        let now = Instant::now();
        let (server, serial) = self.servers.serial().await.map_err(ExchangeError::into_error)?;
        Ok(self.version.is(server, serial, now))
    }

    async fn changed(&self) {
        match &self.notices {
            Some(notices) => notices.next().await,
            None => std::future::pending().await,
        }
    }

    async fn read(&self, names: &BTreeSet<EntryName>) -> Result<Observed, SinkError> {
        let (server, client) = self.servers.primary().await.map_err(ExchangeError::into_error)?;
        let records = self.exchanged(server, client.query(names).await)?;
        let mut observed = self.zone().observed(records);
        observed.entries.retain(|name, _| names.contains(name));
        Ok(observed)
    }

    async fn apply(&self, step: &SinkStep, fence: Option<&Fence>) -> StepOutcome {
        let before = match step.before.as_ref().map(|entry| &entry.mark) {
            None => None,
            Some(EntryMark::Ours(Some(mark))) => Some(&**mark),
            Some(_) => return StepOutcome::Conflict(format!("{} bears no mark of ours", step.name)),
        };
        let (server, client) = match self.servers.primary().await {
            Ok(primary) => primary,
            Err(error) => return not_sent(error),
        };
        let held = match self.hold_fence((server, client), fence).await {
            Ok(held) => held,
            Err(outcome) => {
                self.servers.doubt(server);
                return outcome;
            }
        };
        let after = match &step.action {
            StepAction::Put { owner, members } if !members.is_empty() => {
                Some((&**owner, members.keys().collect()))
            }
            _ => None,
        };
        let check = FenceCheck { at: &self.fence.at, text: held.as_deref() };
        let request =
            match (message::Update { name: &step.name, fence: check, before, after }).build(&self.zone()) {
                Ok(request) => request,
                Err(error) => return StepOutcome::Refused(format!("{}: {error}", step.name)),
            };
        self.version.written();
        let answer = client.update(request).await;
        if !matches!(
            answer,
            Ok(Rcode::NOERROR | Rcode::NXRRSET | Rcode::YXRRSET | Rcode::YXDOMAIN | Rcode::NXDOMAIN)
        ) {
            self.servers.doubt(server);
        }
        match answer {
            Ok(Rcode::NOERROR) => StepOutcome::Done,
            Ok(rcode @ (Rcode::NXRRSET | Rcode::YXRRSET | Rcode::YXDOMAIN | Rcode::NXDOMAIN)) => {
                let conflict = format!("{} is not as it was last seen ({rcode})", step.name);
                self.unmet(client, fence, held.as_deref(), conflict).await
            }
            Ok(rcode) => StepOutcome::Refused(format!("{}: {}", step.name, client.explain(rcode, "updates"))),
            Err(ExchangeError::After(problem)) => StepOutcome::Unknown(problem),
            Err(error) => not_sent(error),
        }
    }

    async fn release(&self) -> Result<(), String> {
        let describe = |error: ExchangeError| error.into_error().to_string();
        let (_, client) = self.servers.confirmed_primary().await.map_err(describe)?;
        let at = &self.fence.at;
        let Some(found) = client.text(at).await.map_err(describe)? else { return Ok(()) };
        let before = FenceCheck { at, text: Some(&found) };
        let request =
            message::replace_fence(&self.zone(), before, None).map_err(|error| error.to_string())?;
        match client.update(request).await.map_err(describe)? {
            Rcode::NOERROR => Ok(()),
            Rcode::NXRRSET => {
                Err(format!("the fence {at} has changed: a notifier runs with this zone; stop it first"))
            }
            rcode => Err(format!("{at}: {}", client.explain(rcode, "updates"))),
        }
    }

    fn problem(&self) -> Option<String> {
        let notices = self.notices.as_ref().and_then(NoticeListener::problem);
        let problems: Vec<_> = notices.into_iter().chain(self.servers.problem()).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

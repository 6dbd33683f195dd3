//! Signed exchanges with one server over TCP, each with a time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use domain::base::iana::{Rcode, Rtype, TsigRcode};
use domain::base::message_builder::AdditionalBuilder;
use domain::base::{Message, ParsedName, Serial};
use domain::rdata::tsig::{Time48, Tsig};
use domain::tsig::{ClientSequence, ClientTransaction, Key, ValidationError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DnsOptions;
use super::message::{self, BuildError};
use super::records::{ZoneData, ZoneRecord};
use crate::entry::EntryName;
use crate::sink::SinkError;

pub(super) struct DnsClient {
    zone: String,
    pub(super) server: SocketAddr,
    /// The key, and the previous one during a rotation.
    keys: Vec<Arc<Key>>,
    /// The index of the key that was accepted last.
    accepted: AtomicUsize,
    time_limit: Duration,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// An error of an exchange.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// Nothing was sent.
    Before(String),
    /// It was sent, but no answer came.
    After(String),
    /// The server refused.
    Refused(String),
    /// The server does not accept the key, and has done nothing.
    KeyRefused(String),
    /// The answer is incomplete, or not the server's.
    Incomplete(String),
}

type RequestBuilder = AdditionalBuilder<Vec<u8>>;

/// Maximum number of records of a zone. A larger zone is not read.
const MAX_RECORDS: usize = 2_000_000;
/// Maximum number of questions on one connection.
const BATCH: usize = 100;

impl DnsClient {
    pub(super) fn new(options: &DnsOptions, server: SocketAddr) -> Self {
        Self {
            zone: options.zone.clone(),
            server,
            keys: options.key.as_ref().map_or_else(Vec::new, |key| key.keys.clone()),
            accepted: AtomicUsize::new(0),
            time_limit: options.time_limit,
            clock: options.clock.clone(),
        }
    }

    /// Sends an update; returns the server's response code.
    pub(super) async fn update(&self, request: RequestBuilder) -> Result<Rcode, ExchangeError> {
        self.with_key(|key| self.send_update(key, request.clone())).await
    }

    async fn send_update(
        &self,
        key: Option<Arc<Key>>,
        mut request: RequestBuilder,
    ) -> Result<Rcode, ExchangeError> {
        let transaction = self.sign(key, &mut request)?;
        let mut stream = self.connect().await?;
        let exchange = async {
            send(&mut stream, &request.finish()).await?;
            receive(&mut stream).await
        };
        let answer = timeout(self.time_limit, exchange).await;
        let answer = answer.map_err(|_| ExchangeError::After(self.late()))?;
        let mut answer = answer.map_err(|error| ExchangeError::After(format!("{}: {error}", self.server)))?;
        self.verify(transaction.as_ref(), &mut answer, "updates")?;
        Ok(answer.header().rcode())
    }

    /// Checks that the server itself accepts updates of the zone, by an update that changes nothing.
    ///
    /// # Errors
    /// When it does not, or does not answer.
    pub(super) async fn takes_updates(&self) -> Result<(), ExchangeError> {
        match self.update(message::probe(&self.zone)?).await? {
            Rcode::NOERROR => Ok(()),
            rcode => Err(ExchangeError::Refused(self.explain(rcode, "updates"))),
        }
    }

    /// Reads the serial of the zone.
    pub(super) async fn serial(&self) -> Result<Serial, ExchangeError> {
        let records = self.answers(&[(self.zone.clone(), Rtype::SOA)]).await?;
        records.iter().find_map(ZoneRecord::serial).ok_or_else(|| {
            ExchangeError::Incomplete(format!("DNS server {} has no SOA of {}", self.server, self.zone))
        })
    }

    /// Reads the text at a name; `None` if there is none.
    pub(super) async fn text(&self, at: &str) -> Result<Option<String>, ExchangeError> {
        let records = self.answers(&[(at.to_owned(), Rtype::TXT)]).await?;
        let mut texts = records.into_iter().filter_map(|record| match record.data {
            ZoneData::Text(text) => Some(text),
            _ => None,
        });
        let text = texts.next();
        match texts.next() {
            None => Ok(text),
            Some(_) => Err(ExchangeError::Refused(format!(
                "{at} has several texts where one is expected: delete them"
            ))),
        }
    }

    /// Reads the whole zone, with the serial that it has.
    pub(super) async fn transfer(&self) -> Result<(Serial, Vec<ZoneRecord>), ExchangeError> {
        self.with_key(|key| self.read_transfer(key)).await
    }

    async fn read_transfer(&self, key: Option<Arc<Key>>) -> Result<(Serial, Vec<ZoneRecord>), ExchangeError> {
        let mut request = message::transfer(&self.zone)?;
        let now = self.now();
        let sequence = key.map(|key| ClientSequence::request(key, &mut request, now));
        let mut sequence =
            sequence.transpose().map_err(|_| ExchangeError::Incomplete("the request is too large".into()))?;
        let mut stream = self.connect().await?;
        let reading = async {
            let broken = |error: std::io::Error| {
                ExchangeError::Incomplete(format!(
                    "{}: the transfer of {} was cut: {error}",
                    self.server, self.zone
                ))
            };
            send(&mut stream, &request.finish()).await.map_err(broken)?;
            let mut records = Vec::new();
            let mut serials = Vec::new();
            while serials.len() < 2 {
                let mut part = receive(&mut stream).await.map_err(broken)?;
                let rcode = part.header().rcode();
                if let Some(sequence) = &mut sequence {
                    let said = said_of_key(&part);
                    let checked = sequence.answer(&mut part, self.now());
                    checked.map_err(|error| self.not_verified(error, said, rcode, "transfers"))?;
                }
                if rcode != Rcode::NOERROR {
                    return Err(ExchangeError::Refused(self.explain(rcode, "transfers")));
                }
                for record in message::records(&part).map_err(ExchangeError::Incomplete)? {
                    serials.extend(record.serial());
                    if serials.is_empty() {
                        return Err(ExchangeError::Incomplete(format!(
                            "{}: the transfer does not begin with the SOA",
                            self.server
                        )));
                    }
                    records.push(record);
                }
                if records.len() > MAX_RECORDS {
                    return Err(ExchangeError::Incomplete(format!(
                        "{}: more than {MAX_RECORDS} records",
                        self.server
                    )));
                }
            }
            if let Some(sequence) = sequence {
                sequence
                    .done()
                    .map_err(|error| ExchangeError::Incomplete(format!("{}: {error}", self.server)))?;
            }
            match serials[..] {
                [first, last] if first == last => Ok((first, records)),
                _ => Err(ExchangeError::Incomplete(format!("{}: the transfer has several SOA", self.server))),
            }
        };
        timeout(self.time_limit * 10, reading)
            .await
            .unwrap_or_else(|_| Err(ExchangeError::Incomplete(self.late())))
    }

    /// Reads the records of some names, and their marks.
    pub(super) async fn query(&self, names: &BTreeSet<EntryName>) -> Result<Vec<ZoneRecord>, ExchangeError> {
        let mut questions = Vec::new();
        for name in names {
            let plain = name.as_str().to_owned();
            questions.extend([
                (plain.clone(), Rtype::A),
                (plain, Rtype::AAAA),
                (message::mark_of(name), Rtype::TXT),
            ]);
        }
        self.answers(&questions).await
    }

    /// Asks questions, and returns all answers.
    async fn answers(&self, questions: &[(String, Rtype)]) -> Result<Vec<ZoneRecord>, ExchangeError> {
        let mut records = Vec::new();
        for batch in questions.chunks(BATCH) {
            let asking = self.with_key(|key| self.ask(key, batch));
            let answered = timeout(self.time_limit, asking)
                .await
                .unwrap_or_else(|_| Err(ExchangeError::After(self.late())));
            records.extend(answered?);
        }
        Ok(records)
    }

    async fn ask(
        &self,
        key: Option<Arc<Key>>,
        questions: &[(String, Rtype)],
    ) -> Result<Vec<ZoneRecord>, ExchangeError> {
        let mut stream = self.connect().await?;
        let cut = |error: std::io::Error| ExchangeError::After(format!("{}: {error}", self.server));
        let mut pending = BTreeMap::new();
        let mut bytes = Vec::new();
        for (id, (name, rtype)) in (0..).zip(questions) {
            let mut request = message::question(name, *rtype)?;
            request.header_mut().set_id(id);
            let transaction = self.sign(key.clone(), &mut request)?;
            frame(&mut bytes, &request.finish());
            pending.insert(id, (transaction, name.clone()));
        }
        // Both run at once, because a server need not read further requests before its answers are read.
        let (mut reader, mut writer) = stream.split();
        let writing = async { writer.write_all(&bytes).await.map_err(cut) };
        let reading = async {
            let mut records = Vec::new();
            while !pending.is_empty() {
                let mut answer = receive(&mut reader).await.map_err(cut)?;
                let unknown =
                    || ExchangeError::Incomplete(format!("{}: an answer to another question", self.server));
                let (transaction, name) = pending.remove(&answer.header().id()).ok_or_else(unknown)?;
                self.verify(transaction.as_ref(), &mut answer, "queries")?;
                let (rcode, is_authoritative) = (answer.header().rcode(), answer.header().aa());
                if !matches!(rcode, Rcode::NOERROR | Rcode::NXDOMAIN) {
                    return Err(ExchangeError::Refused(self.explain(rcode, "queries")));
                }
                if !is_authoritative {
                    return Err(ExchangeError::Incomplete(format!(
                        "{} has no authority for {name}",
                        self.server
                    )));
                }
                let found = message::records(&answer).map_err(ExchangeError::Incomplete)?;
                records.extend(found.into_iter().filter(|record| record.name == name));
            }
            Ok(records)
        };
        let ((), records) = tokio::try_join!(writing, reading)?;
        Ok(records)
    }

    /// Runs an exchange with the key that was accepted last. If the server does not accept it, another one is tried once.
    async fn with_key<T, F: Future<Output = Result<T, ExchangeError>>>(
        &self,
        exchange: impl Fn(Option<Arc<Key>>) -> F,
    ) -> Result<T, ExchangeError> {
        let accepted = self.accepted.load(Ordering::Relaxed);
        let first = exchange(self.keys.get(accepted).cloned()).await;
        let other = (0..self.keys.len()).find(|index| *index != accepted);
        let (Err(ExchangeError::KeyRefused(problem)), Some(other)) = (&first, other) else { return first };
        let second = exchange(self.keys.get(other).cloned()).await;
        if matches!(second, Err(ExchangeError::KeyRefused(_))) {
            return first;
        }
        tracing::info!(server = %self.server, problem, "the server accepts the other secret of the key");
        self.accepted.store(other, Ordering::Relaxed);
        second
    }

    fn sign(
        &self,
        key: Option<Arc<Key>>,
        request: &mut RequestBuilder,
    ) -> Result<Option<ClientTransaction<Arc<Key>>>, ExchangeError> {
        let transaction = key.map(|key| ClientTransaction::request(key, request, self.now()));
        transaction
            .transpose()
            .map_err(|_| ExchangeError::Refused("the message is too large to be signed".into()))
    }

    fn verify(
        &self,
        transaction: Option<&ClientTransaction<Arc<Key>>>,
        answer: &mut Message<Vec<u8>>,
        what: &str,
    ) -> Result<(), ExchangeError> {
        let rcode = answer.header().rcode();
        let Some(transaction) = transaction else { return Ok(()) };
        let said = said_of_key(answer);
        transaction.answer(answer, self.now()).map_err(|error| self.not_verified(error, said, rcode, what))
    }

    async fn connect(&self) -> Result<TcpStream, ExchangeError> {
        match timeout(self.time_limit, TcpStream::connect(self.server)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(ExchangeError::Before(format!("DNS server {}: {error}", self.server))),
            Err(_) => Err(ExchangeError::Before(format!(
                "DNS server {}: no connection in {:?}",
                self.server, self.time_limit
            ))),
        }
    }

    fn now(&self) -> Time48 {
        Time48::from_u64(self.seconds())
    }

    fn seconds(&self) -> u64 {
        (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    fn late(&self) -> String {
        format!("DNS server {}: no answer in {:?}", self.server, self.time_limit)
    }

    /// Explains why a signature was not accepted, and what to do. A server that does not accept the key does not sign its error:
    /// it only improves the message.
    fn not_verified(
        &self,
        error: ValidationError,
        said: Option<(TsigRcode, Option<u64>)>,
        rcode: Rcode,
        what: &str,
    ) -> ExchangeError {
        let server = self.server;
        let key = self.keys.first().map_or_else(String::new, |key| key.name().to_string());
        let problem = match said {
            Some((TsigRcode::BADKEY, _)) => {
                format!(
                    "DNS server {server} does not know the key {key} for this: add it there, correct `key.name`, or name the primary if it is a secondary"
                )
            }
            Some((TsigRcode::BADSIG, _)) => {
                format!(
                    "DNS server {server} has another secret or algorithm for the key {key}: compare `key.secret` and `key.algorithm`"
                )
            }
            Some((TsigRcode::BADTIME, theirs)) => {
                let apart = theirs
                    .map_or_else(String::new, |theirs| format!(" {} s", self.seconds().abs_diff(theirs)));
                format!(
                    "the clocks of this machine and of DNS server {server} are{apart} apart, and 300 s are allowed: set the clock"
                )
            }
            _ if rcode != Rcode::NOERROR => self.explain(rcode, what),
            _ => format!(
                "an answer of DNS server {server} is not signed by the key {key} ({error}): compare the keys and the clocks"
            ),
        };
        match said {
            Some((TsigRcode::BADKEY | TsigRcode::BADSIG, _)) => ExchangeError::KeyRefused(problem),
            _ => ExchangeError::Refused(problem),
        }
    }

    /// Explains an answer's code in this context, and what to do.
    pub(super) fn explain(&self, rcode: Rcode, what: &str) -> String {
        let (server, zone) = (self.server, &self.zone);
        match rcode {
            Rcode::REFUSED => format!(
                "DNS server {server} refuses {what} of {zone} (REFUSED): allow them for this key (BIND: allow-update or update-policy, allow-transfer), or name the primary if it is a secondary"
            ),
            Rcode::NOTAUTH => format!(
                "DNS server {server} is not authoritative for {zone} (NOTAUTH), is a secondary of it, or does not accept the key: correct `zone` or `servers`"
            ),
            Rcode::NOTIMP => format!(
                "DNS server {server} takes no {what} of {zone} (NOTIMP): it is a secondary; name the primary in `servers`"
            ),
            Rcode::NOTZONE => format!("a name is not in zone {zone} (NOTZONE)"),
            Rcode::SERVFAIL => format!(
                "DNS server {server} fails at {what} of {zone} (SERVFAIL): see its log (a full disk, a journal it cannot write)"
            ),
            rcode => format!("DNS server {server} answers {rcode} to {what} of {zone}"),
        }
    }
}

impl ExchangeError {
    pub(super) fn into_error(self) -> SinkError {
        match self {
            Self::Before(problem) | Self::After(problem) => SinkError::Unreachable(problem),
            Self::Refused(problem) | Self::KeyRefused(problem) => SinkError::Refused(problem),
            Self::Incomplete(problem) => SinkError::Incomplete(problem),
        }
    }
}

impl From<BuildError> for ExchangeError {
    fn from(error: BuildError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Returns the TSIG error of an answer, and its server's time.
fn said_of_key(answer: &Message<Vec<u8>>) -> Option<(TsigRcode, Option<u64>)> {
    let mut records = answer.additional().ok()?.limit_to::<Tsig<_, ParsedName<_>>>();
    let record = records.next()?.ok()?;
    let said = record.data().error();
    (said != TsigRcode::NOERROR).then(|| (said, record.data().other_time().map(u64::from)))
}

/// Adds a message with its length before it, as over TCP (RFC 1035 4.2.2).
fn frame(bytes: &mut Vec<u8>, message: &[u8]) {
    bytes.extend(u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(message);
}

pub(super) async fn send(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(message.len() + 2);
    frame(&mut bytes, message);
    stream.write_all(&bytes).await
}

pub(super) async fn receive(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
) -> std::io::Result<Message<Vec<u8>>> {
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes).await?;
    let short = |_| std::io::Error::new(std::io::ErrorKind::InvalidData, "too short for a DNS message");
    Message::try_from_octets(bytes).map_err(short)
}

//! A running HAProxy, through its Runtime API.
//!
//! A name is a backend of haproxy.cfg, and a value is `address:port` of one of its servers. Our servers are named
//! `skopos-ADDRESS:PORT`; all others are left alone. A reload of HAProxy forgets dynamic servers, and the next observation finds
//! them missing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{
    EntryMark, Fence, Observed, ObservedEntry, ObservedMember, Serving, Sink, SinkError, SinkStep,
    SinkTraits, StepAction, StepOutcome,
};
use crate::entry::{EntryName, EntryValue};

/// A running HAProxy.
#[derive(Clone, Debug)]
pub struct HaproxySink {
    options: HaproxyOptions,
}

/// Options of a HAProxy sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HaproxyOptions {
    /// The socket of `stats socket PATH level admin`.
    pub socket: PathBuf,
    /// Health checks by HAProxy itself. Default true.
    pub check: bool,
    /// Time limit of an exchange. Default 5 s.
    pub time_limit: Duration,
}

/// Prefix of the names of our servers.
const PREFIX: &str = "skopos-";
/// Maximum length of a command line. HAProxy accepts 16 KiB (`tune.bufsize`).
const MAX_LINE: usize = 8 * 1024;
/// Maximum length of an answer: about 300,000 servers.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;
/// `srv_admin_state`: in maintenance by command, and draining by command (HAProxy's management guide, "show servers state").
const MAINTENANCE: u32 = 0x01;
const DRAINING: u32 = 0x08;

impl HaproxyOptions {
    /// Returns the defaults for a socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), check: true, time_limit: Duration::from_secs(5) }
    }
}

impl HaproxySink {
    /// Makes a sink; it connects with the first call.
    pub fn new(options: HaproxyOptions) -> Self {
        Self { options }
    }

    /// Sends commands, and returns HAProxy's answer.
    async fn send(&self, commands: &str) -> Result<String, SendError> {
        let socket = self.options.socket.display();
        let connect = timeout(self.options.time_limit, UnixStream::connect(&self.options.socket));
        let mut stream = match connect.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(SendError::Before(format!("{socket}: {error}"))),
            Err(_) => {
                return Err(SendError::Before(format!(
                    "{socket}: no connection in {:?}",
                    self.options.time_limit
                )));
            }
        };
        let exchange = async {
            stream.write_all(commands.as_bytes()).await?;
            stream.write_all(b"\n").await?;
            let mut answer = Vec::new();
            stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        match timeout(self.options.time_limit, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(SendError::After(format!("{socket}: {error}"))),
            Err(_) => Err(SendError::After(format!("{socket}: no answer in {:?}", self.options.time_limit))),
        }
    }

    fn commands(&self, step: &SinkStep) -> Vec<String> {
        let none = BTreeMap::new();
        let wanted = match &step.action {
            StepAction::Put { members, .. } => members,
            StepAction::Delete => &none,
        };
        let before = step.before.as_ref().map(|entry| entry.members.clone()).unwrap_or_default();
        let backend = &step.name;
        let server = |value: &EntryValue| format!("{backend}/{}", server_name(value));
        let mut commands = Vec::new();
        for (value, serving) in wanted {
            let server = server(value);
            let state = if *serving == Serving::Active { "ready" } else { "drain" };
            if !before.contains_key(value) {
                let check = if self.options.check { " check" } else { "" };
                commands.push(format!("add server {server} {value}{check} weight 1"));
                if self.options.check {
                    commands.push(format!("enable health {server}"));
                }
            }
            let is_so =
                before.get(value).is_some_and(|member| member.draining == (*serving == Serving::Draining));
            if !is_so {
                commands.push(format!("set server {server} state {state}"));
            }
        }
        for (value, member) in before.iter().filter(|(value, _)| !wanted.contains_key(*value)) {
            let server = server(value);
            commands.push(format!("set server {server} state maint"));
            if member.connections > 0 {
                commands.push(format!("shutdown sessions server {server}"));
            }
            commands.push(format!("del server {server}"));
        }
        commands
    }
}

#[async_trait]
impl Sink for HaproxySink {
    fn traits(&self) -> SinkTraits {
        SinkTraits { drains: true, most_values: None }
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if !text.is_empty() && text.len() <= 200 && text.bytes().all(is_plain) {
            return Ok(text.into());
        }
        Err(format!("{text:?} is no name of a backend: letters, digits, '-', '_', '.' and ':' only"))
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        let address: SocketAddr = text.parse().map_err(|_| format!("{text:?} is not ADDRESS:PORT"))?;
        Ok(address.to_string().into())
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let answer = self.send("show servers state; show servers conn; show backend").await;
        let answer = answer.map_err(|failure| SinkError::Unreachable(failure.into_text()))?;
        parse(&answer).ok_or_else(|| {
            let start: String = answer.chars().take(100).collect();
            SinkError::Refused(format!(
                "the socket does not answer as HAProxy's with level admin does: {start:?}"
            ))
        })
    }

    async fn apply(&self, step: &SinkStep, _fence: Option<&Fence>) -> StepOutcome {
        let mut commands = self.commands(step).into_iter().peekable();
        let mut is_begun = false;
        while commands.peek().is_some() {
            let mut line = String::new();
            while let Some(next) =
                commands.next_if(|next| line.is_empty() || line.len() + next.len() < MAX_LINE)
            {
                if !line.is_empty() {
                    line.push(';');
                }
                line.push_str(&next);
            }
            match self.send(&line).await {
                Ok(answer) => {
                    if let Some(refusal) = refusal(&step.name, &answer) {
                        return StepOutcome::Refused(refusal);
                    }
                }
                Err(SendError::Before(problem)) if !is_begun => return StepOutcome::Unreachable(problem),
                Err(failure) => return StepOutcome::Unknown(failure.into_text()),
            }
            is_begun = true;
        }
        StepOutcome::Done
    }
}

enum SendError {
    /// Nothing was sent.
    Before(String),
    /// It may have been done or not.
    After(String),
}

impl SendError {
    fn into_text(self) -> String {
        match self {
            Self::Before(text) | Self::After(text) => text,
        }
    }
}

/// Returns the name of a server. Brackets are not allowed in it.
fn server_name(value: &str) -> String {
    format!("{PREFIX}{}", value.replace(['[', ']'], "_"))
}

/// Finds an error that would recur. Other errors (a server that exists already, or still has connections) show when it is read
/// back.
fn refusal(backend: &EntryName, answer: &str) -> Option<String> {
    answer.lines().map(str::trim).find_map(|line| {
        if line == "No such backend." {
            return Some(format!(
                "HAProxy has no backend {backend}: add `backend {backend}` with `balance roundrobin` to haproxy.cfg and reload it"
            ));
        }
        if line.starts_with("Permission denied") || line.starts_with("Unknown command") {
            return Some(format!(
                "HAProxy's socket does not allow it ({line}): set `level admin` at `stats socket` in haproxy.cfg"
            ));
        }
        (line.contains("lb algo") || line.contains("algorithm")).then(|| {
            format!(
                "backend {backend} takes no dynamic servers ({line}): set `balance roundrobin` or `balance leastconn` in haproxy.cfg"
            )
        })
    })
}

/// Reads the answers to `show servers state`, `show servers conn` and `show backend`; `None` if one of them is incomplete.
fn parse(answer: &str) -> Option<Observed> {
    let mut section = "";
    let mut sections = BTreeSet::new();
    let mut observed = Observed::default();
    let mut connections: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for line in answer.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix("# ") {
            section = header.split_whitespace().next()?;
            sections.insert(section);
            continue;
        }
        let fields: Vec<_> = line.split_whitespace().collect();
        match (section, fields.as_slice()) {
            ("be_id", [_, backend, _, server, address, _, admin, rest @ ..])
                if server.starts_with(PREFIX) =>
            {
                let address: IpAddr = address.parse().ok()?;
                // `srv_port` is the 19th of the documented fields.
                let port: u16 = rest.get(11)?.parse().ok()?;
                let admin: u32 = admin.parse().ok()?;
                let value: EntryValue = SocketAddr::new(address, port).to_string().into();
                let member =
                    ObservedMember { draining: admin & (MAINTENANCE | DRAINING) != 0, connections: 0 };
                let entry = observed.entries.entry((*backend).into()).or_insert_with(|| ObservedEntry {
                    mark: EntryMark::Ours(None),
                    members: BTreeMap::new(),
                    tidy: true,
                });
                entry.members.insert(value, member);
            }
            ("bkname/svname", [name, _, _, _, _, _, used, ..]) => {
                connections.insert(name.split_once('/')?, used.parse().ok()?);
            }
            _ => {}
        }
    }
    for (name, entry) in &mut observed.entries {
        for (value, member) in &mut entry.members {
            member.connections =
                connections.get(&(name.as_str(), server_name(value).as_str())).copied().unwrap_or_default();
        }
    }
    (sections.len() == 3).then_some(observed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight x\n\
        3 k8s 1 skopos-10.0.0.1:80 10.0.0.1 2 8 1 1 0 1 0 2 6 0 0 0 - 80 - 0 0 - - 0\n\
        3 k8s 2 byhand 10.0.0.9 2 0 1 1 0 1 0 2 6 0 0 0 - 80 - 0 0 - - 0\n\
        3 k8s 3 skopos-_fe80::1_:80 fe80::1 2 0 1 1 0 1 0 2 6 0 0 0 - 80 - 0 0 - - 0\n\n\
        # bkname/svname bkid/svid addr port - purge_delay used_cur used_max\n\
        k8s/skopos-10.0.0.1:80 3/1 10.0.0.1 80 - 0 4 0 0 0 0 0 0 0\n\n\
        # name\nk8s\n\n";

    #[test]
    fn a_refusal_is_found_behind_other_answers() {
        let name = EntryName::from("k8s");
        assert_eq!(
            refusal(&name, "New server registered.\n\nAlready exists a server with the same name.\n\n"),
            None
        );
        let found = refusal(&name, "\nAlready exists a server with the same name.\n\nNo such backend.\n");
        assert!(found.is_some_and(|problem| problem.contains("add `backend k8s`")));
    }

    #[test]
    fn a_dump_is_read_whole_or_not_at_all() {
        let observed = parse(ANSWER).unwrap();
        let members = &observed.entries["k8s"].members;
        let drains = ObservedMember { draining: true, connections: 4 };
        let serves = ObservedMember::default();
        assert_eq!(
            *members,
            BTreeMap::from_iter([("10.0.0.1:80".into(), drains), ("[fe80::1]:80".into(), serves)])
        );
        let part = ANSWER.rsplit_once("# name").unwrap().0;
        assert_eq!(parse(part), None);
        assert_eq!(parse("Permission denied\n"), None);
    }
}

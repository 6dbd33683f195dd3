//! The kernel's load balancer (IPVS, also LVS), through the program `ipvsadm`.
//!
//! A name is a virtual service, `tcp/10.8.0.1:80` or `udp/[fd00::1]:53`, and a value is `ADDRESS:PORT` of one of its real
//! servers. Virtual services of TCP and UDP whose address lies in [`IpvsOptions::addresses`] are ours. Those of other addresses
//! or protocols, and those of firewall marks, are neither listed nor touched, so several programs can share a kernel.
//!
//! A server of TCP drains with weight 0: it keeps its connections and gets no new ones, which are refused where no other server is left. A
//! connection counts until the kernel forgets it: two minutes after it was closed, ten seconds after a reset, fifteen minutes after its last packet.
//!
//! UDP has no connections to wait for: where a step asks for draining, the server is removed at once. With `net.ipv4.vs.expire_nodest_conn=1` its
//! clients go to another server with their next packet; without it, packets from the same port are dropped for up to five minutes.
//!
//! The kernel forgets everything at a reboot, and the next observation finds it missing.

mod commands;
mod dump;
mod process;
mod service;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use self::process::{Ipvsadm, RunError};
use self::service::VirtualService;
use super::{Fence, Observed, Sink, SinkError, SinkStep, SinkTraits, StepAction, StepOutcome};
use crate::entry::{EntryName, EntryValue, Readiness};

/// The IPVS of this machine's kernel.
#[derive(Clone, Debug)]
pub struct IpvsSink {
    options: IpvsOptions,
    ipvsadm: Ipvsadm,
}

/// Options of an IPVS sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpvsOptions {
    /// The program. Default `ipvsadm`, as `PATH` finds it.
    pub command: PathBuf,
    /// Addresses of virtual services that are ours.
    pub addresses: Vec<IpNet>,
    /// The scheduler of each virtual service. Default `wlc`.
    pub scheduler: String,
    /// The way to the real servers. Default [`Forward::Masq`].
    pub forward: Forward,
    /// Time limit of a run of the program. Default 5 s.
    pub time_limit: Duration,
}

/// Forwarding of packets to real servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Forward {
    /// Their addresses are translated (`-m`). A real server may have its own port.
    #[default]
    Masq,
    /// They are forwarded unchanged, to servers of the same network that have the virtual address too (`-g`).
    Route,
    /// They are encapsulated in packets to servers that have the virtual address too (`-i`). Servers may be of the other address
    /// family.
    Tunnel,
}

/// Maximum number of attempts to read two dumps that agree.
const READS: usize = 3;

impl IpvsOptions {
    /// Returns the defaults for virtual services of these addresses.
    pub fn at(addresses: impl IntoIterator<Item = IpNet>) -> Self {
        Self {
            command: "ipvsadm".into(),
            addresses: addresses.into_iter().collect(),
            scheduler: "wlc".into(),
            forward: Forward::Masq,
            time_limit: Duration::from_secs(5),
        }
    }

    /// Returns whether virtual services of an address are ours.
    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|addresses| addresses.contains(&address))
    }

    /// Parses the name of a virtual service of ours.
    fn service(&self, text: &str) -> Result<VirtualService, String> {
        let service = VirtualService::parse(text)?;
        if self.has(service.address.ip()) {
            return Ok(service);
        }
        let addresses: Vec<_> = self.addresses.iter().map(IpNet::to_string).collect();
        Err(format!("{} is in none of this sink's addresses: {}", service.address.ip(), addresses.join(", ")))
    }
}

impl IpvsSink {
    /// Makes a sink; it runs the program with the first call.
    ///
    /// # Errors
    /// When no address is ours, or the scheduler is not a valid name.
    pub fn new(options: IpvsOptions) -> Result<Self, String> {
        if options.addresses.is_empty() {
            return Err("addresses of virtual services are missing, such as 10.8.0.0/24".to_owned());
        }
        let scheduler = &options.scheduler;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        // IP_VS_SCHEDNAME_MAXLEN is 16, with the zero at its end.
        if !(1..=15).contains(&scheduler.len()) || !scheduler.bytes().all(is_plain) {
            return Err(format!("scheduler {scheduler:?} is no name of one, such as wlc or rr"));
        }
        let ipvsadm = Ipvsadm { command: options.command.clone(), time_limit: options.time_limit };
        Ok(Self { options, ipvsadm })
    }

    async fn read_once(&self) -> Result<Observed, SinkError> {
        // The first command prints all settings, the second the connections.
        let rules = self.dump(&["-Sn"]).await?;
        let counts = self.dump(&["-Ln", "--exact"]).await?;
        dump::parse(&rules, &counts, &self.options).map_err(SinkError::Incomplete)
    }

    /// Runs the program and returns its complete answer, or an error.
    async fn dump(&self, arguments: &[&str]) -> Result<String, SinkError> {
        let answer = match self.ipvsadm.run(arguments, "").await {
            Ok(answer) => answer,
            Err(RunError::NotStarted(problem) | RunError::NoEnd(problem)) => {
                return Err(SinkError::Unreachable(problem));
            }
            Err(RunError::Cut(problem)) => return Err(SinkError::Incomplete(problem)),
        };
        if answer.code == 0 {
            return Ok(answer.output);
        }
        Err(match commands::cause(&answer.complaint) {
            Some(cause) => SinkError::Refused(cause),
            None => SinkError::Incomplete(format!("ipvsadm {}: {}", arguments.join(" "), answer.summary())),
        })
    }
}

#[async_trait]
impl Sink for IpvsSink {
    fn traits(&self) -> SinkTraits {
        SinkTraits { drains: true, most_values: None }
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        Ok(self.options.service(text)?.name())
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        service::parse_server(text).map(|server| server.to_string().into())
    }

    /// Leaves out servers of a family that none of our virtual addresses has, as for an object with both families.
    fn select(&self, members: &mut BTreeMap<EntryValue, Readiness>) {
        if self.options.forward == Forward::Tunnel {
            return;
        }
        let has_family = |server: SocketAddr| {
            self.options.addresses.iter().any(|addresses| addresses.addr().is_ipv4() == server.is_ipv4())
        };
        members.retain(|value, _| value.parse().is_ok_and(has_family));
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let mut observed = self.read_once().await;
        for _ in 1..READS {
            // Another program may have changed something between the two dumps.
            if !matches!(observed, Err(SinkError::Incomplete(_))) {
                break;
            }
            observed = self.read_once().await;
        }
        observed
    }

    /// Changes one virtual service.
    ///
    /// Servers that it cannot have (of the other address family, or with another port where ports are not translated) are left out, and the
    /// outcome names them; the others are written.
    async fn apply(&self, step: &SinkStep, _fence: Option<&Fence>) -> StepOutcome {
        let service = match self.options.service(step.name.as_str()) {
            Ok(service) => service,
            Err(problem) => return StepOutcome::Refused(problem),
        };
        let commands = match &step.action {
            StepAction::Put { members, .. } => {
                commands::put(service, step.before.as_ref(), members, &self.options)
            }
            StepAction::Delete => commands::delete(service),
        };
        let outcome = if commands.lines.is_empty() {
            StepOutcome::Done
        } else {
            match self.ipvsadm.run(&["-R"], &commands.lines).await {
                Ok(answer) => commands::outcome(step, &answer, &self.options),
                Err(RunError::NotStarted(problem)) => StepOutcome::Unreachable(problem),
                Err(RunError::NoEnd(problem) | RunError::Cut(problem)) => StepOutcome::Unknown(problem),
            }
        };
        match (outcome, commands.left_out) {
            (StepOutcome::Done, Some(problem)) => StepOutcome::Refused(problem),
            (outcome, _) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(forward: Forward) -> IpvsSink {
        let mut options = IpvsOptions::at(["10.8.0.0/24".parse().expect("a network")]);
        options.forward = forward;
        IpvsSink::new(options).expect("a sink")
    }

    #[test]
    fn a_name_is_a_virtual_service_of_our_addresses() {
        let sink = sink(Forward::Masq);
        assert_eq!(sink.name("tcp/10.8.0.1:80").unwrap().as_str(), "tcp/10.8.0.1:80");
        let refused = sink.name("tcp/10.9.0.1:80").unwrap_err();
        assert_eq!(refused, "10.9.0.1 is in none of this sink's addresses: 10.8.0.0/24");
        assert!(sink.name("tcp/[::ffff:10.8.0.1]:80").is_err(), "it is another service of the kernel");
    }

    #[test]
    fn options_are_checked() {
        let problem = |change: fn(&mut IpvsOptions)| {
            let mut options = IpvsOptions::at(["10.8.0.0/24".parse().expect("a network")]);
            change(&mut options);
            IpvsSink::new(options).err().unwrap_or_default()
        };
        assert_eq!(problem(|_| {}), "");
        assert!(problem(|options| options.addresses.clear()).contains("addresses"));
        for scheduler in ["", "wlc -p", "WLC", "sixteen0letters0"] {
            let mut options = IpvsOptions::at(["10.8.0.0/24".parse().expect("a network")]);
            options.scheduler = scheduler.to_owned();
            assert!(IpvsSink::new(options).is_err(), "{scheduler:?}");
        }
    }

    #[test]
    fn selection_drops_servers_of_other_family() {
        let both = || {
            BTreeMap::from([
                ("10.9.0.1:80".into(), Readiness::Ready),
                ("[fd00::1]:80".into(), Readiness::Ready),
            ])
        };
        let mut members = both();
        sink(Forward::Masq).select(&mut members);
        assert_eq!(members.keys().map(|value| &**value).collect::<Vec<_>>(), ["10.9.0.1:80"]);
        let mut members = both();
        sink(Forward::Tunnel).select(&mut members);
        assert_eq!(members, both());
    }

    #[tokio::test]
    async fn missing_program_error_says_what_to_install() {
        let mut options = IpvsOptions::at(["10.8.0.0/24".parse().unwrap()]);
        options.command = "/nonexistent/ipvsadm".into();
        let sink = IpvsSink::new(options).unwrap();
        let Err(SinkError::Unreachable(problem)) = sink.observe().await else { panic!("it is not there") };
        assert!(problem.contains("/nonexistent/ipvsadm") && problem.contains("install"), "{problem}");
        let step = SinkStep {
            name: sink.name("tcp/10.8.0.1:80").unwrap(),
            before: None,
            action: StepAction::Delete,
        };
        assert_eq!(sink.apply(&step, None).await, StepOutcome::Unreachable(problem));
        let elsewhere = SinkStep { name: "tcp/10.9.0.1:80".into(), ..step };
        assert!(matches!(sink.apply(&elsewhere, None).await, StepOutcome::Refused(_)));
    }
}

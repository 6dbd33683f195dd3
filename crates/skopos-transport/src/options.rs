//! Transport options, with the reasons for the defaults.

use std::time::Duration;

use crate::address_filter::AddressFilter;
use crate::class::RequestClass;
use crate::error::ConfigError;
use crate::lag::NEVER;
use crate::via::Via;
use crate::wall_clock::WallClock;

/// Options of a [`Transport`](crate::Transport). The defaults keep the project's detection bounds. [`Duration::MAX`] means
/// "never".
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Bound of one dial: name resolution, TCP, the proxy, TLS and the server's first SETTINGS together. Also the longest
    /// time that a request waits for a connection. Default 10 s.
    pub connect_timeout: Duration,
    /// Silence on a connection, also an idle one, after which a PING is sent. Default 10 s.
    pub ping_interval: Duration,
    /// Time for the answer to a PING before the connection is dead. Default 5 s.
    pub ping_timeout: Duration,
    /// Use of HTTP/2 on `http://` URLs without negotiation (h2c with prior knowledge). Default false, so HTTP/1.1: a server
    /// that only supports HTTP/1.1 would answer the HTTP/2 preface in ways that look like many other faults.
    pub http2_prior_knowledge: bool,
    /// Restriction to HTTP/1.1 in the TLS handshake, for proxies whose HTTP/2 is broken. Default false: HTTP/2 is offered
    /// first.
    pub http1_only: bool,
    /// Maximum number of connections for watches, and again for everything else. Default 64.
    pub max_connections: usize,
    /// The same for HTTP/1.1, where each request needs its own connection. Default 1024.
    pub max_connections_http1: usize,
    /// Maximum number of streams on one HTTP/2 connection, even if the server allows more. Default 1000, as a
    /// kube-apiserver with recommended options allows.
    pub max_streams: usize,
    /// Age at which a connection takes no more requests, plus or minus 20 %, so that clients spread over the servers behind
    /// a load balancer again. Default 1 h.
    pub max_connection_age: Duration,
    /// Time without requests after which an HTTP/2 connection is closed. Default 5 min.
    pub idle_timeout: Duration,
    /// The same for HTTP/1.1, where no PING checks idle connections. Default 30 s.
    pub idle_timeout_http1: Duration,
    /// Filter of the addresses that may be connected to, regardless of the server's DNS name. Default: all. Not with a
    /// proxy, which connects to any address.
    pub addresses: AddressFilter,
    /// A way to the server other than TCP, used while its name does not resolve. Not with a proxy. Default: none.
    pub via: Option<Via>,
    /// Schedule of dials to a server that is down.
    pub backoff: BackoffOptions,
    /// The deadlines of each class of requests.
    pub deadlines: ClassDeadlines,
    /// Bytes that a body (unless it ends) must bring within the progress deadline. Default 1024.
    pub min_progress_bytes: usize,
    /// Minimum interval between renewals of credentials after a 401. The client certificate is renewed too, and if it has
    /// changed, connections with the old one take no more requests. Default 5 s.
    pub credential_refresh_interval: Duration,
    /// Age after which CA and client certificate are read again for a dial; also if the certificate has expired, and after
    /// each TLS failure. If an exec plugin takes more than half of `connect_timeout`, its result is for a later dial; until
    /// then the old settings are used. Default 5 min.
    pub tls_refresh_interval: Duration,
    /// Time for which a cancelled HTTP/2 stream is remembered, so that frames that the server had sent for it are ignored.
    /// Measured by the machine's clock, even in virtual time: a simulation that must be deterministic sets a longer time
    /// than it runs. Default 1 s.
    pub reset_memory: Duration,
    /// The wall clock, compared with the monotonic one each second to detect a suspend. Without one, as in virtual time, nothing is
    /// compared.
    pub wall_clock: Option<WallClock>,
    /// The seed of every random choice, for repeatable tests. Default: random.
    pub seed: Option<u64>,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            http2_prior_knowledge: false,
            http1_only: false,
            max_connections: 64,
            max_connections_http1: 1024,
            max_streams: 1000,
            max_connection_age: Duration::from_secs(3600),
            idle_timeout: Duration::from_secs(300),
            idle_timeout_http1: Duration::from_secs(30),
            addresses: AddressFilter::open(),
            via: None,
            backoff: BackoffOptions::default(),
            deadlines: ClassDeadlines::default(),
            min_progress_bytes: 1024,
            credential_refresh_interval: Duration::from_secs(5),
            tls_refresh_interval: Duration::from_secs(300),
            reset_memory: Duration::from_secs(1),
            wall_clock: Some(WallClock::system()),
            seed: None,
        }
    }
}

impl TransportOptions {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let not_zero = |name, zero| match zero {
            true => Err(ConfigError::Option { name, reason: "must not be zero" }),
            false => Ok(()),
        };
        not_zero("connect_timeout", self.connect_timeout.is_zero())?;
        not_zero("ping_interval", self.ping_interval.is_zero())?;
        not_zero("ping_timeout", self.ping_timeout.is_zero())?;
        not_zero("max_connections", self.max_connections == 0)?;
        not_zero("max_connections_http1", self.max_connections_http1 == 0)?;
        not_zero("max_streams", self.max_streams == 0)?;
        not_zero("backoff.first", self.backoff.first.is_zero())?;
        not_zero("backoff.later", self.backoff.later.is_zero())
    }

    /// Limits the times to values that can be added to a clock's.
    pub(crate) fn within_clocks(mut self) -> Self {
        for time in [
            &mut self.connect_timeout,
            &mut self.ping_interval,
            &mut self.ping_timeout,
            &mut self.max_connection_age,
            &mut self.backoff.first,
            &mut self.backoff.first_for,
            &mut self.backoff.later,
        ] {
            *time = NEVER.min(*time);
        }
        self
    }
}

/// Schedule of dials to a server that is down: at first every [`first`](Self::first) plus 0 to 20 %, later every
/// [`later`](Self::later) minus 0 to 20 %. Shared by all requests to the cluster.
#[derive(Clone, Debug)]
pub struct BackoffOptions {
    /// The interval between attempts at first. Default 1 s.
    pub first: Duration,
    /// Duration of that phase, from the first failed attempt. Default 60 s.
    pub first_for: Duration,
    /// The longest interval between later attempts: a server that is back is found within this. Default 5 s.
    pub later: Duration,
}

impl Default for BackoffOptions {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            first_for: Duration::from_secs(60),
            later: Duration::from_secs(5),
        }
    }
}

/// The deadlines of each class.
#[derive(Clone, Debug)]
pub struct ClassDeadlines {
    /// Deadlines of [`RequestClass::Read`]: headers 30 s, progress 10 s, body 60 s.
    pub read: Deadlines,
    /// Deadlines of [`RequestClass::List`]: headers 30 s, progress 10 s, body 5 min.
    pub list: Deadlines,
    /// Deadlines of [`RequestClass::Watch`]: headers 90 s (some proxies hold them back until the first event), no others.
    pub watch: Deadlines,
    /// Deadlines of [`RequestClass::Write`]: headers 65 s (the API server allows itself 60 s), progress 10 s, body 60 s.
    pub write: Deadlines,
    /// Deadlines of [`RequestClass::Probe`]: headers 10 s, progress 5 s, body 10 s.
    pub probe: Deadlines,
}

impl ClassDeadlines {
    /// Returns the deadlines of one class.
    pub fn for_class(&self, class: RequestClass) -> &Deadlines {
        match class {
            RequestClass::Read => &self.read,
            RequestClass::List => &self.list,
            RequestClass::Watch => &self.watch,
            RequestClass::Write => &self.write,
            RequestClass::Probe => &self.probe,
        }
    }
}

impl Default for ClassDeadlines {
    fn default() -> Self {
        let seconds = |headers, progress, body| Deadlines {
            headers: Some(Duration::from_secs(headers)),
            progress: Some(Duration::from_secs(progress)),
            body: Some(Duration::from_secs(body)),
        };
        Self {
            read: seconds(30, 10, 60),
            list: seconds(30, 10, 300),
            watch: Deadlines { headers: Some(Duration::from_secs(90)), progress: None, body: None },
            write: seconds(65, 10, 60),
            probe: seconds(10, 5, 10),
        }
    }
}

/// Bounds of one request. `None` means no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Time from sending the request to the response's headers.
    pub headers: Option<Duration>,
    /// Time that the caller waits for the next bytes of the body; time without polling does not count.
    pub progress: Option<Duration>,
    /// Time from the headers to the end of the body.
    pub body: Option<Duration>,
}

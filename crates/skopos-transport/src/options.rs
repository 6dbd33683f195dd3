//! Everything that can be tuned, with the reasons for the defaults.

use std::{fmt, sync::Arc, time::Duration, time::SystemTime};

use crate::{class::RequestClass, error::ConfigError, guard::AddressGuard, patience::NEVER};

/// How a [`Transport`](crate::Transport) behaves. The defaults keep the detection bounds that the project promises. Where a
/// time has no use, [`Duration::MAX`] says "never".
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Bound of one dial: name resolution, TCP, the proxy, TLS and the server's first SETTINGS together. Also the longest time that a
    /// request waits for a connection. Default 10 s.
    pub connect_timeout: Duration,
    /// How long the connection may be silent before a PING is sent, also while idle. Default 10 s.
    pub ping_interval: Duration,
    /// How long the answer to a PING may take before the connection is dead. Default 5 s.
    pub ping_timeout: Duration,
    /// Speak HTTP/2 on `http://` URLs without asking (h2c with prior knowledge). Default false, so HTTP/1.1: a server that
    /// only knows HTTP/1.1 would answer the HTTP/2 preface in ways that look like many other faults.
    pub http2_prior_knowledge: bool,
    /// Offer only HTTP/1.1 in the TLS handshake, for proxies whose HTTP/2 is broken. Default false: HTTP/2 is offered first.
    pub http1_only: bool,
    /// Most connections for watches, and again for everything else. Default 64.
    pub max_connections: usize,
    /// The same for HTTP/1.1, where each request needs one of its own. Default 1024.
    pub max_connections_http1: usize,
    /// Most streams on one HTTP/2 connection, even if the server allows more. Default 1000, what a kube-apiserver with
    /// recommended options allows.
    pub max_streams: usize,
    /// Age at which a connection takes no more requests, give or take 20 %, so that clients spread over the servers behind a
    /// load balancer again. Default 1 h.
    pub max_connection_age: Duration,
    /// An HTTP/2 connection without requests for so long is closed. Default 5 min.
    pub idle_timeout: Duration,
    /// The same for HTTP/1.1, where no PING watches over idle connections. Default 30 s.
    pub idle_timeout_http1: Duration,
    /// Which addresses may be connected to, whatever the server's name resolves to. Default: all. Not with a proxy, which
    /// connects where it likes.
    pub addresses: AddressGuard,
    /// When to dial a server that is down.
    pub backoff: BackoffOptions,
    /// The deadlines of each class of requests.
    pub deadlines: ClassDeadlines,
    /// A body that should flow has to bring at least so many bytes (or its end) within the progress deadline. Default 1024.
    pub min_progress_bytes: usize,
    /// After a 401 credentials are had anew, at most once in this time; so is a client certificate, and when it is another one
    /// the connections that were made with the old take no more requests. Default 5 s.
    pub credential_refresh_interval: Duration,
    /// CA and client certificate are read anew for a dial when they are older than this or the certificate has expired, and
    /// after each TLS failure. What an
    /// exec plugin has not given after half of `connect_timeout` is for a later dial; until then the old ones do. Default
    /// 5 min.
    pub tls_refresh_interval: Duration,
    /// How long an HTTP/2 stream that was given up is remembered, so that what the server had sent for it by then is passed
    /// over. By the machine's clock, also where time is virtual: a simulation that has to be the same at any speed sets more
    /// than it takes. Default 1 s.
    pub reset_memory: Duration,
    /// The wall clock, compared with the monotonic one each second to notice a suspend.
    pub wall_clock: WallClock,
    /// Seeds every random choice, for repeatable tests. Default: random.
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
            addresses: AddressGuard::open(),
            backoff: BackoffOptions::default(),
            deadlines: ClassDeadlines::default(),
            min_progress_bytes: 1024,
            credential_refresh_interval: Duration::from_secs(5),
            tls_refresh_interval: Duration::from_secs(300),
            reset_memory: Duration::from_secs(1),
            wall_clock: WallClock::System,
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

    /// With times that can be added to one of a clock.
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

/// When to dial a server that is down: once every [`first`](Self::first) and 0 to 20 % more in the beginning, later once
/// every [`later`](Self::later) and 0 to 20 % less. Shared by all requests to the cluster.
#[derive(Clone, Debug)]
pub struct BackoffOptions {
    /// Between attempts at first. Default 1 s.
    pub first: Duration,
    /// How long that goes on, counted from the first failed attempt. Default 60 s.
    pub first_for: Duration,
    /// Between attempts afterwards, at most: a server that is back is found within this. Default 5 s.
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
    /// Of [`RequestClass::Read`]: headers 30 s, progress 10 s, body 60 s.
    pub read: Deadlines,
    /// Of [`RequestClass::List`]: headers 30 s, progress 10 s, body 5 min.
    pub list: Deadlines,
    /// Of [`RequestClass::Watch`]: headers 90 s (some proxies hold them back until the first event), nothing else.
    pub watch: Deadlines,
    /// Of [`RequestClass::Write`]: headers 65 s (the API server allows itself 60 s), progress 10 s, body 60 s.
    pub write: Deadlines,
    /// Of [`RequestClass::Probe`]: headers 10 s, progress 5 s, body 10 s.
    pub probe: Deadlines,
}

impl ClassDeadlines {
    /// Those of one class.
    pub fn of(&self, class: RequestClass) -> &Deadlines {
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

/// Bounds of one request. `None` is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From sending the request to the response's headers.
    pub headers: Option<Duration>,
    /// Time that the caller spends waiting for the next bytes of the body; time in which it does not ask does not count.
    pub progress: Option<Duration>,
    /// From the headers to the end of the body.
    pub body: Option<Duration>,
}

/// Where the wall clock's time comes from.
#[derive(Clone)]
pub enum WallClock {
    /// The operating system.
    System,
    /// No comparison of clocks: for simulations in virtual time.
    None,
    /// Another source, for tests.
    Custom(Arc<dyn Fn() -> SystemTime + Send + Sync>),
}

impl WallClock {
    pub(crate) fn now(&self) -> Option<SystemTime> {
        match self {
            Self::System => Some(SystemTime::now()),
            Self::None => None,
            Self::Custom(now) => Some(now()),
        }
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::None => "None",
            Self::Custom(_) => "Custom",
        })
    }
}

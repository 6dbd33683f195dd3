//! The network between clients and servers: pipes in memory below the real HTTP/2 stack, which fail as wires do.
//!
//! ```text
//!  Transport ── dial ──▶ Network ──▶ which server answers? ──▶ Pipe ══ bytes ══ TestServer::connect()
//!                          │                                    │
//!                          names, refusals, silence             black holes, delays, throttles, cuts
//! ```

mod pipe;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos_testserver::TestServer;
use skopos_transport::{Dialed, Dialer, Protocol, TlsFault, TransportErrorKind, dialer_fn};
use tokio::sync::Notify;
use tokio::time::sleep;

use self::pipe::Pipe;
pub use self::wire::{Cut, Direction, Ending, Wire};

/// The network to the servers of one cluster: one name, several addresses. Clones share it.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    server: TestServer,
    sites: Mutex<Vec<Site>>,
    state: Mutex<State>,
    /// Notified when dials are held up, or released.
    changed: Notify,
}

/// One of the servers behind the name. A silent address is skipped at once.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    refuses: u32,
    silent: u32,
}

struct State {
    random: fastrand::Rng,
    /// Duration of a connect, and of each way of the bytes.
    latency: Duration,
    wires: Vec<Arc<Wire>>,
    trouble: Vec<Trouble>,
    holes: Vec<Hole>,
    limits: Vec<Limit>,
    /// The servers' ends of connections whose end was lost.
    lost_ends: Vec<Pipe>,
    /// Number of dials that met a fault.
    dials_struck: u64,
    last_handle: u64,
    /// Called with each new connection.
    on_connect: Option<Arc<OnConnect>>,
    /// Called with the owner of each dial that fails or is not answered.
    on_failure: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

/// Callback with a connection's owner, its number at the server, and the server's index.
type OnConnect = dyn Fn(usize, u64, usize) + Send + Sync;

/// Fault of dials.
struct Trouble {
    handle: Handle,
    what: DialFault,
}

/// Black hole.
struct Hole {
    handle: Handle,
    direction: Direction,
    new_too: bool,
    members: Vec<Arc<Wire>>,
}

/// Limit of the speed.
struct Limit {
    handle: Handle,
    what: Slowness,
}

/// Kind of a fault of all dials to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialFault {
    /// The name does not resolve.
    Dns,
    /// No server listens.
    Refused,
    /// No answer to a SYN.
    Silent,
    /// A connection is accepted and ended, as by a load balancer without a backend.
    HangsUp,
    /// The certificate has expired.
    Expired,
    /// The certificate is not signed by the known CA.
    Untrusted,
    /// The process is out of file descriptors.
    NoDescriptors,
}

/// Kind of slowness of all connections of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowness {
    /// Bytes are delayed by this time, each way.
    Delay(Duration),
    /// At most this many bytes arrive from the server in a tenth of a second.
    Throttle(usize),
}

/// Handle of an inflicted fault, to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Network {
    /// Makes a network to `servers` servers with the content of `server`.
    pub fn new(server: TestServer, servers: usize, latency: Duration, seed: u64) -> Self {
        let state = State {
            random: fastrand::Rng::with_seed(seed),
            latency,
            wires: Vec::new(),
            trouble: Vec::new(),
            holes: Vec::new(),
            limits: Vec::new(),
            lost_ends: Vec::new(),
            dials_struck: 0,
            last_handle: 0,
            on_connect: None,
            on_failure: None,
        };
        let sites = Mutex::new(vec![Site::default(); servers.max(1)]);
        let shared = Shared { server, sites, state: Mutex::new(state), changed: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the dialer that the transport of client `owner` uses to reach the cluster.
    pub fn dialer(&self, owner: usize) -> Arc<dyn Dialer> {
        let network = self.clone();
        dialer_fn(move |_| {
            let network = network.clone();
            async move { network.dial(owner).await }
        })
    }

    /// Sets a callback for each new connection: its owner, its number at the server, and the index of the server that it leads to.
    pub fn on_connect(&self, told: impl Fn(usize, u64, usize) + Send + Sync + 'static) {
        self.shared.state.lock().on_connect = Some(Arc::new(told));
    }

    /// Sets a callback with the owner of each dial that fails or is not answered.
    pub fn on_failure(&self, told: impl Fn(usize) + Send + Sync + 'static) {
        self.shared.state.lock().on_failure = Some(Arc::new(told));
    }

    /// Returns the open connections, oldest first.
    pub fn wires(&self) -> Vec<Arc<Wire>> {
        let mut state = self.shared.state.lock();
        state.wires.retain(|wire| !wire.is_closed());
        state.wires.clone()
    }

    /// Returns the number of dials that have met a fault so far.
    pub fn dials_struck(&self) -> u64 {
        self.shared.state.lock().dials_struck
    }

    async fn dial(&self, owner: usize) -> Result<Dialed, TransportErrorKind> {
        let latency = self.shared.state.lock().latency;
        if latency > Duration::ZERO {
            sleep(latency).await;
        }
        let first = {
            let sites = self.shared.sites.lock().len();
            self.shared.state.lock().random.usize(0..sites)
        };
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.attempt(owner, first)? {
                Some(dialed) => return Ok(dialed),
                // The caller bounds the wait.
                None => changed.await,
            }
        }
    }

    /// Tries all addresses, from one of them on; `None`: no answer.
    fn attempt(&self, owner: usize, first: usize) -> Result<Option<Dialed>, TransportErrorKind> {
        if let Some(what) = self.trouble() {
            let told = {
                let mut state = self.shared.state.lock();
                state.dials_struck += 1;
                state.on_failure.clone()
            };
            if let Some(told) = told {
                told(owner);
            }
            return match what {
                DialFault::Dns => Err(TransportErrorKind::Dns {
                    host: "cluster".into(),
                    reason: "name does not resolve".into(),
                }),
                DialFault::Refused => Err(refused()),
                DialFault::Silent => Ok(None),
                DialFault::HangsUp => Ok(Some(Dialed::new(tokio::io::duplex(1).0, Protocol::Http2))),
                DialFault::Expired => Err(TlsFault::Expired("certificate has expired".into()).into()),
                DialFault::Untrusted => Err(TlsFault::Untrusted("unknown issuer".into()).into()),
                DialFault::NoDescriptors => Err(TransportErrorKind::Resources("too many open files".into())),
            };
        }
        let sites = self.shared.sites.lock().clone();
        let mut silent = false;
        for step in 0..sites.len() {
            let at = (first + step) % sites.len();
            if sites[at].silent > 0 || sites[at].refuses > 0 {
                silent |= sites[at].silent > 0;
                self.shared.state.lock().dials_struck += 1;
                continue;
            }
            return match self.shared.server.connect() {
                Ok(stream) => Ok(Some(self.connected(stream, owner, at))),
                Err(_) => Err(refused()),
            };
        }
        if silent { Ok(None) } else { Err(refused()) }
    }

    fn connected(&self, stream: skopos_testserver::MemoryStream, owner: usize, site: usize) -> Dialed {
        let number = stream.id().get();
        let (wire, told) = {
            let mut state = self.shared.state.lock();
            let wire = Arc::new(Wire::new(number, owner, site));
            wire.delay(state.latency);
            for limit in &state.limits {
                slow(&wire, limit.what, true);
            }
            for hole in state.holes.iter_mut().filter(|hole| hole.new_too) {
                wire.hole(hole.direction, true);
                hole.members.push(wire.clone());
            }
            state.wires.retain(|wire| !wire.is_closed());
            state.wires.push(wire.clone());
            (wire, state.on_connect.clone())
        };
        if let Some(told) = told {
            told(owner, number, site);
        }
        let network = self.clone();
        let pipe = Pipe::new(stream, wire, move |pipe| network.shared.state.lock().lost_ends.push(pipe));
        Dialed::new(pipe, Protocol::Http2).with_peer(format!("server {site}"))
    }

    fn trouble(&self) -> Option<DialFault> {
        self.shared.state.lock().trouble.last().map(|trouble| trouble.what)
    }
}

impl Network {
    /// Makes all dials fail in this way, until [`Network::heal`].
    pub fn trouble_dials(&self, what: DialFault) -> Handle {
        let mut state = self.shared.state.lock();
        let handle = state.next_handle();
        state.trouble.push(Trouble { handle, what });
        handle
    }

    /// Stops all bytes in this direction, on the connections that `takes` selects, and on all new ones if `new_too`. Bytes sent
    /// meanwhile arrive after healing.
    pub fn black_hole(&self, direction: Direction, new_too: bool, takes: impl Fn(&Wire) -> bool) -> Handle {
        let members: Vec<_> = self.wires().into_iter().filter(|wire| takes(wire)).collect();
        members.iter().for_each(|wire| wire.hole(direction, true));
        let mut state = self.shared.state.lock();
        let handle = state.next_handle();
        state.holes.push(Hole { handle, direction, new_too, members });
        handle
    }

    /// Slows down all connections, also new ones.
    pub fn slow_down(&self, what: Slowness) -> Handle {
        self.wires().iter().for_each(|wire| slow(wire, what, true));
        let mut state = self.shared.state.lock();
        let handle = state.next_handle();
        state.limits.push(Limit { handle, what });
        handle
    }

    /// Ends an inflicted fault.
    pub fn heal(&self, handle: Handle) {
        let (limits, holes, ends) = {
            let mut state = self.shared.state.lock();
            state.trouble.retain(|trouble| trouble.handle != handle);
            let limits: Vec<_> = state.limits.extract_if(.., |limit| limit.handle == handle).collect();
            let holes: Vec<_> = state.holes.extract_if(.., |hole| hole.handle == handle).collect();
            let ends = if state.holes.is_empty() { std::mem::take(&mut state.lost_ends) } else { Vec::new() };
            (limits, holes, ends)
        };
        drop(ends);
        for hole in holes {
            hole.members.iter().for_each(|wire| wire.hole(hole.direction, false));
        }
        for limit in limits {
            self.wires().iter().for_each(|wire| slow(wire, limit.what, false));
        }
        self.shared.changed.notify_waiters();
    }

    /// Makes one server refuse connections from now on, or accept them again.
    pub fn refuse(&self, site: usize, yes: bool) {
        if let Some(site) = self.shared.sites.lock().get_mut(site) {
            site.refuses = if yes { site.refuses + 1 } else { site.refuses.saturating_sub(1) };
        }
        self.shared.changed.notify_waiters();
    }

    /// Drops all held connections, so that those still open at the servers were left open by the client.
    pub fn clear(&self) {
        let ends = std::mem::take(&mut self.shared.state.lock().lost_ends);
        drop(ends);
    }
}

impl State {
    fn next_handle(&mut self) -> Handle {
        self.last_handle += 1;
        Handle(self.last_handle)
    }
}

fn refused() -> TransportErrorKind {
    TransportErrorKind::Refused { to: "cluster".into(), reason: "connection refused".into() }
}

fn slow(wire: &Wire, what: Slowness, begins: bool) {
    match what {
        Slowness::Delay(delay) => wire.delay_more(delay, begins),
        Slowness::Throttle(bytes) => wire.throttle(begins.then_some(bytes)),
    }
}

//! Options and start of a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use skopos_serve::{BlockCache, Registry, ResourceType, ServeOptions};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Inner, PortState, StartError, TestServer, Tls};
use crate::auth::{Auth, User};
use crate::clock::ServerClock;
use crate::faults::Faults;
use crate::lifecycle::Lifecycle;
use crate::log::{RequestLog, RequestObserver, RequestRecord};
use crate::serve::{
    DEFAULT_MAX_STREAMS, HttpServer, IdentityPlan, Protocols, ServerIdentity, Validity, listen, reserve,
};
use crate::state::ServerState;
use crate::storage::{HistoryLimits, Storage, WriteObserver, WriteRecord};

/// Maximum bytes of cached compressed objects, with the objects that only the cache keeps alive.
const MAX_BLOCK_CACHE_BYTES: usize = 512 << 20;

/// Port in the Service of a server without a port: kube-apiserver's own.
const SECURE_PORT: u16 = 6443;

/// Options of a [`TestServer`]. The defaults are plain HTTP on a free port, no authentication, and kube-apiserver's own intervals
/// and limits.
pub struct TestServerBuilder {
    tls: bool,
    expired: bool,
    identity: IdentityPlan,
    port: u16,
    token: Option<String>,
    resources: Vec<ResourceType>,
    objects: Vec<Value>,
    start_time: Timestamp,
    seed: Option<u64>,
    workloads: bool,
    only_local_hosts: bool,
    protocols: Protocols,
    max_streams: u32,
    log_capacity: usize,
    observer: Option<RequestObserver>,
    write_observer: Option<WriteObserver>,
    contract: ServeOptions,
    history: HistoryLimits,
}

impl Default for TestServerBuilder {
    fn default() -> Self {
        Self {
            tls: false,
            expired: false,
            identity: IdentityPlan::default(),
            port: 0,
            token: None,
            resources: Vec::new(),
            objects: Vec::new(),
            start_time: Timestamp::now(),
            seed: None,
            workloads: false,
            only_local_hosts: false,
            protocols: Protocols::Both,
            max_streams: DEFAULT_MAX_STREAMS,
            log_capacity: 65_536,
            observer: None,
            write_observer: None,
            contract: ServeOptions::default(),
            history: HistoryLimits::default(),
        }
    }
}

impl TestServerBuilder {
    /// Serves TLS with a certificate of its own CA.
    #[must_use]
    pub fn tls(mut self, yes: bool) -> Self {
        self.tls = yes;
        self
    }

    /// Serves TLS with an expired certificate.
    #[must_use]
    pub fn expired_certificate(mut self) -> Self {
        self.tls = true;
        self.expired = true;
        self
    }

    /// Serves TLS with a certificate for exactly these DNS names and addresses; the default is localhost and its addresses.
    #[must_use]
    pub fn certificate_names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.tls = true;
        self.identity.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Serves TLS and requires client certificates of the server's CA, such as the one in [`TestServer::kubeconfig`]. Without one
    /// the handshake fails.
    #[must_use]
    pub fn client_certificates(mut self) -> Self {
        self.tls = true;
        self.identity.clients = true;
        self
    }

    /// Sets the port on 127.0.0.1; 0 is any free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Requires this bearer token, and puts it into the kubeconfig. Its user is `admin`.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Serves another resource.
    #[must_use]
    pub fn resource(mut self, resource: ResourceType) -> Self {
        self.resources.push(resource);
        self
    }

    /// Creates a CustomResourceDefinition before the server answers its first request.
    #[must_use]
    pub fn crd(self, definition: Value) -> Self {
        self.object(definition)
    }

    /// Creates an object before the server answers its first request.
    #[must_use]
    pub fn object(mut self, object: Value) -> Self {
        self.objects.push(object);
        self
    }

    /// Sets the wall-clock time at the start of the server; it advances with tokio's clock. The default is now.
    #[must_use]
    pub fn start_time(mut self, time: Timestamp) -> Self {
        self.start_time = time;
        self
    }

    /// Seeds UIDs, generated names and random times.
    #[must_use]
    pub fn clock_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the bookmark interval of watches; the default is 60 s.
    #[must_use]
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.contract.bookmark_interval = interval;
        self
    }

    /// Sets the delay between two events of one resourceVersion ([`TestServer::expire`]); the default is none. On a real server
    /// each is a separate frame too, so that a bookmark may come between them, or the stream may end.
    #[must_use]
    pub fn pause_within_revision(mut self, pause: Duration) -> Self {
        self.contract.pause_within_revision = pause;
        self
    }

    /// Sets the minimum lifetime of a watch without `timeoutSeconds`; each lasts less than twice as long. The default is 30 min.
    #[must_use]
    pub fn min_watch_timeout(mut self, timeout: Duration) -> Self {
        self.contract.min_watch_timeout = timeout;
        self
    }

    /// Enables watches that start with the state (`sendInitialEvents`). Servers before 1.34 refuse it.
    #[must_use]
    pub fn watch_list(mut self, yes: bool) -> Self {
        self.contract.watch_list = yes;
        self
    }

    /// Sets the limits of a slow watcher: the events it is behind, and the time without a read. The defaults are 1000 and 1 s.
    #[must_use]
    pub fn slow_watchers(mut self, buffer: u64, limit: Duration) -> Self {
        self.history.window.watch_buffer = buffer;
        self.history.window.slow_watcher_timeout = limit;
        self
    }

    /// Sets the retention time and maximum number of a resource's events for resumed watches; the defaults are 75 s and 102400.
    /// Some 100 (or `max_events`, if that is less) are kept whatever their age.
    #[must_use]
    pub fn event_window(mut self, window: Duration, max_events: usize) -> Self {
        self.history.window.keep = window;
        self.history.window.max_events = max_events;
        self.history.window.min_events = self.history.window.min_events.min(max_events);
        self
    }

    /// Sets the interval of compactions, and the age of the compacted versions; the default is 5 min.
    #[must_use]
    pub fn compaction_interval(mut self, interval: Duration) -> Self {
        self.history.compaction_interval = interval;
        self
    }

    /// Sets the maximum number of streams of one HTTP/2 connection; the default is 100.
    #[must_use]
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.max_streams = streams;
        self
    }

    /// Speaks HTTP/1.1 only.
    #[must_use]
    pub fn http1_only(mut self) -> Self {
        self.protocols = Protocols::Http1;
        self
    }

    /// Speaks HTTP/2 only.
    #[must_use]
    pub fn http2_only(mut self) -> Self {
        self.protocols = Protocols::Http2;
        self
    }

    /// Runs a small controller loop that creates the pods of Deployments and StatefulSets.
    #[must_use]
    pub fn workloads(mut self, yes: bool) -> Self {
        self.workloads = yes;
        self
    }

    /// Refuses requests for another host than this machine (`localhost`, a loopback address). Then a web page whose name resolves
    /// to 127.0.0.1 cannot use the server. By default every name is accepted.
    #[must_use]
    pub fn only_local_hosts(mut self, yes: bool) -> Self {
        self.only_local_hosts = yes;
        self
    }

    /// Calls `observer` with each new request and each change of its outcome. It must be quick.
    #[must_use]
    pub fn on_request(mut self, observer: impl Fn(&RequestRecord) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Calls `observer` with each change at the time of the write, before any client can see it. It must be quick, and must not
    /// call the server.
    #[must_use]
    pub fn on_write(mut self, observer: impl Fn(&WriteRecord) + Send + Sync + 'static) -> Self {
        self.write_observer = Some(WriteObserver::new(observer));
        self
    }

    /// Starts the server without a port: it is reached by [`TestServer::connect`] only.
    ///
    /// # Errors
    /// When an object is not accepted.
    pub fn start_in_memory(self) -> Result<TestServer, StartError> {
        let Self { protocols, max_streams, .. } = self;
        let state = Arc::new(self.state(SECURE_PORT)?);
        let http_server = HttpServer::new(state, None, protocols, max_streams);
        Ok(Self::run(http_server, None, None, None))
    }

    /// Starts the server.
    ///
    /// # Errors
    /// When the port is taken, a certificate cannot be made, or an object is not accepted.
    pub async fn start(self) -> Result<TestServer, StartError> {
        let Self { port, protocols, .. } = self;
        let listener = reserve(port).and_then(listen).map_err(|error| StartError::Listen { port, error })?;
        let port = listener.local_addr().map_err(|error| StartError::Listen { port, error })?.port();
        let validity = if self.expired { Validity::Expired } else { Validity::Long };
        let tls = match self.tls {
            true => {
                let plan = IdentityPlan { protocols, ..self.identity.clone() };
                let identity = ServerIdentity::generate(&plan, validity).map_err(StartError::Certificate)?;
                Some(Tls { identity, plan })
            }
            false => None,
        };
        let config = tls.as_ref().map(|tls| tls.identity.config.clone());
        let (max_streams, token) = (self.max_streams, self.token.clone());
        let state = Arc::new(self.state(port)?);
        Ok(Self::run(
            HttpServer::new(state, config, protocols, max_streams),
            Some((listener, port)),
            tls,
            token,
        ))
    }

    fn run(
        http_server: HttpServer,
        listen: Option<(TcpListener, u16)>,
        tls: Option<Tls>,
        token: Option<String>,
    ) -> TestServer {
        let http_server = Arc::new(http_server);
        let stopped = CancellationToken::new();
        let open = stopped.child_token();
        let port = listen.as_ref().map(|(_, port)| *port);
        let port_state = match listen {
            Some((listener, _)) => PortState::Open(http_server.listen(listener, open.clone())),
            None => PortState::None,
        };
        http_server.spawn(crate::cluster::workloads::run(http_server.state.clone(), stopped.clone()));
        let (open, port_state) = (Mutex::new(open), Mutex::new(port_state));
        let inner = Inner { http_server, port, tls: Mutex::new(tls), token, open, port_state, stopped };
        TestServer { inner: Arc::new(inner) }
    }

    fn state(self, port: u16) -> Result<ServerState, StartError> {
        let activity = Arc::new(Notify::new());
        let registry = Registry::builtin();
        for resource in self.resources {
            registry.register(resource);
        }
        let auth = Auth::default();
        if let Some(token) = self.token {
            auth.add_token(token, User::new("admin").with_groups(["system:masters"]));
        }
        let state = ServerState {
            storage: Storage::new(self.history, activity.clone(), self.write_observer),
            registry,
            clock: ServerClock::starting_at(self.start_time),
            rng: Arc::new(Mutex::new(self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed))),
            contract: self.contract,
            only_local_hosts: self.only_local_hosts,
            blocks: BlockCache::new(MAX_BLOCK_CACHE_BYTES).blocks(),
            auth,
            faults: Faults::new(),
            log: RequestLog::new(self.log_capacity, activity.clone(), self.observer),
            activity,
            lifecycle: Lifecycle::new(self.workloads),
            pod_ports: RwLock::default(),
        };
        crate::write::create_system_objects(&state, port)?;
        for object in self.objects {
            crate::write::create_object(&state, object)?;
        }
        Ok(state)
    }
}

impl fmt::Debug for TestServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServerBuilder")
            .field("tls", &self.tls)
            .field("port", &self.port)
            .field("protocols", &self.protocols)
            .field("contract", &self.contract)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

//! The manager of a process: runs controllers and an election, serves health and metrics, and ends in bounded time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use skopos_lease::Election;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::endpoints::{self, Endpoints};
use crate::error::ControllerError;
use crate::handle::ControllerHandle;
use crate::metrics::{Metrics, Names};
use crate::service::ControllerService;

/// The options of a manager.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ManagerOptions {
    /// The address of `/healthz`, `/readyz` and `/metrics`. Default: `[::]:8080`, as controller-runtime's metrics.
    pub listen: SocketAddr,
    /// The names of the metrics; several at once are fine. Default: ours.
    pub names: Vec<Names>,
    /// The maximum time for everything to end. Parts that run longer are dropped. Default: 35 s, which is a controller's own
    /// limit and time to release the Lease.
    pub shutdown_limit: Duration,
}

/// A manager under construction.
#[must_use = "it does nothing until it runs"]
pub struct Manager {
    options: ManagerOptions,
    parts: Vec<Part>,
    handles: Vec<ControllerHandle>,
}

/// A part that a manager runs.
struct Part {
    name: String,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), ControllerError>> + Send>,
}

/// The error of a manager that ended before it was stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The address cannot be listened on: another process uses it, or it is not of this host.
    #[error("cannot serve health and metrics on {address}: {source}: choose another ManagerOptions::listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// A controller could not run.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A part of the manager panicked. This is a fault of this crate: reconcilers are caught.
    #[error("{name} panicked; everything else was ended")]
    Panicked {
        /// The part.
        name: String,
    },
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0; 16], 8080)),
            names: vec![Names::Skopos],
            shutdown_limit: Duration::from_secs(35),
        }
    }
}

impl Manager {
    /// Makes a manager without controllers.
    pub fn new(options: ManagerOptions) -> Self {
        Self { options, parts: Vec::new(), handles: Vec::new() }
    }

    /// Adds a controller.
    pub fn controller<K: 'static>(mut self, service: ControllerService<K>) -> Self {
        let handle = service.handle();
        let name = handle.stats().name;
        self.handles.push(handle);
        self.parts.push(Part { name, run: Box::new(|stop| service.run(stop).boxed()) });
        self
    }

    /// Adds the election of the controllers' candidate. The Lease is released when their work has ended.
    pub fn election(mut self, election: Election) -> Self {
        let run = |stop| async move { election.run(stop).await }.map(Ok).boxed();
        self.parts.push(Part { name: "election".to_owned(), run: Box::new(run) });
        self
    }

    /// Runs until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// The same as those of [`run`](Manager::run).
    pub async fn run_until_signal(self) -> Result<(), ManagerError> {
        let stop = CancellationToken::new();
        let run = self.run(stop.clone());
        let signalled = async {
            signal().await;
            tracing::info!("stops, as it was told by a signal; another signal drops what still runs");
            stop.cancel();
            signal().await;
        };
        tokio::select! {
            ended = run => ended,
            () = signalled => Ok(()),
        }
    }

    /// Runs until `stop`, and ends within [`shutdown_limit`](ManagerOptions::shutdown_limit).
    ///
    /// # Errors
    /// When the address cannot be listened on, or a controller could not run. Everything else is ended then.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ManagerError> {
        let Self { options, parts, handles } = self;
        let address = options.listen;
        let listener =
            TcpListener::bind(address).await.map_err(|source| ManagerError::Listen { address, source })?;
        let mut registry = Registry::default();
        for names in &options.names {
            registry.register_collector(Box::new(Metrics::new(handles.clone(), *names)));
        }
        let stop = stop.child_token();
        let endpoints = endpoints::serve(listener, Arc::new(Endpoints::new(registry, handles)));
        let mut tasks = JoinSet::new();
        for part in parts {
            let (name, run) = (part.name, (part.run)(stop.clone()));
            // Named here: a task that panicked cannot return its name.
            tasks.spawn(async move { (name, std::panic::AssertUnwindSafe(run).catch_unwind().await) });
        }
        tokio::select! {
            biased;
            ended = Self::supervise(&mut tasks, &stop, options.shutdown_limit) => ended,
            () = endpoints => Ok(()),
        }
    }

    /// Waits for the stop or the first failure, and then until everything has ended.
    async fn supervise(
        tasks: &mut JoinSet<Ended>,
        stop: &CancellationToken,
        shutdown_limit: Duration,
    ) -> Result<(), ManagerError> {
        let failed = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            failed = first_failure(tasks) => Err(failed),
        };
        stop.cancel();
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(shutdown_limit, all).await.is_err() {
            tracing::error!(
                left = tasks.len(),
                ?shutdown_limit,
                "not everything has ended in time; it is dropped"
            );
        }
        failed
    }
}

/// The end of a part: its name, and its result unless it panicked.
type Ended = (String, std::thread::Result<Result<(), ControllerError>>);

async fn first_failure(tasks: &mut JoinSet<Ended>) -> ManagerError {
    loop {
        match tasks.join_next().await {
            Some(Ok((_, Ok(Ok(()))))) => {}
            Some(Ok((_, Ok(Err(error))))) => return error.into(),
            Some(Ok((name, Err(_)))) => return ManagerError::Panicked { name },
            Some(Err(_)) => return ManagerError::Panicked { name: "a task".to_owned() },
            None => std::future::pending().await,
        }
    }
}

/// Waits for SIGINT or SIGTERM.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

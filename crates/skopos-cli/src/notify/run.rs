//! The notifier itself: runs until stopped, once, or as a plan.
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use skopos::{InformerFactory, Transport, TransportOptions};
use skopos_console::error::CliError;
use skopos_controller::endpoints::{self, Probes};
use skopos_lease::{Election, LeaseOptions, Term};
use skopos_notify::config::NotifyConfig;
use skopos_notify::service::control::{self, NotifierPhase};
use skopos_notify::service::{Notifier, NotifierSink, SinkReport, factory_options, follow_fitness, metrics};
use skopos_notify::sink::Fence;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::print;
use crate::args::ClusterArgs;
use crate::{cluster, service_manager};

/// Interval between two checks of the files. ConfigMaps and Secrets are swapped by links, which file notifications report badly.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit of the informers' shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Works until stopped. A changed configuration or secret is taken over; an invalid one changes nothing.
pub(crate) async fn follow(path: &Path, stop: CancellationToken) -> Result<(), CliError> {
    let mut files = Files::read(path)?;
    let (phase, seen) = watch::channel(NotifierPhase::Starting);
    let (leading, term) = watch::channel(None);
    let seen = Figures { phase: seen, term };
    let mut served = Listeners::default();
    served.serve(&files.config, &seen).await?;
    let working = async {
        loop {
            let now = stop.child_token();
            let config = files.config.clone();
            let working = work(&config, &phase, &leading, now.clone()).fuse();
            let mut working = std::pin::pin!(working);
            let changed = tokio::select! {
                done = &mut working => return done,
                changed = files.changed() => changed,
            };
            tracing::info!(config = %path.display(), "the configuration has changed and is taken over");
            now.cancel();
            working.await?;
            files = changed;
            phase.send_replace(NotifierPhase::Starting);
            served.serve(&files.config, &seen).await?;
        }
    };
    service_manager::supervise(working, || _ = seen.metrics(), &stop).await
}

/// Works until all sinks are equal to the cluster, or the time limit has passed.
pub(crate) async fn once(path: &Path, limit: Duration, stop: CancellationToken) -> Result<(), CliError> {
    let files = Files::read(path)?;
    let factory = factory(&files.config).await?;
    let reports = settle(&factory, sinks(&files.config)?, limit, &stop).await?;
    factory.shutdown(SHUTDOWN_TIMEOUT).await;
    io::stdout().write_all(print::sinks(&reports).as_bytes())?;
    match reports.iter().all(SinkReport::is_equal) {
        true => Ok(()),
        false => Err(CliError::new("the outside is not equal to the cluster").hint("see the lines above")),
    }
}

/// Prints the plan, and changes nothing.
pub(crate) async fn plan(path: &Path, limit: Duration, stop: CancellationToken) -> Result<(), CliError> {
    let files = Files::read(path)?;
    let factory = factory(&files.config).await?;
    let plans = skopos_notify::service::plan(&factory, sinks(&files.config)?, limit);
    // After a signal, the signal decides about the exit code.
    let Some(plans) = stop.run_until_cancelled(plans).await else { return Ok(()) };
    factory.shutdown(SHUTDOWN_TIMEOUT).await;
    let mut wrong = 0;
    let mut text = String::new();
    for (name, plan) in plans.map_err(CliError::new)? {
        match plan {
            Ok(lines) if lines.is_empty() => text += &format!("{name}: nothing to do\n"),
            Ok(lines) => lines.iter().for_each(|line| text += &format!("{name}: {line}\n")),
            Err(problem) => {
                wrong += 1;
                text += &format!("{name}: no plan: {problem}\n");
            }
        }
    }
    io::stdout().write_all(text.as_bytes())?;
    match wrong {
        0 => Ok(()),
        _ => Err(CliError::new("not every sink could be planned").hint("see the lines above")),
    }
}

/// Prints the schema of the configuration.
pub(crate) fn print_schema() -> Result<(), CliError> {
    let schema = format!("{:#}\n", skopos_config::json_schema::<NotifyConfig>());
    Ok(io::stdout().write_all(schema.as_bytes())?)
}

/// Works, or is on standby while another process has the Lease, until it is stopped.
async fn work(
    config: &NotifyConfig,
    phase: &watch::Sender<NotifierPhase>,
    leading: &watch::Sender<Option<Term>>,
    stop: CancellationToken,
) -> Result<(), CliError> {
    let factory = factory(config).await?;
    let run = async |term: Option<&Term>| {
        let notifier = Notifier::new(&factory, in_term(sinks(config)?, term)).map_err(CliError::new)?;
        phase.send_replace(NotifierPhase::Working(notifier.handle()));
        notifier.run(stop.clone()).await;
        Ok::<_, CliError>(())
    };
    let done = match config.election.as_ref() {
        None => run(None).await,
        Some(election) => {
            let (namespace, name) =
                election.lease().ok_or_else(|| CliError::new("election.lease is not NAMESPACE/NAME"))?;
            let mut options = LeaseOptions::new(namespace, name);
            options.duration = election.duration.map_or(options.duration, |span| span.0);
            let election =
                Election::from_config(kube_config(config).await?, options).map_err(CliError::new)?;
            let mut candidate = election.candidate();
            let working = async {
                phase.send_replace(NotifierPhase::Standby);
                // The informers run during standby, so that a term begins with a complete view.
                let _warm = Notifier::new(&factory, sinks(config)?).map_err(CliError::new)?;
                while let Ok(term) = candidate.term().await {
                    leading.send_replace(Some(term.clone()));
                    match term.run(run(Some(&term))).await {
                        Ok(done) => return done,
                        Err(over) => tracing::warn!(%over, "on standby again"),
                    }
                    phase.send_replace(NotifierPhase::Standby);
                }
                Ok(())
            };
            let (ended, able) = (stop.child_token(), election.candidate());
            let sinks = sinks(config)?;
            let fitness = follow_fitness(phase.subscribe(), &sinks, move |is_fit| able.set_fit(is_fit));
            let working = async {
                let done = working.await;
                // A process that cannot work does not keep the Lease.
                ended.cancel();
                done
            };
            let fitness = ended.run_until_cancelled(fitness);
            let (done, (), _) = tokio::join!(working, election.run(ended.clone()), fitness);
            done
        }
    };
    factory.shutdown(SHUTDOWN_TIMEOUT).await;
    done
}

async fn settle(
    factory: &InformerFactory,
    sinks: Vec<NotifierSink>,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<Vec<SinkReport>, CliError> {
    let notifier = Notifier::new(factory, sinks).map_err(CliError::new)?;
    let (handle, ended) = (notifier.handle(), stop.child_token());
    let settled = async {
        let reports = handle.settled(limit).await;
        ended.cancel();
        reports
    };
    let (reports, ()) = tokio::join!(settled, notifier.run(ended.clone()));
    Ok(reports)
}

/// Gives the term to sinks and receivers, so that they can tell a leader from an earlier one.
fn in_term(mut sinks: Vec<NotifierSink>, term: Option<&Term>) -> Vec<NotifierSink> {
    for sink in &mut sinks {
        match sink {
            NotifierSink::State(options) => {
                options.fence =
                    term.map(|term| Fence { lease: term.lease_uid().into(), term: term.number() });
            }
            NotifierSink::Events(options) => options.term = term.map(Term::number),
        }
    }
    sinks
}

fn sinks(config: &NotifyConfig) -> Result<Vec<NotifierSink>, CliError> {
    config.sinks().map_err(CliError::new)
}

async fn factory(config: &NotifyConfig) -> Result<InformerFactory, CliError> {
    let transport = Transport::from_config(kube_config(config).await?, TransportOptions::default())
        .map_err(CliError::new)?;
    Ok(InformerFactory::new(transport, factory_options()))
}

async fn kube_config(config: &NotifyConfig) -> Result<kube::Config, CliError> {
    let cluster = &config.cluster;
    cluster::load(&ClusterArgs { kubeconfig: cluster.kubeconfig.clone(), context: cluster.context.clone() })
        .await
}

/// The configuration and the secrets that it names, as they were read.
struct Files {
    path: PathBuf,
    config: NotifyConfig,
    content: Vec<Option<Vec<u8>>>,
}

impl Files {
    fn read(path: &Path) -> Result<Self, CliError> {
        let config = NotifyConfig::read(path)?;
        // Problems of a secret are reported now.
        sinks(&config)?;
        let content = content(path, &config);
        Ok(Self { path: path.to_owned(), config, content })
    }

    /// Waits until the files have other, valid content. Cancel safe.
    async fn changed(&self) -> Self {
        let mut known = self.content.clone();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let (path, config) = (self.path.clone(), self.config.clone());
            // A file system that hangs must not hang the runtime.
            let read = tokio::task::spawn_blocking(move || content(&path, &config)).await;
            let Ok(now) = read else { continue };
            if now == known {
                continue;
            }
            known = now;
            match Self::read(&self.path) {
                Ok(files) => return files,
                Err(error) => {
                    let error = error.line().unwrap_or_default();
                    tracing::warn!(config = %self.path.display(), error, "the new configuration is wrong, and the old one stays");
                }
            }
        }
    }
}

fn content(path: &Path, config: &NotifyConfig) -> Vec<Option<Vec<u8>>> {
    std::iter::once(path.to_owned())
        .chain(config.secret_files())
        .map(|path| std::fs::read(path).ok())
        .collect()
}

/// The listeners of commands and probes.
#[derive(Default)]
struct Listeners {
    tasks: tokio::task::JoinSet<()>,
    socket: Option<PathBuf>,
    listen: Option<std::net::SocketAddr>,
}

impl Listeners {
    /// Serves where the configuration says, if that has changed.
    async fn serve(&mut self, config: &NotifyConfig, seen: &Figures) -> Result<(), CliError> {
        if !self.tasks.is_empty() && self.socket == config.socket() && self.listen == config.listen {
            return Ok(());
        }
        self.tasks.shutdown().await;
        if let Some(socket) = config.socket() {
            let listener = control::bind(&socket).await.map_err(|error| {
                CliError::new(format!("cannot take commands at {}: {error}", socket.display()))
                    .hint("name a folder of its own in state.folder")
            })?;
            self.tasks.spawn(control::serve(listener, seen.phase.clone()));
        }
        if let Some(address) = config.listen {
            let listener = TcpListener::bind(address).await.map_err(|error| {
                CliError::new(format!("cannot serve metrics on {address}: {error}"))
                    .hint("choose another `listen`")
            })?;
            self.tasks.spawn(endpoints::serve(listener, Arc::new(seen.clone())));
        }
        (self.socket, self.listen) = (config.socket(), config.listen);
        Ok(())
    }
}

/// The answers to probes and Prometheus.
#[derive(Clone)]
struct Figures {
    phase: watch::Receiver<NotifierPhase>,
    /// The last term of this process.
    term: watch::Receiver<Option<Term>>,
}

impl Probes for Figures {
    /// Returns whether the process is ready. A standby is ready, because it could work at once.
    fn readiness(&self) -> (bool, String) {
        let phase = self.phase.borrow();
        (!matches!(*phase, NotifierPhase::Starting), format!("{}\n", phase.as_str()))
    }

    fn metrics(&self) -> Option<String> {
        let remaining = self.term.borrow().as_ref().and_then(Term::remaining);
        Some(metrics(&self.phase.borrow(), remaining))
    }
}

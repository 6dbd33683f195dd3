//! The command itself: an informer's handler on one side, a printer on the other.
use std::io::{self, BufWriter, Write as _};
use std::time::Duration;

use kube::core::ApiResource;
use skopos::{
    Condition, Event, FactoryOptions, Freshness, HandlerHandle, HandlerOptions, Informer, InformerFactory,
    InformerOptions, RawObject, Transform,
};
use skopos_console::error::CliError;
use skopos_console::{aside, reason};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::notices::{ViewMonitor, ViewState};
use crate::args::{OutputFormat, WatchArgs};
use crate::cluster;
use crate::connect::Cluster;
use crate::output::{Change, JsonPrinter, NamePrinter, Notice, Printer, TablePrinter, Verb, columns};
use crate::resource::Resource;
use crate::style::Style;

/// Events between the handler and the printer; beyond them the informer's own bounded queue coalesces.
const EVENTS_AHEAD: usize = 1024;
/// Interval at which the view's freshness is checked.
const GLANCE: Duration = Duration::from_millis(250);
/// Minimum duration of an interruption that is reported.
const TIMEOUT: Duration = Duration::from_millis(700);
/// Time limit of the shutdown.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// Runs the watch until it is stopped.
pub(crate) async fn run(args: WatchArgs, stop: CancellationToken) -> Result<(), CliError> {
    let begun = Instant::now();
    let args = args.split_name();
    let deadline = begun + args.sync_timeout;
    let cluster = Cluster::new(cluster::load(&args.cluster).await?)?;
    let mut told = None;
    let tell = |reason: &str| {
        if told.as_deref() != Some(reason) {
            told = Some(reason.to_owned());
            let notice = Notice::Note(format!("waiting for {}: {reason}", cluster.url));
            aside::say(super::notice_line(&notice, Style::for_stream(&io::stderr())));
        }
    };
    let Some(resource) = stop.run_until_cancelled(cluster.find(&args.resource, deadline, tell)).await else {
        return Ok(());
    };
    let resource = resource?;
    info!(
        url = cluster.url,
        api_version = resource.api_version(),
        resource = resource.plural,
        "found the resource"
    );
    let options = informer_options(&args, &resource, &cluster.namespace)?;
    let factory = InformerFactory::new(cluster.transport.clone(), FactoryOptions::default());
    let informer = factory.raw(&api_resource(&resource), options).map_err(usage)?;
    let (sender, events) = mpsc::channel(EVENTS_AHEAD);
    let handler = add_handler(&informer, sender)?;
    let session = Session {
        printer: printer(&args, &resource),
        out: BufWriter::with_capacity(64 << 10, io::stdout()),
        watch_only: args.watch_only,
        informer,
        handler,
        monitor: ViewMonitor::new(TIMEOUT),
        begun,
        deadline,
        logged: None,
        scope: scope(&args, &resource, &cluster.namespace),
    };
    let result = stop.run_until_cancelled(session.run(events)).await.unwrap_or(Ok(()));
    factory.shutdown(SHUTDOWN).await;
    result
}

struct Session {
    printer: Box<dyn Printer>,
    out: BufWriter<io::Stdout>,
    watch_only: bool,
    informer: Informer<RawObject>,
    handler: HandlerHandle,
    monitor: ViewMonitor,
    begun: Instant,
    deadline: Instant,
    /// Condition of the list/watch that was logged last.
    logged: Option<Condition>,
    /// Description of the watched objects, for people.
    scope: String,
}

fn scope(args: &WatchArgs, resource: &Resource, default_namespace: &str) -> String {
    let what = match &args.name {
        Some(name) => format!("{} {name}", resource.plural),
        None if args.selector.is_some() || args.field_selector.is_some() => {
            format!("such {}", resource.plural)
        }
        None => resource.plural.clone(),
    };
    match args.namespace.as_deref() {
        _ if args.all_namespaces || !resource.namespaced => what,
        namespace => format!("{what} in namespace {}", namespace.unwrap_or(default_namespace)),
    }
}

impl Session {
    async fn run(mut self, mut events: mpsc::Receiver<Event<RawObject>>) -> Result<(), CliError> {
        let mut glances = interval(GLANCE);
        glances.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let handler = self.handler.clone();
        // The first list has its deadline in `check_hope`; the time to print it depends on the reader.
        let synced = handler.wait_synced(Duration::MAX);
        tokio::pin!(synced);
        let mut is_synced = false;
        loop {
            tokio::select! {
                biased;
                event = events.recv() => {
                    let Some(event) = event else { return Err(CliError::new("the informer ended")) };
                    self.print(event)?;
                    while let Ok(event) = events.try_recv() {
                        self.print(event)?;
                    }
                    self.printer.settle(&mut self.out)?;
                }
                result = &mut synced, if !is_synced => {
                    result.map_err(CliError::new)?;
                    is_synced = true;
                    let objects = self.informer.store().len() as u64;
                    let (after, scope) = (self.begun.elapsed(), self.scope.clone());
                    self.notice(&Notice::Synced { objects, after, scope })?;
                }
                _ = glances.tick() => self.glance(is_synced)?,
            }
        }
    }

    fn print(&mut self, event: Event<RawObject>) -> Result<(), CliError> {
        if self.watch_only && matches!(event, Event::Added { initial: true, .. }) {
            return Ok(());
        }
        Ok(self.printer.change(&mut self.out, &change(&event))?)
    }

    /// Checks the freshness, and prints a notice if it has changed.
    fn glance(&mut self, is_synced: bool) -> Result<(), CliError> {
        self.log_state();
        let state = match self.informer.freshness() {
            Freshness::NeverSynced { reason, .. } => {
                self.check_hope()?;
                ViewState::Stale { reason: format!("not synced yet: {}", reason::describe_stale(&reason)) }
            }
            Freshness::Stale { reason, .. } => ViewState::Stale { reason: reason::describe_stale(&reason) },
            _ if !is_synced => return Ok(()),
            _ => ViewState::Live,
        };
        let healed = match state {
            ViewState::Live => self.healed(),
            ViewState::Stale { .. } => String::new(),
        };
        match self.monitor.observe(self.begun.elapsed(), &state, &healed) {
            Some(notice) => self.notice(&notice),
            None => Ok(()),
        }
    }

    /// Logs the state of the list/watch for `-v`, whenever its condition changes.
    fn log_state(&mut self) {
        let state = self.informer.state();
        if self.logged.as_ref() == Some(&state.condition) {
            return;
        }
        let stats = self.informer.stats();
        info!(
            condition = state.condition.as_str(),
            reason = state.reason.as_deref(),
            attempts = state.attempts,
            resource_version = %stats.resource_version,
            objects = stats.objects,
            events = stats.events,
            relists = stats.relists,
            lists = stats.lists_sent,
            watches = stats.watches_sent,
            "list/watch"
        );
        self.logged = Some(state.condition);
    }

    /// Fails before the first view when the deadline has passed, or at once when a retry cannot succeed.
    fn check_hope(&self) -> Result<(), CliError> {
        let state = self.informer.state();
        let reason = state.reason.as_deref().map_or("no answer yet".into(), reason::plain);
        let resource = self.informer.resource();
        match state.condition {
            Condition::Forbidden => Err(CliError::new(format!("{resource}: {reason}"))
                .hint("ask for the verbs list and watch, or name a namespace with -n")),
            Condition::Unauthorized => Err(CliError::new(format!("{resource}: {reason}"))
                .hint("check the user of the kubeconfig's context")),
            Condition::NotServed | Condition::Rejected => Err(CliError::new(format!("{resource}: {reason}"))),
            _ if Instant::now() >= self.deadline => {
                let waited = skopos_console::human::seconds(self.begun.elapsed());
                Err(CliError::new(format!("{resource} not synced after {waited}: {reason}"))
                    .hint("a longer --sync-timeout waits longer"))
            }
            _ => Ok(()),
        }
    }

    fn healed(&self) -> String {
        let trouble = self.informer.stats().last_trouble;
        trouble.and_then(|trouble| trouble.healed).map(|(_, how)| how.to_string()).unwrap_or_default()
    }

    fn notice(&mut self, notice: &Notice) -> Result<(), CliError> {
        let mut aside = Vec::new();
        let printed = self.printer.notice(&mut self.out, &mut aside, notice);
        // The reader of the changes need not be the reader of the notices.
        let _ = io::stderr().write_all(&aside);
        Ok(printed?)
    }
}

fn add_handler(
    informer: &Informer<RawObject>,
    sender: mpsc::Sender<Event<RawObject>>,
) -> Result<HandlerHandle, CliError> {
    let forward = move |event| {
        let sender = sender.clone();
        async move {
            // The printer is gone, and the handler will be too.
            let _ = sender.send(event).await;
        }
    };
    informer.add_handler(forward, HandlerOptions::named("print")).map_err(CliError::new)
}

fn change(event: &Event<RawObject>) -> Change {
    let (verb, old) = match event {
        Event::Added { .. } => (Verb::Added, None),
        Event::Updated { old, .. } => (Verb::Updated, Some(old.raw().json())),
        Event::Deleted { .. } => (Verb::Deleted, None),
    };
    let object = event.object();
    Change {
        verb,
        namespace: object.namespace().map(Into::into),
        name: object.name().into(),
        object: Some(object.raw().json()),
        old,
        gap: event.flags().gap,
    }
}

fn printer(args: &WatchArgs, resource: &Resource) -> Box<dyn Printer> {
    let (out, err) = (Style::for_stream(&io::stdout()), Style::for_stream(&io::stderr()));
    match args.output {
        OutputFormat::Json => Box::new(JsonPrinter::new(resource)),
        OutputFormat::Name => Box::new(NamePrinter::new(resource, err)),
        OutputFormat::Table => {
            let namespaces = args.all_namespaces && resource.namespaced;
            Box::new(TablePrinter::new(columns(&resource.kind, namespaces, out, err), !args.no_headers))
        }
    }
}

fn informer_options(
    args: &WatchArgs,
    resource: &Resource,
    default_namespace: &str,
) -> Result<InformerOptions, CliError> {
    let options = match &args.namespace {
        // As in kubectl, a namespace is ignored for a resource that has none.
        _ if args.all_namespaces || !resource.namespaced => InformerOptions::all(),
        Some(namespace) => InformerOptions::namespace(namespace),
        None => InformerOptions::namespace(default_namespace),
    };
    let mut fields: Vec<String> = args.field_selector.iter().cloned().collect();
    fields.extend(args.name.iter().map(|name| format!("metadata.name={name}")));
    options
        .transform(Transform::DropManagedFields)
        .labels(args.selector.as_deref().unwrap_or_default())
        .map_err(|error| CliError::Usage(format!("--selector: {error}")))?
        .fields(&fields.join(","))
        .map_err(|error| CliError::Usage(format!("--field-selector: {error}")))
}

fn api_resource(resource: &Resource) -> ApiResource {
    ApiResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        api_version: resource.api_version(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
    }
}

fn usage(error: skopos::BuildError) -> CliError {
    CliError::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use skopos_testserver::{Fault, Match, TestServer, TestServerBuilder};

    use super::*;
    use crate::args::{Cli, Command};

    /// Returns the last line of `skopos watch pods` against a server, with its kubeconfig changed by `change`.
    async fn line(server: &TestServer, flags: &str, change: impl Fn(String) -> String) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, change(server.kubeconfig())).unwrap();
        let command = format!("skopos watch pods {flags} --kubeconfig {}", path.display());
        let Command::Watch(args) = Cli::parse_from(command.split_whitespace()).command else { panic!() };
        let error = run(args, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.exit_code(), std::process::ExitCode::from(1));
        error.line().unwrap().replace(&server.url(), "URL")
    }

    async fn start(builder: TestServerBuilder) -> TestServer {
        builder.start().await.unwrap()
    }

    #[tokio::test]
    async fn an_expired_certificate_fails_at_once_and_is_named() {
        let server = start(TestServer::builder().expired_certificate()).await;
        let line = line(&server, "", |kubeconfig| kubeconfig).await;
        assert!(line.starts_with("error: URL: TLS: server certificate outside its validity"), "{line}");
    }

    #[tokio::test]
    async fn untrusted_certificate_fails_immediately() {
        let (server, other) =
            (start(TestServer::builder().tls(true)).await, start(TestServer::builder().tls(true)).await);
        let line = line(&server, "", |_| other.kubeconfig().replace(&other.url(), &server.url())).await;
        assert!(line.starts_with("error: URL: TLS: server certificate not trusted"), "{line}");
    }

    #[tokio::test]
    async fn plaintext_server_is_reported_as_tls_error() {
        let server = start(TestServer::builder()).await;
        let line = line(&server, "", |kubeconfig| kubeconfig.replace("http://", "https://")).await;
        assert!(line.contains(": TLS: "), "{line}");
    }

    #[tokio::test]
    async fn wrong_credentials_fail_at_once() {
        let server = start(TestServer::builder().tls(true).token("right")).await;
        let line = line(&server, "", |kubeconfig| kubeconfig.replace("right", "wrong")).await;
        assert!(
            line.contains("the credentials are not accepted") && line.contains("kubeconfig's context"),
            "{line}"
        );
    }

    #[tokio::test]
    async fn forbidden_resource_fails_with_server_message() {
        let server = start(TestServer::builder()).await;
        let _forbidden = server.auth().forbid(Match::any().resource("pods"));
        let line = line(&server, "-A", |kubeconfig| kubeconfig).await;
        assert!(line.starts_with("error: pods: ") && line.contains("forbidden"), "{line}");
    }

    #[tokio::test]
    async fn sync_timeout_reports_last_error() {
        let server = start(TestServer::builder()).await;
        let _failing = server.faults().inject(Fault::status(503, 0)).on(Match::any().resource("pods"));
        let line = line(&server, "--sync-timeout 700ms", |kubeconfig| kubeconfig).await;
        assert!(line.starts_with("error: pods not synced after ") && line.contains("503"), "{line}");
    }

    #[tokio::test]
    async fn headers_that_never_come_are_bounded() {
        let server = start(TestServer::builder()).await;
        let _silent = server.faults().inject(Fault::WithholdHeaders).everywhere();
        let line = line(&server, "--sync-timeout 500ms", |kubeconfig| kubeconfig).await;
        assert!(line.starts_with("error: URL does not answer after "), "{line}");
    }
}

//! `skopos notify demo`: a cluster, a small zone and a small balancer in this process.
//! The outside follows the cluster and survives its faults.
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::{InformerFactory, Transport, TransportOptions};
use skopos_console::error::CliError;
use skopos_notify::desired::{ClaimSource, EndpointSource, Template};
use skopos_notify::service::{Notifier, NotifierHandle, SinkOptions, SinkReport, factory_options};
use skopos_notify::sink::memory::MemorySink;
use skopos_testserver::{CloseMode, Fault, Match, TestServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::args::NotifyDemoArgs;

/// Bound on each wait of the story.
const WAIT_TIMEOUT: Duration = Duration::from_secs(45);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const ZONE: usize = 0;
const EDGE: usize = 1;
const NAME: &str = "web.shop.apps.demo";
const BACKEND: &str = "k8s_shop_web_http";

/// Runs the story. Without `--once` the cluster then lives on until Ctrl-C.
pub(crate) async fn run(args: NotifyDemoArgs, stop: CancellationToken) -> Result<(), CliError> {
    let mut demo = Demo::set().await?;
    let told = stop.run_until_cancelled(async {
        demo.story().await?;
        if !args.once {
            demo.live().await?;
        }
        Ok(())
    });
    let told = told.await;
    demo.end().await;
    match told {
        Some(result) => result,
        None => Ok(()),
    }
}

struct Demo {
    server: Arc<TestServer>,
    down: Arc<AtomicBool>,
    factory: InformerFactory,
    zone: MemorySink,
    edge: MemorySink,
    handle: NotifierHandle,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    begun: Instant,
}

impl Demo {
    async fn set() -> Result<Self, CliError> {
        let server = TestServer::builder().workloads(true).start().await.map_err(CliError::new)?;
        let (server, down) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
        for object in [namespace("shop"), service(), deployment(3)] {
            server.create(object).map_err(failed)?;
        }
        let factory = factory(&server, &down)?;
        let (zone, edge) = (MemorySink::zone(), MemorySink::balancer());
        let source = |name: &str, ports: bool| {
            let name = Template::parse(name, &["service", "namespace", "port"]).map_err(CliError::new)?;
            let labels = [("app".to_owned(), "web".to_owned())].into();
            Ok::<_, CliError>(ClaimSource::Endpoints(EndpointSource { headless: None, labels, name, ports }))
        };
        let sink = |name: &str, sink: &MemorySink, source| {
            let mut options = SinkOptions::new(name, Arc::new(sink.clone()), vec![source]);
            options.observe_every = Duration::from_secs(1);
            options.plan.drain = Duration::from_secs(1);
            options
        };
        let sinks = vec![
            sink("zone", &zone, source("{service}.{namespace}.apps.demo", false)?),
            sink("edge", &edge, source("k8s_{namespace}_{service}_{port}", true)?),
        ];
        let notifier = Notifier::new(&factory, sinks).map_err(CliError::new)?;
        let (handle, stop, mut tasks) = (notifier.handle(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(notifier.run(stop.clone()));
        Ok(Self { server, down, factory, zone, edge, handle, stop, tasks, begun: Instant::now() })
    }

    async fn story(&mut self) -> Result<(), CliError> {
        self.say("a cluster with a Deployment of 3 pods behind the Service shop/web; a zone and a balancer that follow it")?;
        self.follows(3).await?;
        self.show()?;

        self.say("the Deployment is scaled to 5")?;
        self.scale(5)?;
        self.follows(5).await?;
        self.show()?;

        self.say("the API server goes away, and its Deployment is scaled to 6 while no client is connected")?;
        self.down.store(true, Ordering::SeqCst);
        self.server.faults().kill_connections(CloseMode::Rst);
        self.scale(6)?;
        let age = self
            .until("the age of the outside rises", |demo| demo.age(ZONE).filter(|age| *age > 6.0))
            .await?;
        self.say(&format!(
            "  nothing was removed: the outside is equal to the cluster as of {age:.0} s ago, and says so"
        ))?;
        self.is(5)?;

        self.say("the API server is back")?;
        self.down.store(false, Ordering::SeqCst);
        let back = Instant::now();
        self.follows(6).await?;
        self.say(&format!("  caught up after {:.1} s", back.elapsed().as_secs_f64()))?;

        self.say("a broken proxy answers that there are no Services and no endpoints: 200, an empty list")?;
        let faults = self.server.faults();
        let guards = [
            faults.inject(empty("ServiceList", "v1")).on(Match::list().resource("services")),
            faults
                .inject(empty("EndpointSliceList", "discovery.k8s.io/v1"))
                .on(Match::list().resource("endpointslices")),
            faults.inject(Fault::status(504, 0)).on(Match::watch()),
        ];
        self.server.close_watches();
        self.server.compact();
        let reason = self.until("the empty list is believed or held", |demo| demo.distrust()).await?;
        sleep(Duration::from_secs(3)).await;
        self.is(6)?;
        self.say(&format!("  nothing was removed: {reason}"))?;
        guards.into_iter().for_each(|guard| guard.heal());
        self.follows(6).await?;
        // A watch sees a deletion; one that falls into a gap of the watches is seen by the next list.
        let watches = |demo: &Self| (demo.report(ZONE).view_problem.is_none()).then_some(());
        self.until("the watches are open again", watches).await?;
        self.say("the proxy is mended, and the outside was right all the time")?;

        self.say("the Service is deleted: that was seen, and the outside follows")?;
        self.server.delete("services", Some("shop"), "web").map_err(failed)?;
        let gone = |demo: &Self| {
            let is_gone = demo.zone.content().entries.is_empty() && demo.edge.content().entries.is_empty();
            is_gone.then_some(())
        };
        self.until("the outside is empty", gone).await?;
        self.show()
    }

    /// Lets the cluster live on, and prints the state of the outside at intervals.
    async fn live(&mut self) -> Result<(), CliError> {
        self.server.create(service()).map_err(failed)?;
        self.say("the cluster lives on; Ctrl-C ends it")?;
        for replicas in [2, 4, 3, 6, 1, 5].into_iter().cycle() {
            self.scale(replicas)?;
            sleep(Duration::from_secs(5)).await;
            self.show()?;
        }
        Ok(())
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.factory.shutdown(Duration::from_secs(2)).await;
    }

    fn scale(&self, replicas: u32) -> Result<(), CliError> {
        self.server.apply(deployment(replicas)).map(drop).map_err(failed)
    }

    /// Waits until both sinks have `count` values.
    async fn follows(&self, count: usize) -> Result<(), CliError> {
        self.until("the outside follows", |demo| demo.is(count).ok()).await
    }

    fn is(&self, count: usize) -> Result<(), CliError> {
        let (zone, edge) = (self.zone.serving(NAME).len(), self.edge.serving(BACKEND).len());
        match (zone, edge) == (count, count) {
            true => Ok(()),
            false => Err(CliError::new(format!(
                "the zone has {zone} addresses and the balancer {edge} servers, and not {count}"
            ))),
        }
    }

    fn age(&self, sink: usize) -> Option<f64> {
        self.report(sink).outside_age_seconds
    }

    fn report(&self, sink: usize) -> SinkReport {
        self.handle.sinks()[sink].report()
    }

    /// Returns the reason for which nothing is removed.
    fn distrust(&self) -> Option<String> {
        let report = self.report(ZONE);
        let held =
            report.held.first().map(|held| format!("{} removals are held, {}", held.count, held.message));
        let old = report.view_problem.filter(|_| report.outside_age_seconds.is_some_and(|age| age > 12.0));
        held.or(old.map(|problem| format!("the view is not believed ({problem})")))
    }

    async fn until<T>(&self, what: &str, is_so: impl Fn(&Self) -> Option<T>) -> Result<T, CliError> {
        let waiting = async {
            loop {
                if let Some(found) = is_so(self) {
                    return found;
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(WAIT_TIMEOUT, waiting).await.map_err(|_| {
            CliError::new(format!("not within {WAIT_TIMEOUT:?}: {what}: {:#?}", self.handle.reports()))
        })
    }

    fn show(&self) -> Result<(), CliError> {
        let line = |values: Vec<Arc<str>>| match values.is_empty() {
            true => "nothing".to_owned(),
            false => values.join(" "),
        };
        let age = |sink| self.age(sink).map_or_else(String::new, |age| format!("   (as of {age:.1} s ago)"));
        self.say(&format!("  zone      {NAME}  {}{}", line(self.zone.serving(NAME)), age(ZONE)))?;
        self.say(&format!("  balancer  {BACKEND}   {}{}", line(self.edge.serving(BACKEND)), age(EDGE)))
    }

    fn say(&self, text: &str) -> Result<(), CliError> {
        let at = self.begun.elapsed().as_secs_f64();
        Ok(writeln!(io::stdout(), "{at:5.1} s  {text}")?)
    }
}

fn failed(status: skopos::Status) -> CliError {
    CliError::new(format!("the test server refuses: {status}"))
}

fn factory(server: &Arc<TestServer>, down: &Arc<AtomicBool>) -> Result<InformerFactory, CliError> {
    let (server, down) = (server.clone(), down.clone());
    let dialer = dialer_fn(move |_| {
        let connected = match down.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => server.connect(),
        };
        async move {
            let refused = |error: io::Error| TransportErrorKind::Refused {
                to: "the demo's API server".into(),
                reason: error.to_string().into(),
            };
            connected.map(|stream| Dialed::new(stream, Protocol::Http2)).map_err(refused)
        }
    });
    let url = "http://demo.test".parse().map_err(CliError::new)?;
    let transport = Transport::with_dialer(kube::Config::new(url), TransportOptions::default(), dialer)
        .map_err(CliError::new)?;
    Ok(InformerFactory::new(transport, factory_options()))
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    })
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web", "ports": [{"name": "http", "containerPort": 8080}]}]},
            },
        },
    })
}

fn empty(kind: &str, version: &str) -> Fault {
    let body =
        json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "999999"}, "items": []});
    Fault::Answer {
        code: 200,
        headers: vec![(http::header::CONTENT_TYPE, "application/json".to_owned())],
        body: body.to_string(),
    }
}

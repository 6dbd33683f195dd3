//! Keeps every kind of a healthy cluster in a gateway while only config maps change: whatever a kind's watches bring, be it nothing
//! at all, as those of Events, it is live all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use http::{Request, header};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::{Discovery, verbs};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::gateway::Gateway;
use crate::member::Member;
use crate::programs;

#[derive(Args)]
pub(crate) struct Options {
    /// For how many seconds. A kind that nothing proves is called stale after 90 s.
    #[arg(long, default_value_t = 150)]
    seconds: u64,
    /// A kubeconfig whose current context is the cluster. Without it, peers/apiserver is started.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The program `skopos`; without it, the one that `cargo build` makes in the repository.
    #[arg(long)]
    skopos: Option<PathBuf>,
    /// Build peers/apiserver and `skopos` first.
    #[arg(long)]
    build: bool,
}

/// Between two looks at the gateway's status.
const LOOKS: Duration = Duration::from_millis(500);
/// In looks: between two changes of a config map, which let the cluster's resourceVersion rise.
const CHANGES: u64 = 4;
/// In looks: between two reads of every kind. One that is not read for 10 minutes leaves the gateway's memory.
const READS: u64 = 240;
/// How long the first lists may take.
const PLENTY: Duration = Duration::from_secs(60);

/// Looks for as long as asked. An error names the kinds that were not live.
pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        if options.kubeconfig.is_none() {
            programs::build_apiserver()?;
        }
        programs::build_skopos()?;
    }
    let folder = tempfile::tempdir()?;
    let member = Member::start(options.kubeconfig.as_deref(), folder.path()).await?;
    let skopos = options.skopos.clone().unwrap_or_else(programs::skopos);
    let gateway = Gateway::start(&skopos, folder.path(), member.kubeconfig()).await?;
    let found = look(&member, &gateway, Duration::from_secs(options.seconds)).await;
    gateway.stop().await?;
    member.stop().await?;
    found?.judge(options.seconds)
}

async fn look(member: &Member, gateway: &Gateway, time: Duration) -> Result<Found> {
    let cluster = client(member.kubeconfig()).await?;
    let through = client(&gateway.kubeconfig(gateway.port())).await?;
    let status = Client::try_from(kube::Config::new(gateway.url().parse()?))?;
    write(&cluster, "POST", "/api/v1/namespaces/default/configmaps", &config_map(0)).await?;
    write(&cluster, "POST", "/api/v1/namespaces/default/events", &event()).await?;
    let kinds = kinds(&through).await?;
    ensure!(kinds.iter().any(|path| path.ends_with("/v1/events")), "the cluster has no Events: {kinds:?}");
    read(&through, &kinds).await?;
    let mut found = Found::default();
    let begun = Instant::now();
    while !found.look(&status).await? {
        ensure!(begun.elapsed() < PLENTY, "not everything is live: {:?}", found.troubles);
        found = Found::default();
        tokio::time::sleep(LOOKS).await;
    }
    let (mut looks, begun) = (interval(LOOKS), Instant::now());
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for at in 1.. {
        looks.tick().await;
        if begun.elapsed() >= time {
            break;
        }
        if at % CHANGES == 0 {
            let change = config_map(at);
            write(&cluster, "PUT", "/api/v1/namespaces/default/configmaps/skopos-quiet", &change).await?;
        }
        if at % READS == 0 {
            read(&through, &kinds).await?;
        }
        found.look(&status).await?;
    }
    for path in ["configmaps/skopos-quiet", "events/skopos-quiet"] {
        write(&cluster, "DELETE", &format!("/api/v1/namespaces/default/{path}"), &json!({})).await?;
    }
    Ok(found)
}

/// What the gateway said.
#[derive(Default)]
struct Found {
    looks: u64,
    kinds: BTreeSet<String>,
    /// The oldest age in seconds that was told, by kind.
    ages: BTreeMap<String, f64>,
    /// What was not live and why, and how often it was seen.
    troubles: BTreeMap<String, u64>,
}

impl Found {
    /// Takes in the gateway's status. Returns whether all of it was live.
    async fn look(&mut self, status: &Client) -> Result<bool> {
        let report: Value = status.request(Request::get("/api/v1/status").body(Vec::new())?).await?;
        let cluster = &report["clusters"][0];
        self.looks += 1;
        let before = self.troubles.len();
        if cluster["state"] != "live" {
            self.trouble(format!("the cluster is {}: {}", cluster["state"], cluster["reason"]));
        }
        for kind in cluster["kinds"].as_array().context("no kinds")? {
            let name = kind["resource"].as_str().context("a kind without a name")?.to_owned();
            if kind["freshness"] != "live" {
                self.trouble(format!("{name} is {}: {}", kind["freshness"], kind["reason"]));
            }
            let age = self.ages.entry(name.clone()).or_default();
            *age = age.max(kind["ageSeconds"].as_f64().unwrap_or(f64::INFINITY));
            self.kinds.insert(name);
        }
        Ok(self.troubles.len() == before)
    }

    fn trouble(&mut self, what: String) {
        *self.troubles.entry(what).or_default() += 1;
    }

    fn judge(&self, seconds: u64) -> Result<()> {
        let oldest = self.ages.iter().max_by(|a, b| a.1.total_cmp(b.1)).context("no kind was seen")?;
        let events = self.ages.get("events").context("Events were not in memory")?;
        println!(
            "{} kinds, {} looks in {seconds} s: Events at most {events:.1} s old, the oldest {} with {:.1} s",
            self.kinds.len(),
            self.looks,
            oldest.0,
            oldest.1
        );
        ensure!(self.troubles.is_empty(), "not live, though the cluster is healthy: {:#?}", self.troubles);
        Ok(())
    }
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let (file, options) = (Kubeconfig::from_yaml(kubeconfig)?, KubeConfigOptions::default());
    Ok(Client::try_from(kube::Config::from_custom_kubeconfig(file, &options).await?)?)
}

/// Returns the paths of all kinds that can be listed and watched, across namespaces, one version of each. Secrets are not kept.
async fn kinds(client: &Client) -> Result<Vec<String>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let listed = discovery.groups().flat_map(|group| group.recommended_resources());
    let kept = listed.filter(|(kind, capabilities)| {
        let can = |verb| capabilities.supports_operation(verb);
        kind.plural != "secrets" && can(verbs::LIST) && can(verbs::WATCH)
    });
    let path = |kind: &kube::core::ApiResource| match kind.group.is_empty() {
        true => format!("/api/{}/{}", kind.version, kind.plural),
        false => format!("/apis/{}/{}/{}", kind.group, kind.version, kind.plural),
    };
    Ok(kept.map(|(kind, _)| path(&kind)).collect())
}

async fn read(client: &Client, paths: &[String]) -> Result<()> {
    for path in paths {
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        ensure!(list["metadata"].is_object(), "{path} is answered with {list}");
    }
    Ok(())
}

async fn write(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value> {
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let made = client.request(request.body(serde_json::to_vec(body)?)?).await;
    made.with_context(|| format!("{method} {path}"))
}

fn config_map(number: u64) -> Value {
    let data = json!({"number": number.to_string()});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "skopos-quiet"}, "data": data})
}

fn event() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Quiet", "message": "nothing happens",
        "metadata": {"name": "skopos-quiet"},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "skopos-quiet"},
    })
}

//! The clusters' process: test servers over TLS, some of which can be ill.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use skopos_testserver::{Connections, Direction, Fault, FaultGuard, TestServer};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

/// What the processes of clusters are started with.
#[derive(Args)]
pub(crate) struct Options {
    /// Where each cluster's kubeconfig goes, as NAME.yaml.
    #[arg(long)]
    folder: PathBuf,
    /// How many clusters: c0000, c0001, ...
    #[arg(long)]
    clusters: usize,
    /// Generated pods in each.
    #[arg(long, default_value_t = 0)]
    pods: usize,
    /// Objects of each of the ten kinds of `fleet-idle` in each.
    #[arg(long, default_value_t = 0)]
    objects: usize,
}

#[derive(Default)]
struct Members {
    servers: BTreeMap<String, TestServer>,
    /// Of the same names as some that are well.
    ill: BTreeMap<String, TestServer>,
    /// What is wrong with the ill ones.
    faults: Vec<FaultGuard>,
    holes: Vec<Hole>,
}

/// A port that takes no connection: its queue is full, and packets to it are dropped.
struct Hole {
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

/// An annotation with the time at which the object was written, in microseconds since 1970.
pub(crate) const WRITTEN: &str = "bench.skopos.dev/at";

/// The time now, as it is written there.
pub(crate) fn now_micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

/// Ten kinds that every cluster has, by group, version, plural and kind.
pub(crate) const KINDS: [(&str, &str, &str, &str); 10] = [
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "endpoints", "Endpoints"),
    ("", "v1", "limitranges", "LimitRange"),
    ("", "v1", "podtemplates", "PodTemplate"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("", "v1", "services", "Service"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("batch", "v1", "cronjobs", "CronJob"),
    ("coordination.k8s.io", "v1", "leases", "Lease"),
];

/// Serves until standard input ends. Commands:
///
/// - `ill FOLDER KIND NAME` makes another cluster NAME that is a `hole`, `mute`, `refuses`, is `slow` or `off`
/// - `churn CLUSTER EVENTS RATE` changes pods at that many a second, and answers when the last is changed
/// - `requests` says how many HTTP requests reached each ill cluster since the last time
pub(crate) async fn run(options: Options) -> Result<()> {
    let mut members = Members::default();
    for number in 0..options.clusters {
        let name = format!("c{number:04}");
        let server = start(&options.folder, &name).await?;
        members.servers.insert(name, server.clone());
        if options.pods > 0 {
            server.load_pods(options.pods);
        }
        for object in (0..options.objects).flat_map(|n| KINDS.map(|kind| object_of(kind, n))) {
            server.create(object)?;
        }
    }
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["ill", folder, kind, name] => {
                members.make_ill(Path::new(folder), kind, name).await?;
                println!("done");
            }
            ["churn", cluster, events, rate] => {
                let server = members.servers.get(cluster).context("no such cluster")?;
                churn(server, events.parse()?, rate.parse()?).await?;
                println!("done");
            }
            ["requests"] => {
                let counts: BTreeMap<&String, usize> = members
                    .ill
                    .iter()
                    .map(|(name, server)| {
                        let count = server.requests().len();
                        server.clear_requests();
                        (name, count)
                    })
                    .collect();
                println!("{}", serde_json::to_string(&counts)?);
            }
            _ => bail!("unknown command {line:?}"),
        }
    }
    // They all end with the process.
    Ok(())
}

impl Members {
    async fn make_ill(&mut self, folder: &Path, kind: &str, name: &str) -> Result<()> {
        let server = start(folder, name).await?;
        match kind {
            // No packet comes back.
            "hole" => {
                let hole = Hole::dig().await?;
                let kubeconfig = server.kubeconfig();
                let port = hole.port()?.to_string();
                write_kubeconfig(folder, name, &kubeconfig.replace(&server.port().to_string(), &port))?;
                self.holes.push(hole);
            }
            // Connections come about, and then nothing.
            "mute" => {
                self.faults.push(server.faults().black_hole(Connections::All, Direction::Both));
            }
            "slow" => {
                let late = Fault::DelayHeaders(Duration::from_secs(5));
                self.faults.push(server.faults().inject(late).everywhere());
            }
            // Nobody listens there.
            "refuses" | "off" => server.pause().await,
            other => bail!("unknown illness {other:?}"),
        }
        self.ill.insert(name.to_owned(), server);
        Ok(())
    }
}

impl Hole {
    async fn dig() -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.1:0".parse()?)?;
        let listener = socket.listen(1)?.into_std()?;
        let address = listener.local_addr()?;
        let mut queued = Vec::new();
        // As many as fit; the first that does not shows that it is full.
        while let Ok(connected) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            queued.push(connected?);
        }
        Ok(Self { _listener: listener, _queued: queued })
    }

    fn port(&self) -> Result<u16> {
        Ok(self._listener.local_addr()?.port())
    }
}

async fn start(folder: &Path, name: &str) -> Result<TestServer> {
    let server = TestServer::builder().tls(true).start().await?;
    write_kubeconfig(folder, name, &server.kubeconfig())?;
    Ok(server)
}

fn write_kubeconfig(folder: &Path, name: &str, kubeconfig: &str) -> Result<()> {
    // Whole at once: the folder is watched.
    let (new, file) = (folder.join(format!(".{name}")), folder.join(format!("{name}.yaml")));
    std::fs::write(&new, kubeconfig)?;
    std::fs::rename(&new, &file).context("writing a kubeconfig")
}

/// A small object of a kind.
fn object_of((group, version, _, kind): (&str, &str, &str, &str), number: usize) -> Value {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let labels = json!({"app": "bench", "number": number.to_string()});
    let metadata = json!({"namespace": "default", "name": format!("bench-{number}"), "labels": labels});
    let pod = json!({"metadata": {"labels": {"app": "bench"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}});
    let selector = json!({"matchLabels": {"app": "bench"}});
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    match kind {
        "ConfigMap" => object["data"] = json!({"key": "value"}),
        "LimitRange" => object["spec"] = json!({"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}),
        "PodTemplate" => object["template"] = pod,
        "Service" => object["spec"] = json!({"ports": [{"port": 80}], "selector": {"app": "bench"}}),
        "Deployment" => object["spec"] = json!({"replicas": 1, "selector": selector, "template": pod}),
        "StatefulSet" => {
            object["spec"] =
                json!({"replicas": 1, "serviceName": "bench", "selector": selector, "template": pod})
        }
        "CronJob" => {
            let mut template = pod;
            template["spec"]["restartPolicy"] = json!("Never");
            object["spec"] = json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template}}})
        }
        _ => {}
    }
    object
}

async fn churn(server: &TestServer, events: u64, rate: f64) -> Result<()> {
    let (pods, _) = server.list("pods", None)?;
    let begun = Instant::now();
    for number in 0..events {
        sleep_until(begun + Duration::from_secs_f64(number as f64 / rate)).await;
        let mut pod: Value = pods[number as usize % pods.len()].clone();
        pod["metadata"]["annotations"][WRITTEN] = json!(now_micros().to_string());
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        server.update(pod)?;
    }
    Ok(())
}

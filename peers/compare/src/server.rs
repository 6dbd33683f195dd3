//! The servers: the test server in this process, or the real one in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use peer_protocol::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skopos_testserver::TestServer;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::belief::Objects;
use crate::programs;
use crate::proxy::free_port;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// `skopos-testserver`.
    Test,
    /// `peers/apiserver`: the libraries of kube-apiserver and an etcd.
    Real,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Test => "test server",
            Kind::Real => "k8s.io/apiserver",
        }
    }
}

/// A running server.
pub(crate) enum Server {
    Test(TestServer),
    Real(Box<Real>),
}

/// The namespace that everything happens in.
pub(crate) const NAMESPACE: &str = "default";

impl Server {
    /// Starts a server that has so many pods.
    pub(crate) async fn start(kind: Kind, pods: usize) -> Result<Self> {
        match kind {
            Kind::Test => {
                let server = TestServer::builder().tls(true).start().await?;
                server.load_pods(pods);
                Ok(Self::Test(server))
            }
            Kind::Real => Ok(Self::Real(Box::new(Real::start(pods, false).await?))),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Test(server) => server.port(),
            Self::Real(server) => server.port,
        }
    }

    pub(crate) fn kubeconfig(&self) -> Result<String> {
        match self {
            Self::Test(server) => Ok(server.kubeconfig()),
            Self::Real(server) => Ok(std::fs::read_to_string(server.kubeconfig())?),
        }
    }

    /// The CPU time of the server so far; `None` for the test server, which shares this process.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        match self {
            Self::Test(_) => None,
            Self::Real(server) => Some(server.cpu()),
        }
    }

    /// The test server; only its faults ask for it.
    pub(crate) fn test(&self) -> Result<&TestServer> {
        match self {
            Self::Test(server) => Ok(server),
            Self::Real(_) => Err(anyhow!("the real server has no faults on demand")),
        }
    }

    /// Creates a small pod.
    pub(crate) async fn create(&self, name: &str) -> Result<Version> {
        let created = match self {
            Self::Test(server) => server.create(pod(name)).map_err(refused)?,
            Self::Real(server) => server.send("POST", PODS, &pod(name)).await?,
        };
        version(&created)
    }

    /// Changes an annotation of a pod.
    pub(crate) async fn touch(&self, name: &str, value: &str) -> Result<Version> {
        let changed = match self {
            Self::Test(server) => {
                let mut pod = server.get("pods", Some(NAMESPACE), name).map_err(refused)?;
                pod["metadata"]["annotations"]["touched"] = value.into();
                server.update(pod).map_err(refused)?
            }
            Self::Real(server) => server.patch(NAMESPACE, name, value).await?,
        };
        version(&changed)
    }

    /// Deletes a pod at once.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        match self {
            Self::Test(server) => drop(server.delete("pods", Some(NAMESPACE), name).map_err(refused)?),
            Self::Real(server) => {
                let at_once = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
                drop(server.send("DELETE", &format!("{PODS}/{name}"), &at_once).await?);
            }
        }
        Ok(())
    }

    /// All pods of the namespace, as they are.
    pub(crate) async fn objects(&self) -> Result<Objects> {
        let items = match self {
            Self::Test(server) => server.list("pods", Some(NAMESPACE)).map_err(refused)?.0,
            Self::Real(server) => server.list(PODS).await?,
        };
        items.iter().map(|pod| Ok((key_of(pod), version(pod)?))).collect()
    }

    /// Changes pods, as many times as asked and as fast as it can.
    pub(crate) async fn churn(&self, events: usize) -> Result<()> {
        // Other values than the last time: a change that changes nothing is no event.
        let time = fastrand::u64(..);
        match self {
            Self::Test(server) => churn_test(server, events, time).await,
            Self::Real(server) => server.churn(events, time).await,
        }
    }

    /// Ends without a word, as a machine that loses its power.
    pub(crate) async fn crash(&mut self) -> Result<()> {
        match self {
            Self::Test(server) => server.pause_with(skopos_testserver::CloseMode::Rst).await,
            Self::Real(server) => server.child.kill().await?,
        }
        Ok(())
    }

    /// Comes back after a crash, with the same content.
    pub(crate) async fn come_back(&mut self) -> Result<()> {
        match self {
            Self::Test(server) => server.resume().await?,
            Self::Real(server) => server.launch().await?,
        }
        Ok(())
    }

    pub(crate) async fn stop(self) -> Result<()> {
        match self {
            Self::Test(server) => server.stop().await,
            Self::Real(mut server) => server.child.kill().await?,
        }
        Ok(())
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"touched": "no"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn key_of(pod: &Value) -> String {
    let part = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", part("namespace"), part("name"))
}

fn version(pod: &Value) -> Result<Version> {
    let part =
        |name: &str| pod["metadata"][name].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
    Ok(Version { uid: part("uid")?, rv: part("resourceVersion")? })
}

fn refused(status: skopos_testserver::Status) -> anyhow::Error {
    anyhow!("the server refuses: {status:?}")
}

/// Changes between which the server's own tasks get a turn.
const BATCH: usize = 64;

async fn churn_test(server: &TestServer, events: usize, time: u64) -> Result<()> {
    let (pods, _) = server.list("pods", None).map_err(refused)?;
    for round in 0..events {
        let mut pod: Value = pods[round % pods.len()].clone();
        pod["metadata"]["annotations"]["touched"] = format!("{time}-{round}").into();
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        server.update(pod).map_err(refused)?;
        if round % BATCH == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// The real server's process.
pub(crate) struct Real {
    child: Child,
    /// Where etcd and the certificate live.
    folder: tempfile::TempDir,
    port: u16,
    client: kube::Client,
    logs: bool,
    /// Kept open, so that the server may write to it.
    _output: Option<BufReader<ChildStdout>>,
}

/// How long it may take to start, with the pods that it is to store.
const LONGEST_START: Duration = Duration::from_secs(600);

impl Real {
    /// Starts a server that has so many pods. If it `logs`, it writes each request to [`Real::requests`].
    pub(crate) async fn start(pods: usize, logs: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (listener, port) = free_port().await?;
        drop(listener);
        let (child, output) = launch(folder.path(), port, pods, logs).await?;
        let kubeconfig = Kubeconfig::read_from(folder.path().join(KUBECONFIG))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        Ok(Self { child, folder, port, client, logs, _output: Some(output) })
    }

    /// Starts again after a crash, on the same port and with the same content.
    pub(crate) async fn launch(&mut self) -> Result<()> {
        let (child, output) = launch(self.folder.path(), self.port, 0, self.logs).await?;
        self.child = child;
        self._output = Some(output);
        Ok(())
    }

    /// Ends without a word.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(KUBECONFIG)
    }

    /// The file with a line for each request.
    pub(crate) fn requests(&self) -> PathBuf {
        self.folder.path().join(REQUESTS)
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The CPU time of the process so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.pid().map_or(Duration::ZERO, cpu_of)
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, kind);
        let body = if method == "GET" { Vec::new() } else { serde_json::to_vec(body)? };
        Ok(self.client.request(request.body(body)?).await?)
    }

    async fn patch(&self, namespace: &str, name: &str, value: &str) -> Result<Value> {
        let patch = json!({"metadata": {"annotations": {"touched": value}}});
        self.send("PATCH", &format!("/api/v1/namespaces/{namespace}/pods/{name}"), &patch).await
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.send("GET", path, &Value::Null).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    async fn churn(&self, events: usize, time: u64) -> Result<()> {
        let pods = self.list(&format!("/api/v1/pods?limit={CHURNED}")).await?;
        let names: Vec<(String, String)> = pods
            .iter()
            .filter_map(|pod| key_of(pod).split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())))
            .collect();
        let patches = (0..events).map(|round| {
            let (namespace, name) = names[round % names.len()].clone();
            async move { self.patch(&namespace, &name, &format!("{time}-{round}")).await.map(drop) }
        });
        stream::iter(patches).buffer_unordered(WRITERS).try_collect::<()>().await
    }
}

/// Pods that change; each of them many times.
const CHURNED: usize = 2_000;
/// Writes that are underway at the same time.
const WRITERS: usize = 32;
const KUBECONFIG: &str = "kubeconfig";
const REQUESTS: &str = "requests";

async fn launch(
    folder: &Path,
    port: u16,
    pods: usize,
    logs: bool,
) -> Result<(Child, BufReader<ChildStdout>)> {
    let mut command = Command::new(programs::apiserver());
    if logs {
        command.arg("--request-log").arg(folder.join(REQUESTS));
    }
    let mut child = command
        .args(["--port", &port.to_string(), "--pods", &pods.to_string()])
        .arg("--data-dir")
        .arg(folder)
        .arg("--kubeconfig-out")
        .arg(folder.join(KUBECONFIG))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting the real server: run with --build")?;
    let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
    let mut line = String::new();
    timeout(LONGEST_START, output.read_line(&mut line)).await.context("the real server does not start")??;
    anyhow::ensure!(line.starts_with("ready"), "the real server ended before it was ready");
    Ok((child, output))
}

/// The CPU time of a process, as the kernel counts it.
fn cpu_of(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|part| part.parse::<u64>().ok()).sum();
    // Linux tells it in hundredths of a second on every machine of today.
    Duration::from_millis(ticks * 10)
}

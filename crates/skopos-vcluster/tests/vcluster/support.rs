//! Helpers of these tests: a host in memory, the operations of the vcluster CLI on it, and connections that break off.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos::{Transport, TransportOptions, test_server_dialer};
use skopos_fleet::kubeconfig::KubeconfigPaths;
use skopos_testserver::{TestServer, VirtualCluster, VirtualClusters};
use skopos_vcluster::{Helm, Host, HostOptions, Step, VirtualCluster as Found};
use tokio::sync::Notify;

pub const WITHIN: Duration = Duration::from_secs(300);

/// Makes a host with these virtual clusters, all of them up.
pub async fn host_with(clusters: &[VirtualCluster]) -> VirtualClusters {
    let host = TestServer::builder().workloads(true).start_in_memory().unwrap();
    let virtuals = VirtualClusters::on(host).in_memory().start();
    for cluster in clusters {
        virtuals.create(cluster).unwrap();
        up(&virtuals, cluster.namespace(), cluster.name()).await;
    }
    virtuals
}

pub async fn host_with_shop() -> VirtualClusters {
    host_with(&[VirtualCluster::new("shop")]).await
}

pub const NS: &str = "vcluster-shop";

/// Waits until its API server answers and its pod is ready.
pub async fn up(virtuals: &VirtualClusters, namespace: &str, name: &str) {
    virtuals.wait_up(namespace, name).await.unwrap();
    let ready =
        |host: &TestServer| workload(host, namespace, name)["status"]["readyReplicas"].as_u64() > Some(0);
    virtuals.host().wait_for(|host| ready(host)).await.unwrap();
}

/// Returns the control plane's StatefulSet, or else Deployment.
pub fn workload(host: &TestServer, namespace: &str, name: &str) -> Value {
    let get = |resource| host.get(resource, Some(namespace), name).ok();
    get("statefulsets").or_else(|| get("deployments")).unwrap()
}

pub fn client(server: &TestServer) -> Host {
    client_with(server, without_helm())
}

pub fn client_with(server: &TestServer, options: HostOptions) -> Host {
    Host::new(transport(server).client("default"), options)
}

pub fn without_helm() -> HostOptions {
    let helm = Helm { program: "/nonexistent/helm".into(), ..Helm::default() };
    HostOptions { helm, ..HostOptions::default() }
}

pub fn transport(server: &TestServer) -> Transport {
    let config = kube::Config::new("http://host.test".parse().unwrap());
    let options = TransportOptions { seed: Some(7), wall_clock: None, ..TransportOptions::default() };
    Transport::with_dialer(config, options, test_server_dialer(server)).unwrap()
}

/// Returns the reported state.
pub async fn status(host: &Host, name: &str) -> String {
    host.find(name, None, WITHIN).await.unwrap().status.to_string()
}

/// Waits until that state is reported.
pub async fn shown(host: &Host, name: &str, status: &str) -> Found {
    let shown = async {
        loop {
            let found = host.find(name, None, WITHIN).await.unwrap();
            if found.status.as_str() == status {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(WITHIN, shown).await.unwrap_or_else(|_| panic!("{name} is never {status}"))
}

/// Changes an object by a function.
pub fn edit(
    server: &TestServer,
    resource: &str,
    namespace: Option<&str>,
    name: &str,
    change: impl Fn(&mut Value),
) {
    for _ in 0..100 {
        let mut object = server.get(resource, namespace, name).unwrap();
        change(&mut object);
        // A controller may have changed it in between.
        if server.update(object).is_ok() {
            return;
        }
    }
    panic!("{resource} {name} cannot be changed");
}

pub fn resource_of(workload: &Value) -> &'static str {
    if workload["kind"] == "StatefulSet" { "statefulsets" } else { "deployments" }
}

/// The vcluster CLI's writes, done by hand.
pub mod cli {
    use super::*;

    /// Changes every workload that `vcluster pause` would change.
    fn each(server: &TestServer, namespace: &str, name: &str, change: impl Fn(&mut Value)) {
        let control_plane = workload(server, namespace, name);
        let resource = resource_of(&control_plane);
        edit(server, resource, Some(namespace), name, &change);
        if resource == "deployments"
            && server.get("statefulsets", Some(namespace), &format!("{name}-etcd")).is_ok()
        {
            edit(server, "statefulsets", Some(namespace), &format!("{name}-etcd"), &change);
        }
    }

    pub fn pause(server: &TestServer, namespace: &str, name: &str) {
        each(server, namespace, name, |object| {
            if object["metadata"]["annotations"]["loft.sh/paused"] == "true" {
                return;
            }
            let replicas = object["spec"]["replicas"].as_u64().unwrap().max(1).to_string();
            let metadata = object["metadata"].as_object_mut().unwrap();
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            annotations["loft.sh/paused"] = "true".into();
            annotations["loft.sh/paused-replicas"] = replicas.into();
            annotations["loft.sh/paused-date"] = "2026-01-02T03:04:05.678Z".into();
            object["spec"]["replicas"] = 0.into();
        });
    }

    /// Returns whether it found something to resume: the control plane has to be annotated.
    pub fn resume(server: &TestServer, namespace: &str, name: &str) -> bool {
        if workload(server, namespace, name)["metadata"]["annotations"]["loft.sh/paused"] != "true" {
            return false;
        }
        each(server, namespace, name, |object| {
            let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
            if annotations.remove("loft.sh/paused").is_none() {
                return;
            }
            let replicas = annotations.remove("loft.sh/paused-replicas").unwrap();
            annotations.remove("loft.sh/paused-date");
            object["spec"]["replicas"] = replicas.as_str().unwrap().parse::<u64>().unwrap().into();
        });
        true
    }
}

/// Makes a pod that runs in the host for a virtual cluster.
pub fn workload_pod(server: &TestServer, namespace: &str, name: &str, managed_by: Option<&str>) {
    let labels = managed_by.map(|by| json!({"vcluster.loft.sh/managed-by": by}));
    server
        .create(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels.unwrap_or_else(|| json!({}))},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
}

pub fn namespace(server: &TestServer, name: &str, labels: Value, annotations: Value) {
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).unwrap();
}

/// Returns the names of a resource's objects.
pub fn names(server: &TestServer, resource: &str, namespace: Option<&str>) -> Vec<String> {
    let (objects, _) = server.list(resource, namespace).unwrap();
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// A recorder of steps.
#[derive(Clone, Default)]
pub struct Steps(Arc<Mutex<Vec<Step>>>);

impl Steps {
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().iter().map(ToString::to_string).collect()
    }
}

impl skopos_vcluster::Progress for Steps {
    fn step(&self, step: Step) {
        self.0.lock().push(step);
    }
}

/// The point at which a connection breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The n-th request is no longer sent.
    Before(usize),
    /// The n-th request is answered, but its response is lost.
    After(usize),
}

/// A connection to a host that breaks off at some point, as if this process had died.
pub struct Breaking {
    broken: Arc<Notify>,
    pub host: Host,
}

impl Breaking {
    pub fn new(server: &TestServer, at: Break, options: HostOptions) -> Self {
        let (transport, broken) = (transport(server), Arc::new(Notify::new()));
        let (count, tell) = (Arc::new(AtomicUsize::new(0)), broken.clone());
        let service = tower::service_fn(move |request| {
            let (transport, tell) = (transport.clone(), tell.clone());
            let number = count.fetch_add(1, Ordering::SeqCst);
            async move {
                let (last, sent) = match at {
                    Break::Before(last) => (last, false),
                    Break::After(last) => (last, true),
                };
                if number < last {
                    return transport.send(request).await;
                }
                if sent && number == last {
                    drop(transport.send(request).await);
                }
                tell.notify_one();
                std::future::pending().await
            }
        });
        Self { broken, host: Host::new(kube::Client::new(service, "default"), options) }
    }

    /// Runs until it is done (true), or interrupted.
    pub async fn until_broken<T>(&self, operation: impl Future<Output = T>) -> bool {
        tokio::select! {
            biased;
            _ = operation => true,
            () = self.broken.notified() => false,
        }
    }
}

/// A fake helm: its recorded calls, and its script.
pub struct FakeHelm {
    folder: tempfile::TempDir,
}

impl FakeHelm {
    /// Creates a fake helm. `$1` is its command; `$log` is the file for lines, `$here` a folder of its own.
    pub fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (program, here) = (folder.path().join("helm"), folder.path().display());
        let text = format!(
            "#!/bin/sh\nhere='{here}'\nlog=\"$here/log\"\n\
             if [ \"$1\" = version ]; then echo \"${{VERSION:-v3.18.4}}\"; exit 0; fi\n\
             echo \"$@\" >> \"$log\"\n{script}\n"
        );
        // Another process writes the program: what this one has open for writing, a concurrent fork has open for a moment more, and
        // then it cannot be executed.
        let draft = folder.path().join("draft");
        std::fs::write(&draft, text).unwrap();
        let install = std::process::Command::new("install").arg("-m755").arg(draft).arg(program).status();
        assert!(install.unwrap().success());
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn options(&self) -> HostOptions {
        let helm = Helm {
            program: self.path("helm"),
            kubeconfig: Some(KubeconfigPaths::file("/k")),
            context: Some("here".into()),
        };
        HostOptions { helm, ..HostOptions::default() }
    }

    /// Returns the recorded calls.
    pub fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for a file that the script creates.
    pub async fn made(path: &Path) {
        let there = async {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), there).await.unwrap();
    }
}

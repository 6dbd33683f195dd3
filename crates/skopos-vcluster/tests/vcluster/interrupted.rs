//! Interruption of every operation at every point: repeating it completes it, also with the vcluster CLI.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use skopos_testserver::{TestServer, VirtualCluster, VirtualClusters};
use skopos_vcluster::{
    CreateOptions, DeleteOptions, Error, Host, Manifests, PauseOptions, ResumeOptions, Silent, Source,
};

use super::support::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Plain,
    Three,
    Deployed,
    WithEtcd,
    Synced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Pause,
    Resume,
    Delete,
}

const SHAPES: [Shape; 5] = [Shape::Plain, Shape::Three, Shape::Deployed, Shape::WithEtcd, Shape::Synced];
const OPERATIONS: [Operation; 4] =
    [Operation::Create, Operation::Pause, Operation::Resume, Operation::Delete];

impl Shape {
    fn cluster(self) -> VirtualCluster {
        let plain = VirtualCluster::new("shop").without_helm();
        match self {
            Self::Plain => plain,
            Self::Three => plain.replicas(3),
            Self::Deployed => plain.deployment(),
            Self::WithEtcd => plain.deployed_etcd(),
            Self::Synced => plain.namespace_sync(),
        }
    }
}

impl Operation {
    /// Makes a host as it is before the operation.
    async fn before(self, shape: Shape) -> VirtualClusters {
        let virtuals = host_with(&if self == Self::Create { vec![] } else { vec![shape.cluster()] }).await;
        let server = virtuals.host();
        if self != Self::Create {
            workload_pod(server, NS, "web", Some("shop"));
            workload_pod(server, NS, "plain", None);
        }
        if shape == Shape::Synced {
            namespace(
                server,
                "synced",
                json!({"vcluster.loft.sh/managed-by": "vcluster-shop-x-shop"}),
                json!({}),
            );
            workload_pod(server, "synced", "inner", None);
        }
        if self == Self::Resume {
            cli::pause(server, NS, "shop");
            virtuals.wait_down(NS, "shop").await.unwrap();
        }
        virtuals
    }

    async fn run(self, host: &Host, shape: Shape) -> Result<(), Error> {
        let (name, silent) = ("shop", &Silent);
        match self {
            Self::Create => {
                let source = Source::Manifests(Manifests::new(shape.cluster().manifests())?);
                // A virtual cluster that was applied completely, but not awaited, exists already.
                let options = CreateOptions { upgrade: true, ..CreateOptions::new(source) };
                host.create(name, &options, silent).await.map(drop)
            }
            Self::Pause => host.pause(name, None, PauseOptions::default(), silent).await.map(drop),
            Self::Resume => {
                let options = ResumeOptions { wait: true, ..ResumeOptions::default() };
                host.resume(name, None, options, silent).await.map(drop)
            }
            Self::Delete => match host.delete(name, None, DeleteOptions::default(), silent).await {
                // The last attempt completed it, but its response was lost.
                Err(Error::NotFound { .. }) => Ok(()),
                other => other,
            },
        }
    }

    /// Waits until the host is as it should be after the operation.
    async fn check(self, virtuals: &VirtualClusters, shape: Shape, after: &[String]) {
        let server = virtuals.host();
        let reached = server.wait_for(|server| state(server) == after).await;
        assert!(reached.is_ok(), "{self:?} {shape:?}: {:#?} instead of {after:#?}", state(server));
    }
}

/// Returns the relevant state of a host: its objects by name, and the fields of workloads that a pause and a resume
/// change.
fn state(server: &TestServer) -> Vec<String> {
    let mut state = Vec::new();
    for resource in [
        "namespaces",
        "statefulsets",
        "deployments",
        "services",
        "secrets",
        "persistentvolumeclaims",
        "roles",
        "clusterroles",
    ] {
        for object in server.list(resource, None).unwrap().0 {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut annotations = metadata["annotations"].clone();
            // The time differs each time.
            if annotations["loft.sh/paused-date"].is_string() {
                annotations["loft.sh/paused-date"] = "then".into();
            }
            let revision =
                annotations.as_object_mut().and_then(|all| all.remove("deployment.kubernetes.io/revision"));
            drop(revision);
            state.push(format!(
                "{resource} {}/{} {} {annotations} {} of {}",
                text(&metadata["namespace"]),
                text(&metadata["name"]),
                metadata["labels"],
                object["status"]["readyReplicas"].as_u64().unwrap_or(0),
                object["spec"]["replicas"],
            ));
        }
    }
    let workload_pods = |(namespace, name): (String, String)| format!("pod {namespace}/{name}");
    let pods = server.list("pods", None).unwrap().0.into_iter().map(|pod| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    });
    // The others have generated names.
    state.extend(
        pods.filter(|(_, name)| ["web", "plain", "inner"].contains(&name.as_str())).map(workload_pods),
    );
    state
}

/// Returns the state of the host after an undisturbed operation.
async fn reference(operation: Operation, shape: Shape) -> Vec<String> {
    let virtuals = operation.before(shape).await;
    operation.run(&client(virtuals.host()), shape).await.unwrap();
    let server = virtuals.host();
    // Until the controllers have finished.
    let mut last = state(server);
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let now = state(server);
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Checks an interruption after each request. If the last response was lost, that makes no difference to the host.
#[tokio::test(start_paused = true)]
async fn rerun_completes_after_break_at_each_request() {
    for operation in OPERATIONS {
        let shape = match operation {
            Operation::Create | Operation::Delete => Shape::Synced,
            Operation::Pause | Operation::Resume => Shape::WithEtcd,
        };
        let after = reference(operation, shape).await;
        for number in 0.. {
            let virtuals = operation.before(shape).await;
            let breaking = Breaking::new(virtuals.host(), Break::Before(number), without_helm());
            let reached_the_end = breaking.until_broken(operation.run(&breaking.host, shape)).await;
            let again = operation.run(&client(virtuals.host()), shape).await;
            again.unwrap_or_else(|error| panic!("{operation:?} after {number} requests: {error}"));
            operation.check(&virtuals, shape, &after).await;
            if reached_the_end {
                assert!(number > 3, "{operation:?} is more than {number} requests");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cli_completes_interrupted_resume() {
    for number in 0.. {
        let virtuals = Operation::Resume.before(Shape::WithEtcd).await;
        let breaking = Breaking::new(virtuals.host(), Break::After(number), without_helm());
        let done = breaking.until_broken(Operation::Resume.run(&breaking.host, Shape::WithEtcd)).await;
        cli::resume(virtuals.host(), NS, "shop");
        virtuals.wait_up(NS, "shop").await.unwrap();
        if done {
            break;
        }
    }
}

#[test]
fn rerun_completes_after_several_breaks() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let breaks = || {
        let one = (0..30_usize, any::<bool>())
            .prop_map(|(at, sent)| if sent { Break::After(at) } else { Break::Before(at) });
        prop::collection::vec(one, 1..5)
    };
    let cases = (prop::sample::select(OPERATIONS.to_vec()), prop::sample::select(SHAPES.to_vec()), breaks());
    let cases_wanted = std::env::var("SKOPOS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8);
    let config = Config { cases: cases_wanted, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&cases, |(operation, shape, breaks)| {
            runtime().block_on(async {
                let after = reference(operation, shape).await;
                let virtuals = operation.before(shape).await;
                for at in breaks {
                    let breaking = Breaking::new(virtuals.host(), at, without_helm());
                    breaking.until_broken(operation.run(&breaking.host, shape)).await;
                }
                operation.run(&client(virtuals.host()), shape).await.unwrap();
                operation.check(&virtuals, shape, &after).await;
            });
            Ok(())
        })
        .unwrap();
}

//! The server's process. It takes commands on standard input, one a line, and answers each with a line.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use skopos_testserver::TestServer;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

/// The name of the pod whose creation ends a storm of events.
pub(crate) const LAST: &str = "bench-last";
/// The namespace that it is created in.
pub(crate) const LAST_NAMESPACE: &str = "default";

/// Serves until standard input ends. `churn N` changes N pods as fast as it can and then creates [`LAST`]; `unlast`
/// deletes it again.
pub(crate) async fn serve(pods: usize, kubeconfig_out: &Path) -> Result<()> {
    let server = TestServer::builder().tls(true).start().await?;
    server.load_pods(pods);
    std::fs::write(kubeconfig_out, server.kubeconfig()).context("writing the kubeconfig")?;
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    let mut changed = 0;
    while let Some(line) = lines.next_line().await? {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["churn", events] => churn(&server, &mut changed, events.parse()?).await?,
            ["unlast"] => drop(server.delete("pods", Some(LAST_NAMESPACE), LAST)?),
            _ => bail!("unknown command {line:?}"),
        }
        println!("done");
    }
    server.stop().await;
    Ok(())
}

/// Batches between which the server's own tasks get a turn.
const BATCH: usize = 64;

/// `changed` counts what was changed so far: an update that changes nothing is no event.
async fn churn(server: &TestServer, changed: &mut usize, events: usize) -> Result<()> {
    let (pods, _) = server.list("pods", None)?;
    for round in 0..events {
        *changed += 1;
        let mut pod: Value = pods[round % pods.len()].clone();
        pod["metadata"]["annotations"]["bench.skopos.dev/round"] = json!(changed.to_string());
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        server.update(pod)?;
        if round % BATCH == 0 {
            tokio::task::yield_now().await;
        }
    }
    server.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": LAST, "namespace": LAST_NAMESPACE},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))?;
    Ok(())
}

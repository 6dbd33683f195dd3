//! Two notifiers that elect a leader, with the ledger of their webhook in a bucket.
use std::path::Path;

use serde_json::json;
use skopos_bucket::testing::S3;
use skopos_testserver::TestServer;

use self::receiver::Receiver;
use super::support::{Running, TIMEOUT, skopos, utf8};

#[path = "../../../skopos-notify/tests/support/receiver.rs"]
#[allow(dead_code, unreachable_pub, reason = "another crate uses the rest")]
mod receiver;

fn start(folder: &Path, name: &str, receiver: &Receiver, s3: &S3) -> Running {
    let config = folder.join(format!("{name}.yaml"));
    let configuration = json!({
        "cluster": {"kubeconfig": folder.join("kubeconfig")},
        "state": {"folder": folder.join(name), "bucket": s3.config(folder).expect("written")},
        "election": {"lease": "default/notify", "duration": "3s"},
        "guard": {"confirm": "1s"},
        "sinks": [{
            "name": "audit",
            "webhook": {"url": receiver.url(), "allow": ["127.0.0.0/8"]},
            "from": [{"objects": {"kind": "v1/configmaps", "namespaces": ["default"]}}],
        }],
    });
    std::fs::write(&config, configuration.to_string()).expect("written");
    Running::start(skopos().args(["notify", "--config", utf8(&config)]))
}

// The cluster is served while the test waits for a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_notifier_sends_the_deletion_that_nobody_saw() {
    let (cluster, s3) = (TestServer::builder().start().await.unwrap(), S3::start().await.unwrap());
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new().await);
    std::fs::write(folder.path().join("kubeconfig"), cluster.kubeconfig()).unwrap();
    // It may exist already.
    let _ =
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "web"}});
    cluster.create(config_map).unwrap();
    let mut first = start(folder.path(), "first", &receiver, &s3);
    receiver.until(1).await;
    first.signal("KILL");
    first.wait(TIMEOUT);
    cluster.delete("configmaps", Some("default"), "web").unwrap();
    let mut second = start(folder.path(), "second", &receiver, &s3);
    let told = loop {
        // The first may have ended before the answer to its message was written.
        let told = receiver.until(receiver.messages().len() + 1).await;
        if told.last().is_some_and(|message| message.what() == "deleted web") {
            break told;
        }
    };
    assert!(told[..told.len() - 1].iter().all(|message| message.what() == "created web"), "{told:#?}");
    second.signal("TERM");
    assert_eq!(second.wait(TIMEOUT).code(), Some(0));
}

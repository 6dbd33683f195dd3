//! Webhooks: a cluster in the process, and scripted receivers.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use skopos_notify::event::{EventSource, LedgerFolder, WebhookOptions, WebhookSink};
use skopos_notify::service::{EventSinkOptions, NotifierSink};
use support::receiver::{Answer, Receiver};
use support::{Cluster, Running};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name, "labels": {"told": "true"}},
        "data": {"value": value},
    })
}

fn put(cluster: &Cluster, name: &str, value: &str) {
    match cluster.server.get("configmaps", Some("default"), name) {
        Ok(_) => cluster.server.update(config_map(name, value)),
        Err(_) => cluster.server.create(config_map(name, value)),
    }
    .expect("a ConfigMap");
}

fn delete(cluster: &Cluster, name: &str) {
    cluster.server.delete("configmaps", Some("default"), name).expect("a ConfigMap");
}

fn webhook(url: &str) -> WebhookOptions {
    let mut options = WebhookOptions::new(url.parse().expect("a URL"));
    options.http.allow = vec!["127.0.0.0/8".parse().expect("a network")];
    // Long enough for a busy machine: after a later answer the message is rightly sent again.
    options.http.time_limit = Duration::from_secs(3);
    options.secrets = vec![SECRET.to_owned()];
    options
}

fn source() -> EventSource {
    let mut source = EventSource::all("v1/configmaps".parse().expect("a resource"));
    source.namespaces = vec!["default".to_owned()];
    source.labels = BTreeMap::from([("told".to_owned(), "*".to_owned())]);
    source.fields = vec!["data.value".parse().expect("a path")];
    source
}

fn sink(name: &str, url: &str, state: &Path) -> NotifierSink {
    let webhook = WebhookSink::new(webhook(url)).expect("a webhook");
    let mut options =
        EventSinkOptions::new(name, Arc::new(webhook), vec![source()], Arc::new(LedgerFolder::new(state)));
    options.confirm = Duration::from_millis(100);
    options.into()
}

struct World {
    cluster: Cluster,
    receiver: Receiver,
    state: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let state = tempfile::tempdir().expect("a folder");
        Self { cluster: Cluster::quick().await, receiver: Receiver::new().await, state }
    }

    fn run(&self) -> Running {
        self.cluster.run(vec![sink("audit", &self.receiver.url(), self.state.path())])
    }
}

#[tokio::test]
async fn receiver_gets_each_state_of_object() {
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    let running = world.run();
    let first = world.receiver.until(1).await.remove(0);
    running.equal(0).await;
    put(&world.cluster, "web", "2");
    world.receiver.until(2).await;
    running.equal(0).await;
    delete(&world.cluster, "web");
    let all = world.receiver.until(3).await;
    running.equal(0).await;
    let what: Vec<_> = all.iter().map(|message| message.what()).collect();
    assert_eq!(what, ["created web", "updated web", "deleted web"]);
    assert_eq!(all.iter().map(|message| message.id()).collect::<BTreeSet<_>>().len(), 3);
    // The signature covers ID, time and body.
    let mut headers = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, first.headers[name].parse().unwrap());
    }
    standardwebhooks::Webhook::new(SECRET).unwrap().verify(first.text.as_bytes(), &headers).unwrap();
    // Attributes of a CloudEvent.
    assert_eq!(first.headers["content-type"], "application/cloudevents+json; charset=utf-8");
    for (attribute, value) in [("specversion", "1.0"), ("type", "dev.skopos.object.created"), ("epoch", "0")]
    {
        assert_eq!(first.body[attribute], value, "{}", first.text);
    }
    assert_eq!(first.body["id"], first.id());
    assert!(first.body["source"].as_str().is_some_and(|source| source.len() > "/clusters/".len()));
    assert_eq!(first.body["data"]["fields"], json!({"data.value": "1"}));
    let sequences: Vec<_> = all.iter().map(|message| message.body["sequence"].as_str().unwrap()).collect();
    assert!(sequences.is_sorted() && sequences[0].len() == 20, "{sequences:?}");
    assert_eq!(all[2].body["data"]["reason"], "deleted");
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn lost_label_match_is_sent_as_deselected() {
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    let running = world.run();
    world.receiver.until(1).await;
    let mut object = config_map("web", "1");
    object["metadata"]["labels"] = json!({});
    world.cluster.server.update(object).unwrap();
    let told = world.receiver.until(2).await.remove(1);
    assert_eq!((told.what().as_str(), &told.body["data"]["reason"]), ("deleted web", &json!("deselected")));
    running.equal(0).await;
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn failed_delivery_is_retried_with_same_id() {
    let answers = [
        Answer::Status(500),
        Answer::With(429, "retry-after: 1\r\n"),
        Answer::With(302, "location: http://127.0.0.1:1/\r\n"),
        Answer::Hang,
        Answer::Close,
        Answer::Endless,
    ];
    for answer in answers {
        let world = World::new().await;
        put(&world.cluster, "web", "1");
        let mut first = Some(answer.clone());
        world.receiver.script(move |_| first.take().unwrap_or(Answer::Status(204)));
        let running = world.run();
        running.equal(0).await;
        let all = world.receiver.messages();
        // A status counts, however the body ends.
        let expected = if matches!(answer, Answer::Endless) { 1 } else { 2 };
        assert_eq!(all.len(), expected, "{answer:?}: {all:#?}");
        assert!(all.iter().all(|message| message.id() == all[0].id()), "{answer:?}");
        running.stop().await;
        world.cluster.end().await;
    }
}

#[tokio::test]
async fn gone_receiver_is_left_alone_until_manual_retry() {
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    world.receiver.script(|_| Answer::Status(410));
    let running = world.run();
    let report = running.until(0, |report| report.sink_problem.is_some()).await;
    assert!(report.sink_problem.is_some_and(|problem| problem.contains("410") && problem.contains("retry")));
    put(&world.cluster, "shop", "1");
    running.until(0, |report| report.pending == 2).await;
    assert_eq!(world.receiver.messages().len(), 1);
    world.receiver.script(|_| Answer::Status(200));
    running.handle.retry().await;
    running.equal(0).await;
    assert_eq!(world.receiver.messages().len(), 3);
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn rejected_message_is_dead_letter_and_blocks_none() {
    let world = World::new().await;
    put(&world.cluster, "bad", "1");
    put(&world.cluster, "good", "1");
    world.receiver.script(|message| match message.what().ends_with("bad") {
        true => Answer::With(422, "x: y\r\n"),
        false => Answer::Status(200),
    });
    let running = world.run();
    let report = running.until(0, |report| report.dead_count == 1 && report.pending == 1).await;
    assert_eq!((report.dead[0].object.as_str(), report.outside), ("configmaps default/bad", 1));
    assert!(report.dead[0].problem.contains("422"), "{report:#?}");
    running.stop().await;
    // This survives a restart.
    let running = world.run();
    let report = running.until(0, |report| report.dead_count == 1 && report.view_age_seconds.is_some()).await;
    assert_eq!(world.receiver.messages().len(), 2);
    world.receiver.script(|_| Answer::Status(200));
    assert_eq!(running.handle.retry_dead(Some("msg_none")).await, 0);
    assert_eq!(running.handle.retry_dead(Some(&report.dead[0].id)).await, 1);
    running.equal(0).await;
    assert_eq!(running.handle.reports()[0].dead_count, 0);
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn receiver_outage_leaves_one_delivery_per_object() {
    let world = World::new().await;
    let address = world.receiver.address;
    let World { cluster, receiver, state } = world;
    drop(receiver);
    let running = cluster.run(vec![sink("audit", &format!("http://{address}/hook"), state.path())]);
    for round in 0..20 {
        (0..50).for_each(|index| put(&cluster, &format!("object{index}"), &round.to_string()));
    }
    delete(&cluster, "object49");
    let is_refused = |problem: &String| problem.contains("refused");
    running
        .until(0, |report| report.pending == 49 && report.sink_problem.as_ref().is_some_and(is_refused))
        .await;
    let receiver = Receiver::at(address).await;
    running.equal(0).await;
    let all = receiver.messages();
    assert_eq!(all.len(), 49, "nothing grows with an outage");
    assert!(all.iter().all(|message| message.body["data"]["fields"]["data.value"] == "19"));
    running.stop().await;
    cluster.end().await;
}

#[tokio::test]
async fn restart_sends_only_missed_deletion() {
    let world = World::new().await;
    put(&world.cluster, "stays", "1");
    put(&world.cluster, "goes", "1");
    let running = world.run();
    running.equal(0).await;
    running.stop().await;
    delete(&world.cluster, "goes");
    let running = world.run();
    running.equal(0).await;
    let told: Vec<_> = world.receiver.messages()[2..].iter().map(|message| message.what()).collect();
    assert_eq!(told, ["deleted goes"]);
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn killed_process_repeats_only_inflight_messages() {
    let world = World::new().await;
    (0..10).for_each(|index| put(&world.cluster, &format!("object{index}"), "1"));
    // Killed after the first message, after the second, and so on: the receiver has it, and the answer is lost.
    for killed_at in 1..6 {
        let before = world.receiver.messages().len();
        let mut left = killed_at;
        world.receiver.script(move |_| {
            left -= 1;
            if left > 0 { Answer::Status(200) } else { Answer::Hang }
        });
        let running = world.run();
        world.receiver.until(before + killed_at as usize).await;
        running.kill().await;
    }
    world.receiver.script(|_| Answer::Status(200));
    let running = world.run();
    running.equal(0).await;
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for message in world.receiver.messages() {
        ids.entry(message.what()).or_default().insert(message.id().to_owned());
    }
    assert_eq!(ids.len(), 10);
    assert!(ids.values().all(|ids| ids.len() == 1), "a repeat has the same ID: {ids:#?}");
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn damaged_ledger_is_rebuilt() {
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    let running = world.run();
    running.equal(0).await;
    running.stop().await;
    let file = world.state.path().join("ledger-audit.redb");
    let whole = std::fs::read(&file).unwrap();
    for damaged in [&b"no ledger"[..], &[], &whole[..whole.len() / 2], &[0; 8192]] {
        let before = world.receiver.messages().len();
        std::fs::write(&file, damaged).unwrap();
        let running = world.run();
        running.equal(0).await;
        let again = world.receiver.messages().split_off(before);
        assert_eq!(again.len(), 1, "{} bytes: {again:#?}", damaged.len());
        assert_eq!(again[0].id(), world.receiver.messages()[0].id());
        running.stop().await;
    }
    world.cluster.end().await;
}

#[tokio::test]
async fn two_notifiers_do_not_share_a_ledger() {
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    let running = world.run();
    running.equal(0).await;
    let second = world.run();
    let report = second.until(0, |report| report.sink_problem.is_some()).await;
    assert!(report.sink_problem.is_some_and(|problem| problem.contains("another notifier")));
    running.stop().await;
    // The slot is free.
    second.equal(0).await;
    assert_eq!(world.receiver.messages().len(), 1);
    second.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_no_other_sink() {
    let world = World::new().await;
    let slow = Receiver::new().await;
    slow.script(|_| Answer::Slow(Duration::from_millis(400)));
    (0..100).for_each(|index| put(&world.cluster, &format!("object{index}"), "1"));
    let state = world.state.path();
    let running = world
        .cluster
        .run(vec![sink("slow", &slow.url(), state), sink("audit", &world.receiver.url(), state)]);
    running.equal(1).await;
    assert!(slow.messages().len() < 100, "the other one is still at it");
    running.equal(0).await;
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn sends_nothing_of_other_cluster_until_approved() {
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    let running = world.run();
    running.equal(0).await;
    running.stop().await;
    let other = Cluster::quick().await;
    put(&other, "other", "1");
    let running = other.run(vec![sink("audit", &world.receiver.url(), world.state.path())]);
    let report = running.until(0, |report| !report.held.is_empty() && report.pending == 2).await;
    assert_eq!(report.held[0].reason, "anotherCluster");
    assert_eq!(world.receiver.messages().len(), 1);
    assert!(running.handle.approve(&report.held[0].id).await);
    running.equal(0).await;
    let mut told: Vec<_> = world.receiver.messages()[1..].iter().map(|message| message.what()).collect();
    told.sort();
    assert_eq!(told, ["created other", "deleted web"]);
    running.stop().await;
    world.cluster.end().await;
    other.end().await;
}

#[tokio::test]
async fn unserved_resource_is_reported_and_retried() {
    let world = World::new().await;
    let webhook = WebhookSink::new(webhook(&world.receiver.url())).unwrap();
    let source = EventSource::all("cert-manager.io/v1/certificates".parse().unwrap());
    let ledgers = Arc::new(LedgerFolder::new(world.state.path()));
    let options = EventSinkOptions::new("audit", Arc::new(webhook), vec![source], ledgers);
    let running = world.cluster.run(vec![options]);
    let report = running.until(0, |report| report.sink_problem.is_some()).await;
    assert!(
        report.sink_problem.as_ref().is_some_and(|problem| problem.contains("certificates")),
        "{report:#?}"
    );
    assert!(!running.handle.approve("any").await, "commands are answered");
    running.stop().await;
    world.cluster.end().await;
}

/// A disk with a few pages.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1700k", "tmpfs"])
            .arg(folder.path())
            .output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Self(folder));
        }
        println!("SKIPPED: no small disk can be mounted here, which root may do");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn full_disk_holds_messages_until_space_returns() {
    use std::io::Write as _;
    let Some(disk) = SmallDisk::new() else { return };
    let world = World::new().await;
    put(&world.cluster, "web", "1");
    let running = world.cluster.run(vec![sink("audit", &world.receiver.url(), disk.0.path())]);
    world.receiver.until(1).await;
    let fill = disk.0.path().join("fill");
    let mut file = std::fs::File::create(&fill).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    // Some pages of the ledger are still free. When they are used up, nothing more is sent.
    let mut index = 0;
    let full = |problem: &String| problem.contains("No space left");
    while !running.handle.reports()[0].sink_problem.as_ref().is_some_and(full) {
        put(&world.cluster, &format!("object{index}"), "1");
        index += 1;
        assert!(index < 5_000, "the disk is never full");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Messages in flight are answered; then there is silence.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.receiver.messages().len();
    put(&world.cluster, "late", "1");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.receiver.messages().len(), before, "nothing is sent that could not be remembered");
    std::fs::remove_file(&fill).unwrap();
    running.equal(0).await;
    let told: BTreeSet<_> = world.receiver.messages().iter().map(|message| message.what()).collect();
    assert_eq!(told.len(), index + 2);
    running.stop().await;
    world.cluster.end().await;
}

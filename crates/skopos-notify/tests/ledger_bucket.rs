//! Ledgers in a bucket: several notifiers, one after the other and at once, with one ledger.

mod support;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use skopos::{ObjectKey, ResourceVersion};
use skopos_bucket::BucketConfig;
use skopos_bucket::testing::{Mood, S3};
use skopos_notify::event::{
    EventKey, EventSource, LedgerBucket, LedgerChange, LedgerError, LedgerStore as _, Recorded,
    WebhookOptions, WebhookSink,
};
use skopos_notify::service::EventSinkOptions;
use support::receiver::Receiver;
use support::{Cluster, Running};

struct World {
    cluster: Cluster,
    receiver: Receiver,
    s3: S3,
    keys: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let s3 = S3::start().await.expect("a port");
        let keys = tempfile::tempdir().expect("a folder");
        Self { cluster: Cluster::quick().await, receiver: Receiver::new().await, s3, keys }
    }

    /// Runs a notifier in this term; `None`: without an election.
    fn run(&self, term: Option<u64>) -> Running {
        let mut webhook = WebhookOptions::new(self.receiver.url().parse().expect("a URL"));
        webhook.http.allow = vec!["127.0.0.0/8".parse().expect("a network")];
        let receiver = Arc::new(WebhookSink::new(webhook).expect("a webhook"));
        let mut source = EventSource::all("v1/configmaps".parse().expect("a resource"));
        source.namespaces = vec!["default".to_owned()];
        let bucket = self.s3.config(self.keys.path()).expect("written").open().expect("a bucket");
        let ledgers = Arc::new(LedgerBucket::new(bucket));
        let mut options = EventSinkOptions::new("audit", receiver, vec![source], ledgers);
        options.confirm = Duration::from_millis(100);
        if term.is_none() {
            options.reopen = Duration::from_millis(100);
        }
        options.term = term;
        self.cluster.run(vec![options])
    }

    fn create(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}});
        self.cluster.server.create(object).expect("a ConfigMap");
    }

    fn delete(&self, name: &str) {
        self.cluster.server.delete("configmaps", Some("default"), name).expect("a ConfigMap");
    }

    fn told(&self) -> Vec<String> {
        self.receiver.messages().iter().map(|message| message.what()).collect()
    }
}

#[tokio::test]
async fn deletion_between_two_leaders_is_sent() {
    let world = World::new().await;
    world.create("web");
    let first = world.run(Some(1));
    first.equal(0).await;
    first.kill().await;
    world.delete("web");
    world.create("other");
    let second = world.run(Some(2));
    second.equal(0).await;
    assert_eq!(world.told()[0], "created web");
    let mut rest = world.told()[1..].to_vec();
    rest.sort();
    assert_eq!(rest, ["created other", "deleted web"]);
    assert_eq!(world.receiver.messages()[2].body["term"], "2");
    second.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn earlier_leader_sends_nothing_after_its_ledger_was_taken_over() {
    let world = World::new().await;
    world.create("web");
    let first = world.run(Some(1));
    first.equal(0).await;
    let second = world.run(Some(2));
    second.equal(0).await;
    world.create("other");
    let report = first.until(0, |report| report.sink_problem.is_some()).await;
    assert!(
        report.sink_problem.as_ref().is_some_and(|problem| problem.contains("taken over")),
        "{report:#?}"
    );
    second.equal(0).await;
    assert_eq!(world.told(), ["created web", "created other"]);
    first.stop().await;
    world.delete("web");
    second.equal(0).await;
    assert_eq!(world.told()[2..], ["deleted web"]);
    second.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn notifier_without_an_election_goes_on_when_the_other_has_ended() {
    let world = World::new().await;
    world.create("web");
    let first = world.run(None);
    first.equal(0).await;
    let second = world.run(None);
    second.equal(0).await;
    second.stop().await;
    world.delete("web");
    world.create("other");
    first.equal(0).await;
    let told = world.told();
    assert!(told.contains(&"deleted web".into()) && told.contains(&"created other".into()), "{told:?}");
    first.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn sends_nothing_while_the_bucket_is_away() {
    let world = World::new().await;
    let running = world.run(Some(1));
    running.equal(0).await;
    for mood in [Mood::Hang, Mood::Mute] {
        let before = world.told().len();
        world.s3.feels(mood);
        world.create(&format!("web-{mood:?}").to_lowercase());
        let is_told = |problem: &String| problem.contains("check state.bucket");
        running.until(0, |report| report.sink_problem.as_ref().is_some_and(is_told)).await;
        assert_eq!(world.told().len(), before, "{mood:?}");
        world.s3.feels(Mood::Well);
        running.equal(0).await;
        assert_eq!(world.told().len(), before + 1, "{mood:?}");
    }
    running.stop().await;
    world.cluster.end().await;
}

#[tokio::test]
async fn bucket_without_conditions_is_refused() {
    let world = World::new().await;
    world.s3.feels(Mood::IgnoresIfMatch);
    // Also when there is a ledger already.
    for _ in 0..2 {
        let running = world.run(None);
        let is_told = |problem: &String| problem.contains("use a service with conditional writes");
        running.until(0, |report| report.sink_problem.as_ref().is_some_and(is_told)).await;
        running.stop().await;
    }
    world.cluster.end().await;
}

fn change(number: u64) -> LedgerChange {
    let object = ObjectKey::namespaced("default", format!("config-map-{}", number % 2_000));
    let uid = format!("{:032x}", fastrand::u128(..)).into();
    let recorded = Recorded { uid, version: ResourceVersion::from(number), digest: None, unsure: false };
    LedgerChange::Recorded(EventKey { resource: "configmaps".into(), object }, Some(recorded))
}

/// Runs with a real service, whose configuration `SKOPOS_S3` has as JSON: peers/s3/check.sh.
#[tokio::test]
async fn real_service_keeps_a_ledger_for_one_writer() {
    let Ok(config) = std::env::var("SKOPOS_S3") else {
        println!("SKIPPED: SKOPOS_S3 names no service (peers/s3/check.sh starts one)");
        return;
    };
    let config: BucketConfig = serde_json::from_str(&config).expect("a configuration");
    let ledgers = || LedgerBucket::new(config.open().expect("a bucket"));
    let (first, content) = ledgers().open("audit").await.expect("it is opened");
    assert!(content.is_new, "an empty bucket is needed");
    for number in 1..=100 {
        // Some of the writes merge the changes into a base.
        let changes = (0..100).map(|part| change(number * 100 + part)).collect();
        first.write(Arc::new(changes)).await.expect("written");
    }
    let (second, content) = ledgers().open("audit").await.expect("taken over");
    assert_eq!((content.is_new, content.recorded.len()), (false, 2_000));
    assert!(content.recorded.iter().all(|(_, recorded)| recorded.version >= ResourceVersion::from(8_100)));
    let refused = first.write(Arc::new(vec![change(1)])).await;
    assert!(matches!(refused, Err(LedgerError::TakenOver(_))), "{refused:?}");
    second.write(Arc::new(vec![change(20_000)])).await.expect("written");
    let content = ledgers().read("audit").await.expect("it is read");
    assert!(content.recorded.iter().any(|(_, recorded)| recorded.version == ResourceVersion::from(20_000)));
    let left = config.open().expect("a bucket").list_objects().await.expect("a list");
    assert_eq!(left.len(), 2, "{left:?}");
}

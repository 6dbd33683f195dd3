//! Read-your-writes and consistent reads: each write through the gateway is in all later reads, whatever happens to the
//! watch.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use skopos_testserver::{CloseMode, Fault, Match};
use tokio::time::{sleep, timeout};

use crate::config::{LoopbackTrust, ManagedFields, Reads};
use crate::testing::{Lab, Told, told};

const MAPS: &str = "/clusters/a/api/v1/namespaces/default/configmaps";

/// The same objects of all clusters.
const FLEET: &str = "/fleet/api/v1/namespaces/default/configmaps";

/// A client with the state of its writes.
struct Client<'a> {
    lab: &'a Lab,
    name: String,
    random: fastrand::Rng,
    /// The object's value; `None` while it does not exist.
    value: Option<String>,
}

impl<'a> Client<'a> {
    fn new(lab: &'a Lab, number: u64) -> Self {
        Self { lab, name: format!("c{number}"), random: fastrand::Rng::with_seed(number), value: None }
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: Value) -> Told {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        told(self.lab.send(method, path, &[("content-type", content_type)], body).await).await
    }

    /// Makes one write of a random kind, which the member answers.
    async fn write(&mut self, round: u64) {
        let (path, value) = (format!("{MAPS}/{}", self.name), format!("{}-{round}", self.name));
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"v": value},
            "metadata": {"name": self.name, "namespace": "default", "labels": {"of": self.name}}});
        let patch = json!({"data": {"v": value}});
        let json = "application/json";
        let answer = match (&self.value, self.random.u8(..5)) {
            (None, 0) => {
                self.send(
                    Method::PATCH,
                    &format!("{path}?fieldManager=t&force=true"),
                    "application/apply-patch+yaml",
                    object,
                )
                .await
            }
            (None, _) => self.send(Method::POST, MAPS, json, object).await,
            (Some(_), 0) => self.send(Method::DELETE, &path, json, Value::Null).await,
            (Some(_), 1) => {
                self.send(
                    Method::DELETE,
                    &format!("{MAPS}?labelSelector=of%3D{}", self.name),
                    json,
                    Value::Null,
                )
                .await
            }
            (Some(_), 2) => self.send(Method::PUT, &path, json, object).await,
            (Some(_), _) => self.send(Method::PATCH, &path, "application/merge-patch+json", patch).await,
        };
        assert!(answer.code < 300, "{answer:?}");
        let object: Value = serde_json::from_slice(&answer.body).unwrap();
        self.value =
            object["data"]["v"].as_str().filter(|_| object["kind"] == "ConfigMap").map(str::to_owned);
    }

    /// Makes one read of a random kind.
    async fn read(&mut self) -> Option<String> {
        let value_of = |object: &Value| object["data"]["v"].as_str().map(str::to_owned);
        let of = if self.random.bool() { MAPS } else { FLEET };
        match self.random.u8(..4) {
            0 | 1 => {
                let answer = self.lab.get(&format!("{of}/{}", self.name), &[]).await;
                assert!([200, 404].contains(&answer.code), "{answer:?}");
                value_of(&serde_json::from_slice(&answer.body).unwrap())
            }
            2 => {
                let answer = self.lab.get(of, &[]).await;
                assert_eq!(answer.code, 200, "{answer:?}");
                let list: Value = serde_json::from_slice(&answer.body).unwrap();
                let items = list["items"].as_array().unwrap();
                items.iter().find(|item| item["metadata"]["name"] == self.name.as_str()).and_then(value_of)
            }
            _ => {
                let watch =
                    format!("{of}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D{}", self.name);
                let answer = self.lab.get(&watch, &[]).await;
                let text = std::str::from_utf8(&answer.body).unwrap();
                let first = text.lines().next().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let first = first.filter(|event| event["type"] != "BOOKMARK");
                first
                    .inspect(|event| assert_eq!(event["type"], "ADDED"))
                    .and_then(|event| value_of(&event["object"]))
            }
        }
    }

    async fn rounds(mut self, rounds: u64) {
        for round in 0..rounds {
            self.write(round).await;
            let read = self.read().await;
            assert_eq!(read, self.value, "{} in round {round}", self.name);
            sleep(Duration::from_millis(self.random.u64(..40))).await;
        }
    }
}

/// Makes the member's watch slow, delayed, silent or cut, one after the other.
async fn break_watches(lab: &Lab) {
    let mut random = fastrand::Rng::with_seed(9);
    loop {
        let fault = match random.u8(..5) {
            0 => Fault::Stall,
            1 => Fault::HoldUntilEnd,
            2 => Fault::Slow { bytes: 20, every: Duration::from_millis(50) },
            3 => Fault::Close,
            _ => Fault::KillConnection(CloseMode::Rst),
        };
        let fault = lab.member("a").faults().inject(fault).on(Match::watch());
        sleep(Duration::from_millis(random.u64(..3000))).await;
        fault.heal();
        sleep(Duration::from_millis(random.u64(..2000))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reads_include_own_writes_despite_watch_faults() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    let rounds = join_all((0..16).map(|number| Client::new(&lab, number).rounds(640)));
    tokio::select! {
        _ = rounds => {}
        () = break_watches(&lab) => {}
    }
    let requests = lab.member("a").requests();
    let watched = requests.iter().filter(|request| request.verb == "watch").count();
    assert!(watched > 20, "the faults struck: {watched} watches");
}

#[tokio::test(start_paused = true)]
async fn merged_list_names_member_lacking_own_write() {
    let lab = Lab::trusting(&["a", "b"]);
    lab.get(FLEET, &[]).await;
    sleep(Duration::from_secs(1)).await;
    let faults = lab.member("a").faults();
    let _stall = faults.inject(Fault::Stall).on(Match::watch());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let json = [("content-type", "application/json")];
    assert_eq!(lab.send(Method::POST, MAPS, &json, object.to_string()).await.status(), 201);
    let mute = faults.inject(Fault::WithholdHeaders).on(Match::list().resource("configmaps"));
    let begun = tokio::time::Instant::now();
    let list: Value = serde_json::from_slice(&lab.get(FLEET, &[]).await.body).unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(3050), "{:?}", begun.elapsed());
    let stale = list["metadata"]["annotations"]["skopos.dev/stale"].as_str().unwrap();
    assert!(stale.starts_with("a (") && stale.contains("written through the gateway"), "{stale}");
    mute.heal();
    let list: Value = serde_json::from_slice(&lab.get(FLEET, &[]).await.body).unwrap();
    assert_eq!(list["metadata"]["annotations"], Value::Null);
    let of = |item: &Value| item["metadata"]["annotations"]["skopos.dev/cluster"] == "a";
    assert!(list["items"].as_array().unwrap().iter().any(|item| item["metadata"]["name"] == "x" && of(item)));
}

#[tokio::test(start_paused = true)]
async fn own_writes_come_from_memory_on_healthy_watch() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    sleep(Duration::from_secs(1)).await;
    lab.member("a").clear_requests();
    join_all((0..4).map(|number| Client::new(&lab, number).rounds(50))).await;
    let requests = lab.member("a").requests();
    let reads = requests.iter().filter(|request| matches!(request.verb, "get" | "list")).count();
    // The answer to a deletion of a collection has no version: the next read asks the member.
    let collections = requests.iter().filter(|request| request.verb == "deletecollection").count();
    assert!(reads <= 2 * collections + 5, "{reads} reads of the member, after {collections} such deletions");
}

#[tokio::test(start_paused = true)]
async fn an_own_write_shows_that_a_change_was_lost() {
    let lab = Lab::trusting(&["a"]);
    let mut client = Client::new(&lab, 1);
    client.write(0).await;
    let direct = |value: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": value, "namespace": "default"}});
        lab.member("a").create(object).unwrap();
    };
    lab.get(MAPS, &[]).await;
    sleep(Duration::from_secs(1)).await;
    let lost = lab.member("a").faults().inject(Fault::DropEvents).on(Match::watch());
    let patched = json!({"data": {"v": "patched"}});
    let path = format!("{MAPS}/c1");
    assert_eq!(client.send(Method::PATCH, &path, "application/merge-patch+json", patched).await.code, 200);
    lost.heal();
    // Later changes take memory past the lost change.
    direct("later");
    sleep(Duration::from_secs(1)).await;
    let value = |told: &Told| serde_json::from_slice::<Value>(&told.body).unwrap()["data"]["v"].clone();
    assert_eq!(value(&lab.get(&path, &[]).await), "patched");
    // The loss is detected once and repaired: reads of other versions do not get the incomplete state either.
    sleep(Duration::from_secs(5)).await;
    lab.member("a").clear_requests();
    let mended = lab.get(&format!("{path}?resourceVersion=0"), &[]).await;
    assert_eq!(
        (value(&mended), mended.headers["skopos-source"].to_str().unwrap()),
        (json!("patched"), "memory")
    );
    assert!(lab.member("a").requests().is_empty());
}

/// Checks the removal of the last finalizer: its answer shows the object as it was, with the earlier version.
#[tokio::test(start_paused = true)]
async fn object_without_finalizers_is_gone_in_later_reads() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    sleep(Duration::from_secs(1)).await;
    let client = Client::new(&lab, 1);
    let object = |finalizers: &[&str]| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1", "finalizers": finalizers}});
    let (path, fleet) = (format!("{MAPS}/c1"), format!("{FLEET}/c1"));
    let removals = [
        (Method::PUT, "application/json", object(&[])),
        (Method::PATCH, "application/merge-patch+json", json!({"metadata": {"finalizers": null}})),
        (
            Method::PATCH,
            "application/json-patch+json",
            json!([{"op": "remove", "path": "/metadata/finalizers"}]),
        ),
    ];
    for (method, content_type, body) in removals {
        let held = object(&["x.example/held"]);
        assert_eq!(client.send(Method::POST, MAPS, "application/json", held).await.code, 201);
        assert_eq!(client.send(Method::DELETE, &path, "application/json", Value::Null).await.code, 200);
        // The finalizer holds the object, and reads show it.
        let held: Value = serde_json::from_slice(&lab.get(&path, &[]).await.body).unwrap();
        assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
        let stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch());
        let removed = client.send(method.clone(), &path, content_type, body).await;
        assert_eq!(removed.code, 200, "{removed:?}");
        assert_eq!(
            (lab.get(&path, &[]).await.code, lab.get(&fleet, &[]).await.code),
            (404, 404),
            "{content_type}"
        );
        let list = lab.get(MAPS, &[]).await;
        assert!(!String::from_utf8_lossy(&list.body).contains("x.example/held"), "{list:?}");
        stall.heal();
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_namespace_is_gone_in_later_reads() {
    let lab = Lab::trusting(&["a"]);
    let spaces = "/clusters/a/api/v1/namespaces";
    lab.get(spaces, &[]).await;
    let client = Client::new(&lab, 1);
    let create = |object: Value| lab.member("a").create(object).unwrap();
    create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}));
    let mut content = create(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "n", "finalizers": ["x.example/held"]}}));
    sleep(Duration::from_secs(1)).await;
    let path = format!("{spaces}/n");
    // The answer and the watch show it as terminating. Its content holds it for a moment.
    let deleted = client.send(Method::DELETE, &path, "application/json", Value::Null).await;
    assert!(String::from_utf8_lossy(&deleted.body).contains("Terminating"), "{deleted:?}");
    sleep(Duration::from_millis(100)).await;
    let _stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch().resource("namespaces"));
    content = lab.member("a").get("configmaps", Some("n"), "x").unwrap_or(content);
    content["metadata"]["finalizers"] = json!([]);
    lab.member("a").update(content).unwrap();
    sleep(Duration::from_millis(1500)).await;
    assert!(lab.member("a").get("namespaces", None, "n").is_err());
    assert_eq!(lab.get(&path, &[]).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn reads_include_write_with_lost_answer() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    let _stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch());
    let create = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        lab.send(Method::POST, MAPS, &[("content-type", "application/json")], object.to_string())
    };
    // The caller disconnects before the answer.
    let slow =
        lab.member("a").faults().inject(Fault::DelayHeaders(Duration::from_secs(5))).on(Match::write());
    assert!(timeout(Duration::from_secs(1), create("left")).await.is_err());
    slow.heal();
    // The answer never comes.
    let lost = lab.member("a").faults().inject(Fault::WithholdHeaders).on(Match::write());
    assert!(create("lost").await.status().is_server_error());
    lost.heal();
    let names = |told: &Told| {
        let list: Value = serde_json::from_slice(&told.body).unwrap();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let through = names(&lab.get(MAPS, &[]).await);
    let direct: Vec<String> = lab
        .member("a")
        .list("configmaps", Some("default"))
        .unwrap()
        .0
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(direct.contains(&"lost".to_owned()), "the write was done: {direct:?}");
    assert_eq!(through, direct);
}

#[tokio::test(start_paused = true)]
async fn read_after_conflict_returns_conflicting_version() {
    let lab = Lab::trusting(&["a"]);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "default"}, "data": {"v": "0"}});
    let mut mine = lab.member("a").create(object).unwrap();
    lab.get(MAPS, &[]).await;
    let _stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch());
    for round in 0..5 {
        // Another client writes directly to the member.
        let mut other = mine.clone();
        other["data"]["v"] = format!("other-{round}").into();
        lab.member("a").update(other).unwrap();
        let path = format!("{MAPS}/x");
        let put = |object: Value| {
            lab.send(Method::PUT, &path, &[("content-type", "application/json")], object.to_string())
        };
        assert_eq!(told(put(mine.clone()).await).await.code, 409);
        // The loop of RetryOnConflict.
        mine = serde_json::from_slice(&lab.get(&path, &[]).await.body).unwrap();
        mine["data"]["v"] = format!("mine-{round}").into();
        let written = told(put(mine.clone()).await).await;
        assert_eq!(written.code, 200, "{written:?}");
        mine = serde_json::from_slice(&written.body).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn object_from_member_ends_with_one_newline() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    let _stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    lab.send(Method::POST, MAPS, &[("content-type", "application/json")], object.to_string()).await;
    let answer = lab.get(&format!("{MAPS}/x"), &[]).await;
    assert_eq!(answer.header("skopos-source"), "member");
    assert!(answer.body.ends_with(b"}\n"), "{:?}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn read_lacking_own_write_fails_in_time() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    sleep(Duration::from_secs(1)).await;
    let _stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let created =
        lab.send(Method::POST, MAPS, &[("content-type", "application/json")], object.to_string()).await;
    assert_eq!(created.status(), 201);
    let faults = lab.member("a").faults();
    let mute = [Match::list(), Match::get()]
        .map(|reads| faults.inject(Fault::WithholdHeaders).on(reads.resource("configmaps")));
    for path in [MAPS.to_owned(), format!("{MAPS}/x")] {
        let begun = tokio::time::Instant::now();
        let late = lab.get(&path, &[]).await;
        let message = String::from_utf8_lossy(&late.body).into_owned();
        assert_eq!(late.code, 504, "{message}");
        assert!(message.contains("what was written through the gateway"), "{message}");
        assert!(begun.elapsed() <= Duration::from_millis(3050), "{:?}", begun.elapsed());
        // A client that accepts any version gets the content of memory.
        let any = lab.get(&format!("{path}?resourceVersion=0"), &[]).await;
        assert!([200, 404].contains(&any.code), "{any:?}");
    }
    mute.into_iter().for_each(|mute| mute.heal());
    assert_eq!(lab.get(&format!("{MAPS}/x"), &[]).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn reads_never_fall_behind_member_list() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    sleep(Duration::from_secs(1)).await;
    let _stall = lab.member("a").faults().inject(Fault::Stall).on(Match::watch());
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}});
    lab.member("a").create(object).unwrap();
    // Within cache.maxAge memory may answer; a read that requires a newer state gets it, and all later reads too.
    assert_eq!(lab.get(&format!("{MAPS}/x"), &[]).await.code, 404);
    let count =
        |told: &Told| serde_json::from_slice::<Value>(&told.body).unwrap()["items"].as_array().unwrap().len();
    let before = count(&lab.get(MAPS, &[]).await);
    let newest = lab.get(MAPS, &[("cache-control", "no-cache")]).await;
    assert_eq!((count(&newest), newest.headers["skopos-source"].to_str().unwrap()), (before + 1, "member"));
    assert_eq!(count(&lab.get(MAPS, &[]).await), before + 1);
    assert_eq!(lab.get(&format!("{MAPS}/x"), &[]).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn consistent_reads_include_writes_of_other_clients() {
    for by_configuration in [true, false] {
        let lab = Lab::with(&["a", "b"], |config| {
            config.authorization.loopback = LoopbackTrust::Trusted;
            if by_configuration {
                config.cache.reads_of.insert("a".to_owned(), Reads::Consistent);
            }
        });
        let headers: &[_] = if by_configuration { &[] } else { &[("cache-control", "max-age=0")] };
        lab.get(MAPS, headers).await;
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "default"}, "data": {}});
        object = lab.member("a").create(object).unwrap();
        for round in 0..50 {
            object["data"]["v"] = round.to_string().into();
            object = lab.member("a").update(object).unwrap();
            let read = lab.get(&format!("{MAPS}/x"), headers).await;
            let read: Value = serde_json::from_slice(&read.body).unwrap();
            assert_eq!(read["data"]["v"], round.to_string());
            let read = lab.get(&format!("{FLEET}/x"), headers).await;
            let read: Value = serde_json::from_slice(&read.body).unwrap();
            assert_eq!(read["data"]["v"], round.to_string());
        }
        // A probe or two answer a thousand concurrent reads.
        lab.member("a").clear_requests();
        let reads = join_all((0..1000).map(|_| lab.get(MAPS, headers))).await;
        assert!(reads.iter().all(|read| read.code == 200));
        assert!(lab.member("a").requests().len() <= 4, "{} requests", lab.member("a").requests().len());
        // While the member does not answer there is no such answer.
        lab.member("a").pause().await;
        let begun = tokio::time::Instant::now();
        let late = lab.get(MAPS, headers).await;
        let fleet: Value = serde_json::from_slice(&lab.get(FLEET, headers).await.body).unwrap();
        assert!(fleet["metadata"]["annotations"]["skopos.dev/stale"].as_str().unwrap().contains("a ("));
        assert!([503, 504].contains(&late.code), "{late:?}");
        assert!(begun.elapsed() <= Duration::from_millis(6100), "{:?}", begun.elapsed());
        assert_eq!(lab.get(&format!("{MAPS}?resourceVersion=0"), headers).await.code, 200);
    }
}

/// Returns the field managers of an object, as client-go's `Extract*` functions find them.
fn managers(object: &Value) -> Vec<&str> {
    let fields = object["metadata"]["managedFields"].as_array();
    fields.into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_writer_reads_which_fields_are_its_own() {
    for managed_fields in [ManagedFields::KeepForWriters, ManagedFields::Drop] {
        let lab = Lab::with(&["a"], |config| {
            config.authorization.loopback = LoopbackTrust::Trusted;
            config.cache.managed_fields = managed_fields;
        });
        lab.get(MAPS, &[]).await;
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
        let apply = [("content-type", "application/apply-patch+yaml")];
        let path = format!("{MAPS}/m");
        let applied =
            lab.send(Method::PATCH, &format!("{path}?fieldManager=me"), &apply, object.to_string()).await;
        assert_eq!(applied.status(), 201);
        let read: Value = serde_json::from_slice(&lab.get(&path, &[]).await.body).unwrap();
        assert_eq!(managers(&read), ["me"], "{managed_fields:?}");
        let list: Value = serde_json::from_slice(&lab.get(MAPS, &[]).await.body).unwrap();
        let kept = managers(
            list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "m").unwrap(),
        );
        assert_eq!(kept.is_empty(), managed_fields == ManagedFields::Drop);
    }
}

#[tokio::test(start_paused = true)]
async fn drops_managed_fields_when_writes_are_disabled() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("token", "alice");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "default", "managedFields": [{"manager": "me"}]}});
    lab.member("a").create(object).unwrap();
    let list = lab.get_as("token", MAPS).await;
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    assert!(list["items"].as_array().unwrap().iter().all(|item| managers(item).is_empty()));
}

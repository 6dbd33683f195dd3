//! Requirements of kube-apiserver's tests on its watch cache, applied to the gateway's answers from memory
//! (docs/evidence/acceptance.md, 77 to 93).

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::{join, join_all};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use skopos_testserver::{Connections, Direction, Fault, Match};
use tokio::time::{Instant, sleep, timeout};

use super::memory_tests::{PODS, lab, names, pod};
use crate::config::{Kind, LoopbackTrust};
use crate::testing::{Lab, Told, told};

const SECOND: Duration = Duration::from_secs(1);

/// Time within which any failure of a member is detected and over.
const SETTLED: Duration = Duration::from_secs(120);

/// Makes a member with an empty namespace, whose pods are in memory; or never are.
async fn empty(kept: bool) -> Lab {
    let lab = Lab::with(&["a"], |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
        let pods = Kind { group: String::new(), version: "v1".into(), resource: "pods".into() };
        config.cache.never = if kept { Vec::new() } else { vec![pods] };
    });
    lab.member("a")
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        .unwrap();
    assert_eq!(lab.get(PODS, &[]).await.header("skopos-source"), if kept { "memory" } else { "member" });
    lab
}

fn changed(name: &str, to: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"]["changed"] = json!(to);
    pod
}

fn version(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn events(told: &Told) -> Vec<Value> {
    serde_json::Deserializer::from_slice(&told.body).into_iter().map(Result::unwrap).collect()
}

/// Returns the fields that a client uses of an event or a Status.
fn gist(said: &Value) -> Value {
    let object = if said["type"].is_null() { said } else { &said["object"] };
    let meta = &object["metadata"];
    json!([
        said["type"],
        object["kind"],
        meta["name"],
        meta["labels"],
        meta["resourceVersion"],
        meta["annotations"],
        object["code"],
        object["reason"],
        object["message"],
        object["details"],
    ])
}

/// A client like client-go's: it lists, watches from there, and lists again when told to.
struct Client<'a> {
    lab: &'a Lab,
    content: BTreeMap<String, u64>,
    at: u64,
    lists: usize,
}

impl<'a> Client<'a> {
    fn new(lab: &'a Lab) -> Self {
        Self { lab, content: BTreeMap::new(), at: 0, lists: 0 }
    }

    async fn follow(&mut self, until: Instant) {
        while Instant::now() < until {
            let list = self.lab.get(PODS, &[]).await;
            assert_eq!(list.code, 200, "{list:?}");
            let list = list.json();
            let items = list["items"].as_array().unwrap();
            self.content = items.iter().map(|pod| (name(pod), version(pod))).collect();
            (self.at, self.lists) = (version(&list), self.lists + 1);
            while Instant::now() < until && self.watch().await {}
        }
    }

    /// Runs one watch; returns whether the next may resume from its end.
    async fn watch(&mut self) -> bool {
        let path =
            format!("{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=7&resourceVersion={}", self.at);
        for event in events(&told(self.lab.send(Method::GET, &path, &[], "").await).await) {
            let object = &event["object"];
            let kind = event["type"].as_str().unwrap();
            if kind == "ERROR" {
                assert_eq!(object["code"], 410, "{event}");
                return false;
            }
            assert!(version(object) >= self.at, "back from {} to {event}", self.at);
            self.at = version(object);
            let known = self.content.get(&name(object)).copied();
            match kind {
                "ADDED" => assert!(known.is_none(), "{event}, and known"),
                "MODIFIED" => assert!(known.is_some_and(|known| known < self.at), "{event} of {known:?}"),
                "DELETED" => assert!(known.is_some(), "{event}, and not known"),
                _ => continue,
            }
            match kind {
                "DELETED" => self.content.remove(&name(object)),
                _ => self.content.insert(name(object), version(object)),
            };
        }
        true
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Checks that each client that follows the protocol reaches the current state without going back, however often memory
/// is filled again.
#[tokio::test(start_paused = true)]
async fn clients_miss_no_change_while_memory_refills() {
    let lab = empty(true).await;
    let member = lab.member("a");
    let end = Instant::now() + 2 * SETTLED;
    let churn = async {
        let mut random = fastrand::Rng::with_seed(7);
        let mut there: Vec<String> = Vec::new();
        while Instant::now() < end - SETTLED {
            let name = format!("p{}", random.u8(..12));
            match there.iter().position(|known| *known == name) {
                Some(at) if random.bool() => {
                    member.delete("pods", Some("shop"), &there.swap_remove(at)).unwrap();
                }
                Some(_) => drop(member.update(changed(&name, &random.u64(..).to_string())).unwrap()),
                None => {
                    member.create(pod(&name)).unwrap();
                    there.push(name);
                }
            }
            if random.u8(..15) == 0 {
                member.close_watches();
                member.compact();
                member.forget_events();
            }
            sleep(Duration::from_millis(random.u64(..400))).await;
        }
    };
    let mut clients: Vec<_> = (0..8).map(|_| Client::new(&lab)).collect();
    let follow = clients.iter_mut().enumerate().map(|(which, client)| async move {
        sleep(which as u32 * SECOND).await;
        client.follow(end).await;
    });
    join(churn, join_all(follow)).await;
    let (objects, _) = member.list("pods", Some("shop")).unwrap();
    let there: BTreeMap<_, _> = objects.iter().map(|pod| (name(pod), version(pod))).collect();
    assert!(there.len() > 2, "{there:?}");
    for client in &clients {
        assert_eq!(client.content, there);
    }
    let anew: usize = clients.iter().map(|client| client.lists - 1).sum();
    assert!(anew > 0, "nobody has met a gap");
}

#[tokio::test(start_paused = true)]
async fn watch_ends_in_time_when_memory_cannot_fill() {
    for silent in [false, true] {
        let lab = lab(&["a"]);
        // The cluster is known and healthy, its pods are not in memory.
        assert_eq!(lab.get("/clusters/a/api/v1/nodes", &[]).await.code, 200);
        let faults = lab.member("a").faults();
        let fail = |matching: Match| faults.inject(Fault::status(500, 0)).on(matching.resource("pods"));
        let lists = [fail(Match::list()), fail(Match::watch().query("sendInitialEvents", "true"))];
        let hole = silent.then(|| faults.black_hole(Connections::All, Direction::Both));
        let began = Instant::now();
        let path = format!("{PODS}?watch=1&resourceVersion=0&timeoutSeconds=5");
        let told = told(lab.send(Method::GET, &path, &[], "").await).await;
        let limits = &lab.services.config.cache;
        let bound = limits.first_use_deadline.0 + limits.member_deadline.0 + Duration::from_secs(50);
        assert!(began.elapsed() <= bound, "{:?}", began.elapsed());
        if silent {
            assert!((500..505).contains(&told.code) && told.json()["kind"] == "Status", "{told:?}");
        } else {
            // The member can watch, though it cannot list.
            assert_eq!((told.code, told.header("skopos-source")), (200, "member"));
            assert_eq!(events(&told)[0]["object"]["metadata"]["name"], "a");
        }
        drop((lists, hole));
    }
}

/// Checks that the member answers while memory is filled; kube-apiserver answers 429 while its cache is filled.
#[tokio::test(start_paused = true)]
async fn member_answers_while_memory_fills() {
    let lab = lab(&["a", "b"]);
    let slow = SECOND * 12;
    let _slow = lab.member("a").faults().inject(Fault::DelayHeaders(slow)).on(Match::any().resource("pods"));
    let first = lab.services.config.cache.first_use_deadline.0;
    let began = Instant::now();
    let all = join_all((0..20).map(|_| lab.get(PODS, &[])));
    for told in all.await {
        assert_eq!((told.code, names(&told.json())), (200, vec!["a", "b"]), "{told:?}");
    }
    let waited = began.elapsed();
    assert!((first..=first + slow + SECOND).contains(&waited), "{waited:?}");
}

/// Checks the case of an aggregated API whose server is down: a client gets the member's error as soon as from the
/// member.
#[tokio::test(start_paused = true)]
async fn failing_list_is_passed_to_member_at_once() {
    let lab = lab(&["a"]);
    assert_eq!(lab.get("/clusters/a/api/v1/nodes", &[]).await.code, 200);
    let _fails = lab.member("a").faults().inject(Fault::status(503, 0)).on(Match::any().resource("pods"));
    let first = lab.services.config.cache.first_use_deadline.0;
    for most in [first - SECOND, Duration::ZERO] {
        let began = Instant::now();
        let told = lab.get(PODS, &[]).await;
        assert_eq!((told.code, told.header("skopos-source")), (503, "member"), "{told:?}");
        assert!(began.elapsed() <= most, "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn future_version_is_awaited_then_too_large() {
    let lab = lab(&["a"]);
    let now = version(&lab.get(PODS, &[]).await.json());
    let wanted = format!("{PODS}?resourceVersionMatch=NotOlderThan&resourceVersion={}", now + 1);
    let began = Instant::now();
    let told = lab.get(&wanted, &[]).await;
    assert!((SECOND * 3..SECOND * 4).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((told.code, told.header("retry-after")), (504, "1"), "{told:?}");
    let said = told.json();
    assert_eq!(said["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{said}");
    let comes = async {
        sleep(SECOND).await;
        lab.member("a").create(pod("b")).unwrap();
    };
    let (told, ()) = join(lab.get(&wanted, &[]), comes).await;
    assert_eq!((told.code, names(&told.json())), (200, vec!["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_continue_without_events_of_kind() {
    let lab = lab(&["a"]);
    let from = version(&lab.get(PODS, &[]).await.json());
    let path = format!("{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=280&resourceVersion={from}");
    let others = async {
        for number in 0..25 {
            let metadata = json!({"name": format!("m{number}"), "namespace": "shop"});
            lab.member("a")
                .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                .unwrap();
            sleep(10 * SECOND).await;
        }
    };
    let (answer, ()) = join(async { told(lab.send(Method::GET, &path, &[], "").await).await }, others).await;
    let said = events(&answer);
    assert!(
        said.iter().all(|event| event["type"] == "BOOKMARK" && event["object"]["kind"] == "Pod"),
        "{said:?}"
    );
    let versions: Vec<_> = said.iter().map(|event| version(&event["object"])).collect();
    assert!(versions.len() >= 4 && versions.is_sorted(), "{versions:?}");
    // Late by at most a minute or two of the member's own bookmarks.
    assert!(versions.last() >= Some(&(from + 12)), "{versions:?} after {from}");
}

const VERSIONS: [&str; 6] = [
    "",
    "&resourceVersion=0",
    "&resourceVersion=PAST",
    "&resourceVersion=NEWEST",
    "&resourceVersion=999999",
    "&resourceVersion=x",
];
const MATCHES: [&str; 3] = ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact"];
const SENDS: [&str; 3] = ["", "&sendInitialEvents=true", "&sendInitialEvents=false"];
const BOOKMARKS: [&str; 2] = ["", "&allowWatchBookmarks=true"];

/// Returns each way to begin a watch, with its events before, while and after objects change.
async fn every_watch(lab: &Lab) -> BTreeMap<String, (u16, Vec<Value>)> {
    let member = lab.member("a");
    for name in ["a", "b"] {
        member.create(pod(name)).unwrap();
    }
    let past = member.resource_version().to_string();
    member.create(pod("c")).unwrap();
    let newest = version(&member.update(changed("a", "yes")).unwrap()).to_string();
    sleep(SECOND).await;
    let mut cells = Vec::new();
    for from in VERSIONS {
        for matching in MATCHES {
            for send in SENDS {
                for bookmarks in BOOKMARKS {
                    cells.push(format!("{from}{matching}{send}{bookmarks}"));
                }
            }
        }
    }
    let watch = |cell: String| {
        let query = cell.replace("PAST", &past).replace("NEWEST", &newest);
        async move {
            let path = format!("{PODS}?watch=1&timeoutSeconds=8&labelSelector=app!%3Dc{query}");
            let told = told(lab.send(Method::GET, &path, &[], "").await).await;
            (cell, (told.code, events(&told).iter().map(gist).collect()))
        }
    };
    let changes = async {
        sleep(SECOND / 2).await;
        member.update(changed("b", "too")).unwrap();
        sleep(SECOND / 2).await;
        // Out of the selection, and into it.
        member
            .update({
                let mut pod = pod("a");
                pod["metadata"]["labels"]["app"] = json!("c");
                pod
            })
            .unwrap();
        member.update(changed("a", "back")).unwrap();
        sleep(SECOND / 2).await;
        member.delete("pods", Some("shop"), "b").unwrap();
    };
    let (all, ()) = join(join_all(cells.into_iter().map(watch)), changes).await;
    all.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn watch_from_memory_matches_member_watch() {
    let (kept, passed) = (empty(true).await, empty(false).await);
    let (kept, passed) = (every_watch(&kept).await, every_watch(&passed).await);
    assert_eq!(kept.len(), 108);
    for (cell, told) in &kept {
        assert_eq!(told, &passed[cell], "{cell}");
    }
    let count =
        |told: &str| kept.values().flat_map(|(_, said)| said).filter(|event| event[0] == told).count();
    for told in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"] {
        assert!(count(told) > 0, "{told}");
    }
    assert!(kept.values().any(|(code, _)| *code == 422));
}

#[tokio::test(start_paused = true)]
async fn ended_watches_leave_nothing_behind() {
    let lab = lab(&["a"]);
    let list = lab.get(PODS, &[]).await.json();
    let (lab, from) = (&lab, version(&list));
    let churn = async {
        for number in 0..60 {
            lab.member("a").create(pod(&format!("x{number}"))).unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    };
    let watches = (0..300).map(|number: usize| async move {
        sleep(Duration::from_millis((number % 50) as u64 * 20)).await;
        let path = format!(
            "{PODS}?watch=1&timeoutSeconds=5&resourceVersion={}",
            if number.is_multiple_of(7) { 1 } else { from }
        );
        let mut body = lab.send(Method::GET, &path, &[], "").await.into_body();
        match number % 3 {
            // Reads to the end.
            0 => drop(body.collect().await.unwrap()),
            // Disconnects in the middle.
            1 => drop(timeout(SECOND, body.frame()).await),
            // Disconnects without having read.
            _ => {}
        }
    });
    let (all, ()) = join(join_all(watches), churn).await;
    assert_eq!(all.len(), 300);
    assert_eq!(lab.services.watches.open(), 0);
    let own = lab.member("a").requests();
    let own =
        own.iter().filter(|request| request.is_open_watch() && request.resource.as_deref() == Some("pods"));
    assert_eq!(own.count(), 1, "one watch of the member for all of them");
    let [events, frames] = held(lab).await;
    assert!(events > 0.0 && frames > 0.0, "{events} and {frames}");
    // When no watch is left, all memory for watches is freed.
    sleep(Duration::from_secs(900)).await;
    assert_eq!(held(lab).await, [0.0, 0.0]);
}

/// Returns the bytes of events and of frames that are kept for watches.
async fn held(lab: &Lab) -> [f64; 2] {
    let metrics = String::from_utf8(lab.get("/metrics", &[]).await.body.to_vec()).unwrap();
    ["event", "frame"].map(|what| {
        let name = format!("skopos_{what}_bytes{{path=\"clusters\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    })
}

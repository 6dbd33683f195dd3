//! The gateway is killed at random points under load, and started again. Each file that it wrote loads or is refused, all
//! clusters answer at once, no member is listed again, and no age is below the truth.
//!
//! `SKOPOS_CASES` is the number of kills (6), `SKOPOS_SEED` determines their points.
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos::checkpoint::{Checkpoint, CheckpointLimits};
use skopos_testserver::{Outcome, RequestRecord, TestServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::support::{Running, TIMEOUT, skopos, utf8};

/// A cluster, and all writes to it.
#[derive(Clone)]
struct Member {
    name: &'static str,
    server: TestServer,
    writes: Arc<Mutex<Vec<Write>>>,
    /// Number of lists of everything, and of watches that begin with one.
    lists: Arc<AtomicUsize>,
    down: bool,
}

/// A write that the server has accepted.
struct Write {
    version: u64,
    name: String,
    /// `None`: deleted.
    value: Option<u64>,
    /// Time from which it was certainly in force.
    at: Instant,
}

/// Response of the gateway.
struct Answer {
    code: u16,
    age: Option<Duration>,
    source: Option<String>,
    warned: bool,
    body: Value,
    /// Time just before the request.
    asked: Instant,
}

/// Figures to be printed.
#[derive(Default)]
struct Figures {
    answers: usize,
    loaded: usize,
    refused: usize,
    restored: usize,
    slowest: Duration,
    /// Smallest difference between the stated age and the true age, over all answers.
    margin: Option<Duration>,
    from_down: usize,
}

const CONFIG_MAPS: &str = "api/v1/namespaces/default/configmaps";

fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

impl Member {
    async fn start(name: &'static str) -> Self {
        let lists = Arc::new(AtomicUsize::new(0));
        let counts = lists.clone();
        let observer = move |request: &RequestRecord| {
            // Reflectors stream their lists; other lists are probes, and the metadata that confirms a checkpoint.
            let whole = request.query_param("sendInitialEvents").as_deref() == Some("true");
            let new = request.outcome == Outcome::Waiting;
            if new && whole && request.resource.as_deref() == Some("configmaps") {
                counts.fetch_add(1, Ordering::SeqCst);
            }
        };
        let server = TestServer::builder().on_request(observer).start().await.expect("a server");
        let member = Self { name, server, writes: Arc::default(), lists, down: false };
        (0..20).for_each(|n| member.write(n, Some(0)));
        member
    }

    /// Writes once. The write is in the list before a reader can see it.
    fn write(&self, n: usize, value: Option<u64>) {
        let mut writes = self.writes.lock();
        let name = format!("cm-{n}");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": name}, "data": {"value": value.unwrap_or(0).to_string()}});
        let there = self.server.get("configmaps", Some("default"), &name).is_ok();
        let done = match (value, there) {
            (Some(_), true) => self.server.update(object),
            (Some(_), false) => self.server.create(object),
            (None, true) => self.server.delete("configmaps", Some("default"), &name),
            (None, false) => return,
        };
        done.expect("the server takes it");
        writes.push(Write { version: self.server.resource_version(), name, value, at: Instant::now() });
    }

    /// Writes about thirty times a second, until it is stopped.
    async fn churn(self, seed: u64, stop: CancellationToken) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut value = 0;
        while stop.run_until_cancelled(sleep(Duration::from_millis(random.u64(5..60)))).await.is_some() {
            value += 1;
            let what = (random.u8(..) > 40).then_some(value);
            self.write(random.usize(..40), what);
        }
    }

    /// Returns all values as they were at this version.
    fn at(&self, version: u64) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for write in self.writes.lock().iter().filter(|write| write.version <= version) {
            match write.value {
                Some(value) => all.insert(write.name.clone(), value),
                None => all.remove(&write.name),
            };
        }
        all
    }

    /// Checks that an answer is a state that existed, and is not older than it says.
    fn check(&self, answer: &Answer, figures: &mut Figures) {
        let name = self.name;
        assert_eq!(answer.code, 200, "{name}: {}", answer.body);
        let version: u64 = text(&answer.body["metadata"]["resourceVersion"]).parse().expect("a number");
        let items = answer.body["items"].as_array().expect("a list");
        let ours = items.iter().filter(|item| text(&item["metadata"]["name"]).starts_with("cm-"));
        let content: BTreeMap<String, u64> = ours
            .map(|item| {
                let value = text(&item["data"]["value"]).parse().expect("a number");
                (text(&item["metadata"]["name"]).to_owned(), value)
            })
            .collect();
        assert_eq!(content, self.at(version), "{name}: not what there was at {version}");
        let age = answer.age.unwrap_or_else(|| panic!("{name}: no age"));
        let writes = self.writes.lock();
        let missed = writes.iter().find(|write| write.version > version);
        if let Some(missed) = missed {
            // This is a lower bound of the true age; a stated age below it is wrong.
            let truth = answer.asked.saturating_duration_since(missed.at);
            assert!(age >= truth, "{name}: {age:?} old, it says, and lacks what was written {truth:?} ago");
            figures.margin = Some(figures.margin.map_or(age - truth, |least| least.min(age - truth)));
        }
        if self.down {
            assert!(answer.warned, "{name} is down, and nobody is told");
            assert_eq!(answer.source.as_deref(), Some("memory"), "{name}");
            figures.from_down += 1;
        }
        figures.answers += 1;
    }
}

/// A gateway with its own configuration.
struct Lab {
    dir: tempfile::TempDir,
    config: PathBuf,
}

struct Gateway {
    process: Running,
    client: kube::Client,
    since: Instant,
}

impl Lab {
    fn new(members: &[Member]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let named = |with: &dyn Fn(&Member) -> Value| members.iter().map(with).collect::<Vec<_>>();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": named(&|m| json!({"name": m.name, "cluster": {"server": m.server.url()}})),
            "users": [{"name": "u", "user": {}}],
            "contexts": named(&|m| json!({"name": m.name, "context": {"cluster": m.name, "user": "u"}})),
        });
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).expect("written");
        let config = json!({
            "listen": {"address": "127.0.0.1:0", "limits": {"drain": "1s"}},
            "authorization": {"loopback": "Trusted"},
            "clusters": {"kubeconfigs": [{"path": utf8(&path)}]},
            "cache": {"kinds": [{"resource": "configmaps"}], "maxAge": "1h"},
            "checkpoints": {"folder": utf8(&dir.path().join("kept")), "every": "1s"},
        });
        let path = dir.path().join("gateway.yaml");
        std::fs::write(&path, config.to_string()).expect("written");
        Self { config: path, dir }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("kept")
    }

    fn start(&self) -> Gateway {
        let process = Running::start(skopos().args(["serve", "--config", utf8(&self.config)]));
        let line = process.line(|line| line.starts_with("serving at "));
        let url = line.trim_start_matches("serving at ").trim().parse().expect("a url");
        let client = kube::Client::try_from(kube::Config::new(url)).expect("a client");
        Gateway { process, client, since: Instant::now() }
    }
}

impl Gateway {
    async fn send(&self, path: &str) -> http::Response<Body> {
        let request = http::Request::get(path).body(Body::empty()).expect("a request");
        let answer = timeout(TIMEOUT, self.client.send(request)).await;
        answer
            .unwrap_or_else(|_| panic!("{path}: no answer in time"))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn get(&self, path: &str) -> Answer {
        let asked = Instant::now();
        let (head, body) = self.send(path).await.into_parts();
        let bytes = timeout(TIMEOUT, body.collect()).await.expect("in time").expect("a body").to_bytes();
        let header =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Answer {
            code: head.status.as_u16(),
            age: header("skopos-age").map(|age| Duration::from_secs_f64(age.parse().expect("seconds"))),
            source: header("skopos-source"),
            warned: header("warning").is_some(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            asked,
        }
    }

    /// Returns the gateway's list of a cluster, as soon as the gateway knows the cluster.
    async fn list(&self, member: &Member) -> Answer {
        loop {
            let answer = self.get(&format!("/clusters/{}/{CONFIG_MAPS}", member.name)).await;
            // The gateway has not read its file of clusters yet.
            if answer.code != 403 && answer.code != 404 {
                return answer;
            }
            assert!(self.since.elapsed() < TIMEOUT, "{}: {}", member.name, answer.body);
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn kill(self) {
        drop(self.process);
    }

    fn end(mut self) {
        self.process.signal("TERM");
        assert!(self.process.wait(TIMEOUT).success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_after_kill_never_understates_age() {
    let (cases, seed) = (knob("SKOPOS_CASES", 6), knob("SKOPOS_SEED", 1));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut members = Vec::new();
    for name in ["busy", "Busy.Too", "quiet", "dies"] {
        members.push(Member::start(name).await);
    }
    let lab = Lab::new(&members);
    let (stop, mut load) = (CancellationToken::new(), JoinSet::new());
    for (n, member) in members.iter().enumerate().filter(|(_, member)| member.name != "quiet") {
        load.spawn(member.clone().churn(seed + n as u64, stop.clone()));
    }
    let mut figures = Figures::default();
    // Waits until everything is on the disk for the first time.
    let gateway = lab.start();
    for member in &members {
        member.check(&gateway.list(member).await, &mut figures);
    }
    let kept = || ["busy", "=42usy.=54oo", "quiet", "dies"].map(|of| lab.folder().join("clusters").join(of));
    let whole = |folder: &PathBuf| {
        ["index", "documents", "core.v1.configmaps.skopos"].iter().all(|f| folder.join(f).exists())
    };
    while !kept().iter().all(whole) {
        assert!(gateway.since.elapsed() < TIMEOUT, "nothing is written");
        sleep(Duration::from_millis(20)).await;
    }
    gateway.kill();
    for case in 0..cases {
        let torn = case == 1 || random.u8(..8) == 0;
        if random.bool() {
            let dies = &mut members[3];
            match dies.down {
                true => dies.server.resume().await.expect("its port is free"),
                false => dies.server.pause().await,
            }
            dies.down = !dies.down;
        }
        // A file that was just being written is the old or the new one, and whole.
        let mut expected = Vec::new();
        for (member, folder) in members.iter().zip(kept()) {
            let file = folder.join("core.v1.configmaps.skopos");
            let checkpoint = Checkpoint::load(&file, &CheckpointLimits::default());
            let checkpoint =
                checkpoint.unwrap_or_else(|error| panic!("case {case}, {}: {error}", member.name));
            assert!(checkpoint.cluster().is_some_and(|cluster| cluster.starts_with("uid ")));
            figures.loaded += 1;
            expected.push(0);
        }
        if torn {
            let file = kept()[0].join("core.v1.configmaps.skopos");
            let mut bytes = std::fs::read(&file).expect("a file");
            match random.bool() {
                true => bytes.truncate(random.usize(..bytes.len())),
                false => {
                    let at = random.usize(..bytes.len());
                    bytes[at] ^= 1 << random.u8(..8);
                }
            }
            std::fs::write(&file, bytes).expect("written");
            expected[0] = 1;
        }
        let before: Vec<usize> = members.iter().map(|member| member.lists.load(Ordering::SeqCst)).collect();
        let gateway = lab.start();
        let answers = futures::future::join_all(members.iter().map(|member| gateway.list(member))).await;
        for (member, answer) in members.iter().zip(&answers) {
            member.check(answer, &mut figures);
        }
        figures.slowest = figures.slowest.max(gateway.since.elapsed());
        let until = Instant::now() + Duration::from_millis(random.u64(..2500));
        while Instant::now() < until {
            for member in &members {
                member.check(&gateway.list(member).await, &mut figures);
            }
            sleep(Duration::from_millis(random.u64(1..100))).await;
        }
        if torn {
            let status = gateway.get("/api/v1/status").await.body;
            let report = &status["clusters"]
                .as_array()
                .unwrap()
                .iter()
                .find(|c| c["name"] == "busy")
                .unwrap()["checkpoints"];
            assert!(
                report["refused"] == 1 && report["problem"].as_str().unwrap().contains("refused"),
                "{report}"
            );
            figures.refused += 1;
        }
        gateway.kill();
        for ((member, before), expected) in members.iter().zip(before).zip(expected) {
            let lists = member.lists.load(Ordering::SeqCst) - before;
            assert_eq!(lists, expected, "case {case}: lists of {}", member.name);
            figures.restored += usize::from(expected == 0);
        }
        if torn {
            // If the gateway was killed before the file was written again, there may be none.
            let gateway = lab.start();
            while !kept().iter().all(whole) {
                assert!(gateway.since.elapsed() < TIMEOUT, "nothing is written");
                sleep(Duration::from_millis(20)).await;
            }
            gateway.kill();
        }
    }
    stop.cancel();
    while load.join_next().await.is_some() {}
    let Figures { answers, loaded, refused, restored, slowest, margin, from_down } = figures;
    println!(
        "killed {cases} times (seed {seed}): {loaded} checkpoints loaded, {refused} damaged ones refused, {restored} stores went on \
         without a list; all clusters had answered {slowest:.0?} after the address was told at the latest; {answers} answers \
         checked, {from_down} of them of a cluster that was down; ages were above the truth by {:.0?} at least",
        margin.unwrap_or_default(),
    );
    for member in &members {
        member.server.stop().await;
    }
}

/// Events of a watch, line by line.
struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            let frame = timeout(TIMEOUT, self.body.frame()).await.expect("an event in time")?;
            self.rest.extend_from_slice(&frame.ok()?.into_data().ok()?);
        }
    }

    /// Reads events until all wanted values have arrived, or the watch ends; `Err` has the text of an ERROR. Returns the last mark.
    async fn follow(&mut self, view: &mut View, wanted: &View) -> Result<String, Value> {
        let mut mark = String::new();
        while wanted.is_empty() || !wanted.iter().all(|(key, value)| view.get(key) == Some(value)) {
            let Some(event) = self.next().await else {
                assert!(wanted.is_empty(), "the watch ended");
                break;
            };
            let object = &event["object"];
            if event["type"] == "ERROR" {
                return Err(object.clone());
            }
            mark = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let (key, value) = told(object);
            match event["type"] == "DELETED" {
                true => view.remove(&key),
                false => view.insert(key, value),
            };
        }
        Ok(mark)
    }
}

/// State of the fleet according to a watch: values by cluster and name.
type View = BTreeMap<(String, String), String>;

fn told(object: &Value) -> ((String, String), String) {
    let meta = &object["metadata"];
    let key = (text(&meta["annotations"]["skopos.dev/cluster"]).to_owned(), text(&meta["name"]).to_owned());
    (key, text(&object["data"]["value"]).to_owned())
}

/// Returns a text, or an empty one where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Gateway {
    async fn watch(&self, mark: &str) -> Events {
        let path = format!("/fleet/{CONFIG_MAPS}?watch=true&resourceVersion={mark}");
        Events { body: self.send(&path).await.into_body(), rest: Vec::new() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merged_watch_resumes_or_expires_after_restart() {
    let members = [Member::start("a").await, Member::start("b").await];
    let lab = Lab::new(&members);
    let truth = || -> View {
        let of = |member: &Member| {
            let name = member.name.to_owned();
            member.at(u64::MAX).into_iter().map(move |(key, value)| ((name.clone(), key), value.to_string()))
        };
        members.iter().flat_map(of).collect()
    };
    // Writes to both members, which are left alone from then on.
    let last = |value: u64| -> View {
        members.iter().for_each(|member| member.write(3, Some(value)));
        truth().into_iter().filter(|((_, name), _)| name == "cm-3").collect()
    };
    let load = || {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        members.iter().for_each(|member| drop(tasks.spawn(member.clone().churn(7, stop.clone()))));
        (stop, tasks)
    };
    let gateway = lab.start();
    let listed = loop {
        let answer = gateway.get(&format!("/fleet/{CONFIG_MAPS}")).await;
        if answer.code == 200 && answer.body["items"].as_array().is_some_and(|items| items.len() >= 40) {
            break answer.body;
        }
        assert!(gateway.since.elapsed() < TIMEOUT, "{}", answer.body);
    };
    let mut view: View = listed["items"].as_array().unwrap().iter().map(told).collect();
    let mut events = gateway.watch(listed["metadata"]["resourceVersion"].as_str().unwrap()).await;
    events.follow(&mut view, &last(1_000_001)).await.expect("no end");

    // An orderly end while much is written: the next process resumes from the last event of the stream.
    let (stop, mut tasks) = load();
    sleep(Duration::from_millis(300)).await;
    let mut process = gateway.process;
    process.signal("TERM");
    let mark = events.follow(&mut view, &View::new()).await.expect("an orderly end");
    assert!(process.wait(TIMEOUT).success());
    sleep(Duration::from_millis(300)).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    let gateway = lab.start();
    let mut events = gateway.watch(&mark).await;
    let wanted = last(1_000_002);
    let mark = events.follow(&mut view, &wanted).await;
    let mark = mark.unwrap_or_else(|status| panic!("after an orderly end: {status}"));
    assert!(members.iter().all(|member| member.lists.load(Ordering::SeqCst) <= 1), "nobody was listed again");
    assert_eq!(view, truth(), "nothing was passed over");

    // A killed gateway may not have written all that it had sent. Then it says so.
    gateway.kill();
    let (stop, mut tasks) = load();
    sleep(Duration::from_millis(300)).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    let gateway = lab.start();
    let wanted = last(1_000_003);
    match gateway.watch(&mark).await.follow(&mut view, &wanted).await {
        Ok(_) => assert_eq!(view, truth(), "nothing was passed over"),
        Err(status) => {
            assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{status}");
        }
    }
    gateway.end();
    for member in &members {
        member.server.stop().await;
    }
}

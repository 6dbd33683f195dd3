//! Noninterference: two worlds differ only in objects that a caller may not read. The caller gets the same answers in
//! both, from `/fleet` and `/clusters`, except for the server's own numbers (versions, uids, ages).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::testing::{Lab, told};

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
const KINDS: [&str; 3] = ["pods", "configmaps", "gadgets"];
const VERBS: [&str; 3] = ["get", "list", "watch"];
/// The values of a cluster label.
const ENVS: [&str; 2] = ["prod", "test"];
const USERS: [&str; 2] = ["jane", "joe"];

/// The place of an object: cluster, kind, namespace.
type Place = (&'static str, &'static str, &'static str);

/// A permission: user, verb, place; for all namespaces if the namespace is empty.
type Right = (&'static str, &'static str, Place);

/// One of the two worlds.
struct World {
    lab: Lab,
    rights: Arc<Mutex<BTreeSet<Right>>>,
    /// Tokens and versions that were handed out in this world, by user and realm.
    tokens: BTreeMap<(&'static str, String), Vec<String>>,
    versions: BTreeMap<(&'static str, String), Vec<String>>,
}

/// A request and its user.
#[derive(Clone, Debug)]
struct Question {
    user: &'static str,
    /// The user whose tokens and versions are used.
    of: &'static str,
    /// The fleet, or a kind of a cluster: tokens and versions of one realm are not valid in another. Changes of hidden
    /// kinds count in a cluster's versions, so a version of one kind may be too old for another.
    realm: String,
    kind: &'static str,
    path: String,
    query: String,
    accept: &'static str,
    gzip: bool,
    /// The index of the query's token or version among those of the world.
    pick: usize,
}

/// The observable part of an answer.
#[derive(Debug, PartialEq)]
struct Seen {
    code: u16,
    headers: Vec<(String, String)>,
    body: Vec<Value>,
    took: Duration,
}

struct Twins {
    worlds: [World; 2],
    /// The places that jane may never read.
    hidden: BTreeSet<Place>,
    /// Clusters in which jane may never read anything: their labels are hidden, too.
    closed: BTreeSet<&'static str>,
    random: fastrand::Rng,
    /// Kinds for which joe's answers differed between the worlds: joe may have started the cache of them in one world,
    /// and later requests get it at once.
    apart: BTreeSet<&'static str>,
    /// Counts of compared answers, of those with an object, and of those whose duration was compared, too.
    compared: usize,
    shown: usize,
    timed: usize,
}

impl Twins {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut hidden, mut closed) = (BTreeSet::new(), BTreeSet::new());
        let never = random.usize(..2 * CLUSTERS.len());
        for (n, cluster) in CLUSTERS.into_iter().enumerate() {
            let all = n == never || random.u8(..4) == 0;
            closed.extend(all.then_some(cluster));
            for kind in KINDS {
                for namespace in NAMESPACES {
                    if all || random.u8(..4) == 0 {
                        hidden.insert((cluster, kind, namespace));
                    }
                }
            }
        }
        let worlds =
            [World::new(&closed, |_| true), World::new(&closed, |cluster| !closed.contains(cluster))];
        let mut twins =
            Self { worlds, hidden, closed, random, apart: BTreeSet::new(), compared: 0, shown: 0, timed: 0 };
        twins.grant();
        for cluster in CLUSTERS {
            let env = twins.any(&ENVS);
            for (world, hidden) in twins.worlds.iter().zip(ENVS) {
                let env = if twins.closed.contains(cluster) { hidden } else { env };
                world.lab.relabel(cluster, &[("env", env)]);
            }
        }
        twins
    }

    /// Grants jane from the start most of the permissions that jane may ever get.
    fn grant(&mut self) {
        for cluster in CLUSTERS {
            for kind in KINDS {
                for namespace in ["", "red", "green", "blue"] {
                    let place = (cluster, kind, namespace);
                    for verb in VERBS {
                        if !self.hides(place) && self.random.u8(..4) > 0 {
                            for world in &self.worlds {
                                world.rights.lock().insert(("jane", verb, place));
                            }
                        }
                    }
                }
            }
        }
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    fn place(&mut self) -> Place {
        (self.any(&CLUSTERS), self.any(&KINDS), self.any(&NAMESPACES))
    }

    /// Returns whether an object there is hidden from jane.
    fn hides(&self, (cluster, kind, namespace): Place) -> bool {
        let matches = |hidden: &&Place| hidden.0 == cluster && hidden.1 == kind;
        self.hidden.iter().filter(matches).any(|hidden| namespace.is_empty() || hidden.2 == namespace)
    }

    /// Changes permissions, the same in both worlds; old decisions are valid for ten seconds.
    async fn change_rights(&mut self) {
        for _ in 0..self.random.usize(1..6) {
            let (mut place, user, verb) = (self.place(), self.any(&USERS), self.any(&VERBS));
            if self.random.bool() {
                place.2 = "";
            }
            if user == "jane" && self.hides(place) {
                continue;
            }
            for world in &self.worlds {
                let mut rights = world.rights.lock();
                if !rights.remove(&(user, verb, place)) {
                    rights.insert((user, verb, place));
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(11)).await;
    }

    /// Changes objects: in one of the worlds alone if they are hidden from jane.
    fn change_objects(&mut self) {
        let place = self.place();
        let (name, change) = (self.any(&["x", "y", "z"]), self.random.u8(..4));
        let only = self.hidden.contains(&place).then(|| self.random.usize(..2));
        for (n, world) in self.worlds.iter().enumerate() {
            if only.is_none_or(|only| only == n) {
                world.change(place, name, change);
            }
        }
    }

    /// Changes a cluster's labels: in one of the worlds alone if they are hidden.
    fn change_labels(&mut self) {
        let (cluster, env) = (self.any(&CLUSTERS), self.any(&ENVS));
        let only = self.closed.contains(cluster).then(|| self.random.usize(..2));
        for (n, world) in self.worlds.iter().enumerate() {
            if only.is_none_or(|only| only == n) {
                world.lab.relabel(cluster, &[("env", env)]);
            }
        }
    }

    fn question(&mut self) -> Question {
        let (cluster, kind, namespace) = self.place();
        let namespace = if self.random.bool() { "" } else { namespace };
        let server = self.any(&["clusters", "fleet", "fleet"]);
        let place = if server == "fleet" { "/fleet".to_owned() } else { format!("/clusters/{cluster}") };
        let named = !namespace.is_empty() && self.random.u8(..4) == 0;
        let api = if kind == "gadgets" { "apis/x.example/v1" } else { "api/v1" };
        let described = server == "fleet" && self.random.u8(..8) == 0;
        let mut path = match namespace {
            _ if described => format!("{place}/apis{}", self.any(&["", "/x.example", "/x.example/v1"])),
            "" => format!("{place}/{api}/{kind}"),
            namespace => format!("{place}/{api}/namespaces/{namespace}/{kind}"),
        };
        if named && !described {
            path.push_str(self.any(&["/x", "/y", "/none"]));
        }
        let mut query = self.any(&[
            "",
            "limit=1",
            "limit=2&continue=TOKEN",
            "labelSelector=app%3Dx",
            "labelSelector=skopos.dev%2Fcluster%3Da",
            "fieldSelector=metadata.name%3Dy",
            "fieldSelector=metadata.namespace%3Dred",
            "resourceVersion=0",
            "resourceVersion=VERSION&resourceVersionMatch=Exact",
            "resourceVersion=VERSION",
            "watch=1&timeoutSeconds=2",
            "watch=1&timeoutSeconds=2&resourceVersion=VERSION&allowWatchBookmarks=1",
            "watch=1&timeoutSeconds=2&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
            "labelSelector=a%3D%3D%3Db",
            "resourceVersion=nonsense",
            "continue=nonsense",
        ]);
        // Versions of a member count all its changes, in both worlds: the exact state of one may expire earlier.
        if named || described || server == "clusters" && query.contains("Exact") {
            query = "";
        }
        let clusters = self.any(&[
            "",
            "",
            "clusters=a",
            "clusters=b,c",
            "clusters=c",
            "clusters=none",
            "clusters=a,none",
            "clusterSelector=env%3Dprod",
            "clusterSelector=env%21%3Dprod",
            "clusters=a,b&clusterSelector=env%3Dtest",
        ]);
        let query =
            [query, clusters].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("&");
        let accept = self.any(&[
            "application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        ]);
        let (user, gzip, pick) =
            (self.any(&["jane", "jane", "joe"]), self.random.bool(), self.random.usize(..1000));
        let of = if self.random.u8(..4) == 0 { self.any(&USERS) } else { user };
        let realm = if server == "fleet" { place } else { format!("{place}/{kind}") };
        Question { user, of, realm, kind, path, query, accept, gzip, pick }
    }

    async fn ask(&mut self) {
        let question = self.question();
        let hidden = self.hidden.clone();
        let mut answers = Vec::new();
        for world in &mut self.worlds {
            answers.push(world.ask(&question).await);
        }
        // A wait that joe's request started in one world alone, because joe may see the cluster, ends in both worlds.
        tokio::time::sleep(Duration::from_millis(200)).await;
        if question.user != "jane" {
            if answers[0].0.code != answers[1].0.code {
                self.apart.insert(question.kind);
            }
            return;
        }
        for (_, text) in &answers {
            for (cluster, kind, namespace) in &hidden {
                let canary = format!("canary-{cluster}-{kind}-{namespace}-");
                assert!(!text.contains(&canary), "{question:?} shows what is hidden: {text}");
            }
        }
        // Tokens of another user differ already.
        if question.of != question.user {
            return;
        }
        self.compared += 1;
        self.shown += usize::from(answers[0].1.contains("canary-"));
        match self.apart.contains(question.kind) {
            true => answers.iter_mut().for_each(|(seen, _)| seen.took = Duration::ZERO),
            false => self.timed += 1,
        }
        assert_eq!(answers[0].0, answers[1].0, "{question:?} tells of what is hidden: {hidden:?}");
    }
}

impl World {
    /// Makes a world. Gadgets are defined in some clusters. The discovery of a cluster may be read if any object there
    /// may ever be.
    fn new(closed: &BTreeSet<&str>, defined: impl Fn(&str) -> bool) -> Self {
        let lab = Lab::guarded(&CLUSTERS, |_| {});
        for user in USERS {
            lab.admit(&format!("t-{user}"), user);
        }
        let rights: Arc<Mutex<BTreeSet<Right>>> = Arc::default();
        for cluster in CLUSTERS {
            for namespace in NAMESPACES {
                let object =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                lab.member(cluster).create(object).unwrap();
            }
            if defined(cluster) {
                lab.member(cluster).create(gadgets()).unwrap();
            }
            let (known, open) = (rights.clone(), !closed.contains(cluster));
            lab.member(cluster).auth().answer_reviews(move |asked| {
                !asked.path.is_empty() && open
                    || known.lock().iter().any(|(user, verb, (of, kind, namespace))| {
                        (*user, *verb, *kind, *of) == (&asked.user, &asked.verb, &asked.resource, cluster)
                            && (namespace.is_empty() || *namespace == asked.namespace)
                    })
            });
        }
        Self { lab, rights, tokens: BTreeMap::new(), versions: BTreeMap::new() }
    }

    /// Changes an object. Each object has its place in its content, and config maps are large enough for compressed
    /// lists.
    fn change(&self, (cluster, kind, namespace): Place, name: &str, change: u8) {
        let member = self.lab.member(cluster);
        if change == 0 {
            let _ = member.delete(kind, Some(namespace), name);
            return;
        }
        let canary = format!("canary-{cluster}-{kind}-{namespace}-{change}");
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": name, "c": canary}});
        let object = match kind {
            "pods" => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"containers": [{"name": "c", "image": canary}]}}),
            "gadgets" => json!({"apiVersion": "x.example/v1", "kind": "Gadget", "metadata": metadata,
                "spec": {"of": canary}}),
            _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"k": canary.repeat(800)}}),
        };
        // The containers of a pod cannot be changed.
        let _ = member.apply(object);
    }

    /// Returns the comparable part of the answer, and its text.
    async fn ask(&mut self, question: &Question) -> (Seen, String) {
        let of = |known: &BTreeMap<_, Vec<String>>| match known.get(&(question.of, question.realm.clone())) {
            Some(known) if !known.is_empty() => known[question.pick % known.len()].clone(),
            _ => "1".to_owned(),
        };
        let query =
            question.query.replace("TOKEN", &of(&self.tokens)).replace("VERSION", &of(&self.versions));
        let path = format!("{}?{query}", question.path);
        let token = format!("Bearer t-{}", question.user);
        let mut headers = vec![("authorization", token.as_str()), ("accept", question.accept)];
        if question.gzip {
            headers.push(("accept-encoding", "gzip"));
        }
        let began = Instant::now();
        let answer = told(self.lab.send(Method::GET, &path, &headers, "").await).await;
        let took = began.elapsed();
        let mut text = String::new();
        match answer.headers.get(header::CONTENT_ENCODING) {
            Some(_) => {
                flate2::read::MultiGzDecoder::new(&*answer.body).read_to_string(&mut text).unwrap();
            }
            None => text.push_str(std::str::from_utf8(&answer.body).unwrap()),
        }
        // Text that is no JSON, such as that of a 404, stays a string.
        let values = serde_json::Deserializer::from_str(&text).into_iter();
        let mut body: Vec<Value> =
            values.map(|value| value.unwrap_or_else(|_| text.clone().into())).collect();
        for value in &body {
            let metadata = &value["metadata"];
            let given = (question.user, question.realm.clone());
            let token = metadata["continue"].as_str().filter(|token| !token.is_empty());
            self.tokens.entry(given.clone()).or_default().extend(token.map(str::to_owned));
            let version = metadata["resourceVersion"].as_str();
            self.versions.entry(given).or_default().extend(version.map(str::to_owned));
        }
        body.iter_mut().for_each(|value| anonymous("", value));
        let headers = answer.headers.iter().map(|(name, value)| {
            let value = match name.as_str() {
                "skopos-age" | "content-length" | "etag" => "N".to_owned(),
                _ => without_numbers(value.to_str().unwrap()),
            };
            (name.to_string(), value)
        });
        let mut headers: Vec<_> = headers.collect();
        headers.sort();
        (Seen { code: answer.code, headers, body, took }, text)
    }
}

fn gadgets() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.x.example"},
        "spec": {"group": "x.example", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "additionalPrinterColumns": [{"name": "Of", "type": "string", "jsonPath": ".spec.of"}]}]}})
}

/// Removes the server's own numbers.
fn anonymous(name: &str, value: &mut Value) {
    match value {
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| anonymous(name, value)),
        Value::Array(items) => items.iter_mut().for_each(|item| anonymous(name, item)),
        Value::String(text) => match name {
            "uid"
            | "resourceVersion"
            | "creationTimestamp"
            | "continue"
            | "skopos.dev/resource-version"
            | "startTime"
            | "lastTransitionTime" => *text = "N".into(),
            "message" | "cells" | "skopos.dev/stale" => *text = without_numbers(text),
            _ => {}
        },
        _ => {}
    }
}

fn without_numbers(text: &str) -> String {
    let digits = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    let mut out: Vec<char> = digits.collect();
    out.dedup_by(|a, b| *a == '0' && *b == '0');
    out.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn forbidden_objects_do_not_affect_answers() {
    let cases: u64 = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3);
    let (mut compared, mut shown, mut timed) = (0, 0, 0);
    for seed in 0..cases {
        let mut twins = Twins::new(seed);
        (0..60).for_each(|_| twins.change_objects());
        for _ in 0..80 {
            match twins.random.u8(..10) {
                0 => twins.change_rights().await,
                1 => twins.change_labels(),
                2..4 => {
                    twins.change_objects();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                _ => twins.ask().await,
            }
        }
        compared += twins.compared;
        shown += twins.shown;
        timed += twins.timed;
    }
    assert!(2 * timed > compared, "{timed} of {compared} were compared in time");
    assert!(
        compared > 10 * cases as usize && shown > 2 * cases as usize,
        "{shown} of {compared} showed anything"
    );
}

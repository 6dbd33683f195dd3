//! Noninterference: two callers with random permissions over random histories never get a byte that they may not read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use crate::testing::{Lab, told};

const USERS: [&str; 2] = ["jane", "joe"];
const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
const KINDS: [&str; 2] = ["pods", "configmaps"];
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// A permission: user, verb, kind, namespace; for all namespaces if that is empty.
type Right = (&'static str, &'static str, &'static str, &'static str);

struct World {
    lab: Lab,
    rights: Arc<Mutex<BTreeSet<Right>>>,
    random: fastrand::Rng,
    /// The last continue token, of any caller.
    token: Option<String>,
    read: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let lab = Lab::guarded(&["a"], |_| {});
        for user in USERS {
            lab.admit(&format!("t-{user}"), user);
        }
        for namespace in NAMESPACES {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            lab.member("a").create(object).unwrap();
        }
        let rights: Arc<Mutex<BTreeSet<Right>>> = Arc::default();
        let known = rights.clone();
        lab.member("a").auth().answer_reviews(move |asked| {
            known.lock().iter().any(|(user, verb, kind, namespace)| {
                (*user, *verb, *kind) == (&asked.user, &asked.verb, &asked.resource)
                    && (namespace.is_empty() || *namespace == asked.namespace)
            })
        });
        Self { lab, rights, random: fastrand::Rng::with_seed(seed), token: None, read: 0 }
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    /// Changes permissions; old decisions are valid for ten seconds.
    async fn change_rights(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            let namespace = self.any(&["", "red", "green", "blue"]);
            let right = (self.any(&USERS), self.any(&VERBS), self.any(&KINDS), namespace);
            let mut rights = self.rights.lock();
            if !rights.remove(&right) {
                rights.insert(right);
            }
        }
        tokio::time::sleep(Duration::from_secs(11)).await;
    }

    /// Changes objects. Each object has its place and its kind in its content.
    fn change_objects(&mut self) {
        let (kind, namespace, name) = (self.any(&KINDS), self.any(&NAMESPACES), self.any(&["x", "y", "z"]));
        let member = self.lab.member("a");
        if member.delete(kind, Some(namespace), name).is_ok() && self.random.bool() {
            return;
        }
        let canary = format!("canary-{kind}-{namespace}");
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": name}, "annotations": {"c": canary}});
        let object = match kind {
            "pods" => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"containers": [{"name": "c", "image": canary}]}}),
            _ => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": canary}})
            }
        };
        // The object may still exist.
        let _ = member.create(object);
    }

    async fn ask(&mut self) {
        let user = self.any(&USERS);
        let (kind, namespace) = (self.any(&KINDS), self.any(&["", "red", "green", "blue"]));
        let place = match namespace {
            "" => format!("/clusters/a/api/v1/{kind}"),
            namespace => format!("/clusters/a/api/v1/namespaces/{namespace}/{kind}"),
        };
        let mut query = self
            .any(&[
                "",
                "?limit=1",
                "?labelSelector=app%3Dx",
                "?fieldSelector=metadata.name%3Dy",
                "?resourceVersion=0",
                "?watch=1&timeoutSeconds=2",
                "?watch=1&timeoutSeconds=2&resourceVersion=0",
                "?fieldSelector=metadata.namespace%3Dred",
            ])
            .to_owned();
        if let Some(token) = self.token.clone().filter(|_| self.random.u8(..4) == 0) {
            query = format!("?limit=2&continue={token}");
        }
        let (verb, path) = match self.random.u8(..5) {
            0 if !namespace.is_empty() => ("get", format!("{place}/x")),
            _ if query.starts_with("?watch") => ("watch", format!("{place}{query}")),
            _ => ("list", format!("{place}{query}")),
        };
        let accept = self.any(&[
            "application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        ]);
        let token = format!("Bearer t-{user}");
        let headers = [("authorization", token.as_str()), ("accept", accept)];
        let answer = told(self.lab.send(Method::GET, &path, &headers, "").await).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();

        let rights = self.rights.lock().clone();
        let may = |kind: &'static str, namespace: &'static str| {
            rights.contains(&(user, verb, kind, namespace)) || rights.contains(&(user, verb, kind, ""))
        };
        for kind in KINDS {
            for namespace in NAMESPACES {
                let seen = text.contains(&format!("canary-{kind}-{namespace}"));
                assert!(!seen || may(kind, namespace), "{user} {path} {rights:?}: {text}");
                self.read += usize::from(seen);
            }
        }
        if let Some(next) = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|list| list["metadata"]["continue"].as_str().map(str::to_owned))
        {
            self.token = Some(next);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_contain_no_forbidden_bytes() {
    let cases: u64 = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8);
    let mut read = 0;
    for seed in 0..cases {
        let mut world = World::new(seed);
        for _ in 0..4 {
            world.change_rights().await;
            (0..4).for_each(|_| world.change_objects());
        }
        for _ in 0..60 {
            match world.random.u8(..10) {
                0 => world.change_rights().await,
                1..4 => world.change_objects(),
                _ => world.ask().await,
            }
        }
        read += world.read;
    }
    assert!(read > 3 * cases as usize, "only {read} objects were read: the test shows nothing");
}

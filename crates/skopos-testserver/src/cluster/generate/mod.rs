//! Generator of realistic pods: about 4.4 KB of JSON each, with owner, managedFields and status.

use std::sync::LazyLock;

use bytes::Bytes;
use jiff::Timestamp;

/// Generator of pods. The same seed gives the same pods, and a pod depends only on the seed and its number.
///
/// ```
/// use skopos_testserver::PodGenerator;
///
/// let pods = PodGenerator::new(7);
/// let json: serde_json::Value = serde_json::from_slice(&pods.pod(0)).expect("valid JSON");
/// assert_eq!(json["kind"], "Pod");
/// assert_eq!(pods.pod(0), PodGenerator::new(7).pod(0));
/// ```
#[derive(Clone, Debug)]
pub struct PodGenerator {
    seed: u64,
    namespaces: usize,
    replicas: usize,
    since: Timestamp,
}

impl PodGenerator {
    /// Creates a generator of pods in 20 namespaces, five to a ReplicaSet, on 200 nodes.
    pub fn new(seed: u64) -> Self {
        Self { seed, namespaces: 20, replicas: 5, since: Timestamp::constant(1_767_225_600, 0) }
    }

    /// Spreads the pods over `count` namespaces (at least one).
    #[must_use]
    pub fn namespaces(mut self, count: usize) -> Self {
        self.namespaces = count.max(1);
        self
    }

    /// Gives every ReplicaSet `count` pods (at least one).
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count.max(1);
        self
    }

    /// Makes the newest pods appear to have been created at `time`, the others in the weeks before.
    #[must_use]
    pub fn created_before(mut self, time: Timestamp) -> Self {
        self.since = time;
        self
    }

    /// Returns the names of the pods' namespaces.
    pub fn namespace_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.namespaces).map(namespace_name)
    }

    /// Returns the JSON of pod number `index`, without a resourceVersion.
    pub fn pod(&self, index: usize) -> Bytes {
        let facts = Facts::new(self, index);
        let mut json = String::with_capacity(4608);
        for piece in TEMPLATE.iter() {
            match piece {
                Piece::Text(text) => json.push_str(text),
                Piece::Fact(name) => facts.push(name, &mut json),
            }
        }
        json.into()
    }

    /// Creates a random generator for the object of that kind and number.
    fn rng(&self, kind: u64, number: usize) -> fastrand::Rng {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut rng =
            fastrand::Rng::with_seed(self.seed ^ (number as u64 + 1).wrapping_mul(SPREAD) ^ (kind << 56));
        // The first outputs of close seeds are alike.
        rng.u64(..);
        rng
    }
}

/// Template, split at its placeholders.
static TEMPLATE: LazyLock<Vec<Piece>> = LazyLock::new(|| {
    let template: serde_json::Value = serde_json::from_str(include_str!("pod.json")).unwrap_or_default();
    let minified = template.to_string();
    let mut pieces = Vec::new();
    let mut rest: &str = &minified;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else { break };
        // A `!` marks numbers and booleans, which lose the quotes that make the template valid JSON.
        let (before, name, after) = match name.strip_prefix('!') {
            Some(name) => (before.trim_end_matches('"'), name, after.trim_start_matches('"')),
            None => (before, name, after),
        };
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(Piece::Fact(name.to_owned()));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces
});

enum Piece {
    Text(String),
    Fact(String),
}

/// Values of one pod's placeholders.
struct Facts {
    name: String,
    namespace: String,
    app: &'static str,
    team: &'static str,
    tier: &'static str,
    version: String,
    hash: String,
    replica_set: String,
    owner_uid: String,
    uid: String,
    node: usize,
    created: String,
    ready_at: String,
    ready: bool,
    restarts: u32,
    cpu: u32,
    memory: u32,
    pod_ip: String,
    host_ip: String,
    token: String,
    container_id: String,
    image_id: String,
}

const NODES: usize = 200;
const APPS: [&str; 16] = [
    "api", "auth", "billing", "cart", "catalog", "checkout", "gateway", "ingest", "ledger", "mailer",
    "orders", "payments", "pricing", "search", "shipping", "web",
];
const TEAMS: [&str; 6] = ["core", "data", "growth", "logistics", "payments", "platform"];
const TIERS: [&str; 3] = ["backend", "frontend", "worker"];
/// Letters of Kubernetes' random names: no vowels, so that they form no words.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Facts {
    fn new(generator: &PodGenerator, index: usize) -> Self {
        let set = index / generator.replicas;
        let mut shared = generator.rng(1, set);
        let mut own = generator.rng(2, index);

        let app = APPS[set % APPS.len()];
        let namespace = namespace_name(set % generator.namespaces);
        let hash = format!("{}{}", safe(set as u64, 6), random_text(&mut shared, SAFE, 4));
        let replica_set = format!("{app}-{hash}");
        let age = own.i64(60..30 * 24 * 3600);
        let created = generator.since.as_second() - age;
        let node = own.usize(..NODES);
        Self {
            name: format!("{replica_set}-{}", safe(index as u64, 5)),
            namespace,
            app,
            team: TEAMS[shared.usize(..TEAMS.len())],
            tier: TIERS[shared.usize(..TIERS.len())],
            version: format!("{}.{}.{}", shared.u8(1..5), shared.u8(0..30), shared.u8(0..10)),
            hash,
            replica_set,
            owner_uid: uid(&mut shared),
            uid: uid(&mut own),
            node,
            created: time_text(created),
            ready_at: time_text(created + own.i64(3..40)),
            ready: own.u8(..) >= 5,
            restarts: if own.u8(..) < 20 { own.u32(1..6) } else { 0 },
            cpu: 50 * own.u32(1..20),
            memory: 64 * own.u32(1..32),
            pod_ip: format!("10.{}.{}.{}", node % 250, index / 250 % 250, index % 250 + 1),
            host_ip: format!("172.16.{}.{}", node / 250, node % 250 + 1),
            token: format!("kube-api-access-{}", random_text(&mut own, SAFE, 5)),
            container_id: random_text(&mut own, HEX, 64),
            image_id: random_text(&mut shared, HEX, 64),
        }
    }

    fn push(&self, name: &str, out: &mut String) {
        let text: &str = match name {
            "NAME" => &self.name,
            "NAMESPACE" => &self.namespace,
            "APP" => self.app,
            "TEAM" => self.team,
            "TIER" => self.tier,
            "VERSION" => &self.version,
            "HASH" => &self.hash,
            "REPLICASET" => &self.replica_set,
            "OWNERUID" => &self.owner_uid,
            "UID" => &self.uid,
            "CREATED" => &self.created,
            "READYAT" => &self.ready_at,
            "READY" => {
                if self.ready {
                    "True"
                } else {
                    "False"
                }
            }
            "READYFLAG" => {
                if self.ready {
                    "true"
                } else {
                    "false"
                }
            }
            "PODIP" => &self.pod_ip,
            "HOSTIP" => &self.host_ip,
            "TOKEN" => &self.token,
            "CONTAINERID" => &self.container_id,
            "IMAGEID" => &self.image_id,
            "NODE" => return out.push_str(&format!("node-{:03}", self.node)),
            "RESTARTS" => return out.push_str(&self.restarts.to_string()),
            "CPU" => return out.push_str(&self.cpu.to_string()),
            "MEMORY" => return out.push_str(&self.memory.to_string()),
            other => unreachable!("the template has no placeholder {other}"),
        };
        out.push_str(text);
    }
}

const HEX: &[u8] = b"0123456789abcdef";

fn namespace_name(number: usize) -> String {
    format!("team-{number:02}")
}

/// Encodes a number as `length` letters (more for large numbers), injectively.
fn safe(mut number: u64, length: usize) -> String {
    let base = SAFE.len() as u64;
    let mut text = Vec::with_capacity(length);
    while number > 0 || text.len() < length {
        // The position is mixed in, so that small numbers do not all begin alike.
        let place = text.len() as u64 * 7;
        text.push(SAFE[((number + place) % base) as usize]);
        number /= base;
    }
    text.iter().map(|byte| *byte as char).collect()
}

fn random_text(rng: &mut fastrand::Rng, letters: &[u8], length: usize) -> String {
    (0..length).map(|_| letters[rng.usize(..letters.len())] as char).collect()
}

fn uid(rng: &mut fastrand::Rng) -> String {
    uuid::Builder::from_random_bytes(rng.u128(..).to_le_bytes()).into_uuid().to_string()
}

fn time_text(second: i64) -> String {
    Timestamp::from_second(second).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn pods_are_valid_unique_and_of_realistic_size() {
        let generator = PodGenerator::new(1);
        let mut keys = HashSet::new();
        let mut bytes = 0;
        for index in 0..2000 {
            let json = generator.pod(index);
            bytes += json.len();
            let pod: Value = serde_json::from_slice(&json).unwrap();
            assert!(pod["status"]["containerStatuses"][0]["restartCount"].is_u64());
            let name = pod["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with(pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap()));
            assert!(keys.insert(format!("{}/{name}", pod["metadata"]["namespace"])), "{name} twice");
            assert!(keys.insert(pod["metadata"]["uid"].to_string()));
        }
        let average = bytes / 2000;
        assert!((4200..4600).contains(&average), "{average}");
        assert!(!String::from_utf8_lossy(&generator.pod(5)).contains("${"));
    }

    #[test]
    fn seed_determines_generated_pods() {
        assert_eq!(PodGenerator::new(3).pod(11), PodGenerator::new(3).pod(11));
        assert_ne!(PodGenerator::new(3).pod(11), PodGenerator::new(4).pod(11));
        let one: Value = serde_json::from_slice(&PodGenerator::new(3).namespaces(1).pod(99)).unwrap();
        assert_eq!(one["metadata"]["namespace"], "team-00");
    }
}

//! Memory in protobuf, in JSON and compressed: clients get the same.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use skopos_config::ByteSize;
use skopos_testserver::TestServer;

use super::memory_tests::{PODS as SHOP, pod};
use crate::config::{LoopbackTrust, MemberEncoding};
use crate::testing::Lab;

const PODS: &str = "/clusters/a/api/v1/pods";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Makes a gateway in front of this member.
fn lab(member: &TestServer, encoding: MemberEncoding, compact_above: u64) -> Lab {
    let lab = Lab::with(&["a"], |config| {
        config.authorization.loopback = LoopbackTrust::Trusted;
        (config.cache.encoding, config.cache.compact_above) = (encoding, ByteSize(compact_above));
    });
    lab.replace_member("a", member);
    lab
}

/// Returns how many pods are held in protobuf, and how many compressed.
fn held(lab: &Lab) -> (usize, usize) {
    let kinds = lab.services.fleet.cluster("a").unwrap().kinds();
    let pods = kinds.iter().find(|kind| kind.resource().plural == "pods").unwrap().informer().snapshot();
    let count = |is: fn(&skopos::RawObject) -> bool| pods.iter().filter(|pod| is(pod.raw())).count();
    (count(skopos::RawObject::is_protobuf), count(skopos::RawObject::is_compact))
}

/// Returns an answer in JSON, whose members may have another order; `None` for protobuf. Ages in tables depend on the time.
fn ageless(body: &[u8]) -> Option<Value> {
    let mut json: Value = serde_json::from_slice(body).ok()?;
    let columns = json["columnDefinitions"].as_array();
    let age = columns.and_then(|columns| columns.iter().position(|column| column["name"] == "Age"));
    for row in json["rows"].as_array_mut().into_iter().flatten() {
        row["cells"].as_array_mut()?.remove(age?);
    }
    Some(json)
}

#[tokio::test(start_paused = true)]
async fn answers_do_not_depend_on_form_in_memory() {
    let member = TestServer::builder().start_in_memory().unwrap();
    member.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    for number in 0..300 {
        let mut pod = pod(&format!("web-{number:03}"));
        pod["spec"]["containers"][0]["image"] =
            json!(format!("registry.example.com/shop/web:1.{}", number % 5));
        pod["metadata"]["annotations"] =
            json!({"prometheus.io/port": "9090", "prometheus.io/scrape": "true"});
        member.create(pod).unwrap();
    }
    let now = member.resource_version();
    let one = format!("{SHOP}/web-299");
    let of_node = format!("{PODS}?fieldSelector=spec.nodeName%3Dn1");
    let partial = |list: &str| format!("{PROTOBUF};as=PartialObjectMetadata{list};v=v1;g=meta.k8s.io");
    let requests = [
        (PODS, JSON.to_owned()),
        // From the cache of texts.
        (PODS, JSON.to_owned()),
        (PODS, PROTOBUF.to_owned()),
        (PODS, "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned()),
        (PODS, partial("List")),
        (&of_node, JSON.to_owned()),
        (&one, JSON.to_owned()),
        (&one, PROTOBUF.to_owned()),
        (&one, partial("")),
    ];
    let mut answers = Vec::new();
    for (encoding, compact_above) in [
        (MemberEncoding::Json, 1 << 30),
        (MemberEncoding::Json, 0),
        (MemberEncoding::Protobuf, 1 << 30),
        (MemberEncoding::Protobuf, 0),
    ] {
        let lab = lab(&member, encoding, compact_above);
        let mut bodies = Vec::new();
        for (path, accept) in &requests {
            let told = lab.get(path, &[("accept", accept)]).await;
            assert_eq!((told.code, told.header("skopos-source")), (200, "memory"), "{path} {accept}");
            bodies.push(told.body);
        }
        let (protobuf, compact) = held(&lab);
        assert_eq!(protobuf, if encoding == MemberEncoding::Protobuf { 300 } else { 0 });
        assert_eq!(compact > 100, compact_above == 0, "{encoding:?} {compact}");
        answers.push((lab, bodies));
    }
    member.delete("pods", Some("shop"), "web-299").unwrap();
    for (lab, bodies) in &mut answers {
        for accept in [JSON, PROTOBUF] {
            let path = format!("{PODS}?watch=1&resourceVersion={now}");
            let mut watch = lab.send(Method::GET, &path, &[("accept", accept)], "").await.into_body();
            bodies.push(watch.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    }
    for (lab, (_, bodies)) in answers.iter().enumerate() {
        for (number, (own, first)) in bodies.iter().zip(&answers[0].1).enumerate() {
            let (own_json, first_json) = (ageless(own), ageless(first));
            assert_eq!(own_json, first_json, "gateway {lab}, answer {number}");
            assert!(own_json.is_some() || own == first, "gateway {lab}, answer {number}");
        }
    }
}

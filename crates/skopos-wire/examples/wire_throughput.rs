//! Throughput of scanning objects, splitting lists, reading watch frames and decoding objects, on one core.
//!
//! ```text
//! cargo run --release -p skopos-wire --example wire_throughput
//! ```

#![allow(clippy::disallowed_methods)] // measures real time

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use skopos_wire::{FrameSplitter, Limits, ListSplitter, RawObject, protobuf, transform};

fn main() {
    const OBJECTS: usize = 3000;
    const CHUNK: usize = 16 << 10;
    let limits = Limits::default();
    let pods: Vec<Vec<u8>> = (0..OBJECTS).map(pod).collect();
    let pods_len: usize = pods.iter().map(Vec::len).sum();
    println!("{OBJECTS} pods, {} bytes each on average", pods_len / OBJECTS);

    let list = [
        br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":["#,
        pods.join(&b","[..]).as_slice(),
        b"]}",
    ]
    .concat();
    let frames: Vec<Vec<u8>> =
        pods.iter().map(|pod| [br#"{"type":"ADDED","object":"#, pod.as_slice(), b"}"].concat()).collect();
    let mut stream = frames.join(&b"\n"[..]);
    stream.push(b'\n');
    let chunks: Vec<Bytes> = stream.chunks(CHUNK).map(Bytes::copy_from_slice).collect();

    measure("scan an object", pods_len, || {
        for pod in &pods {
            black_box(RawObject::copy_from(pod, &limits).expect("a pod"));
        }
    });
    measure("the same with serde_json into Value", pods_len, || {
        for pod in &pods {
            black_box(serde_json::from_slice::<serde_json::Value>(pod).expect("a pod"));
        }
    });
    measure("skip an object with serde_json", pods_len, || {
        for pod in &pods {
            black_box(serde_json::from_slice::<serde::de::IgnoredAny>(pod).expect("a pod"));
        }
    });
    measure("split a list, 16 KiB chunks", list.len(), || {
        let mut splitter = ListSplitter::new(limits.clone());
        for chunk in list.chunks(CHUNK) {
            splitter.push(chunk, &mut |item| drop(black_box(item))).expect("a list");
        }
        black_box(splitter.finish().expect("a list"));
    });
    measure("split a list and scan its items", list.len(), || {
        let mut splitter = ListSplitter::new(limits.clone());
        for chunk in list.chunks(CHUNK) {
            let mut sink = |item| drop(black_box::<Result<RawObject, _>>(item).expect("a pod"));
            splitter.push_and_scan(chunk, &mut sink).expect("a list");
        }
    });
    measure("split a watch stream, 16 KiB chunks", stream.len(), || {
        let mut splitter = FrameSplitter::new(limits.clone());
        for chunk in &chunks {
            splitter.push(chunk.clone());
            while let Some(frame) = splitter.next_frame().expect("a frame") {
                black_box(frame);
            }
        }
    });
    measure("split a watch stream and read its events", stream.len(), || {
        let mut splitter = FrameSplitter::new(limits.clone());
        for chunk in &chunks {
            splitter.push(chunk.clone());
            while let Some(event) = splitter.next_event().expect("a frame") {
                black_box(event.expect("an event"));
            }
        }
    });
    measure("drop managedFields", pods_len, || {
        for pod in &pods {
            black_box(transform::drop_managed_fields(pod));
        }
    });
    decode(&pods, &limits);
    let object = RawObject::copy_from(&pods[0], &limits).expect("a pod");
    let lookups = 100_000;
    let start = Instant::now();
    for _ in 0..lookups {
        black_box(object.field("spec.nodeName"));
    }
    println!("{:<42} {:>6} ns", "a field of an object", start.elapsed().as_nanos() / lookups);
    println!(
        "{:<42} {:>6} bytes",
        "an object beside its JSON",
        object.memory_bytes() - object.content().len()
    );
}

/// Measures objects in protobuf, whose bytes are fewer, beside the same ones in JSON.
fn decode(pods: &[Vec<u8>], limits: &Limits) {
    let messages: Vec<Vec<u8>> =
        pods.iter().map(|pod| protobuf::from_json(pod).expect("a built-in kind")).collect();
    let scanned: Vec<RawObject> =
        messages.iter().map(|message| RawObject::copy_from(message, limits).expect("a pod")).collect();
    measure_each("scan an object in protobuf", pods.len(), || {
        for message in &messages {
            black_box(RawObject::copy_from(message, limits).expect("a pod"));
        }
    });
    measure_each("decode a Pod from JSON with serde_json", pods.len(), || {
        for pod in pods {
            black_box(serde_json::from_slice::<Pod>(pod).expect("a pod"));
        }
    });
    measure_each("decode a Pod from protobuf", pods.len(), || {
        for pod in &scanned {
            black_box(pod.decode::<Pod>().expect("a pod"));
        }
    });
    measure_each("write the JSON of protobuf", pods.len(), || {
        for message in &messages {
            black_box(protobuf::to_json(message).expect("a pod"));
        }
    });
}

/// Runs for about a second and prints what an object took in the best round.
fn measure_each(what: &str, objects: usize, run: impl FnMut()) {
    let best = best_round(run);
    println!("{what:<42} {:>6.1} µs each", best.as_secs_f64() * 1e6 / objects as f64);
}

/// Runs for about a second and prints the rate of the best round.
fn measure(what: &str, bytes: usize, run: impl FnMut()) {
    println!("{what:<42} {:>6.0} MB/s", bytes as f64 / best_round(run).as_secs_f64() / 1e6);
}

fn best_round(mut run: impl FnMut()) -> Duration {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best
}

/// Creates about 4 KB of pod, in the order in which the API server writes it.
fn pod(i: usize) -> Vec<u8> {
    let name = format!("web-{:08x}-{i:05}", i / 3);
    let managed = json!([
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-11-20T10:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {},
         "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"0b4b6e0a\"}": {}}}, "f:spec": {"f:containers":
         {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:ports": {".": {},
         "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}, "f:resources": {}}},
         "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:terminationGracePeriodSeconds": {}}}},
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-11-20T10:00:05Z", "fieldsType": "FieldsV1",
         "subresource": "status", "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:lastProbeTime": {},
         "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}}, "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {},
         "f:podIP": {}, "f:startTime": {}}}}
    ]);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-20T10:00:05Z"});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(condition);
    let metadata = json!({"name": name, "generateName": "web-", "namespace": format!("team-{}", i % 50),
        "uid": format!("7d1e0000-0000-4000-8000-{i:012x}"), "resourceVersion": (100_000 + i).to_string(),
        "creationTimestamp": "2026-11-20T10:00:00Z",
        "labels": {"app": "web", "pod-template-hash": "5d9c7b8f6", "app.kubernetes.io/part-of": "shop", "tier": "front"},
        "annotations": {"prometheus.io/scrape": "true", "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c7b8f6", "uid": "0b4b6e0a",
            "controller": true, "blockOwnerDeletion": true}],
        "managedFields": managed});
    let container = json!({"name": "web", "image": "registry.example.com/shop/web:1.27.3", "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 8080, "protocol": "TCP"}], "env": [{"name": "GREETING", "value": "say \"hello\"\n"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}});
    let spec = json!({"containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "nodeName": format!("node-{}", i % 100),
        "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]});
    let status = json!({"phase": "Running", "conditions": conditions,
        "hostIP": "10.0.0.1", "podIP": "10.244.1.7", "startTime": "2026-11-20T10:00:00Z", "qosClass": "Burstable",
        "containerStatuses": [{"name": "web", "state": {"running": {"startedAt": "2026-11-20T10:00:03Z"}}, "lastState": {},
            "ready": true, "restartCount": 0, "image": "registry.example.com/shop/web:1.27.3", "started": true}]});
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{spec},"status":{status}}}"#)
        .into_bytes()
}

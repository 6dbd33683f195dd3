//! Protobuf against what Kubernetes' own encoders write: vectors of `peers/protobuf`, and the data that `k8s.io/api` is tested
//! with, if `SKOPOS_KUBERNETES_TESTDATA` names its folder.

mod bodies;

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;
use skopos_wire::{
    FrameError, FrameSplitter, Limits, ListBody, ListError, ListSplitter, RawObject, ScanError, Status,
    WatchEvent, protobuf,
};

/// An object as Go's encoders write it.
struct Vector {
    api_version: String,
    kind: String,
    what: String,
    protobuf: Vec<u8>,
    json: String,
}

/// An entry of a map with wrong wire types, which Go's decoder does not notice.
const REFUSED: &str = "odd: map entry whose wire types are those of numbers";

impl Vector {
    /// Returns whether this is an object that must be read. The envelope of an event of a watch names no kind.
    fn is_object(&self) -> bool {
        !self.what.starts_with("watch") && self.kind != "WatchEvent" && self.what != REFUSED
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.api_version, self.kind, self.what)
    }
}

fn vectors() -> Vec<Vector> {
    let packed: &[u8] = include_bytes!("vectors/protobuf.jsonl.gz");
    let mut lines = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut lines).expect("the file is gzip");
    let vector = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("each line is JSON");
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        Vector {
            api_version: text("apiVersion"),
            kind: text("kind"),
            what: text("what"),
            protobuf: STANDARD.decode(text("pb")).expect("pb is base64"),
            json: text("json"),
        }
    };
    lines.lines().map(vector).collect()
}

#[test]
fn writes_json_of_every_kind_as_go_does() {
    let vectors = vectors();
    let wrong: Vec<String> = vectors
        .iter()
        .filter(|vector| vector.is_object())
        .filter_map(|vector| match protobuf::to_json(&vector.protobuf) {
            Ok(json) if json == vector.json.as_bytes() => None,
            Ok(json) => Some(difference(vector, &String::from_utf8_lossy(&json), &vector.json)),
            Err(error) => Some(format!("{}: {error}", vector.name())),
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        vectors.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(vectors.len() > 1000, "{}", vectors.len());
}

#[test]
fn writes_protobuf_of_every_kind_as_go_does() {
    let vectors = vectors();
    let (mut wrong, mut identical) = (Vec::new(), 0);
    // RFC 3339 has years of four digits, so Go does not read the time that it writes.
    let is_readable = |vector: &&Vector| vector.is_object() && !vector.what.contains("after the year 9999");
    for vector in vectors.iter().filter(is_readable) {
        match protobuf::from_json(vector.json.as_bytes()) {
            Ok(bytes) if bytes == vector.protobuf => identical += 1,
            // JSON cannot tell a pointer to nothing from none, nor a time with nanoseconds from one without.
            Ok(bytes) => match protobuf::decode::<Value>(&bytes) {
                Ok(ours) => {
                    let theirs = serde_json::from_str(&vector.json).expect("it is JSON");
                    let differs = same(&ours, &theirs, "", true).err();
                    wrong.extend(differs.map(|error| format!("{}: {error}", vector.name())));
                }
                Err(error) => wrong.push(format!("{}: {error}", vector.name())),
            },
            Err(error) => wrong.push(format!("{}: {error}", vector.name())),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        vectors.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(identical > 1300, "{identical}");
}

/// Shows where two texts part.
fn difference(vector: &Vector, ours: &str, theirs: &str) -> String {
    let at = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let bytes = &text.as_bytes()[at.saturating_sub(60)..text.len().min(at + 80)];
        String::from_utf8_lossy(bytes).into_owned()
    };
    format!("{}:\n  ours   {}\n  theirs {}", vector.name(), around(ours), around(theirs))
}

#[test]
fn reads_testdata_of_kubernetes() {
    let Ok(folder) = std::env::var("SKOPOS_KUBERNETES_TESTDATA") else {
        eprintln!("skipped: SKOPOS_KUBERNETES_TESTDATA does not name the testdata of k8s.io/api");
        return;
    };
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for release in std::fs::read_dir(&folder).expect("the folder is there").flatten() {
        let is_newest = release.file_name() == "HEAD";
        for file in std::fs::read_dir(release.path()).into_iter().flatten().flatten() {
            let path = file.path();
            // The envelope of an event of a watch names no kind.
            let is_event = path.file_stem().is_some_and(|name| name == "core.v1.WatchEvent");
            let is_object = !is_event && path.with_extension("json").exists();
            if is_object && path.extension().is_some_and(|extension| extension == "pb") {
                checked += 1;
                wrong.extend(
                    check_testdata(&path, is_newest)
                        .err()
                        .map(|error| format!("{}: {error}", path.display())),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(checked > 190, "{checked}");
}

fn check_testdata(path: &Path, is_newest: bool) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let body = std::fs::read(path).map_err(text)?;
    let json = std::fs::read(path.with_extension("json")).map_err(text)?;
    let theirs: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let ours = match protobuf::to_json(&body) {
        // A version of an API that was removed.
        Err(error) if !is_newest && error.to_string().contains("its kind is not known") => return Ok(()),
        ours => ours.map_err(|error| error.to_string())?,
    };
    let ours: Value = serde_json::from_slice(&ours).map_err(|error| error.to_string())?;
    same(&ours, &theirs, "", is_newest)?;
    let again = match protobuf::from_json(&json) {
        Err(protobuf::EncodeError::UnknownMember { .. }) if !is_newest => return Ok(()),
        again => again.map_err(|error| error.to_string())?,
    };
    let again = protobuf::to_json(&again).map_err(|error| error.to_string())?;
    same(&serde_json::from_slice(&again).map_err(|error| error.to_string())?, &theirs, "", is_newest)?;
    let decoded: Value = protobuf::decode(&body).map_err(|error| error.to_string())?;
    if decoded == ours { Ok(()) } else { Err("the deserializer has another value than the JSON".to_owned()) }
}

/// Compares two values; an absent member is as good as null. Of an older release, members that the other side does not have
/// are left out: fields that were removed since stay in the bytes only.
fn same(ours: &Value, theirs: &Value, path: &str, is_newest: bool) -> Result<(), String> {
    match (ours, theirs) {
        (Value::Object(own), Value::Object(other)) => {
            let mut names: Vec<&String> = own.keys().chain(other.keys()).collect();
            names.sort();
            names.dedup();
            names.iter().try_for_each(|name| {
                same(&ours[name.as_str()], &theirs[name.as_str()], &format!("{path}.{name}"), is_newest)
            })
        }
        (Value::Array(own), Value::Array(other)) if own.len() == other.len() => {
            let mut pairs = own.iter().zip(other).enumerate();
            pairs.try_for_each(|(at, (a, b))| same(a, b, &format!("{path}[{at}]"), is_newest))
        }
        (Value::Null, _) | (_, Value::Null) if !is_newest => Ok(()),
        _ if ours == theirs => Ok(()),
        _ => Err(format!("{path}: {ours} is not {theirs}")),
    }
}

fn vector(kind: &str, what: &str) -> Vector {
    vectors()
        .into_iter()
        .find(|vector| vector.kind == kind && vector.what == what)
        .expect("it is among the vectors")
}

/// Splits a list that comes in chunks of this size.
fn split(body: &[u8], chunk: usize, limits: &Limits) -> Result<(Vec<RawObject>, ListBody), ListError> {
    let mut splitter = ListSplitter::new(limits.clone());
    let mut items = Vec::new();
    for chunk in body.chunks(chunk) {
        splitter.push_and_scan(chunk, &mut |item| items.extend(item.ok()))?;
    }
    Ok((items, splitter.finish()?))
}

/// Returns a list of two pods, and the pods in JSON.
fn pods() -> (Vec<u8>, Vec<String>) {
    let pod = |name: &str| {
        format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"7","labels":{{"app":"web","tier":"x"}},"annotations":{{"a":"b"}},"managedFields":[{{"manager":"m","fieldsV1":{{"f:metadata":{{}}}}}}]}},"spec":{{"containers":[{{"name":"c","image":"i","resources":{{}}}}],"nodeName":"n1"}},"status":{{}}}}"#
        )
    };
    let objects: Vec<RawObject> = ["a", "b"]
        .iter()
        .map(|name| RawObject::scan(pod(name).into(), &Limits::default()).expect("it is an object"))
        .collect();
    let meta = skopos_wire::ListMeta {
        resource_version: "9".parse().expect("it is a version"),
        continue_token: Some("token".to_owned()),
        remaining_item_count: Some(3),
        kind: "PodList".to_owned(),
        api_version: "v1".to_owned(),
    };
    (meta.to_protobuf(objects.iter()).expect("pods have protobuf"), vec![pod("a"), pod("b")])
}

#[test]
fn splits_list_in_chunks_of_any_size() {
    let (body, pods) = pods();
    for chunk in (1..80).chain([body.len()]) {
        let (items, list) = split(&body, chunk, &Limits::default()).expect("it is a list");
        let ListBody::List(meta) = list else { panic!("{list:?}") };
        assert_eq!((meta.kind.as_str(), meta.api_version.as_str()), ("PodList", "v1"));
        assert_eq!((meta.continue_token.as_deref(), meta.remaining_item_count), (Some("token"), Some(3)));
        assert_eq!(meta.resource_version.to_string(), "9");
        let json: Vec<String> =
            items.iter().map(|item| String::from_utf8_lossy(&item.json()).into_owned()).collect();
        let bare: Vec<String> =
            pods.iter().map(|pod| pod.replacen(r#""kind":"Pod","apiVersion":"v1","#, "", 1)).collect();
        assert_eq!(json, bare, "in chunks of {chunk}");
    }
    let limits = Limits::default();
    for length in 0..body.len() - 4 {
        let cut = split(&body[..length], 64, &limits);
        assert!(matches!(cut, Err(ListError::Truncated { .. })), "{length}: {cut:?}");
    }
}

#[test]
fn bounds_lists() {
    let (body, _) = pods();
    let small = |limits: Limits| split(&body, 10, &limits).expect_err("it exceeds a limit");
    assert!(matches!(
        small(Limits { max_object_bytes: 50, ..Limits::default() }),
        ListError::ItemTooLarge { index: 0, .. }
    ));
    assert!(matches!(
        small(Limits { max_envelope_bytes: 5, ..Limits::default() }),
        ListError::EnvelopeTooLarge { .. }
    ));
    assert!(matches!(
        small(Limits { max_list_items: 1, ..Limits::default() }),
        ListError::TooManyItems { .. }
    ));
    // A length beyond the frame, and a number without end, cost no memory.
    for tail in [
        &b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
        &[0xff; 11],
        b"\x12\xff\xff\xff\xff\x7f\x12\xff\xff\xff\x7f",
    ] {
        let hostile = [b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList", tail].concat();
        let mut splitter = ListSplitter::new(Limits::default());
        let refused = splitter.push(&hostile, &mut |_| {});
        assert!(refused.is_err() || splitter.held_bytes() < 100, "{refused:?}");
        assert!(splitter.finish().is_err());
    }
    let unknown = split(b"k8s\0\x0a\x11\x0a\x02v9\x12\x0bGadgetList2\x12\x00", 3, &Limits::default());
    assert!(matches!(unknown, Err(ListError::UnknownKind { .. })), "{unknown:?}");
}

#[test]
fn reads_objects_like_their_json() {
    let (body, pods) = pods();
    let (items, _) = split(&body, 1000, &Limits::default()).expect("it is a list");
    let limits = Limits::default();
    let own = &items[0];
    let json = RawObject::copy_from(pods[0].as_bytes(), &limits).expect("it is an object");
    assert_eq!(
        (own.key(), own.uid(), own.resource_version()),
        (json.key(), json.uid(), json.resource_version())
    );
    assert_eq!(own.labels().collect::<Vec<_>>(), json.labels().collect::<Vec<_>>());
    assert_eq!((own.annotation("a"), own.annotation("b")), (json.annotation("a"), None));
    for path in ["spec.nodeName", "metadata.name", "status.phase", "spec.containers", "metadata.labels.app"] {
        assert_eq!(own.field(path), json.field(path), "{path}");
    }
    assert!(own.is_protobuf() && own.kind().is_none() && json.kind() == Some("Pod"));
    // JSON that leaves out what is empty is the same object, as a read of an undecodable object brings it.
    let sparse =
        RawObject::copy_from(pods[0].replace(r#""resources":{}"#, r#""ports":[]"#).as_bytes(), &limits);
    assert!(own.is_same_content(&sparse.expect("it is an object")));
    let other = RawObject::copy_from(pods[0].replace("n1", "n2").as_bytes(), &limits);
    assert!(!own.is_same_content(&other.expect("it is an object")));
    assert!(!own.is_same_content(&items[1]) && own.is_same_content(&json) && json.is_same_content(own));
    let dropped = own.without_managed_fields(&limits).expect("it is an object");
    let theirs = json.without_managed_fields(&limits).expect("it is an object");
    assert!(dropped.is_same_content(&theirs) && dropped.content().len() < own.content().len());
    let stored = RawObject::copy_from(&own.to_stored(), &limits).expect("it can be stored");
    assert!(stored.is_same_content(own) && stored.kind() == Some("Pod"));
    let typed: k8s_openapi::api::core::v1::Pod = own.decode().expect("it is a pod");
    let from_json: k8s_openapi::api::core::v1::Pod = json.decode().expect("it is a pod");
    assert_eq!(typed, from_json);
}

#[test]
fn fields_of_newer_server_stay_in_bytes() {
    let (_, pods) = pods();
    let plain = protobuf::from_json(pods[0].as_bytes()).expect("pods have protobuf");
    let envelope = protobuf::Envelope::read(&plain).expect("it is an envelope");
    // Field 99 of the pod, a text.
    let newer = [envelope.object, b"\x9a\x06\x03new"].concat();
    let kind = protobuf::Kind::find("v1", "Pod").expect("pods are built in");
    let limits = Limits::default();
    let object = RawObject::copy_from(&protobuf::object(kind, &newer), &limits).expect("it is an object");
    let old = RawObject::copy_from(&plain, &limits).expect("it is an object");
    assert_eq!(object.json(), old.json());
    assert!(!object.is_same_content(&old), "the bytes differ");
    let has_field = |object: &RawObject| object.content().ends_with(b"\x9a\x06\x03new");
    assert!(has_field(&object));
    assert!(has_field(&object.without_managed_fields(&limits).expect("it is an object")));
    assert!(has_field(&RawObject::copy_from(&object.to_stored(), &limits).expect("it can be stored")));
}

#[test]
fn reads_frames_of_watches() {
    let limits = Limits::default();
    let frames: Vec<Vector> = ["ADDED", "BOOKMARK", "ERROR"]
        .iter()
        .map(|what| {
            vectors().into_iter().find(|vector| vector.what == format!("watch {what}")).expect("there is one")
        })
        .collect();
    let stream: Vec<u8> = frames.iter().flat_map(|frame| frame.protobuf.clone()).collect();
    for chunk in (1..40).chain([stream.len()]) {
        let mut splitter = FrameSplitter::protobuf(limits.clone());
        let mut events = Vec::new();
        for chunk in stream.chunks(chunk) {
            splitter.push(chunk.to_vec().into());
            while let Some(event) = splitter.next_event().expect("the stream is whole") {
                events.push(event.expect("each frame is an event"));
            }
        }
        splitter.finish().expect("it ends between two frames");
        let json =
            |at: usize| WatchEvent::parse_slice(frames[at].json.as_bytes(), &limits).expect("it is an event");
        assert_eq!(events.len(), 3);
        let (ours, theirs) = (events[0].object().expect("an object"), json(0));
        assert!(ours.is_same_content(theirs.object().expect("an object")), "{ours:?}");
        assert_eq!(events[1], json(1));
        assert_eq!(events[2], json(2));
        assert_eq!(
            ours.to_protobuf(None).map(|own| protobuf::watch_frame("ADDED", &own)).as_ref(),
            Ok(&frames[0].protobuf)
        );
    }
    let mut cut = FrameSplitter::protobuf(limits.clone());
    cut.push(stream[..3].to_vec().into());
    assert!(matches!((cut.next_event(), cut.finish()), (Ok(None), Err(FrameError::Truncated { .. }))));
    let mut large = FrameSplitter::protobuf(limits);
    large.push(vec![0xff; 8].into());
    assert!(matches!(large.next_event(), Err(FrameError::TooLarge { .. })));
}

#[test]
fn reads_status_in_protobuf() {
    let json = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"Expired","code":410}"#;
    let body = protobuf::from_json(json.as_bytes()).expect("Status has protobuf");
    assert_eq!(Status::from_slice(&body), Status::from_slice(json.as_bytes()));
    assert_eq!(Status::from_slice(&vector("Pod", "zero").protobuf), None);
}

#[test]
fn refuses_broken_and_deep_objects() {
    let scan = |body: &[u8]| RawObject::copy_from(body, &Limits::default());
    let zero = scan(&vector("Pod", "zero").protobuf);
    assert!(matches!(zero, Err(ScanError::Missing { field: "metadata.name" })), "{zero:?}");
    let crd = |depth: usize| {
        let open = r#"{"items":"#.repeat(depth);
        let close = "}".repeat(depth);
        format!(
            r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{{"name":"a","uid":"u","resourceVersion":"1"}},"spec":{{"group":"g","names":{{"plural":"p","kind":"k"}},"scope":"Cluster","versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{open}{{}}{close}}}}}]}},"status":{{}}}}"#
        )
    };
    let body = protobuf::from_json(crd(25).as_bytes()).expect("25 levels are few");
    assert!(
        scan(&body).is_ok_and(|object| object.to_value().to_string().matches(r#""items":"#).count() == 25)
    );
    for depth in [100, 2_000] {
        assert!(protobuf::from_json(crd(depth).as_bytes()).is_err(), "{depth}");
    }
    // The same nesting by hand: each level is a message in field 2 of the one around it.
    let mut deep = Vec::new();
    for _ in 0..10_000 {
        let mut outer = vec![0x0a];
        let mut length = deep.len();
        while length >= 0x80 {
            outer.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.append(&mut deep);
        deep = outer;
    }
    let body = [
        &b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12"[..],
        &[0xff, 0xff, 0x03],
        &deep[..65_535.min(deep.len())],
    ]
    .concat();
    assert!(scan(&body).is_err());
}

/// Changes, drops, repeats or inserts bytes at some places.
fn mutate(bytes: &mut Vec<u8>, changes: &[(u32, u8, u8)]) {
    for &(place, how, byte) in changes {
        let at = place as usize % (bytes.len() + 1);
        match how % 4 {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, byte),
            _ => {
                let copy: Vec<u8> = bytes[at..bytes.len().min(at + 20)].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<(u32, u8, u8)>> {
    proptest::collection::vec(any::<(u32, u8, u8)>(), 0..6)
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Vectors of objects with an identity, so that they are scanned and not only refused.
fn identified() -> &'static [Vec<u8>] {
    static VECTORS: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(|| {
        let all = vectors().into_iter().filter(|vector| vector.is_object() && vector.protobuf.len() < 20_000);
        all.map(|vector| vector.protobuf).collect()
    });
    &VECTORS
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn mutated_objects_have_value_or_error(which in any::<u32>(), changes in changes()) {
        let all = identified();
        let mut bytes = all[which as usize % all.len()].clone();
        mutate(&mut bytes, &changes);
        bodies::protobuf_object(&bytes);
    }

    #[test]
    fn mutated_lists_have_value_or_error(cuts in any::<[u8; 4]>(), changes in changes()) {
        let (mut body, _) = pods();
        mutate(&mut body, &changes);
        bodies::protobuf_list(&[&cuts.map(|cut| cut % 40)[..], &body].concat());
    }

    #[test]
    fn mutated_streams_have_value_or_error(cuts in any::<[u8; 4]>(), changes in changes()) {
        static STREAM: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            let frames = vectors().into_iter().filter(|vector| vector.what.starts_with("watch"));
            frames.flat_map(|frame| frame.protobuf).collect()
        });
        let mut stream = STREAM.clone();
        mutate(&mut stream, &changes);
        bodies::protobuf_frames(&[&cuts.map(|cut| cut % 40)[..], &stream].concat());
    }
}

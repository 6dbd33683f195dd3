//! The properties of `bodies`, on random input: arbitrary bytes, valid JSON, and valid JSON with a few bytes changed.
//!
//! `PROPTEST_CASES=100000 cargo test -p skopos-wire --test properties` runs them for longer.

mod bodies;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use skopos_wire::{
    ContinueToken, FieldRequirement, FieldSelector, FieldSource as _, LabelOperator, LabelRequirement,
    LabelSelector, Limits, RawObject, ResourceVersion,
};

/// Returns few cases by default, so that the whole runs in seconds.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(192);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z]{1,12}", 1 => "\\PC{0,8}", 1 => Just("metadata".to_owned())]
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(name(), inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    let label = ("[a-z./]{1,10}", "[a-z\"\\\\]{0,6}");
    let metadata = (
        "[a-z]{1,12}",
        proptest::option::of("[a-z]{1,8}"),
        "[a-z0-9-]{1,20}",
        any::<u32>(),
        proptest::option::of(btree_map(label.0, label.1, 0..40)),
        proptest::option::of(tree()),
        any::<bool>(),
    )
        .prop_map(|(name, namespace, uid, version, labels, managed, deleted)| {
            let mut metadata = json!({"name": name, "uid": uid, "resourceVersion": version.to_string()});
            if let Some(namespace) = namespace {
                metadata["namespace"] = namespace.into();
            }
            if let Some(labels) = labels {
                metadata["labels"] = json!(labels);
            }
            if let Some(managed) = managed {
                metadata["managedFields"] = managed;
            }
            if deleted {
                metadata["deletionTimestamp"] = "2026-11-20T10:00:00Z".into();
            }
            metadata
        });
    (metadata, tree(), tree(), any::<bool>()).prop_map(|(metadata, spec, status, typed)| {
        let mut object = json!({"metadata": metadata, "spec": spec, "status": status});
        if typed {
            object["kind"] = "Pod".into();
            object["apiVersion"] = "v1".into();
        }
        object
    })
}

/// Returns the text of a tree, plain or indented.
fn text(tree: &Value, indented: bool) -> String {
    if indented { format!("{tree:#}") } else { tree.to_string() }
}

/// Generates the bytes of some JSON with a few bytes changed, removed, inserted or repeated.
fn mutated(json: impl Strategy<Value = Value>) -> impl Strategy<Value = Vec<u8>> {
    let interesting = proptest::sample::select(b"\"\\{}[],: \n\0\xff1eunt-".to_vec());
    let edit = (any::<prop::sample::Index>(), 0..4, interesting);
    (json, any::<bool>(), vec(edit, 0..4)).prop_map(|(json, indented, edits)| {
        let mut bytes = text(&json, indented).into_bytes();
        for (at, kind, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => {
                    // Repeats the following bytes, which makes duplicate members.
                    let copy: Vec<u8> = bytes[at..bytes.len().min(at + 20)].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        bytes
    })
}

fn list() -> impl Strategy<Value = Value> {
    (vec(object(), 0..4), any::<u32>(), proptest::option::of("[a-z]{0,8}")).prop_map(|(items, version, token)| {
        let mut list = json!({"kind": "PodList", "metadata": {"resourceVersion": version.to_string()}, "items": items});
        if let Some(token) = token {
            list["metadata"]["continue"] = token.into();
        }
        list
    })
}

fn event() -> impl Strategy<Value = Value> {
    let kind = proptest::sample::select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"]);
    (kind, prop_oneof![object(), tree()]).prop_map(|(kind, object)| json!({"type": kind, "object": object}))
}

/// Generates four bytes of chunk sizes, and then the rest.
fn with_cuts(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (any::<[u8; 4]>(), bytes).prop_map(|(cuts, bytes)| {
        let small = cuts.map(|cut| cut % 40);
        [&small[..], &bytes].concat()
    })
}

/// Generates a selector's text: mostly pieces of the grammar in any order.
fn selector_text() -> impl Strategy<Value = String> {
    let pieces = proptest::sample::select(vec![
        "a", "b", "app", "web", "in", "notin", "x.io/a", "1", "=", "==", "!=", "!", ">", "<", "(", ")", ",",
        " ", "\t", "\\", "\\,", "\\=", "-", "\u{0}", "é",
    ]);
    prop_oneof![4 => vec(pieces, 0..12).prop_map(|pieces| pieces.concat()), 1 => any::<String>()]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn objects(bytes in prop_oneof![vec(any::<u8>(), 0..64), mutated(object()), mutated(tree())]) {
        bodies::object(&bytes);
        bodies::transformed(&bytes);
    }

    #[test]
    fn fields_equal_those_of_parsed_tree(tree in object(), indented in any::<bool>()) {
        let object = RawObject::copy_from(text(&tree, indented).as_bytes(), &Limits::default()).unwrap();
        for path in paths(&tree) {
            prop_assert_eq!(object.field(&path), tree.field(&path).map(|text| text.into_owned()), "{}", path);
        }
    }

    #[test]
    fn lists(bytes in with_cuts(prop_oneof![vec(any::<u8>(), 0..64), mutated(list())])) {
        bodies::list(&bytes);
    }

    #[test]
    fn streams(bytes in with_cuts(prop_oneof![
        vec(any::<u8>(), 0..64),
        (vec(mutated(event()), 0..4), any::<bool>()).prop_map(|(frames, lines)| frames.join(&b"\n"[..usize::from(lines)])),
    ])) {
        bodies::frames(&bytes);
    }

    #[test]
    fn valid_frame_streams_round_trip(
        frames in vec((event(), any::<bool>()), 0..5), newline in any::<bool>(), cuts in any::<[u8; 4]>(),
    ) {
        let frames: Vec<String> = frames.iter().map(|(frame, indented)| text(frame, *indented)).collect();
        let stream = frames.join(if newline { "\n" } else { "" });
        let mut splitter = skopos_wire::FrameSplitter::new(Limits::default());
        let mut out = Vec::new();
        let mut rest = stream.as_bytes();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, tail) = rest.split_at(usize::from(*cut).clamp(1, rest.len()));
            splitter.push(bytes::Bytes::copy_from_slice(chunk));
            while let Some(frame) = splitter.next_frame().unwrap() {
                out.push(String::from_utf8(frame.to_vec()).unwrap());
            }
            rest = tail;
        }
        prop_assert_eq!(splitter.finish(), Ok(()));
        prop_assert_eq!(out, frames);
    }

    #[test]
    fn events(bytes in prop_oneof![vec(any::<u8>(), 0..64), mutated(event())]) {
        bodies::event(&bytes);
    }

    #[test]
    fn label_selectors(text in selector_text()) {
        bodies::label_selector(&text);
    }

    #[test]
    fn label_selectors_round_trip(requirements in vec(("[a-z]{1,6}", 0..9usize, vec("[a-z0-9]{1,4}", 1..4)), 0..5)) {
        use LabelOperator::*;
        let operators = [In, NotIn, Equals, DoubleEquals, NotEquals, Exists, DoesNotExist, GreaterThan, LessThan];
        let selector: LabelSelector = requirements
            .into_iter()
            .filter_map(|(key, operator, mut values)| {
                let operator = operators[operator];
                match operator {
                    In | NotIn => {}
                    Exists | DoesNotExist => values.clear(),
                    _ => values.truncate(1),
                }
                LabelRequirement::new(key, operator, values).ok()
            })
            .collect();
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn field_selectors(text in selector_text()) {
        bodies::field_selector(&text);
    }

    #[test]
    fn field_selectors_round_trip(field in "[a-z.]{1,10}", equal in any::<bool>(), value in any::<String>()) {
        let requirement = FieldRequirement::new(field, equal, value).unwrap();
        let selector = FieldSelector::parse(&requirement.to_string()).unwrap();
        prop_assert_eq!(selector.requirements(), &[requirement]);
    }

    #[test]
    fn tokens(text in any::<String>(), version in any::<i64>(), key in "([a-z]{1,5}/)?[a-z\u{0}]{1,8}") {
        bodies::token(&text);
        let token = ContinueToken::new(version, key);
        let decoded = ContinueToken::decode(&token.encode());
        if version == 0 {
            prop_assert!(decoded.is_err());
        } else {
            prop_assert_eq!(decoded, Ok(token));
        }
    }

    #[test]
    fn versions(text in prop_oneof!["[0-9]{0,24} [0-9]{0,24}", "\\PC{0,12}"]) {
        bodies::resource_version(&text);
    }

    #[test]
    fn tokens_of_any_json(start in "[a-z./\u{0}]{0,8}", version in -2i64..3, v in prop_oneof!["meta.k8s.io/v1", "[a-z]{0,4}"]) {
        bodies::token(&json!({"v": v, "rv": version, "start": start}).to_string());
    }

    #[test]
    fn versions_compare_as_big_integers(a in "0|[1-9][0-9]{0,30}", b in "0|[1-9][0-9]{0,30}") {
        let (x, y): (ResourceVersion, ResourceVersion) = (a.parse().unwrap(), b.parse().unwrap());
        // Up to 31 digits fit into 128 bits.
        let (m, n): (u128, u128) = (a.parse().unwrap(), b.parse().unwrap());
        prop_assert_eq!(x.cmp(&y), m.cmp(&n));
        prop_assert_eq!(x == y, m == n);
        prop_assert_eq!(x.to_string(), a);
        prop_assert_eq!(x.as_u64(), u64::try_from(m).ok());
    }
}

/// Returns the paths of all fields whose texts a tree shows as the JSON does, and of some absent ones.
fn paths(tree: &Value) -> Vec<String> {
    let mut paths = vec!["metadata.none".to_owned(), "spec.a.b".to_owned()];
    let mut open = vec![(String::new(), tree)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                open.extend(members.iter().filter(|(key, _)| !key.contains('.')).map(|(key, value)| {
                    (if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value)
                }))
            }
            _ => paths.push(path),
        }
    }
    paths
}

/// Replays the fuzzer's saved inputs.
#[test]
fn replays_wire_fuzz_seeds() {
    type Body = Box<dyn Fn(&[u8])>;
    fn text(read: fn(&str)) -> impl Fn(&[u8]) {
        move |bytes| std::str::from_utf8(bytes).map_or((), read)
    }
    let targets: [(&str, Body); 9] = [
        ("object", Box::new(bodies::object)),
        ("list", Box::new(bodies::list)),
        ("frames", Box::new(bodies::frames)),
        ("event", Box::new(bodies::event)),
        ("transform", Box::new(bodies::transformed)),
        ("label_selector", Box::new(text(bodies::label_selector))),
        ("field_selector", Box::new(text(bodies::field_selector))),
        ("token", Box::new(text(bodies::token))),
        ("resource_version", Box::new(text(bodies::resource_version))),
    ];
    for (target, body) in targets {
        let seeds = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
        // A published crate comes without them.
        let Ok(seeds) = std::fs::read_dir(seeds) else { continue };
        for seed in seeds {
            body(&std::fs::read(seed.unwrap().path()).unwrap());
        }
    }
}

use super::*;

fn scan(json: &str) -> Result<RawObject, ScanError> {
    RawObject::copy_from(json.as_bytes(), &Limits::default())
}

fn with_metadata(metadata: &str) -> Result<RawObject, ScanError> {
    scan(&format!(r#"{{"metadata":{{{metadata}}}}}"#))
}

const ID: &str = r#""name":"a","uid":"u","resourceVersion":"1""#;

#[test]
fn finds_fields_in_any_order() {
    let object = scan(
        r#" { "spec" : {"metadata":{"name":"inner","uid":"x"},"replicas":3,"paused":true,"none":null,"list":[1]},
            "metadata":{"managedFields":[{"name":"no"}],"labels":{"b":"2","a":"1"},"annotations":{"note":"a\nb"},
            "generation":4,"ownerReferences":[{"name":"rs","uid":"y"}],"resourceVersion":"99999999999999999999",
            "uid":"7d1e","namespace":"shop","name":"web-1","deletionTimestamp":"2026-11-20T10:00:00Z"},
            "apiVersion":"v1","kind":"Pod"} "#,
    )
    .unwrap();
    assert_eq!(object.key(), &ObjectKey::namespaced("shop", "web-1"));
    assert_eq!((object.namespace(), object.name(), object.uid()), (Some("shop"), "web-1", "7d1e"));
    assert_eq!(object.resource_version().to_string(), "99999999999999999999");
    assert_eq!(object.labels().collect::<Vec<_>>(), [("b", "2"), ("a", "1")]);
    assert_eq!((object.label("a"), object.label("c")), (Some("1"), None));
    assert_eq!(object.annotation("note").as_deref(), Some("a\nb"));
    assert_eq!(object.generation(), Some(4));
    assert_eq!(object.deletion_timestamp(), Some("2026-11-20T10:00:00Z"));
    assert_eq!((object.api_version(), object.kind()), (Some("v1"), Some("Pod")));
    let field = |path| object.field(path);
    assert_eq!(field("metadata.name").as_deref(), Some("web-1"));
    assert_eq!(field("spec.replicas").as_deref(), Some("3"));
    assert_eq!(field("spec.paused").as_deref(), Some("true"));
    for absent in ["spec.none", "spec.list", "spec", "spec.replicas.x", "status.phase", "", ".", "metadata.x"]
    {
        assert_eq!(field(absent), None, "{absent}");
    }
}

#[test]
fn reads_escapes_duplicate_labels_and_nulls() {
    let object = scan(
        r#"{"k\u0069nd":"P\u006fd","apiVersion":null,"metadata":{"n\u0061me":"\u0061","uid":"\u0075","resourceVersion":"\u0031",
            "namespace":"","deletionTimestamp":null,"labels":{"a":"1","\u0061":"2","b":"\""}}}"#,
    )
    .unwrap();
    assert_eq!(object.key(), &ObjectKey::cluster("a"));
    assert_eq!((object.uid(), object.kind(), object.api_version()), ("u", Some("Pod"), None));
    assert_eq!(object.resource_version().as_u64(), Some(1));
    assert_eq!(object.deletion_timestamp(), None);
    assert_eq!(object.labels().collect::<Vec<_>>(), [("a", "2"), ("b", "\"")]);
    let object = scan(&format!(r#"{{"kind":"P\u006fd","metadata":{{{ID}}}}}"#)).unwrap();
    assert_eq!((object.kind(), object.uid()), (Some("Pod"), "u"));
    let object = with_metadata(&format!(r#"{ID},"labels":{{"a":"1","b":"2","a":"3"}}"#)).unwrap();
    assert_eq!(object.labels().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
    assert_eq!(with_metadata(&format!(r#"{ID},"labels":null"#)).unwrap().labels().count(), 0);
}

#[test]
fn refuses_with_a_typed_error() {
    use ScanError::*;
    type Check = fn(&ScanError) -> bool;
    let cases: &[(&str, Check)] = &[
        (r#""uid":"u","resourceVersion":"1""#, |e| matches!(e, Missing { field: "metadata.name" })),
        (r#""name":"","uid":"u","resourceVersion":"1""#, |e| matches!(e, Missing { field: "metadata.name" })),
        (r#""name":"a","resourceVersion":"1""#, |e| matches!(e, Missing { field: "metadata.uid" })),
        (r#""name":"a","uid":"u""#, |e| matches!(e, Missing { field: "metadata.resourceVersion" })),
        (r#""name":"a","uid":"u","resourceVersion":"0x1""#, |e| matches!(e, InvalidResourceVersion(_))),
        (r#""name":"a","uid":"u","resourceVersion":1"#, |e| matches!(e, WrongType { .. })),
        (r#""name":"a/b","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
        (r#""name":"a\u0000b","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
        (r#""name":"..","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
        (r#""name":"a","namespace":"../x","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
        (r#""name":"a","name":"b","uid":"u","resourceVersion":"1""#, |e| matches!(e, Duplicate { .. })),
        (r#""name":"a","n\u0061me":"b","uid":"u","resourceVersion":"1""#, |e| matches!(e, Duplicate { .. })),
        (r#""name":"\ud800","uid":"u","resourceVersion":"1""#, |e| matches!(e, WrongType { .. })),
        (r#""name":"a","uid":"u","resourceVersion":"1","labels":{"a":1}"#, |e| matches!(e, WrongType { .. })),
        (r#""name":"a","uid":"u","resourceVersion":"1","labels":[]"#, |e| matches!(e, WrongType { .. })),
        (r#""name":"a","uid":"u","resourceVersion":"1","x":[1,]"#, |e| matches!(e, Syntax(_))),
    ];
    for (metadata, check) in cases {
        let error = with_metadata(metadata).expect_err(metadata);
        assert!(check(&error), "{metadata}: {error:?}");
    }
    let object = format!(r#"{{"metadata":{{{ID}}}}}"#);
    assert!(matches!(scan(&format!("{object} x")), Err(Syntax(_))));
    assert!(matches!(scan(&object[..object.len() - 1]), Err(Syntax(_))));
    assert!(matches!(scan("{}"), Err(Missing { field: "metadata" })));
    assert!(matches!(scan(r#"{"metadata":[]}"#), Err(WrongType { .. })));
    assert!(matches!(scan(r#"{"metadata":{},"metadata":{}}"#), Err(Duplicate { .. })));
    assert!(matches!(scan(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#), Err(Table)));
    let latin1 = [object.as_bytes(), b"\xe9"].concat();
    let at = object.len();
    assert!(
        matches!(RawObject::copy_from(&latin1, &Limits::default()), Err(InvalidUtf8 { offset }) if offset == at)
    );
}

#[test]
fn caps_every_size() {
    use ScanError::*;
    let scan = |json: &str, limits: Limits| RawObject::copy_from(json.as_bytes(), &limits).map(drop);
    let object = |more: &str| format!(r#"{{"metadata":{{{ID}{more}}}}}"#);
    let limits = Limits { max_object_bytes: 10, ..Limits::default() };
    assert!(matches!(scan(&object(""), limits), Err(TooLarge { limit: 10, .. })));
    let limits = Limits { max_name_bytes: 3, ..Limits::default() };
    assert!(scan(&object(r#","namespace":"abc""#), limits.clone()).is_ok());
    assert!(matches!(scan(&object(r#","namespace":"abcd""#), limits), Err(TooLong { limit: 3, .. })));
    let limits = Limits { max_labels: 1, ..Limits::default() };
    assert!(scan(&object(r#","labels":{"a":""}"#), limits.clone()).is_ok());
    assert!(matches!(scan(&object(r#","labels":{"a":"","b":""}"#), limits), Err(TooManyLabels { limit: 1 })));
    let deep = object(&format!(r#","x":{}{}"#, "[".repeat(100_000), "]".repeat(100_000)));
    assert!(matches!(scan(&deep, Limits::default()), Err(TooDeep { .. })));
}

#[test]
fn identifies_broken_objects() {
    let whole = r#"{"kind":"X","spec":{"template":{"metadata":{"name":"no","labels":{}}}},"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"},"status":{}}"#;
    let expected = Identity { key: Some(ObjectKey::namespaced("n", "a")), resource_version: Some(5.into()) };
    assert_eq!(RawObject::identify(whole.as_bytes()), expected);
    // Truncated after the metadata, and garbage before it.
    assert_eq!(RawObject::identify(&whole.as_bytes()[..whole.len() - 14]), expected);
    let garbage = whole.replace(r#"{"kind":"X""#, r#"{"type":"ADDED","object":{"kind":"\q""#);
    assert_eq!(RawObject::identify(garbage.as_bytes()), expected);
    let latin1 = [&b"{\"a\":\"\xe9\","[..], &whole.as_bytes()[1..]].concat();
    assert_eq!(RawObject::identify(&latin1), expected);
    // In alphabetical order, as custom resources are written.
    let labels =
        r#"{"metadata":{"labels":{"a":7},"name":"a","namespace":"n","resourceVersion":"5","uid":"u"}}"#;
    assert_eq!(RawObject::identify(labels.as_bytes()), expected);
    for nothing in
        ["", "{", "nonsense", r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a/b","uid":"u"}}"#]
    {
        assert_eq!(RawObject::identify(nothing.as_bytes()), Identity::default(), "{nothing}");
    }
}

#[test]
fn escaped_keys_equal_plain_ones() {
    let plain = format!(
        r#"{ID},"namespace":"n","deletionTimestamp":"2026-11-20T10:00:00Z","labels":{{"a":"b"}},"other":[1]"#
    );
    // Each key of the metadata, with its first letter as an escape.
    let escaped = ["name", "uid", "resourceVersion", "namespace", "deletionTimestamp", "labels", "other"]
        .iter()
        .fold(plain.clone(), |json, key| {
            let code = format!(r#""\u{:04x}{}":"#, key.as_bytes()[0], &key[1..]);
            json.replacen(&format!("\"{key}\":"), &code, 1)
        });
    assert_eq!(escaped.matches("\\u00").count(), 7);
    let (plain, escaped) = (with_metadata(&plain).unwrap(), with_metadata(&escaped).unwrap());
    assert_eq!((escaped.key(), escaped.uid()), (plain.key(), plain.uid()));
    assert_eq!(escaped.resource_version(), plain.resource_version());
    assert_eq!(escaped.deletion_timestamp(), Some("2026-11-20T10:00:00Z"));
    assert_eq!(escaped.label("a"), Some("b"));
}

#[test]
fn a_broken_object_is_named_by_its_own_metadata() {
    // A nested object comes first, and invalid labels come before the name.
    let inner = r#"{"metadata":{"name":"inner","uid":"v","resourceVersion":"1"}}"#;
    let own = r#""metadata":{"labels":{"a":7},"name":"a","uid":"u","resourceVersion":"5"}"#;
    let key_of = |json: String| RawObject::identify(json.as_bytes()).key;
    assert_eq!(key_of(format!(r#"{{"data":{inner},{own}}}"#)), Some(ObjectKey::cluster("a")));
    assert_eq!(key_of(format!(r#"{{"broken":tru,{own}}}"#)), Some(ObjectKey::cluster("a")));
}

#[test]
fn uid_or_version_separates_object_from_template() {
    let identity =
        |more: &str| RawObject::identify(format!(r#"{{"metadata":{{"name":"a"{more}}}}}"#).as_bytes());
    let key = Some(ObjectKey::cluster("a"));
    assert_eq!(identity(""), Identity::default());
    assert_eq!(identity(r#","uid":"u""#), Identity { key: key.clone(), resource_version: None });
    let version = Identity { key, resource_version: Some(5.into()) };
    assert_eq!(identity(r#","resourceVersion":"5""#), version);
}

#[test]
fn content_equality_ignores_leading_type_meta() {
    let object = |types: &str, version: u32, rest: &str| {
        scan(&format!(
            r#"{{{types}"metadata":{{"name":"a","uid":"u","resourceVersion":"{version}"}},"spec":{{{rest}}}}}"#
        ))
        .unwrap()
    };
    let both = r#""kind":"Pod","apiVersion":"v1","#;
    let listed = object("", 1, "");
    for types in ["", r#""kind":"Pod","#, r#""apiVersion":"v1","#, both, r#""apiVersion":"v1","kind":"Pod","#]
    {
        let told = object(types, 1, "");
        assert!(listed.is_same_content(&told) && told.is_same_content(&listed), "{types}");
        assert_eq!(listed == told, types.is_empty(), "equal are only the very bytes");
    }
    assert!(listed.is_same_content(&listed.clone()));
    for other in [
        object("", 2, ""),
        object(both, 2, ""),
        object("", 1, r#""x":1"#),
        object(both, 1, r#""x":1"#),
        // More members than the types, and extra text as long as the types.
        object(r#""data":{},"#, 1, ""),
        object(r#""kind":"Pod","data":{},"#, 1, ""),
        scan(r#"{"metadata":{"name":"a","uid":"v","resourceVersion":"1"},"spec":{}}"#).unwrap(),
    ] {
        assert!(!listed.is_same_content(&other) && !other.is_same_content(&listed), "{other:?}");
    }
}

#[test]
fn rejects_only_tables_of_meta_group() {
    let of = |kind: &str, api_version: &str| {
        scan(&format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{{ID}}}}}"#)).map(drop)
    };
    assert_eq!(of("Table", "meta.k8s.io/v1"), Err(ScanError::Table));
    assert_eq!(of("Table", "meta.k8s.io/v1beta1"), Err(ScanError::Table));
    assert_eq!(of("Table", "furniture.example.com/v1"), Ok(()));
    assert_eq!(of("PartialObjectMetadata", "meta.k8s.io/v1"), Ok(()));
}

#[test]
fn an_empty_namespace_is_none() {
    let object = with_metadata(&format!(r#"{ID},"namespace":"""#)).unwrap();
    assert_eq!((object.namespace(), object.field("metadata.namespace")), (None, None));
}

#[test]
fn known_fields_are_not_parsed_again() {
    let json = br#"{"a":nonsense,"b":1}"#;
    let known = br#"{"a":"#.len()..br#"{"a":nonsense"#.len();
    let finds = |key: &str, known| super::lookup::enter(&mut Cursor::new(json, 8), key, known);
    assert!(finds("b", Some(known.clone())) && !finds("b", None));
    assert!(!finds("c", Some(known)));
}

#[test]
fn costs_its_json_and_little_more() {
    assert_eq!(size_of::<RawObject>(), 8);
    let object = with_metadata(&format!(r#"{ID},"namespace":"shop""#)).unwrap();
    assert!(size_of::<Inner>() <= 144, "{}", size_of::<Inner>());
    // The object and its key are shared, which takes two counters each.
    let counters = 4 * size_of::<usize>();
    let parts = size_of::<Inner>() + object.key().sort_bytes().len() + object.content().len();
    assert_eq!(object.memory_bytes(), parts + counters);
    // No extra memory if nothing has escapes.
    let whole =
        scan(&format!(r#"{{"kind":"K","apiVersion":"v1","metadata":{{{ID},"labels":{{"a":"b"}}}}}}"#));
    assert!(whole.unwrap().0.unescaped.is_none());
}

#[test]
fn decodes_into_types_and_reports_mismatch() {
    #[derive(serde::Deserialize)]
    struct Typed {
        metadata: std::collections::BTreeMap<String, String>,
    }
    let object = with_metadata(ID).unwrap();
    assert_eq!(object.decode::<Typed>().unwrap().metadata["uid"], "u");
    assert_eq!(object.to_value()["metadata"]["name"], "a");
    let error = object.decode::<Vec<u8>>().unwrap_err();
    assert!(error.to_string().starts_with("a cannot be decoded into alloc::vec::Vec<u8>: "), "{error}");
}

#[test]
fn object_bytes_exclude_surrounding_whitespace() {
    let json = format!("{{\"metadata\":{{{ID}}}}}");
    let answer = Bytes::from(format!(" {json}\n"));
    for object in
        [RawObject::scan(answer.clone(), &Limits::default()), scan(&String::from_utf8_lossy(&answer))]
    {
        let object = object.unwrap();
        assert_eq!((object.content().as_ref(), object.uid()), (json.as_bytes(), "u"));
    }
}

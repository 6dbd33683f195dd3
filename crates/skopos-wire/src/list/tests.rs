use super::*;

fn split(body: &str, chunk: usize) -> Result<(Vec<String>, ListBody), ListError> {
    let mut splitter = ListSplitter::new(Limits { max_object_bytes: 64, max_depth: 6, ..Limits::default() });
    let mut items = Vec::new();
    for chunk in body.as_bytes().chunks(chunk) {
        splitter.push(chunk, &mut |item| items.push(String::from_utf8(item.to_vec()).unwrap()))?;
    }
    Ok((items, splitter.finish()?))
}

fn meta(body: ListBody) -> ListMeta {
    match body {
        ListBody::List(meta) => meta,
        other => panic!("{other:?}"),
    }
}

#[test]
fn splits_list_with_any_field_order_and_chunks() {
    let bodies = [
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"c","remainingItemCount":3},"items":[{"a":"]}\"{"},{"b":[{}]}]}"#,
        r#" { "items" : [ {"a":"]}\"{"} , {"b":[{}]} ] , "x":[1,{"y":"}"}],"n":-1.5e3,"t":true,"metadata":{"continue":"c","remainingItemCount":3,"resourceVersion":"9"},"apiVersion":"v1","kind":"PodList"}
"#,
        r#"{"it\u0065ms":[{"a":"]}\"{"},{"b":[{}]}],"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"c","remainingItemCount":3}}"#,
    ];
    for body in bodies {
        for chunk in 1..=body.len() {
            let (items, body) = split(body, chunk).unwrap();
            assert_eq!(items, [r#"{"a":"]}\"{"}"#, r#"{"b":[{}]}"#]);
            let meta = meta(body);
            assert_eq!(meta.resource_version, ResourceVersion::from(9));
            assert_eq!(meta.continue_token.as_deref(), Some("c"));
            assert_eq!(meta.remaining_item_count, Some(3));
            assert_eq!((meta.kind.as_str(), meta.api_version.as_str()), ("PodList", "v1"));
        }
    }
}

/// A receiver that counts items read in a single pass; it accepts none that were delimited first.
struct Whole(usize);

impl Items for Whole {
    fn whole(&mut self, text: &[u8], limits: &Limits) -> Option<usize> {
        let len = Scan(|item: Result<RawObject, BrokenItem>| drop(item.unwrap())).whole(text, limits)?;
        self.0 += 1;
        Some(len)
    }

    fn split(&mut self, item: Bytes, _: &Limits) {
        panic!("looked at again: {item:?}");
    }

    fn message(&mut self, _: &'static Kind, _: &[u8], _: &Limits) {
        unreachable!("the body is JSON");
    }
}

#[test]
fn an_item_that_comes_whole_is_looked_at_once() {
    let item = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#;
    let mut whole = Whole(0);
    let mut splitter = ListSplitter::new(Limits::default());
    splitter.take(format!(r#"{{"items":[{item}, {item} ,{item}]"#).as_bytes(), &mut whole).unwrap();
    assert_eq!((whole.0, splitter.items()), (3, 3));
}

#[test]
fn an_object_inside_of_an_item_is_no_item() {
    let inner = r#"{"metadata":{"name":"inner","uid":"v","resourceVersion":"2"}}"#;
    let body = format!(
        r#"{{"items":[{{"data":{inner},"metadata":{{"name":"outer","uid":"u","resourceVersion":"1"}}}}]}}"#
    );
    for at in 0..=body.len() {
        let (one, other) = body.as_bytes().split_at(at);
        let mut splitter = ListSplitter::new(Limits::default());
        let mut names = Vec::new();
        for chunk in [one, other] {
            splitter.push_and_scan(chunk, &mut |item| names.push(item.unwrap().name().to_owned())).unwrap();
        }
        assert_eq!(names, ["outer"], "cut at {at}");
    }
}

#[test]
fn an_empty_list_may_be_null() {
    for items in ["[]", "null", " [ ] "] {
        let body = format!(r#"{{"items":{items},"metadata":{{"resourceVersion":"1","continue":""}}}}"#);
        for chunk in 1..=body.len() {
            let (items, body) = split(&body, chunk).unwrap();
            assert!(items.is_empty());
            assert_eq!(meta(body).continue_token, None);
        }
    }
}

#[test]
fn tells_a_status() {
    let body = serde_json::to_string(&Status::list_expired()).unwrap();
    let (_, status) = split(&body, 7).unwrap();
    assert!(matches!(status, ListBody::Status(status) if status.is_expired()));
}

#[test]
fn rejects_malformed_lists() {
    use ListError::*;
    type Check = fn(&ListError) -> bool;
    let cases: &[(&str, Check)] = &[
        ("", |e| matches!(e, Truncated { .. })),
        ("[]", |e| matches!(e, Syntax(_))),
        ("<html>", |e| matches!(e, Syntax(_))),
        (r#"{"kind":"Pod","metadata":{}}"#, |e| matches!(e, NotAList { .. })),
        (r#"{"items":[{"a":1}"#, |e| matches!(e, Truncated { items: 1, .. })),
        (r#"{"items":[{"a":1},]}"#, |e| matches!(e, Syntax(_))),
        (r#"{"items":[1]}"#, |e| matches!(e, Syntax(_))),
        (r#"{"items":{}}"#, |e| matches!(e, Syntax(_))),
        (r#"{"items":nil}"#, |e| matches!(e, Envelope(_))),
        (r#"{"items":[],"items":[]}"#, |e| matches!(e, Duplicate("items"))),
        (r#"{"items":[]}"#, |e| matches!(e, InvalidResourceVersion(_))),
        (r#"{"items":[],"metadata":{"resourceVersion":"x"}}"#, |e| matches!(e, InvalidResourceVersion(_))),
        (r#"{"items":[],"metadata":{"resourceVersion":7}}"#, |e| matches!(e, Envelope(_))),
        (r#"{"items":[]} x"#, |e| matches!(e, Syntax(_))),
        (r#"{"items":[{"a":[[[[[[1]]]]]]}]}"#, |e| matches!(e, TooDeep { .. })),
        (r#"{"items":[{"a":"a string that is longer than sixty-four bytes, which is the limit"}]}"#, |e| {
            matches!(e, ItemTooLarge { index: 0, limit: 64 })
        }),
        (r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":[]}"#, |e| matches!(e, Table)),
        (r#"{"a":1 "b":2}"#, |e| matches!(e, Syntax(_))),
        (r#"{"a":,}"#, |e| matches!(e, Syntax(_))),
        (r#"{,}"#, |e| matches!(e, Syntax(_))),
        (r#"{"a" 1}"#, |e| matches!(e, Syntax(_))),
    ];
    for (body, check) in cases {
        for chunk in [1, 3, 1000] {
            let error = split(body, chunk).expect_err(body);
            assert!(check(&error), "{body}: {error:?}");
        }
    }
}

#[test]
fn caps_envelope_size_and_item_count() {
    let limits = Limits { max_envelope_bytes: 100, max_list_items: 2, ..Limits::default() };
    let mut splitter = ListSplitter::new(limits.clone());
    let error = splitter.push(&[b"{\"a\":\"".as_slice(), &[b'x'; 200]].concat(), &mut drop).unwrap_err();
    assert_eq!(error, ListError::EnvelopeTooLarge { limit: 100 });
    assert_eq!(splitter.push(b"", &mut drop), Err(error.clone()));
    assert_eq!(splitter.finish(), Err(error));

    let mut splitter = ListSplitter::new(limits);
    let error = splitter.push(br#"{"items":[{},{},{}]}"#, &mut drop).unwrap_err();
    assert_eq!(error, ListError::TooManyItems { limit: 2 });
}

/// Reproduces a finding of the fuzz target `list`: a chunk that began with a bracket, inside an invalid value, was
/// mistaken for a new value.
#[test]
fn splits_garbage_alike_at_any_chunk_size() {
    let body = br#"{"a":x{"b":1},"items":[{"c":2}]}"#;
    let split = |size: usize| {
        let mut splitter = ListSplitter::new(Limits::default());
        let mut items = Vec::new();
        let failed =
            body.chunks(size).any(|chunk| splitter.push(chunk, &mut |item| items.push(item)).is_err());
        (items, failed, splitter.finish().is_err())
    };
    for size in 1..body.len() {
        assert_eq!(split(size), split(body.len()), "in chunks of {size}");
    }
}

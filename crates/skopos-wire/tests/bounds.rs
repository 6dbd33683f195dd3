//! Tests of limits, counts and offsets, to the byte: each limit is exact, and each offset points at the error.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use bytes::Bytes;
use skopos_wire::{
    FrameError, FrameSplitter, Limits, ListBody, ListError, ListSplitter, ObjectKey, RawObject, WatchEvent,
};

const POD: &str = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"}}"#;

#[test]
fn list_counts_items_and_held_bytes() {
    let mut splitter = ListSplitter::new(Limits::default());
    let mut drop = |_| {};
    splitter.push(br#"{"a":"b","items":[{"c":1},{"d":2},{"e""#, &mut drop).unwrap();
    assert_eq!(splitter.items(), 2);
    let envelope = r#"{"a":"b","items":[]"#.len();
    assert_eq!(splitter.held_bytes(), envelope + r#"{"e""#.len());
    splitter.push(b":3}]", &mut drop).unwrap();
    assert_eq!((splitter.items(), splitter.held_bytes()), (3, envelope));
}

#[test]
fn items_are_capped_whether_split_or_scanned() {
    type Take = fn(&mut ListSplitter, &[u8]) -> Result<(), ListError>;
    let split: Take = |splitter, chunk| splitter.push(chunk, &mut |_| {});
    let scan: Take = |splitter, chunk| splitter.push_and_scan(chunk, &mut |item| drop(item.unwrap()));
    let body = format!(r#"{{"items":[{POD},{POD},{POD}"#);
    for (take, size) in [split, scan].into_iter().flat_map(|take| [1, 10, 1000].map(|size| (take, size))) {
        let count = |limit: usize| {
            let mut splitter = ListSplitter::new(Limits { max_list_items: limit, ..Limits::default() });
            let taken = body.as_bytes().chunks(size).try_for_each(|chunk| take(&mut splitter, chunk));
            (taken, splitter.items())
        };
        assert_eq!(count(3), (Ok(()), 3), "in chunks of {size}");
        assert_eq!(count(2), (Err(ListError::TooManyItems { limit: 2 }), 2), "in chunks of {size}");
    }
}

#[test]
fn a_list_says_where_it_is_wrong() {
    let limits = Limits { max_depth: 3, ..Limits::default() };
    let cases = [
        // A separator; an item; a value of the envelope; an invalid value of a key.
        (r#"{"items":[{}x"#, "x"),
        (r#"{"items":[{"a":1},{"a":[[["#, ""),
        (r#"{"metadata":{"a":[[["#, ""),
        (r#"{"items":[], "b" :]"#, "]"),
    ];
    for (body, wrong) in cases {
        let at = body.len() - 1;
        assert!(wrong.is_empty() || body.ends_with(wrong));
        for size in 1..=body.len() {
            let mut splitter = ListSplitter::new(limits.clone());
            let error =
                body.as_bytes().chunks(size).find_map(|chunk| splitter.push(chunk, &mut |_| {}).err());
            match error {
                Some(ListError::Syntax(error)) => assert_eq!(error.offset, at, "{body} in chunks of {size}"),
                Some(ListError::TooDeep { offset }) => assert_eq!(offset, at, "{body} in chunks of {size}"),
                other => panic!("{body} in chunks of {size}: {other:?}"),
            }
        }
    }
}

#[test]
fn list_limits_are_exact() {
    let body = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"kind":null,"items":[{POD}]}}"#);
    let envelope = body.len() - POD.len();
    let split = |limits: &Limits, size: usize| {
        let mut splitter = ListSplitter::new(limits.clone());
        for chunk in body.as_bytes().chunks(size) {
            splitter.push(chunk, &mut |_| {})?;
        }
        splitter.finish()
    };
    let fits = Limits { max_object_bytes: POD.len(), max_envelope_bytes: envelope, ..Limits::default() };
    let item = Limits { max_object_bytes: POD.len() - 1, ..fits.clone() };
    let around = Limits { max_envelope_bytes: envelope - 1, ..fits.clone() };
    for size in [1, 2, 7, 64, 1000] {
        assert!(matches!(split(&fits, size), Ok(ListBody::List(_))), "in chunks of {size}");
        let limit = POD.len() - 1;
        assert_eq!(split(&item, size), Err(ListError::ItemTooLarge { index: 0, limit }));
        assert_eq!(split(&around, size), Err(ListError::EnvelopeTooLarge { limit: envelope - 1 }));
    }
}

#[test]
fn frame_and_object_limits_are_exact() {
    let frame = format!(r#"{{"type":"ADDED","object":{POD}}}"#);
    let fits = Limits { max_object_bytes: POD.len(), max_frame_bytes: frame.len(), ..Limits::default() };
    let event = WatchEvent::parse_slice(frame.as_bytes(), &fits).unwrap();
    assert_eq!(event.object().unwrap().content(), POD);
    assert_eq!(event.resource_version(), Some(&5.into()));
    let small = Limits { max_object_bytes: POD.len() - 1, ..fits.clone() };
    WatchEvent::parse_slice(frame.as_bytes(), &small).unwrap_err();
    RawObject::copy_from(POD.as_bytes(), &fits).unwrap();
    RawObject::copy_from(POD.as_bytes(), &small).unwrap_err();

    let take = |limits: &Limits, size: usize| {
        let mut splitter = FrameSplitter::new(limits.clone());
        let mut frames = Vec::new();
        for chunk in frame.as_bytes().chunks(size) {
            splitter.push(Bytes::copy_from_slice(chunk));
            frames.extend(splitter.next_frame()?);
        }
        splitter.finish().map(|()| frames)
    };
    let limit = frame.len() - 1;
    let narrow = Limits { max_frame_bytes: limit, ..fits.clone() };
    for size in [1, 10, 1000] {
        assert_eq!(take(&fits, size).unwrap(), [frame.as_bytes()]);
        let error = take(&narrow, size).unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { limit: own, .. } if own == limit), "{error:?}");
    }
}

#[test]
fn frame_splitter_reports_held_bytes() {
    let mut splitter = FrameSplitter::new(Limits::default());
    splitter.push(Bytes::from_static(b"{} {\"a\":"));
    assert_eq!(splitter.held_bytes(), 0, "not looked at yet");
    assert_eq!(splitter.next_frame(), Ok(Some(Bytes::from_static(b"{}"))));
    assert_eq!(splitter.next_frame(), Ok(None));
    assert_eq!(splitter.held_bytes(), b"{\"a\":".len());
    assert_eq!(splitter.finish(), Err(FrameError::Truncated { bytes: b"{\"a\":".len() }));
}

#[test]
fn broken_frame_reports_type_only_if_string() {
    let of =
        |frame: &str| WatchEvent::parse_slice(frame.as_bytes(), &Limits::default()).unwrap_err().event_type;
    assert_eq!(of(r#"{"type":7,"object":{}}"#), None);
    assert_eq!(of(r#"{"kind":"ADDED"}"#), None);
    assert_eq!(of(r#"{"type":"ADDED","kind":"DELETED"}"#).as_deref(), Some("ADDED"));
}

#[test]
fn key_bytes_sort_like_keys() {
    let keys =
        ["a", "b", "a/a", "a/b", "a-b/a", "ab/a", "b/a", "b/aa"].map(|key| key.parse::<ObjectKey>().unwrap());
    for (x, y) in keys.iter().flat_map(|x| keys.iter().map(move |y| (x, y))) {
        assert_eq!(x.sort_bytes().cmp(y.sort_bytes()), x.cmp(y), "{x} and {y}");
    }
    assert_eq!(format!("{:>5}|{:<5}|{:>4}|", keys[2], keys[2], keys[0]), "  a/a|a/a  |   a|");
}

#[test]
fn depth_is_counted_alike_everywhere() {
    let object = |more: &str| format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"5"{more}"#);
    // Four deep: in labels, which are read, in skipped values, and outside the metadata.
    for text in [
        object(r#","managedFields":[{}]}}"#),
        object(r#","x":{"y":{}}}}"#),
        object(r#"},"spec":{"a":[[]]}}"#),
        object(r#"},"spec":[[{}]]}"#),
    ] {
        let scan =
            |max_depth| RawObject::copy_from(text.as_bytes(), &Limits { max_depth, ..Limits::default() });
        assert!(scan(4).is_ok(), "{text}");
        assert!(scan(3).is_err(), "{text}");
        let frame = format!(r#"{{"type":"ADDED","object":{text}}}"#);
        let event =
            |max_depth| WatchEvent::parse_slice(frame.as_bytes(), &Limits { max_depth, ..Limits::default() });
        assert!(event(5).is_ok(), "{frame}");
        assert!(event(4).is_err(), "{frame}");
    }
}

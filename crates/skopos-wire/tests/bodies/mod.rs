//! Properties that hold for any input. `tests/properties.rs` and the fuzz targets in the repository's `fuzz/` call the same
//! functions.

#![allow(dead_code, missing_docs, unreachable_pub)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use skopos_wire::{
    BrokenFrame, BrokenItem, ContinueToken, FieldSelector, FrameError, FrameSplitter, LabelSelector, Limits,
    ListBody, ListError, ListSplitter, RawObject, ResourceVersion, ScanError, WatchEvent, protobuf,
    transform,
};

/// Checks that scanned objects agree with serde_json, and that rejected ones are invalid.
pub fn object(data: &[u8]) {
    if data.starts_with(protobuf::MAGIC) {
        return protobuf_object(data);
    }
    let scanned = RawObject::copy_from(data, &Limits::default());
    let tree = serde_json::from_slice::<Value>(data);
    RawObject::identify(data);
    match scanned {
        Ok(object) => {
            serde_json::from_slice::<IgnoredAny>(data).expect("only JSON is accepted");
            assert_eq!(object.content(), data);
            let identity = RawObject::identify(data);
            assert_eq!(identity.key.as_ref(), Some(object.key()));
            assert_eq!(identity.resource_version.as_ref(), Some(object.resource_version()));
            // A tree cannot represent text with half surrogate pairs, or deep nesting.
            if let Ok(tree) = tree {
                agrees(&object, &tree);
            }
        }
        Err(error) => {
            if let Ok(tree) = tree {
                assert!(!is_plain_object(&tree) || has_duplicates_or_is_large(&error), "{error} for {tree}");
            }
        }
    }
}

fn agrees(object: &RawObject, tree: &Value) {
    let metadata = &tree["metadata"];
    // Null, which keeps an earlier value of a repeated member, proves nothing here.
    let same = |value: &Value, own: Option<&str>| match value {
        Value::Null => true,
        value => value.as_str() == Some(own.unwrap_or_default()),
    };
    assert!(same(&metadata["name"], Some(object.name())));
    assert!(same(&metadata["namespace"], object.namespace()));
    assert!(same(&metadata["uid"], Some(object.uid())));
    assert!(same(&metadata["resourceVersion"], Some(&object.resource_version().to_string())));
    assert!(same(&metadata["deletionTimestamp"], object.deletion_timestamp()));
    assert!(same(&tree["kind"], object.kind()));
    assert!(same(&tree["apiVersion"], object.api_version()));
    if let Some(labels) = metadata["labels"].as_object() {
        let own: Map<String, Value> =
            object.labels().map(|(key, value)| (key.to_owned(), value.into())).collect();
        assert_eq!(&own, labels);
        assert_eq!(object.labels().count(), labels.len(), "each once");
    }
}

/// Returns whether only duplicate members, nesting or size could be wrong with the object.
fn is_plain_object(tree: &Value) -> bool {
    let metadata = &tree["metadata"];
    let text = |value: &Value| value.as_str().is_some_and(|text| (1..64).contains(&text.len()));
    let plain = |value: &Value| {
        text(value) && value.as_str().is_some_and(|t| t.bytes().all(|b| b.is_ascii_lowercase()))
    };
    let version = metadata["resourceVersion"].as_str().unwrap_or_default();
    let optional = |value: &Value| value.is_null() || text(value);
    let labels = match &metadata["labels"] {
        Value::Null => true,
        Value::Object(labels) => labels.values().all(Value::is_string),
        _ => false,
    };
    plain(&metadata["name"])
        && text(&metadata["uid"])
        && (metadata["namespace"].is_null() || plain(&metadata["namespace"]))
        && version.parse::<u32>().is_ok_and(|n| n.to_string() == version)
        && optional(&metadata["deletionTimestamp"])
        && optional(&tree["kind"])
        && tree["kind"] != "Table"
        && optional(&tree["apiVersion"])
        && labels
}

fn has_duplicates_or_is_large(error: &ScanError) -> bool {
    // An earlier one of two equal members may be anything; a tree shows only the last.
    matches!(
        error,
        ScanError::Duplicate { .. }
            | ScanError::WrongType { .. }
            | ScanError::TooLong { .. }
            | ScanError::TooManyLabels { .. }
    )
}

/// Checks that the chunks of a body make no difference, and that the items are those that serde_json finds.
pub fn list(data: &[u8]) {
    let (cuts, body) = data.split_at(data.len().min(4));
    if body.starts_with(&protobuf::MAGIC[..1]) {
        return protobuf_list(data);
    }
    let whole = split_list([body].into_iter());
    let parts = split_list(chunks(cuts, body).into_iter());
    assert_eq!(whole.0, parts.0, "the same items");
    assert_eq!(whole.1.is_ok(), parts.1.is_ok());
    if let (Ok(whole), Ok(parts)) = (&whole.1, &parts.1) {
        assert_eq!(whole, parts);
    }
    // Splitting before scanning, or both at once, makes no difference.
    let scanned: Vec<_> = whole.0.iter().map(scan_item).collect();
    assert_eq!(scan_list([body].into_iter()), scanned);
    assert_eq!(scan_list(chunks(cuts, body).into_iter()), scanned);
    let Ok(tree) = serde_json::from_slice::<Value>(body) else { return };
    match whole.1 {
        Ok(ListBody::List(meta)) => {
            assert_eq!(tree["metadata"]["resourceVersion"], meta.resource_version.to_string());
            let items: Vec<Value> =
                whole.0.iter().map(|item| serde_json::from_slice(item).expect("an item is JSON")).collect();
            assert_eq!(tree["items"].as_array().map(Vec::as_slice).unwrap_or_default(), items);
        }
        Ok(_) => assert_eq!(tree["kind"], "Status"),
        Err(error) => assert!(!is_plain_list(&tree) || has_list_duplicates(&error), "{error} for {tree}"),
    }
}

fn split_list<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Bytes>, Result<ListBody, ListError>) {
    let mut splitter = ListSplitter::new(Limits::default());
    let mut items = Vec::new();
    for chunk in chunks {
        if let Err(error) = splitter.push(chunk, &mut |item| items.push(item)) {
            return (items, Err(error));
        }
    }
    (items, splitter.finish())
}

fn scan_item(item: &Bytes) -> Result<RawObject, BrokenItem> {
    RawObject::scan(item.clone(), &Limits::default())
        .map_err(|reason| BrokenItem { key: RawObject::identify(item).key, reason })
}

fn scan_list<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Result<RawObject, BrokenItem>> {
    let mut splitter = ListSplitter::new(Limits::default());
    let mut items = Vec::new();
    for chunk in chunks {
        if splitter.push_and_scan(chunk, &mut |item| items.push(item)).is_err() {
            break;
        }
    }
    items
}

fn is_plain_list(tree: &Value) -> bool {
    let version = tree["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let optional = |value: &Value| value.is_null() || value.is_string();
    tree["items"].as_array().is_some_and(|items| items.iter().all(Value::is_object))
        && version.parse::<u32>().is_ok_and(|n| n.to_string() == version)
        && optional(&tree["metadata"]["continue"])
        && (tree["metadata"]["remainingItemCount"].is_null()
            || tree["metadata"]["remainingItemCount"].is_i64())
        && optional(&tree["kind"])
        && tree["kind"] != "Status"
        && optional(&tree["apiVersion"])
        && tree.get("rows").is_none()
        && tree.get("columnDefinitions").is_none()
}

fn has_list_duplicates(error: &ListError) -> bool {
    // As above: of repeated members a tree shows only the last.
    matches!(error, ListError::Duplicate(_) | ListError::Envelope(_) | ListError::Syntax(_))
}

/// Checks that the chunks of a stream make no difference, and that only white space is lost.
pub fn frames(data: &[u8]) {
    let (cuts, stream) = data.split_at(data.len().min(4));
    let whole = split_frames([stream].into_iter());
    let parts = split_frames(chunks(cuts, stream).into_iter());
    assert_eq!(whole, parts);
    let (frames, end) = whole;
    let taken: usize = frames.iter().map(|frame| visible(frame)).sum();
    match end {
        Ok(()) => assert_eq!(taken, visible(stream)),
        Err(FrameError::Truncated { .. }) => assert!(taken < visible(stream)),
        Err(_) => {}
    }
    // Splitting before parsing, or both at once, makes no difference.
    let events: Vec<_> =
        frames.iter().map(|frame| WatchEvent::parse_slice(frame, &Limits::default())).collect();
    assert_eq!(read_events([stream].into_iter()), events);
    assert_eq!(read_events(chunks(cuts, stream).into_iter()), events);
    for frame in frames {
        event(&frame);
    }
}

fn read_events<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Result<WatchEvent, BrokenFrame>> {
    let mut splitter = FrameSplitter::new(Limits::default());
    let mut events = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::copy_from_slice(chunk));
        while let Ok(Some(event)) = splitter.next_event() {
            events.push(event);
        }
    }
    events
}

fn visible(bytes: &[u8]) -> usize {
    // JSON's white space, which does not include form feed.
    bytes.iter().filter(|b| !matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count()
}

fn split_frames<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Bytes>, Result<(), FrameError>) {
    let mut splitter = FrameSplitter::new(Limits::default());
    let mut frames = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::copy_from_slice(chunk));
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, splitter.finish())
}

/// Checks that parsed events agree with serde_json, and that invalid ones are reported without a panic.
pub fn event(data: &[u8]) {
    match WatchEvent::parse_slice(data, &Limits::default()) {
        Ok(event) => {
            serde_json::from_slice::<IgnoredAny>(data).expect("only JSON is accepted");
            let Ok(tree) = serde_json::from_slice::<Value>(data) else { return };
            let expected = match &event {
                WatchEvent::Added(_) => "ADDED",
                WatchEvent::Modified(_) => "MODIFIED",
                WatchEvent::Deleted(_) => "DELETED",
                WatchEvent::Bookmark { .. } => "BOOKMARK",
                WatchEvent::Error(_) => "ERROR",
            };
            assert_eq!(tree["type"], expected);
            if let Some(object) = event.object() {
                assert_eq!(object.to_value(), tree["object"]);
                agrees(object, &tree["object"]);
                // The object of an event equals a scan of its JSON.
                let again = RawObject::copy_from(&object.content(), &Limits::default())
                    .expect("it was scanned before");
                assert_eq!((again.key(), again.uid()), (object.key(), object.uid()));
                assert!(again.labels().eq(object.labels()));
            }
        }
        Err(broken) => {
            let _ = broken.to_string();
        }
    }
}

/// Checks that a parsed selector prints to a text that parses to the same selector.
pub fn label_selector(text: &str) {
    let Ok(selector) = LabelSelector::parse(text) else { return };
    let printed = selector.to_string();
    assert_eq!(LabelSelector::parse(&printed).as_ref(), Ok(&selector), "{text:?} printed as {printed:?}");
    let labels = [("a", "1"), ("b", ""), ("app", "web"), ("in", "notin")];
    let all = selector.requirements().iter().all(|requirement| {
        let single: LabelSelector = [requirement.clone()].into_iter().collect();
        single.matches(labels.as_slice())
    });
    assert_eq!(selector.matches(labels.as_slice()), all);
}

/// Checks that a parsed selector prints to a text that parses to the same requirements, in some order.
pub fn field_selector(text: &str) {
    let Ok(selector) = FieldSelector::parse(text) else { return };
    let printed = selector.to_string();
    let again =
        FieldSelector::parse(&printed).unwrap_or_else(|error| panic!("{text:?} as {printed:?}: {error}"));
    // The server sorts the terms as texts, and "=" and "==" differ in that.
    let sorted = |selector: &FieldSelector| {
        let mut texts: Vec<String> = selector.requirements().iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    assert_eq!(sorted(&again), sorted(&selector), "{text:?} printed as {printed:?}");
}

/// Checks that a decoded token encodes to one that decodes to the same: the raw text, and the text as JSON inside a token.
pub fn token(text: &str) {
    for text in [text, &URL_SAFE_NO_PAD.encode(text)] {
        let Ok(token) = ContinueToken::decode(text) else { continue };
        assert!(token.resource_version != 0 && !token.start_key.is_empty());
        assert!(!token.start_key.split('/').any(|segment| matches!(segment, "" | "." | "..")));
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }
}

/// Checks two versions, separated by a space: only the canonical form parses, and it compares as an integer does.
pub fn resource_version(text: &str) {
    let (a, b) = text.split_once(' ').unwrap_or((text, text));
    let read = |text: &str| match text.parse::<ResourceVersion>() {
        Ok(version) => {
            assert!(text == "0" || text.starts_with(|c: char| matches!(c, '1'..='9')));
            assert!(text.bytes().all(|b| b.is_ascii_digit()));
            assert_eq!(version.to_string(), text);
            assert_eq!(version.as_u64(), text.parse().ok());
            assert_eq!(version.is_zero(), text == "0");
            Some(version)
        }
        Err(_) => {
            assert!(text.parse::<u64>().is_err() || text.starts_with('+') || text.starts_with('0'));
            None
        }
    };
    let (Some(x), Some(y)) = (read(a), read(b)) else { return };
    // Canonical digits: the longer is the larger, and of the same length they compare as text.
    assert_eq!(x.cmp(&y), (a.len(), a).cmp(&(b.len(), b)));
    assert_eq!(y.cmp(&x), x.cmp(&y).reverse());
    assert_eq!(x == y, a == b);
}

/// Checks that a transform keeps what it should and drops the rest.
pub fn transformed(data: &[u8]) {
    let dropped = transform::drop_managed_fields(data);
    let partial = transform::metadata_only(data);
    assert_eq!(transform::drop_managed_fields(&dropped), dropped, "twice is once");
    let Ok(mut tree) = serde_json::from_slice::<Value>(data) else { return };
    let mut metadata = tree.get("metadata").cloned();
    if tree.is_object() {
        let parsed: Value = serde_json::from_slice(&partial).expect("JSON");
        let expected = metadata.take().unwrap_or_else(|| Value::Object(Map::new()));
        assert_eq!(parsed["metadata"], expected);
        assert_eq!(parsed["kind"], "PartialObjectMetadata");
    }
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    assert_eq!(serde_json::from_slice::<Value>(&dropped).expect("JSON"), tree);
}

/// Cuts `data` into chunks with the sizes `cuts`, repeated as needed.
fn chunks<'a>(cuts: &[u8], mut data: &'a [u8]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    let mut cuts = cuts.iter().cycle();
    while !data.is_empty() {
        let len = cuts.next().map_or(1, |cut| usize::from(*cut)).clamp(1, data.len());
        let (chunk, rest) = data.split_at(len);
        chunks.push(chunk);
        data = rest;
    }
    chunks
}

/// Checks an object in protobuf: all readers agree on it, and what is written can be read again.
pub fn protobuf_object(body: &[u8]) {
    let scanned = RawObject::copy_from(body, &Limits::default());
    RawObject::identify(body);
    let json = protobuf::to_json(body);
    let Ok(json) = json else {
        assert!(scanned.is_err(), "what cannot be written as JSON is not accepted");
        return;
    };
    let Ok(tree) = serde_json::from_slice::<Value>(&json) else {
        // A text that JSON holds, and a tree cannot: half a surrogate pair in raw JSON.
        serde_json::from_slice::<IgnoredAny>(&json).expect("it is JSON");
        return;
    };
    if let Ok(decoded) = protobuf::decode::<Value>(body) {
        assert_eq!(decoded, tree, "the deserializer has what the JSON has");
    }
    if let Ok(again) = protobuf::from_json(&json) {
        assert!(protobuf::to_json(&again).is_ok(), "what was written can be read");
    }
    let Ok(object) = scanned else { return };
    assert_eq!(object.json(), json);
    agrees(&object, &tree);
    let stored =
        RawObject::copy_from(&object.to_stored(), &Limits::default()).expect("it was scanned before");
    assert!(stored.is_same_content(&object));
    let smaller = object.without_managed_fields(&Limits::default()).expect("it was scanned before");
    assert_eq!((smaller.key(), smaller.uid()), (object.key(), object.uid()));
    assert!(smaller.to_value()["metadata"]["managedFields"].is_null());
}

/// Checks that the chunks of a list in protobuf make no difference. The first four bytes choose the chunks.
pub fn protobuf_list(data: &[u8]) {
    let (cuts, body) = data.split_at(data.len().min(4));
    let whole = split_list([body].into_iter());
    let parts = split_list(chunks(cuts, body).into_iter());
    assert_eq!(whole.1.is_ok(), parts.1.is_ok(), "{:?} and {:?}", whole.1, parts.1);
    if let (Ok(list), Ok(again)) = (&whole.1, &parts.1) {
        assert_eq!((list, &whole.0), (again, &parts.0));
        assert_eq!(scan_list([body].into_iter()), scan_list(chunks(cuts, body).into_iter()));
    }
}

/// Checks that the chunks of a watch in protobuf make no difference. The first four bytes choose the chunks.
pub fn protobuf_frames(data: &[u8]) {
    let (cuts, stream) = data.split_at(data.len().min(4));
    let read = |chunks: Vec<&[u8]>| {
        let mut splitter = FrameSplitter::protobuf(Limits::default());
        let mut events = Vec::new();
        for chunk in chunks {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Ok(Some(event)) = splitter.next_event() {
                events.push(event);
            }
        }
        (events, splitter.finish())
    };
    let (events, end) = read(vec![stream]);
    let (again, end_again) = read(chunks(cuts, stream));
    assert_eq!((events, end.is_ok()), (again, end_again.is_ok()));
}

use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};
use skopos_wire::{ContinueToken, Status};

use super::*;
use crate::item::Item as _;
use crate::request::Query;
use crate::resources::{Registry, ResourceType};
use crate::respond::{Response, ResponseBody};
use crate::source::Source as _;
use crate::testing::{MemorySource, Object, pod};
use crate::window::{Event, WindowOptions};

/// Client that reads pods from a source in memory.
struct Client {
    source: MemorySource,
    options: ServeOptions,
    pods: Arc<ResourceType>,
    headers: HeaderMap,
    permit: ItemFilter<Object>,
}

impl Client {
    fn new() -> Self {
        Self {
            source: MemorySource::new(WindowOptions::default()),
            options: ServeOptions::default(),
            pods: Registry::builtin().lookup("pods").unwrap(),
            headers: HeaderMap::new(),
            permit: ItemFilter::all(),
        }
    }

    fn accept(mut self, accept: &'static str) -> Self {
        self.headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        self
    }

    fn of(&self, namespace: Option<&'static str>) -> Self {
        let (source, options, pods) = (self.source.clone(), self.options.clone(), self.pods.clone());
        let headers = self.headers.clone();
        let permit = ItemFilter::only(move |object: &Object| object.namespace() == namespace);
        Self { source, options, pods, headers, permit }
    }

    fn request<'a>(&'a self, query: &'a Query, name: Option<&'a str>) -> Request<'a, Object> {
        let namespace = name.map(|_| "a");
        let permit = self.permit.clone();
        Request { resource: &self.pods, namespace, name, query, headers: &self.headers, permit }
    }

    async fn get(&self, name: &str) -> Result<Value, Status> {
        let query = Query::default();
        let response = get(&self.source, &self.options, &self.request(&query, Some(name))).await?;
        Ok(whole(response).await)
    }

    async fn list(&self, query: &str) -> Result<Value, Status> {
        Ok(whole(self.list_response(query).await?).await)
    }

    async fn list_response(&self, query: &str) -> Result<Response, Status> {
        let query = Query::parse(query);
        list(&self.source, &self.options, &self.request(&query, None)).await
    }

    async fn watch(&self, query: &str) -> Stream {
        let query = Query::parse(query);
        let response = watch(&self.source, &self.options, &self.request(&query, None)).await;
        Stream { body: response.unwrap().into_body(), read: Vec::new() }
    }
}

async fn whole(response: Response) -> Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

struct Stream {
    body: ResponseBody,
    read: Vec<u8>,
}

impl Stream {
    async fn chunk(&mut self) -> Option<Bytes> {
        let frame = self.body.frame().await?;
        Some(frame.unwrap().into_data().unwrap())
    }

    /// Returns the next event; `None` at the end.
    async fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = self.chunk().await?;
            self.read.extend_from_slice(&chunk);
        }
    }

    /// Returns the types and names of all events until the end.
    async fn story(mut self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut story = Vec::new();
        while let Some(event) = self.event().await {
            story.push((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
        }
        story
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn adds_type_meta_to_standalone_objects() {
    let client = Client::new();
    let mut stream = client.watch("resourceVersion=0").await;
    client.source.put("a", "x", &[], "1");
    assert_eq!(client.get("x").await.unwrap()["kind"], "Pod");
    assert_eq!(client.list("").await.unwrap()["items"][0]["kind"], Value::Null);
    let event = stream.event().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["apiVersion"]), (&json!("ADDED"), &json!("v1")));
    client.source.delete("a", "x");
    let event = stream.event().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["resourceVersion"]),
        (&json!("DELETED"), &json!("2"))
    );
}

#[tokio::test(start_paused = true)]
async fn crossing_a_selector_adds_and_deletes() {
    let client = Client::new();
    client.source.put("a", "x", &[("on", "no")], "");
    let mut stream = client.watch("resourceVersion=1&labelSelector=on%3Dyes").await;
    for on in ["yes", "yes", "no", "no"] {
        client.source.put("a", "x", &[("on", on)], "");
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = stream.event().await.unwrap();
        let object = &event["object"]["metadata"];
        seen.push(format!("{} {} {}", event["type"], object["resourceVersion"], object["labels"]["on"]));
    }
    // It is deleted in its previous state, with the revision at which it stopped matching.
    assert_eq!(seen, [r#""ADDED" "2" "yes""#, r#""MODIFIED" "3" "yes""#, r#""DELETED" "4" "yes""#]);
}

#[tokio::test(start_paused = true)]
async fn event_is_encoded_once_per_form() {
    let full = Client::new();
    let table = Client { source: full.source.clone(), ..Client::new() }
        .accept("application/json;as=Table;g=meta.k8s.io;v=v1");
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(
            full.watch("resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await,
        );
        streams.push(
            table.watch("resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await,
        );
    }
    for round in 1..=5 {
        full.source.put("a", "x", &[], "y");
        let mut frames = Vec::new();
        for stream in &mut streams {
            frames.push(stream.chunk().await.unwrap());
        }
        let shared = |frame: &&Bytes| frame.as_ptr() == frames[frames.len() - 2].as_ptr();
        assert_eq!(frames.iter().filter(shared).count(), 20, "one buffer for all");
        // The first event of a table has the column definitions and is encoded for the watcher alone.
        assert_eq!(full.source.window().stats().encoded, 2 * round - 1);
    }
}

#[tokio::test(start_paused = true)]
async fn bookmark_moves_watch_to_end_of_gap() {
    let client = Client::new();
    client.source.put("a", "x", &[], "");
    let mut stream = client.watch("resourceVersion=1&allowWatchBookmarks=true").await;
    let of_gap = Event::put(7, None, pod("a", "y", 7, &[], ""));
    client.source.window().extend_gap([of_gap], 20);
    assert_eq!(stream.event().await.unwrap()["object"]["metadata"]["resourceVersion"], "7");
    let bookmark = stream.event().await.unwrap();
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["metadata"]["resourceVersion"]),
        (&json!("BOOKMARK"), &json!("20"))
    );
    let mut late = client.watch("resourceVersion=7").await;
    let error = late.event().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"], late.event().await),
        (&json!("ERROR"), &json!(410), None)
    );
}

#[tokio::test(start_paused = true)]
async fn list_extensions_seal_tokens_and_omit_counts() {
    let mut client = Client::new();
    for name in ["x", "y", "z"] {
        client.source.put("a", name, &[], "");
    }
    assert_eq!(client.list("limit=1").await.unwrap()["metadata"]["remainingItemCount"], 2);
    client.source.has_list_extensions = true;
    let page = client.list("limit=1").await.unwrap();
    assert_eq!(page["metadata"]["annotations"], json!({"said": "so"}));
    assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert!(token.starts_with("sealed-"), "{token}");
    assert_eq!(names(&client.list(&format!("limit=1&continue={token}")).await.unwrap()), ["y"]);
    let open = token.trim_start_matches("sealed-");
    assert_eq!(client.list(&format!("limit=1&continue={open}")).await.unwrap_err().code, 400);
    client.source.put("a", "x", &[], "");
    let gone = client.list(&format!("limit=1&continue={token}")).await.unwrap_err();
    let token = gone.metadata.continue_token.unwrap();
    assert!(gone.code == 410 && token.starts_with("sealed-"), "{token}");
    assert_eq!(names(&client.list(&format!("limit=1&continue={token}")).await.unwrap()), ["y"]);
}

#[tokio::test(start_paused = true)]
async fn gzip_list_equals_plain_and_reuses_blocks() {
    const FORMS: [&str; 3] = [
        "application/json",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
    ];
    let mut client = Client::new();
    for number in 0..300 {
        client.source.put("a", &format!("p{number}"), &[("app", "web")], &"text ".repeat(number));
    }
    let stats = || client.source.blocks.cache().stats();
    for form in FORMS {
        let plain = Client { source: client.source.clone(), ..Client::new() }.accept(form);
        let mut packed = Client { source: client.source.clone(), ..Client::new() }.accept(form);
        packed.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        // Small ones too, if configured.
        for (query, from) in
            [("", 128 * 1024), ("limit=1", 0), ("limit=3", 0), ("labelSelector=app%3Dnone", 0)]
        {
            packed.options.gzip_from = from;
            let response = packed.list_response(query).await.unwrap();
            assert_eq!(response.headers()["content-encoding"], "gzip");
            assert_eq!(response.headers()["vary"], "Accept-Encoding");
            let sent = response.into_body().collect().await.unwrap().to_bytes();
            let mut text = Vec::new();
            let mut decoder = flate2::read::GzDecoder::new(&*sent);
            decoder.read_to_end(&mut text).unwrap();
            assert!(decoder.into_inner().is_empty());
            let list: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(list, plain.list(query).await.unwrap(), "{form} {query}");
        }
        packed.options.gzip_from = 128 * 1024;
        let small = packed.list_response("limit=1").await.unwrap();
        assert_eq!(small.headers().get("content-encoding"), None);
    }
    // The rows of tables show metadata, for which blocks were cached already.
    assert_eq!(stats().compressed, 600);
    client.source.put("a", "p7", &[], "changed");
    client.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = client.list_response("").await.unwrap();
    response.into_body().collect().await.unwrap();
    assert_eq!(stats().compressed, 601);
}

#[tokio::test(start_paused = true)]
async fn cells_match_columns_sent_to_watcher() {
    let client = Client::new();
    let by_columns = |columns: &[(&str, &str)]| {
        let columns: Vec<Value> = columns
            .iter()
            .map(|(name, path)| json!({"name": name, "type": "string", "jsonPath": path}))
            .collect();
        let definition = json!({
            "metadata": {"name": "pods.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "pods", "kind": "Pod"},
                "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns}]},
        });
        let mut defined = client.of(None).accept("application/json;as=Table;g=meta.k8s.io;v=v1");
        defined.permit = ItemFilter::all();
        defined.pods = Arc::new(ResourceType::from_crd(&definition).unwrap().remove(0));
        defined
    };
    let text = by_columns(&[("Text", ".spec.text")]);
    // The definition of another cluster, or of another time.
    let other = by_columns(&[("Uid", ".metadata.uid")]);
    // As read by an earlier request.
    let same = by_columns(&[("Text", ".spec.text")]);
    let mut streams = Vec::new();
    for client in [&text, &other, &same] {
        streams.push(client.watch("resourceVersion=0").await);
    }
    // The first event contains the column definitions.
    client.source.put("a", "x", &[], "one");
    client.source.put("a", "y", &[], "two");
    let mut told = Vec::new();
    for stream in &mut streams {
        let first = stream.event().await.unwrap();
        let heading = first["object"]["columnDefinitions"][1]["name"].clone();
        told.push((heading, stream.event().await.unwrap()["object"]["rows"][0]["cells"].clone()));
    }
    let texts = (json!("Text"), json!(["y", "two"]));
    assert_eq!(told, [texts.clone(), (json!("Uid"), json!(["y", "a-y"])), texts]);
    assert_eq!(client.source.window().stats().encoded, 2, "and what is the same is made once");
}

#[tokio::test(start_paused = true)]
async fn keeps_snapshot_only_if_more_pages_follow() {
    let client = Client::new();
    for name in ["x", "y", "z"] {
        client.source.put("a", name, &[("app", name)], "");
    }
    for whole in ["", "limit=500", "limit=3", "labelSelector=app%3Dx&limit=3", "resourceVersion=0&limit=1"] {
        client.list(whole).await.unwrap();
    }
    let selects_nothing = client.list("labelSelector=app%3Dnone&limit=1").await.unwrap();
    assert_eq!(selects_nothing["metadata"].get("continue"), None);
    assert_eq!(*client.source.remembered.read(), [] as [u64; 0]);
    let first = client.list("limit=1").await.unwrap();
    let token = |page: &Value| page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let second = client.list(&format!("limit=1&continue={}", token(&first))).await.unwrap();
    assert_eq!(*client.source.remembered.read(), [3, 3], "and again with each page that has one behind it");
    client.list(&format!("limit=1&continue={}", token(&second))).await.unwrap();
    assert_eq!(client.source.remembered.read().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn watch_timeout_is_capped_by_limit() {
    let mut client = Client::new();
    client.options.max_watch_timeout = Some(Duration::from_secs(600));
    for query in ["resourceVersion=0", "resourceVersion=0&timeoutSeconds=3600"] {
        let begun = tokio::time::Instant::now();
        assert_eq!(client.watch(query).await.story().await, []);
        assert_eq!(begun.elapsed(), Duration::from_secs(600));
    }
    let begun = tokio::time::Instant::now();
    client.watch("resourceVersion=0&timeoutSeconds=5").await.story().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn huge_watch_timeout_is_accepted() {
    let client = Client::new();
    let mut stream = client.watch(&format!("resourceVersion=0&timeoutSeconds={}", i64::MAX)).await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    client.source.put("a", "x", &[], "");
    assert_eq!(stream.event().await.unwrap()["type"], "ADDED");
}

#[tokio::test(start_paused = true)]
async fn finished_window_ends_watch_after_last_event() {
    let client = Client::new();
    let begun = tokio::time::Instant::now();
    let early = client.watch("resourceVersion=0").await;
    client.source.put("a", "x", &[], "");
    client.source.delete("a", "x");
    client.source.window().finish();
    let (added, deleted) = (("ADDED".to_owned(), "x".to_owned()), ("DELETED".to_owned(), "x".to_owned()));
    assert_eq!(early.story().await, [added, deleted.clone()]);
    assert_eq!(client.watch("resourceVersion=1").await.story().await, [deleted]);
    assert_eq!(client.watch("resourceVersion=2").await.story().await, []);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn filter_applies_to_list_count_token_and_event() {
    let all = Client::new();
    for name in ["a", "b", "c", "d"] {
        all.source.put("a", name, &[], "");
        all.source.put("secret", &format!("hidden-{name}"), &[], "");
    }
    let some = all.of(Some("a"));
    let list = some.list("limit=2").await.unwrap();
    assert_eq!((names(&list), &list["metadata"]["remainingItemCount"]), (vec!["a", "b"], &Value::Null));
    let token = list["metadata"]["continue"].as_str().unwrap();
    assert_eq!(ContinueToken::decode(token).unwrap().start_key, "a/b\0");
    let list = some.list(&format!("limit=2&continue={token}")).await.unwrap();
    // It does not learn either that there are more objects, which it may not see.
    assert_eq!((names(&list), &list["metadata"]["continue"]), (vec!["c", "d"], &Value::Null));
    assert_eq!(some.get("a").await.unwrap()["metadata"]["name"], "a");
    assert_eq!(all.of(None).get("a").await.unwrap_err().code, 404);
    let stream = some.watch("resourceVersion=0&timeoutSeconds=1").await;
    all.source.put("secret", "hidden-e", &[], "");
    all.source.delete("secret", "hidden-a");
    all.source.delete("a", "a");
    let story: Vec<_> = stream.story().await.into_iter().map(|(kind, name)| kind + " " + &name).collect();
    assert_eq!(story, ["ADDED a", "ADDED b", "ADDED c", "ADDED d", "DELETED a"]);
}

#[tokio::test(start_paused = true)]
async fn reads_long_list_in_batches_and_sends_chunks() {
    let client = Client::new();
    for number in 0..2500 {
        client.source.put("a", &format!("p{number:04}"), &[], &"x".repeat(200));
    }
    let response = client.list_response("").await.unwrap();
    let mut body = response.into_body();
    let (mut text, mut largest) = (Vec::new(), 0);
    while let Some(piece) = body.frame().await {
        let piece = piece.unwrap().into_data().unwrap();
        largest = largest.max(piece.len());
        text.extend_from_slice(&piece);
    }
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap()["items"].as_array().map(Vec::len), Some(2500));
    let stream = client.watch("resourceVersion=0&timeoutSeconds=1").await;
    assert_eq!(stream.story().await.len(), 2500);
    assert!(client.source.largest_page() <= 1001, "{}", client.source.largest_page());
    assert!(largest < 70_000, "{largest}");
}

/// Reads what a stream has ready; returns the number of events.
fn drain(stream: &mut Stream) -> usize {
    let mut events = 0;
    while let Some(Some(chunk)) = stream.chunk().now_or_never() {
        events += chunk.iter().filter(|byte| **byte == b'\n').count();
    }
    events
}

#[tokio::test(start_paused = true)]
async fn caught_up_watch_continues_without_history() {
    let client = Client::new();
    let mut stream = client.watch("watch=1&resourceVersion=0").await;
    for _ in 0..5 {
        // Each fills one chunk.
        let revision = client.source.put("a", "large", &[], &"x".repeat(100_000));
        let event = stream.event().await.expect("nothing is lost");
        assert_eq!(event["object"]["metadata"]["resourceVersion"], revision.to_string());
        client.source.window().forget(revision);
    }
}

#[tokio::test(start_paused = true)]
async fn encodes_event_once_for_many_watchers() {
    for (watchers, events, pause) in [(10_000, 10, 200), (100, 1000, 1)] {
        let client = Client::new();
        let mut streams = Vec::new();
        for _ in 0..watchers {
            streams.push(client.watch("resourceVersion=0&allowWatchBookmarks=true").await);
        }
        streams.iter_mut().for_each(|stream| assert_eq!(drain(stream), 1, "the bookmark of the state"));
        // One watcher stops reading.
        let mut stuck = client.watch("resourceVersion=0").await;
        let mut seen = 0;
        for event in 0..events {
            client.source.put("a", &format!("p{}", event % 7), &[], "text");
            tokio::time::advance(Duration::from_millis(pause)).await;
            seen += streams.iter_mut().map(drain).sum::<usize>();
        }
        assert_eq!(seen, watchers * events);
        assert_eq!(client.source.window().stats().encoded, events as u64);
        assert_eq!((client.source.window().stats().watchers, drain(&mut stuck)), (watchers + 1, events));
    }
}

/// A change of one of a few objects in one of a few namespaces.
#[derive(Clone, Debug)]
struct Step {
    namespace: &'static str,
    name: String,
    delete: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (prop::sample::select(vec!["a", "b", "c"]), 0..4u8, any::<bool>())
        .prop_map(|(namespace, name, delete)| Step { namespace, name: format!("{namespace}-{name}"), delete })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks two callers with different permissions over any history: neither gets a byte of the other's, in any form, and both
    /// get all of their own.
    #[test]
    fn callers_see_exactly_their_own_objects(
        steps in prop::collection::vec(step(), 1..40),
        at in 0..40usize,
        limit in 1..5usize,
        form in prop::sample::select(vec![
            "application/json",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
        ]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let all = Client::new();
            let callers = ["a", "b"].map(|own| (own, all.of(Some(own)).accept(form)));
            let mut streams = Vec::new();
            for (number, step) in steps.iter().enumerate() {
                if number == at.min(steps.len() - 1) {
                    for (own, caller) in &callers {
                        streams.push((*own, caller.watch("resourceVersion=0&timeoutSeconds=1").await));
                    }
                }
                match step.delete {
                    true => all.source.delete(step.namespace, &step.name),
                    false => all.source.put(step.namespace, &step.name, &[], &format!("text-of-{}", step.namespace)),
                };
            }
            for (own, caller) in &callers {
                let mut query = format!("limit={limit}");
                loop {
                    let list = caller.list(&query).await.unwrap();
                    let token = list["metadata"]["continue"].as_str().map(str::to_owned);
                    let start = token.as_deref().map(|token| ContinueToken::decode(token).unwrap().start_key);
                    prop_assert!(is_own(own, &format!("{list} {start:?}")), "{list}");
                    let Some(token) = token else { break };
                    query = format!("limit={limit}&continue={token}");
                }
            }
            for (own, mut stream) in streams {
                while let Some(event) = stream.event().await {
                    prop_assert!(is_own(own, &event.to_string()), "{event}");
                }
            }
            Ok(())
        })?;
    }
}

fn is_own(own: &str, text: &str) -> bool {
    ["a", "b", "c"].iter().filter(|other| **other != own).all(|other| {
        !text.contains(&format!("\"{other}-"))
            && !text.contains(&format!("{other}/"))
            && !text.contains(&format!("text-of-{other}"))
    })
}

/// Checks that a stream sees or is woken by the end of all watches, at whatever moment another thread ends them.
#[test]
fn close_watches_reaches_stream_being_polled() {
    const ROUNDS: usize = 50_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let client = Client::new();
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let reached = |counter: &AtomicUsize, round| {
        // Two threads that run at the same time, where there are two cores for them.
        for turn in 0_u32.. {
            match counter.load(Ordering::Acquire) < round {
                true if turn % 1000 == 999 => std::thread::yield_now(),
                true => std::hint::spin_loop(),
                false => break,
            }
        }
    };
    let mut missed = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 1..=ROUNDS {
                reached(&begun, round);
                client.source.window().close_watches();
                ended.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            let mut stream = runtime.block_on(client.watch(""));
            let woken = Arc::new(Woken::default());
            begun.store(round, Ordering::Release);
            let _inside = runtime.enter();
            let polled =
                Pin::new(&mut stream.body).poll_frame(&mut Context::from_waker(&woken.clone().into()));
            reached(&ended, round);
            missed += usize::from(polled.is_pending() && !woken.0.load(Ordering::Acquire));
        }
    });
    assert_eq!(missed, 0, "of {ROUNDS}");
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The pods of the source in memory have a member that no pod has, as those of a newer server may.
#[tokio::test(start_paused = true)]
async fn members_unknown_to_protobuf_are_sent_in_json() {
    let client = Client::new().accept("application/vnd.kubernetes.protobuf,application/json;q=0.9");
    let mut before = client.watch("watch=1&resourceVersion=0").await;
    client.source.put("a", "x", &[], "text");
    let mut frames = skopos_wire::FrameSplitter::protobuf(skopos_wire::Limits::default());
    frames.push(before.chunk().await.unwrap());
    let Ok(Some(Ok(skopos_wire::WatchEvent::Error(status)))) = frames.next_event() else {
        panic!("the stream must end with an error")
    };
    assert_eq!(status.code, 410, "the client has to list again");
    assert_eq!(client.list("").await.unwrap()["items"][0]["spec"]["text"], "text");
    let mut after = client.watch("watch=1&resourceVersion=0").await;
    client.source.put("a", "y", &[], "text");
    assert_eq!(after.event().await.unwrap()["object"]["spec"]["text"], "text");
    let only = Client {
        source: client.source.clone(),
        ..Client::new().accept("application/vnd.kubernetes.protobuf")
    };
    assert_eq!(only.list("").await.unwrap_err().code, 406);
}

#[tokio::test(start_paused = true)]
async fn list_whose_object_does_not_fit_falls_back_to_json() {
    let client = Client::new().accept("application/vnd.kubernetes.protobuf,application/json;q=0.9");
    client.source.put("a", "x", &[], "text");
    assert_eq!(client.list("").await.unwrap()["items"][0]["spec"]["text"], "text");
    assert_eq!(client.get("x").await.unwrap()["spec"]["text"], "text");
}

#[tokio::test(start_paused = true)]
async fn metadata_is_sent_in_protobuf() {
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let client = Client::new().accept(accept);
    client.source.put("a", "x", &[("app", "web")], "text");
    let response = client.list_response("").await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let list: Value = skopos_wire::protobuf::decode(&body).unwrap();
    assert_eq!(
        (&list["kind"], &list["metadata"]["resourceVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("1"))
    );
    assert_eq!(list["items"][0]["metadata"]["labels"], json!({"app": "web"}));
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let client = Client { source: client.source.clone(), ..Client::new().accept(accept) };
    let mut stream = client.watch("watch=1&resourceVersion=0&allowWatchBookmarks=true").await;
    let mut frames = skopos_wire::FrameSplitter::protobuf(skopos_wire::Limits::default());
    frames.push(stream.chunk().await.unwrap());
    let event = frames.next_event().unwrap().unwrap().unwrap();
    let object = event.object().unwrap();
    assert_eq!((object.name(), object.kind()), ("x", Some("PartialObjectMetadata")));
}

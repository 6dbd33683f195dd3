//! A hostile or broken server, and wrong credentials: a typed error or a degraded state with its reason, in bounded memory,
//! and never a panic.

mod support;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::header;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use skopos::transport::{Dialed, Protocol, dialer_fn};
use skopos::{
    Condition, Degradation, FactoryOptions, Freshness, Informer, InformerFactory, InformerOptions,
    InitialList, NotSynced, ObjectKey, StaleReason, Transport, TransportOptions, Unsynced,
};
use skopos_testserver::{Damage, Fault, Match, TestServer, TestServerBuilder};
use support::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const MIB: u64 = 1 << 20;

/// The maximum bytes that arrive beyond a cap before the client's refusal reaches the server: HTTP/2 windows and buffers in
/// between.
const SLACK: u64 = 8 * MIB;

/// The memory limit of all tests of this file together: less than one giant object.
const MEMORY: u64 = 700 * MIB;

/// A server, and a factory whose bytes from that server are counted.
struct Metered {
    world: World,
    received: Arc<AtomicU64>,
}

async fn metered(options: FactoryOptions) -> Metered {
    let World { server, .. } = world().await;
    let received = Arc::new(AtomicU64::new(0));
    let (listening, counter) = (Arc::downgrade(&server), received.clone());
    let dialer = dialer_fn(move |_| {
        let (server, counter) = (listening.upgrade().expect("the server"), counter.clone());
        async move {
            let stream = server.connect().expect("a server that listens");
            Ok(Dialed::new(Meter { stream, received: counter }, Protocol::Http2))
        }
    });
    let config = kube::Config::new("http://memory.test".parse().expect("a url"));
    let transport = Transport::with_dialer(config, TransportOptions::default(), dialer).expect("a transport");
    Metered { world: World { factory: InformerFactory::new(transport, options), server }, received }
}

impl Metered {
    fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    fn maps(&self) -> Informer<ConfigMap> {
        config_maps(&self.world.factory)
    }
}

/// A stream that counts the bytes that are read.
struct Meter<S> {
    stream: S,
    received: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Meter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.received.fetch_add((buf.filled().len() - before) as u64, Ordering::SeqCst);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Meter<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn config_maps(factory: &InformerFactory) -> Informer<ConfigMap> {
    factory.informer(InformerOptions::all()).expect("an informer")
}

/// Returns options that begin with an ordinary list instead of a streamed one.
fn listing(mut options: FactoryOptions) -> FactoryOptions {
    options.machine.initial = InitialList::Paged;
    options
}

/// Returns options with limits of 1 MiB, so that a test need not send much to exceed them.
fn small_caps() -> FactoryOptions {
    let mut options = quiet();
    options.limits.max_object_bytes = MIB as usize;
    options.limits.max_frame_bytes = MIB as usize;
    options
}

/// Returns the only list/watch that is not synced.
fn the_one(error: &NotSynced) -> &Unsynced {
    assert_eq!(error.who.len(), 1, "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    &error.who[0]
}

/// Returns an answer with status 200 and this body.
fn answer(body: impl ToString) -> Fault {
    let headers = vec![(header::CONTENT_TYPE, "application/json".to_owned())];
    Fault::Answer { code: 200, headers, body: body.to_string() }
}

fn list_of(items: &[Value]) -> Value {
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items})
}

fn item(name: &str) -> Value {
    json!({"metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "5"}})
}

/// Returns the peak memory of this process, if the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

#[tokio::test(start_paused = true)]
async fn refuses_gigabyte_object_at_cap() {
    let cases = [
        (listing(quiet()), "item 0 of the list exceeds the limit of 67108864 bytes"),
        (quiet(), "watch frame exceeds the limit of 67174400 bytes"),
    ];
    for (options, reason) in cases {
        let metered = metered(options).await;
        let fault = metered.world.server.faults().inject(Fault::GiantObject { bytes: 1 << 30 }).everywhere();
        let error = metered.maps().wait_synced(secs(1)).await.unwrap_err();
        let who = the_one(&error);
        assert!(who.state.condition.is_failing(), "{error}");
        assert!(who.reason.contains(reason), "{error}");
        assert!((1..=4).contains(&who.attempts), "{error}");
        let (asked, received) = (fault.hits(), metered.received());
        assert!(received <= asked * (65 * MIB + SLACK), "{received} bytes in {asked} requests");
        if let Some(peak) = peak_memory() {
            assert!(peak < MEMORY, "{} MiB", peak / MIB);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn endless_list_line_hits_cap_and_backs_off() {
    let metered = metered(listing(small_caps())).await;
    let fault = metered.world.server.faults().inject(Fault::EndlessLine).on(Match::list());
    let maps = metered.maps();
    let error = maps.wait_synced(secs(60)).await.unwrap_err();
    assert_eq!(the_one(&error).state.condition, Condition::ServerError, "{error}");
    assert!(the_one(&error).reason.contains("exceeds the limit of 1048576 bytes"), "{error}");
    assert!(fault.hits() <= 12, "{} requests in a minute", fault.hits());
    assert!(metered.received() <= fault.hits() * (MIB + SLACK), "{}", metered.received());
    assert!(matches!(maps.freshness(), Freshness::NeverSynced { reason: StaleReason::Reflector(_), .. }));

    fault.heal();
    maps.wait_synced(secs(60)).await.unwrap();
    assert!(maps.freshness().is_live());
}

#[tokio::test(start_paused = true)]
async fn oversized_watch_frame_makes_content_stale() {
    for fault in [Fault::EndlessLine, Fault::GiantObject { bytes: 1 << 30 }] {
        let metered = metered(small_caps()).await;
        metered.world.create("a", "one", "1");
        let fault = metered.world.server.faults().inject(fault).on(Match::watch());
        let maps = metered.maps();
        maps.wait_synced(secs(5)).await.unwrap();
        eventually("the refusal is told", || {
            maps.stats().last_trouble.is_some_and(|trouble| {
                trouble.reason.contains("watch frame exceeds the limit of 1048576 bytes")
            })
        })
        .await;
        tokio::time::sleep(secs(120)).await;
        assert!(!maps.freshness().is_live(), "{}", maps.freshness());
        assert!(maps.freshness().reason().is_some(), "{}", maps.freshness());
        assert_eq!(maps.snapshot().len(), 1, "the content stays, and nothing of the giant came in");
        assert!(fault.hits() <= 40, "{} requests in two minutes", fault.hits());
        assert!(metered.received() <= fault.hits() * (MIB + SLACK), "{}", metered.received());

        fault.heal();
        let revision = metered.world.put("a", "one", "2");
        maps.wait_for(&revision.into(), secs(60)).await.unwrap();
        eventually("live again", || maps.freshness().is_live()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gzip_bomb_is_not_even_unpacked() {
    // Sixteen times the cap once unpacked; what matters is that the client does not begin to unpack.
    let bomb = || Fault::GzipBomb { bytes: 16 * MIB };
    let cases = [
        (bomb(), listing(small_caps())),
        (bomb(), small_caps()),
        (Fault::TruncatedGzip, listing(small_caps())),
    ];
    for (fault, options) in cases {
        let metered = metered(options).await;
        let bomb = metered.world.server.faults().inject(fault).everywhere();
        let error = metered.maps().wait_synced(secs(10)).await.unwrap_err();
        let who = the_one(&error);
        assert_eq!(who.state.condition, Condition::ServerError, "{error}");
        assert!(who.reason.contains("encoded as \"gzip\", which was not asked for"), "{error}");
        assert!(bomb.hits() > 0 && metered.received() <= MIB, "{} bytes", metered.received());
    }
}

/// Returns a list of one object whose next page is the same list.
fn endless_list() -> Value {
    let mut list = list_of(&[item("one")]);
    list["metadata"]["continue"] = "x".into();
    list
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_end_is_given_up() {
    let world = world_with(TestServer::builder(), listing(quiet())).await;
    let fault = world.server.faults().inject(answer(endless_list())).on(Match::list());
    let maps = config_maps(&world.factory);
    let error = maps.wait_synced(secs(60)).await.unwrap_err();
    let who = the_one(&error);
    assert_eq!(who.state.condition, Condition::ServerError, "{error}");
    assert!(who.reason.contains("the list does not end"), "{error}");
    assert!(fault.hits() <= 12, "{} requests in a minute", fault.hits());
    fault.heal();
    maps.wait_synced(PLENTY).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ignored_continue_token_leads_to_unpaged_list() {
    let world = world_with(TestServer::builder(), listing(quiet())).await;
    world.create("a", "two", "1");
    let _fault = world.server.faults().inject(answer(endless_list())).on(Match::list().query("limit", "500"));
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(30)).await.unwrap();
    assert_eq!(maps.snapshot().iter().map(|object| object.name().to_owned()).collect::<Vec<_>>(), ["two"]);
}

#[tokio::test(start_paused = true)]
async fn endless_list_fails_reads_and_audits_at_once() {
    let world = world_with(TestServer::builder(), listing(quiet())).await;
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(5)).await.unwrap();
    let fault = world.server.faults().inject(answer(endless_list())).on(Match::list());
    let error = maps.audit(secs(60)).await.unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");
    until_nothing_is_of_this_moment().await;
    let error = maps.read(secs(0), secs(60)).await.unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");
    assert!(fault.hits() <= 12, "{}", fault.hits());
}

#[tokio::test(start_paused = true)]
async fn list_above_object_cap_names_cap() {
    for initial in [InitialList::Paged, InitialList::Streamed] {
        let mut options = quiet();
        options.machine.initial = initial;
        options.machine.page_size = Some(1);
        options.machine.max_list_objects = 2;
        let world = world_with(TestServer::builder(), options).await;
        for name in ["one", "two", "three"] {
            world.create("a", name, "1");
        }
        let maps = config_maps(&world.factory);
        let error = maps.wait_synced(secs(20)).await.unwrap_err();
        assert!(the_one(&error).reason.contains("MachineOptions::max_list_objects"), "{error}");
        world.delete("a", "three");
        maps.wait_synced(PLENTY).await.unwrap();
        assert_eq!(maps.snapshot().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn non_list_answer_error_names_what_arrived() {
    let table = json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "9"},
        "columnDefinitions": [], "rows": [],
    });
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "resourceVersion": "1"}});
    let unversioned = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []});
    let backwards = json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "-1"}, "items": []});
    let cases = [
        (table.to_string(), "got a Table instead of a list"),
        (pod.to_string(), "\"Pod\" is no list: it has no items"),
        (unversioned.to_string(), "list's "),
        (backwards.to_string(), "list's "),
        ("<html>proxy error</html>".to_owned(), "list: "),
        ("\u{0}\u{1}\u{2}".to_owned(), "list: "),
        (String::new(), "list ends after 0 bytes"),
        ("{\"items\":[{\"metadata\":".to_owned(), "before it is complete"),
        (format!("{{\"items\":[{}", "[".repeat(100_000)), "list"),
        (format!("{{\"items\":[{{\"a\":{}", "[".repeat(100_000)), "too deep"),
        (format!("{{\"metadata\":\"{}", "x".repeat(2 << 20)), "bytes outside of its items"),
    ];
    for (body, reason) in cases {
        let world = world_with(TestServer::builder(), listing(quiet())).await;
        let _fault = world.server.faults().inject(answer(&body)).everywhere();
        let maps = config_maps(&world.factory);
        let error = maps.wait_synced(secs(5)).await.unwrap_err();
        let who = the_one(&error);
        let start: String = body.chars().take(60).collect();
        assert!(who.reason.contains(reason), "{start:?}: {error}");
        assert!(who.state.condition.is_failing(), "{start:?}: {error}");
        assert!(who.attempts > 0, "{start:?}: {error}");
        assert!(matches!(maps.freshness(), Freshness::NeverSynced { .. }));
        assert!(world.factory.shutdown(secs(1)).await.complete);
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_objects_are_counted_and_skipped() {
    let named = |name: &str| Some(ObjectKey::namespaced("a", name));
    let mut labelled = item("labelled");
    labelled["metadata"]["labels"] =
        (0..5000).map(|i| (format!("l{i}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    let mut odd_labels = item("odd");
    odd_labels["metadata"]["labels"] = json!({"n": 7});
    let mut endless_name = item("x");
    endless_name["metadata"]["name"] = "x".repeat(2000).into();
    let mut split = item("split");
    split["metadata"]["namespace"] = "a/b".into();
    let mut timeless = item("timeless");
    timeless["metadata"]["resourceVersion"] = "yesterday".into();
    let cases = [
        (item("b/c"), None),
        (item(".."), None),
        (item(""), None),
        (split, None),
        (endless_name, None),
        (json!({"metadata": {}}), None),
        (json!({"spec": {}}), None),
        (labelled, named("labelled")),
        (odd_labels, named("odd")),
        (timeless, named("timeless")),
    ];
    for (bad, key) in cases {
        let start: String = bad.to_string().chars().take(80).collect();
        let world = world_with(TestServer::builder(), listing(quiet())).await;
        let fault = world.server.faults().inject(answer(list_of(&[item("before"), bad, item("then")])));
        let _fault = fault.on(Match::list()).times(1);
        let maps = config_maps(&world.factory);
        maps.wait_synced(secs(5)).await.unwrap();
        let names: Vec<_> = maps.snapshot().iter().map(|object| object.name().to_owned()).collect();
        assert_eq!(names, ["before", "then"], "{start}");
        eventually("the watch stands", || maps.state().condition.is_watching()).await;
        let expected = Degradation::Undecodable { key: key.clone(), count: 1 };
        assert_eq!(maps.state().condition, Condition::Degraded(expected), "{start}");
        let freshness = maps.freshness();
        match freshness.reason() {
            Some(StaleReason::Undecodable { key: found, count: 1 }) => assert_eq!(*found, key, "{start}"),
            other => panic!("{start}: {other:?}"),
        }
        assert!(maps.stats().undecodable >= 1, "{start}");
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_reread_after_recovery() {
    for deleted in [false, true] {
        let world = world().await;
        world.create("a", "one", "1");
        world.create("a", "two", "1");
        let maps = config_maps(&world.factory);
        maps.wait_synced(secs(5)).await.unwrap();
        world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
        let fault = world.server.faults().inject(Fault::Undecodable(Damage::Labels)).everywhere();
        world.put("a", "one", "2");
        let is_degraded = || matches!(maps.state().condition, Condition::Degraded(_));
        eventually("it is told", is_degraded).await;
        fault.heal();
        // The event is lost on the way, so that no further event of the object comes.
        if deleted {
            let fault = world.server.faults().inject(Fault::DropEvents).on(Match::watch()).times(1);
            world.delete("a", "one");
            fault.wait_hits(1).await;
        }
        let expected = if deleted { None } else { Some("2".to_owned()) };
        let value = || {
            let snapshot = maps.snapshot();
            let one = snapshot.iter().find(|object| object.name() == "one");
            one.and_then(|object| object.label("value").map(str::to_owned))
        };
        let healed = || maps.freshness().is_live() && value() == expected;
        eventually_within(secs(60), "it is read again", healed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_events_never_advance_content_silently() {
    let damages = [
        Damage::Labels,
        Damage::NoMetadata,
        Damage::NoName,
        Damage::NameWithSlash,
        Damage::NoResourceVersion,
    ];
    for damage in damages {
        let world = world().await;
        world.create("a", "one", "1");
        let maps = config_maps(&world.factory);
        maps.wait_synced(secs(5)).await.unwrap();
        world.server.wait_for(|server| server.open_watches() == 1).await.unwrap();
        let before = maps.snapshot().resource_version().clone();
        let fault = world.server.faults().inject(Fault::Undecodable(damage)).on(Match::watch());
        let revision = world.put("a", "one", "2");
        fault.wait_hits(1).await;
        eventually("it was noticed", || maps.stats().undecodable > 0).await;
        let now = maps.snapshot();
        let kept = *now.resource_version() == before;
        let repaired = now.iter().next().unwrap().label("value") == Some("2");
        assert!(kept || repaired, "{damage:?}: at {} with the old content", now.resource_version());
        fault.heal();
        maps.wait_for(&revision.into(), secs(60)).await.unwrap();
        assert_eq!(maps.snapshot().iter().next().unwrap().label("value"), Some("2"), "{damage:?}");
        eventually("live again", || maps.freshness().is_live()).await;
    }
}

/// Returns lists that are not of config maps, each with its error.
fn lists_of_another_kind() -> [(Value, &'static str); 3] {
    let mut secret = item("other");
    secret["kind"] = "Secret".into();
    let mut secrets = list_of(&[item("other")]);
    secrets["kind"] = "SecretList".into();
    let mut beta = list_of(&[]);
    beta["apiVersion"] = "v1beta1".into();
    [
        (list_of(&[secret]), "asked for v1 ConfigMap, got Secret"),
        (secrets, "asked for v1 ConfigMapList, got v1 SecretList"),
        (beta, "asked for v1 ConfigMapList, got v1beta1 ConfigMapList"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_kind_is_refused() {
    for (list, reason) in lists_of_another_kind() {
        let world = world_with(TestServer::builder(), listing(quiet())).await;
        let fault = world.server.faults().inject(answer(list)).on(Match::list());
        let maps = config_maps(&world.factory);
        let error = maps.wait_synced(secs(5)).await.unwrap_err();
        let who = the_one(&error);
        assert!(who.reason.contains(reason), "{error}");
        assert_eq!(who.state.condition, Condition::ServerError, "{error}");
        fault.heal();
        maps.wait_synced(PLENTY).await.unwrap();
        assert_eq!(maps.snapshot().len(), 0);
    }
}

/// Checks that a live read is as strict as the list/watch: it is used when something is wrong.
#[tokio::test(start_paused = true)]
async fn live_reads_and_audits_refuse_other_kind() {
    let world = world().await;
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(5)).await.unwrap();
    for (list, reason) in lists_of_another_kind() {
        let fault = world.server.faults().inject(answer(list)).on(Match::list());
        until_nothing_is_of_this_moment().await;
        let error = maps.read(secs(0), secs(5)).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        maps.audit(secs(5)).await.unwrap_err();
        fault.heal();
    }
    let mut secret = item("one");
    secret["kind"] = "Secret".into();
    let _fault = world.server.faults().inject(answer(secret)).on(Match::get());
    let _no_probes = world.server.faults().inject(Fault::status(500, 0)).on(Match::list());
    let key = ObjectKey::namespaced("a", "one");
    until_nothing_is_of_this_moment().await;
    let error = maps.read_one(&key, secs(0), secs(5)).await.unwrap_err();
    assert!(error.to_string().contains("asked for v1 ConfigMap, got Secret"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn live_reads_and_audits_skip_other_namespaces() {
    let world = world().await;
    world.create("a", "one", "1");
    let options = InformerOptions::namespaces(["a", "b"]);
    let maps: Informer<ConfigMap> = world.factory.informer(options).expect("an informer");
    maps.wait_synced(secs(5)).await.unwrap();
    let known = world.server.get("configmaps", Some("a"), "one").expect("it is there");
    let mut foreign = item("foreign");
    foreign["metadata"]["namespace"] = "b".into();
    let mut list = list_of(&[known, foreign]);
    list["metadata"]["resourceVersion"] = maps.snapshot().resource_version_in("a").to_string().into();
    let of_a = Match::list().namespace("a").query("limit", "500");
    let _fault = world.server.faults().inject(answer(list)).on(of_a);
    let report = maps.audit(secs(5)).await.unwrap();
    assert!(report.is_clean() && report.listed == 1, "{report:?}");
    let _no_probes =
        world.server.faults().inject(Fault::status(500, 0)).on(Match::list().query("limit", "1"));
    until_nothing_is_of_this_moment().await;
    let read = maps.read(secs(0), secs(5)).await.unwrap();
    let keys: Vec<String> = read.snapshot.iter().map(|object| object.key().to_string()).collect();
    assert_eq!(keys, ["a/one"]);
}

#[tokio::test(start_paused = true)]
async fn pages_of_different_revisions_are_no_live_snapshot() {
    let world = world().await;
    world.create("a", "real", "1");
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(5)).await.unwrap();
    let faults = world.server.faults();
    let page = |name: &str, revision: &str, next: Option<&str>| {
        let mut list = list_of(&[item(name)]);
        list["metadata"] = json!({"resourceVersion": revision, "continue": next.unwrap_or_default()});
        answer(list)
    };
    let paged = || Match::list().query("limit", "500");
    let _first = faults.inject(page("one", "8", Some("more"))).on(paged().query("continue", ""));
    let second = faults.inject(page("two", "9", None)).on(paged().query("continue", "more"));
    let _no_probes = faults.inject(Fault::status(500, 0)).on(Match::list().query("limit", "1"));
    until_nothing_is_of_this_moment().await;
    let read = maps.read(secs(0), secs(5)).await.unwrap();
    let names: Vec<String> = read.snapshot.iter().map(|object| object.key().to_string()).collect();
    assert_eq!((names, second.hits()), (vec!["a/real".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn mistyped_object_fails_at_decoding() {
    let world = world_with(TestServer::builder(), listing(quiet())).await;
    let mut other = item("other");
    other["data"] = json!("no map");
    let _fault = world.server.faults().inject(answer(list_of(&[other]))).on(Match::list()).times(1);
    let maps = config_maps(&world.factory);
    maps.wait_synced(secs(5)).await.unwrap();
    let object = maps.snapshot().iter().next().unwrap().clone();
    let error = object.typed().unwrap_err();
    assert!(error.to_string().contains("a/other cannot be decoded"), "{error}");
}

/// Makes a factory that connects to this server over a real socket, with its kubeconfig changed by `change`.
async fn over_a_socket(
    server: TestServerBuilder,
    change: impl FnOnce(&mut kube::Config),
) -> (TestServer, InformerFactory) {
    let server = server.start().await.expect("the server starts");
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a config");
    change(&mut config);
    let transport = Transport::from_config(config, TransportOptions::default()).expect("a transport");
    (server, InformerFactory::new(transport, quiet()))
}

async fn why_not(factory: &InformerFactory) -> Unsynced {
    let begun = tokio::time::Instant::now();
    let error = config_maps(factory).wait_synced(secs(2)).await.expect_err("it must not sync");
    assert!(begun.elapsed() < secs(3), "{:?}", begun.elapsed());
    the_one(&error).clone()
}

#[tokio::test]
async fn an_expired_certificate_is_named() {
    let (_server, factory) = over_a_socket(TestServer::builder().expired_certificate(), |_| {}).await;
    let who = why_not(&factory).await;
    assert_eq!(who.state.condition, Condition::Unreachable, "{who}");
    assert!(who.reason.contains("server certificate outside its validity"), "{who}");
    assert!(factory.shutdown(secs(1)).await.complete);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_named() {
    let other = TestServer::builder().tls(true).start().await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&other.kubeconfig()).unwrap();
    let other =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let wrong_ca = |config: &mut kube::Config| config.root_cert = other.root_cert;
    let (_server, factory) = over_a_socket(TestServer::builder().tls(true), wrong_ca).await;
    let who = why_not(&factory).await;
    assert_eq!(who.state.condition, Condition::Unreachable, "{who}");
    assert!(who.reason.contains("server certificate not trusted"), "{who}");
    assert!(who.reason.contains("certificate-authority"), "it says what to check: {who}");
    assert!(factory.shutdown(secs(1)).await.complete);
}

#[tokio::test]
async fn a_wrong_or_missing_token_is_unauthorized() {
    for token in [Some("wrong".to_owned()), None] {
        let change = |config: &mut kube::Config| config.auth_info.token = token.map(Into::into);
        let (_server, factory) = over_a_socket(TestServer::builder().tls(true).token("right"), change).await;
        let who = why_not(&factory).await;
        assert_eq!(who.state.condition, Condition::Unauthorized, "{who}");
        assert!(who.reason.contains("Unauthorized (HTTP 401)"), "{who}");
        assert!(who.attempts <= 12, "{who}");
        assert!(factory.shutdown(secs(1)).await.complete);
    }
}

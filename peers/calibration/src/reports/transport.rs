//! What the transport promises: the same as in `crates/skopos-transport/tests`, where a server or a network can be had that does it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{join_all, try_join_all};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::client::Body;
use serde_json::json;
use skopos::transport::{
    ConnectionId, RequestOptions, TlsFault, TransportBody, TransportError, TransportErrorKind,
    TransportOptions,
};
use skopos::{Condition, FactoryOptions, InformerFactory, InformerOptions, Transport};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::gate::Gate;
use crate::real::RealServer;
use crate::scene::{CONFIG_MAPS, SLACK, Scene, config, create, eventually, request, secs, transport, within};

/// What the transport promises, in the order of its tests.
pub(crate) const SCENES: [Scene; 15] = [
    Scene::new("transport: more watches than streams", |server| many_watches(server).boxed()),
    Scene::new("transport: lists and watches apart", |server| apart(server).boxed()),
    Scene::new("transport: lists that nobody reads", |server| unread(server).boxed())
        .with(&["--pods", "3000"]),
    Scene::new("transport: silence, watched and idle", |server| silence(server).boxed()),
    Scene::new("transport: silence beside a slow reader", |server| slow_reader(server).boxed()),
    Scene::new("transport: resets and ends reach every stream", |server| ends(server).boxed()),
    Scene::new("transport: restarts of every kind", |server| restarts(server).boxed()),
    Scene::new("transport: dials to a server that is gone", |server| dials(server).boxed()),
    Scene::new("transport: GOAWAY with every answer", |server| go_away(server).boxed())
        .with(&["--goaway-chance", "1"]),
    Scene::new("transport: a write whose answer is lost", |server| lost_answer(server).boxed()),
    Scene::new("transport: a deadline of the caller's", |server| deadline(server).boxed()),
    Scene::new("transport: trust, and whom to trust anew", |server| trust(server).boxed()),
    Scene::new("transport: a token that was renewed", |server| token(server).boxed())
        .with(&["--token", "renewed"]),
    Scene::new("transport: an informer whose token expires", |server| expired(server).boxed())
        .with(&["--token", "renewed"]),
    Scene::new("transport: shutdown, over HTTP/2 and HTTP/1.1", |server| shutdown(server).boxed()),
];

/// Within what time a connection that is silent has to be found.
const SILENCE: Duration = Duration::from_secs(15);

/// What a gate does to what passes.
type Inflict = fn(&Gate);

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true";
const READ: &str = "/version";

/// A server allows a hundred streams on a connection.
async fn many_watches(server: &RealServer) -> anyhow::Result<String> {
    const WATCHES: usize = 250;
    let (_gate, transport) = behind_a_gate(server).await?;
    let begin = Instant::now();
    let mut watches = try_join_all((0..WATCHES).map(|_| watch(&transport))).await?;
    within("the watches", begin, secs(2))?;
    ask(&transport, READ).await?;
    create(server, "seen").await?;
    try_join_all(watches.iter_mut().map(|watch| is_told(watch, "seen"))).await?;
    let connections = transport.stats().connections.iter().filter(|one| one.for_watches).count();
    ensure!((3..=4).contains(&connections), "{connections} connections");
    Ok(format!("{WATCHES} watches over {connections} connections, each was told of the change"))
}

async fn apart(server: &RealServer) -> anyhow::Result<String> {
    let (gate, transport) = behind_a_gate(server).await?;
    let watch = transport.send(get(WATCH)).await?;
    let list = transport.send(get(CONFIG_MAPS)).await?;
    ensure!(connection(&watch)? != connection(&list)?, "a list on a connection of watches");
    let mut second = get(WATCH);
    let avoid_connection = Some(connection(&watch)?);
    second.extensions_mut().insert(RequestOptions { avoid_connection, ..Default::default() });
    let second = transport.send(second).await?;
    ensure!(connection(&watch)? != connection(&second)?, "a second opinion on the connection in doubt");
    Ok(format!("{} connections for two watches and a list", gate.passing()))
}

/// Lists of some 13 MB each, of which nobody takes a byte, and one that is read.
async fn unread(server: &RealServer) -> anyhow::Result<String> {
    const UNREAD: usize = 20;
    let (_gate, transport) = behind_a_gate(server).await?;
    let held = try_join_all((0..UNREAD).map(|_| transport.send(get("/api/v1/pods")))).await?;
    let begin = Instant::now();
    let read = ask(&transport, "/api/v1/pods").await?;
    within("the list that is read", begin, secs(10))?;
    let took = begin.elapsed();
    ensure!(read.len() > 4 << 20, "a list of {} bytes", read.len());
    let connections = transport.stats().connections.len();
    ensure!(connections == 1, "{connections} connections");
    drop(held);
    Ok(format!("{} MB in {took:.1?} on the one connection of {UNREAD} that are not read", read.len() >> 20))
}

async fn silence(server: &RealServer) -> anyhow::Result<String> {
    let mut slowest = Duration::ZERO;
    let silences: [(&str, Inflict); 2] =
        [("both ways", Gate::swallow), ("the server's", Gate::swallow_answers)];
    for (which, inflict) in silences {
        let (gate, transport) = behind_a_gate(server).await?;
        let mut watch = watch(&transport).await?;
        ask(&transport, READ).await?;
        inflict(&gate);
        let begin = Instant::now();
        let error_kind = ended(&mut watch).await?;
        ensure!(*error_kind.kind() == TransportErrorKind::PingTimeout, "{which}: {error_kind}");
        within(which, begin, SILENCE)?;
        slowest = slowest.max(begin.elapsed());
        // And so is the connection that nobody asks anything.
        eventually(SILENCE + SLACK, || transport.stats().connections.is_empty()).await.context(which)?;
        within(which, begin, SILENCE)?;
        let begin = Instant::now();
        ask(&transport, READ).await?;
        within("the next request", begin, secs(1))?;
    }
    Ok(format!("found after {slowest:.1?} at most, also by who only had an idle connection"))
}

async fn slow_reader(server: &RealServer) -> anyhow::Result<String> {
    let (gate, transport) = behind_a_gate(server).await?;
    let mut slow = watch(&transport).await?;
    let mut other = watch(&transport).await?;
    for number in 0..40 {
        let name = format!("of-{number}");
        create(server, &name).await?;
        is_told(&mut other, &name).await?;
    }
    ensure!(transport.stats().connections.len() == 1, "{:?}", transport.stats());
    gate.swallow();
    let begin = Instant::now();
    let reads = async {
        while let Some(Ok(_)) = slow.frame().await {
            sleep(secs(2)).await;
        }
    };
    let error_kind = tokio::select! {
        biased;
        error_kind = ended(&mut other) => error_kind?,
        () = reads => anyhow::bail!("the slow one has read everything"),
    };
    ensure!(*error_kind.kind() == TransportErrorKind::PingTimeout, "{error_kind}");
    within("the other one", begin, SILENCE)?;
    Ok(format!("found after {:.1?} by who has read everything", begin.elapsed()))
}

async fn ends(server: &RealServer) -> anyhow::Result<String> {
    const WATCHES: usize = 20;
    let mut slowest = Duration::ZERO;
    let cuts: [(Inflict, &str); 2] = [(Gate::cut, "reset"), (Gate::close, "eof")];
    for (inflict, kind) in cuts {
        let (gate, transport) = behind_a_gate(server).await?;
        let mut watches = try_join_all((0..WATCHES).map(|_| watch(&transport))).await?;
        let begin = Instant::now();
        inflict(&gate);
        for watch in &mut watches {
            let error_kind = ended(watch).await?;
            ensure!(error_kind.kind().label() == kind, "{kind}: {error_kind}");
        }
        slowest = slowest.max(begin.elapsed());
        within(kind, begin, secs(1))?;
        let error_kinds = transport.stats().errors;
        ensure!(error_kinds.get(kind) == Some(&1), "one connection, one error: {error_kinds:?}");
    }
    Ok(format!("{WATCHES} streams told within {slowest:.1?}"))
}

/// Killed, told to end, and both with a network that forgets it.
async fn restarts(server: &RealServer) -> anyhow::Result<String> {
    let (gate, transport) = behind_a_gate(server).await?;
    let mut slowest = Duration::ZERO;
    for round in 0..4 {
        let mut watch = watch(&transport).await?;
        ask(&transport, READ).await?;
        if round >= 2 {
            gate.swallow();
        }
        if round % 2 == 0 {
            server.kill().await?;
        } else {
            server.stop().await?;
        }
        timeout(SILENCE + SLACK, async { while let Some(Ok(_)) = watch.frame().await {} }).await?;
        server.start_again().await?;
        let back = Instant::now();
        transport.connected(secs(10)).await?;
        ask(&transport, READ).await.with_context(|| format!("round {round}"))?;
        within("the first answer", back, secs(2))?;
        slowest = slowest.max(back.elapsed());
    }
    eventually(SILENCE + SLACK, || transport.stats().connections.len() <= 2).await?;
    Ok(format!("answered {slowest:.1?} at most after the server was ready, 4 times"))
}

async fn dials(server: &RealServer) -> anyhow::Result<String> {
    const CALLERS: usize = 50;
    let (gate, transport) = behind_a_gate(server).await?;
    ask(&transport, READ).await?;
    gate.shut();
    let (begin, before) = (Instant::now(), transport.stats().dials);
    let mut answers = 0;
    while begin.elapsed() < secs(8) {
        for answer in join_all((0..CALLERS).map(|_| ask(&transport, READ))).await {
            ensure!(answer.is_err(), "an answer through a shut gate");
            answers += 1;
        }
        sleep(Duration::from_millis(250)).await;
    }
    let dials = transport.stats().dials - before;
    ensure!((4..=10).contains(&dials), "{dials} dials in 8 s");
    gate.open();
    let back = Instant::now();
    transport.connected(secs(10)).await?;
    ask(&transport, READ).await?;
    within("the first answer", back, secs(2))?;
    Ok(format!(
        "{dials} dials in 8 s for {answers} requests; an answer {:.1?} after the return",
        back.elapsed()
    ))
}

async fn go_away(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let options = TransportOptions { max_connections: 5, ..Default::default() };
    let transport = Transport::from_config(config(server, &gate)?, options)?;
    // The connection takes no more requests, and what is on it goes on.
    let (mut old, mut new) = (watch(&transport).await?, watch(&transport).await?);
    create(server, "seen").await?;
    is_told(&mut old, "seen").await?;
    is_told(&mut new, "seen").await?;
    ensure!(transport.stats().errors.contains_key("go_away"), "no GOAWAY: {:?}", transport.stats().errors);
    let (begin, before, mut reads) = (Instant::now(), transport.stats().dials, 0);
    while begin.elapsed() < secs(8) {
        ask(&transport, READ).await?;
        reads += 1;
    }
    let dials = transport.stats().dials - before;
    ensure!(dials <= 10 + 4 * 9, "{dials} dials in 8 s, more than 10 at once and 4 a second");
    Ok(format!("two watches went on; {reads} reads over {dials} connections in 8 s"))
}

async fn lost_answer(server: &RealServer) -> anyhow::Result<String> {
    let (gate, transport) = behind_a_gate(server).await?;
    ask(&transport, READ).await?;
    gate.swallow_answers();
    let object = json!({"metadata": {"generateName": "once-"}});
    let write = Request::post(CONFIG_MAPS).header("content-type", "application/json");
    let write = transport.send(write.body(Body::from(object.to_string().into_bytes()))?);
    let cut = async {
        sleep(secs(1)).await;
        gate.cut();
    };
    let (answer, ()) = tokio::join!(write, cut);
    let error = answer.err().context("an answer that was lost")?;
    // Whoever sent it a second time has done so by then.
    ask(&transport, READ).await?;
    let list = request(server, Method::GET, CONFIG_MAPS, None).await?;
    let made = list["items"].as_array().context("no items")?.len();
    ensure!(made == 1, "{made} objects");
    Ok(format!("one object; the caller knows that it does not know ({error})"))
}

async fn deadline(server: &RealServer) -> anyhow::Result<String> {
    let (gate, transport) = behind_a_gate(server).await?;
    ask(&transport, READ).await?;
    gate.swallow_answers();
    let mut read = get(READ);
    let deadline = Some(secs(2));
    read.extensions_mut().insert(RequestOptions { deadline, ..Default::default() });
    let begin = Instant::now();
    let error = transport.send(read).await.err().context("an answer that was lost")?;
    ensure!(matches!(error.kind(), TransportErrorKind::CallerDeadline { .. }), "{error}");
    within("the call", begin, secs(2))?;
    let blamed = transport.stats().connections.iter().any(|one| one.retired.is_some());
    ensure!(!blamed, "the connection was blamed: {:?}", transport.stats());
    Ok(format!("after {:.2?}", begin.elapsed()))
}

async fn trust(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let theirs = config(server, &gate)?.root_cert.context("no certificate")?;
    // A CA in whose place the right one is put later.
    let stranger = RealServer::start(server.program(), &[]).await?;
    let folder = tempfile::tempdir()?;
    let ca = folder.path().join("ca.crt");
    std::fs::copy(stranger.certificate(), &ca)?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "peer",
        "clusters": [{"name": "peer", "cluster": {
            "server": format!("https://127.0.0.1:{}", gate.port()), "certificate-authority": ca,
        }}],
        "users": [{"name": "peer", "user": {}}],
        "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
    });
    let kubeconfig = serde_json::from_value(kubeconfig)?;
    let rotated = skopos::transport::config_from_kubeconfig(kubeconfig, &Default::default()).await?;
    let rotated = Transport::from_config(rotated, TransportOptions::default())?;
    let error = ask(&rotated, READ).await.err().context("a stranger's CA does")?;
    ensure!(matches!(error.kind(), TransportErrorKind::Tls(TlsFault::Untrusted(_))), "{error}");
    std::fs::copy(server.certificate(), &ca)?;
    next_dial(&rotated).await;
    ask(&rotated, READ).await.context("the right CA, once it is there")?;
    // And the name that is asked for.
    for (name, trusted) in [("localhost", true), ("elsewhere", false)] {
        let mut named = config(server, &gate)?;
        named.root_cert = Some(theirs.clone());
        named.tls_server_name = Some(name.to_owned());
        let named = Transport::from_config(named, TransportOptions::default())?;
        let answer = ask(&named, READ).await;
        ensure!(answer.is_ok() == trusted, "{name}: {answer:?}");
    }
    stranger.stop().await?;
    Ok(format!("untrusted, then trusted without a restart; told as {error:?}"))
}

async fn token(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "expired")?;
    let mut config = config(server, &gate)?;
    config.auth_info.token_file = Some(file.path().display().to_string());
    let transport = Transport::from_config(config, TransportOptions::default())?;
    let status = async || anyhow::Ok(transport.send(get(CONFIG_MAPS)).await?.status());
    ensure!(status().await? == StatusCode::UNAUTHORIZED, "another's token does");
    std::fs::write(file.path(), "renewed")?;
    let begin = Instant::now();
    while status().await? != StatusCode::OK {
        within("the renewed token", begin, secs(6))?;
        sleep(Duration::from_millis(100)).await;
    }
    let refreshes = transport.stats().credential_refreshes;
    ensure!((1..=3).contains(&refreshes), "the token was read {refreshes} times");
    Ok(format!("let in {:.1?} after the file was written", begin.elapsed()))
}

async fn expired(server: &RealServer) -> anyhow::Result<String> {
    let gate = Gate::to(server.port()).await?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "expired")?;
    let mut config = config(server, &gate)?;
    config.auth_info.token_file = Some(file.path().display().to_string());
    let transport = Transport::from_config(config, TransportOptions::default())?;
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let maps = factory.informer::<ConfigMap>(InformerOptions::all())?;
    let pods = factory.metadata::<Pod>(InformerOptions::namespace("default"))?;
    let both = || [maps.state(), pods.state()];
    let begin = Instant::now();
    let refused = || both().iter().all(|link| link.condition == Condition::Unauthorized);
    eventually(secs(10), refused).await.with_context(|| format!("{:?}", both()))?;
    let told = begin.elapsed();
    // Whatever is tried meanwhile, they are refused as strangers and not called away.
    while begin.elapsed() < secs(8) {
        ensure!(refused(), "{:?}", both());
        sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(file.path(), "renewed")?;
    let begin = Instant::now();
    let live = || maps.freshness().is_live() && pods.freshness().is_live();
    // They may have spent what a minute allows.
    eventually(secs(60), live).await.with_context(|| format!("{:?}", both()))?;
    let back = begin.elapsed();
    ensure!(factory.shutdown(secs(1)).await.complete, "the shutdown is not complete");
    Ok(format!("both told after {told:.1?}, both live {back:.1?} after the file was written"))
}

async fn shutdown(server: &RealServer) -> anyhow::Result<String> {
    const WATCHES: usize = 20;
    let mut told = Vec::new();
    for http1_only in [false, true] {
        let gate = Gate::to(server.port()).await?;
        let options = TransportOptions { http1_only, ..Default::default() };
        let transport = Transport::from_config(config(server, &gate)?, options)?;
        let mut watches = try_join_all((0..WATCHES).map(|_| watch(&transport))).await?;
        ask(&transport, READ).await?;
        let passed = gate.passing();
        ensure!(passed == if http1_only { WATCHES + 1 } else { 2 }, "{passed} connections");
        let begin = Instant::now();
        ensure!(transport.shutdown(secs(1)).await, "something is left");
        within("the shutdown", begin, secs(1))?;
        ensure!(ask(&transport, READ).await.err().is_some_and(|error| error.is_closed()), "not closed");
        for watch in &mut watches {
            ensure!(ended(watch).await?.is_closed(), "a watch that goes on");
        }
        eventually(secs(1), || gate.passing() == 0).await.context("connections are left")?;
        told.push(format!("{passed} connections gone after {:.0?}", begin.elapsed()));
    }
    Ok(told.join(", "))
}

async fn behind_a_gate(server: &RealServer) -> anyhow::Result<(Gate, Transport)> {
    let gate = Gate::to(server.port()).await?;
    let transport = transport(server, &gate)?;
    Ok((gate, transport))
}

fn get(path: &'static str) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = Uri::from_static(path);
    request
}

/// Reads all of an answer.
async fn ask(transport: &Transport, path: &'static str) -> Result<Bytes, TransportError> {
    let answer = transport.send(get(path)).await?;
    Ok(answer.into_body().collect().await?.to_bytes())
}

async fn watch(transport: &Transport) -> anyhow::Result<TransportBody> {
    let answer = transport.send(get(WATCH)).await?;
    ensure!(answer.status() == StatusCode::OK, "a watch is answered {}", answer.status());
    Ok(answer.into_body())
}

fn connection(answer: &Response<TransportBody>) -> anyhow::Result<ConnectionId> {
    answer.extensions().get().copied().context("an answer without a connection")
}

/// Reads until the watch is told of that object.
async fn is_told(watch: &mut TransportBody, name: &str) -> anyhow::Result<()> {
    let told = async {
        loop {
            let frame = watch.frame().await.context("the watch ended")??;
            let data = frame.into_data().unwrap_or_default();
            if String::from_utf8_lossy(&data).contains(&format!("{name:?}")) {
                return anyhow::Ok(());
            }
        }
    };
    timeout(secs(10), told).await.with_context(|| format!("not told of {name}"))?
}

/// What the watch ends with.
async fn ended(watch: &mut TransportBody) -> anyhow::Result<TransportError> {
    let ends = async {
        loop {
            match watch.frame().await.context("the watch ended in peace")? {
                Ok(_) => {}
                Err(error) => return anyhow::Ok(error),
            }
        }
    };
    timeout(SILENCE + secs(5), ends).await.context("the watch goes on")?
}

/// Waits out the backoff.
async fn next_dial(transport: &Transport) {
    if let Some(down) = transport.stats().down {
        sleep_until(down.next).await;
    }
}

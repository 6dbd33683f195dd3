//! Tests that every fault has its effect, and ends when it is healed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::json;
use skopos_testserver::{
    CloseMode, Connections, Damage, Direction, Fault, Match, Outcome, Status, TestServer, User,
};
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

async fn with_maps(names: &[&str]) -> TestServer {
    let server = start(TestServer::builder()).await;
    for name in names {
        server.create(config_map(name)).unwrap();
    }
    server
}

/// Opens a watch from now on.
async fn watch_now(server: &TestServer) -> Watch {
    let now = server.resource_version();
    watch(server, &format!("{MAPS}?watch=1&resourceVersion={now}")).await
}

#[tokio::test(start_paused = true)]
async fn status_fault_applies_given_times_with_retry_after() {
    let server = with_maps(&["a"]).await;
    let fault =
        server.faults().inject(Fault::status(503, 7)).on(Match::list().resource("configmaps")).times(2);
    for _ in 0..2 {
        let answer = get(&server, MAPS).await;
        answer.failed(503, "ServiceUnavailable", "Service Unavailable");
        assert_eq!(answer.headers["retry-after"], "7");
    }
    assert_eq!(get(&server, MAPS).await.code, 200);
    fault.wait_hits(2).await;
    for (code, reason) in [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (504, "Timeout"),
    ] {
        let _fault = server.faults().inject(Fault::status(code, 0)).everywhere();
        assert_eq!(get(&server, MAPS).await.json()["reason"], reason);
    }
    assert_eq!(server.faults().active(), 1);
}

#[tokio::test(start_paused = true)]
async fn matches_pick_requests() {
    let server = with_maps(&["a"]).await;
    let client = Client::open(&server).await;
    for (matching, hit) in [
        (Match::any(), true),
        (Match::list(), true),
        (Match::watch(), false),
        (Match::write(), false),
        (Match::any().resource("configmaps").namespace("default"), true),
        (Match::any().resource("pods"), false),
        (Match::any().path_prefix("/api/v1/namespaces/default"), true),
        (Match::any().user_agent("robot"), true),
        (Match::any().user_agent("human"), false),
        (Match::any().query("limit", "5"), true),
        (Match::any().query("limit", ""), false),
        (Match::any().connection(client.id), false),
    ] {
        let text = format!("{matching:?}");
        let _fault = server.faults().inject(Fault::status(500, 0)).on(matching);
        let answer = get_with(&server, &format!("{MAPS}?limit=5"), &[("user-agent", "a robot")]).await;
        assert_eq!(answer.code == 500, hit, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn redirects_and_answers_of_proxies() {
    let server = with_maps(&[]).await;
    let fault = server.faults().inject(Fault::Redirect("https://elsewhere/".into())).everywhere();
    let answer = get(&server, MAPS).await;
    assert_eq!((answer.code, &answer.headers["location"]), (307, &"https://elsewhere/".parse().unwrap()));
    fault.heal();
    let html = Fault::Answer {
        code: 502,
        headers: vec![(http::header::CONTENT_TYPE, "text/html".into())],
        body: "<html>".into(),
    };
    let _fault = server.faults().inject(html).everywhere();
    let answer = get(&server, MAPS).await;
    assert_eq!(
        (answer.code, &answer.headers["content-type"], &answer.body[..]),
        (502, &"text/html".parse().unwrap(), &b"<html>"[..])
    );
}

#[tokio::test(start_paused = true)]
async fn withheld_headers_come_after_healing() {
    let server = with_maps(&["a"]).await;
    let fault = server.faults().inject(Fault::WithholdHeaders).on(Match::list());
    let answer = get(&server, MAPS);
    tokio::pin!(answer);
    assert!(timeout(600 * SECOND, &mut answer).await.is_err());
    assert_eq!(server.requests()[0].outcome, Outcome::Waiting);
    fault.heal();
    assert_eq!(answer.await.code, 200);
    let _fault = server.faults().inject(Fault::DelayHeaders(5 * SECOND)).everywhere();
    let begin = Instant::now();
    assert_eq!(get(&server, MAPS).await.code, 200);
    assert_eq!(begin.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn headers_wait_for_first_event() {
    let server = with_maps(&[]).await;
    let _fault = server.faults().inject(Fault::HoldHeadersUntilData).on(Match::watch());
    let stream = watch_now(&server);
    tokio::pin!(stream);
    assert!(timeout(30 * SECOND, &mut stream).await.is_err());
    server.create(config_map("a")).unwrap();
    assert_eq!(stream.await.short().await, "ADDED a");
}

#[tokio::test(start_paused = true)]
async fn stalled_stream_resumes_when_healed() {
    let server = with_maps(&[]).await;
    let mut old = watch_now(&server).await;
    let fault = server.faults().inject(Fault::Stall).on(Match::watch());
    let mut new = watch_now(&server).await;
    server.create(config_map("a")).unwrap();
    assert!(old.quiet(300 * SECOND).await && new.quiet(300 * SECOND).await);
    // Other requests are unaffected, also on new connections.
    assert_eq!(get(&server, MAPS).await.code, 200);
    assert_eq!(fault.hits(), 2);
    fault.heal();
    assert_eq!((old.short().await, new.short().await), ("ADDED a".into(), "ADDED a".into()));
    // New requests only.
    let fault = server.faults().inject(Fault::Stall).on(Match::watch().new_requests());
    let mut new = watch_now(&server).await;
    server.create(config_map("b")).unwrap();
    assert_eq!(old.short().await, "ADDED b");
    assert!(new.quiet(SECOND).await);
    fault.heal();
}

#[tokio::test(start_paused = true)]
async fn streams_end_cleanly_or_not_on_demand() {
    let server = with_maps(&[]).await;
    let mut stream = watch_now(&server).await;
    let fault = server.faults().inject(Fault::Close).on(Match::watch()).times(2);
    assert_eq!(stream.next().await, None);
    assert_eq!(watch_now(&server).await.next().await, None);
    assert!(watch_now(&server).await.quiet(SECOND).await, "two times were enough");
    fault.heal();

    let _fault = server.faults().inject(Fault::CloseAfter(1800 * SECOND)).on(Match::watch());
    let begin = Instant::now();
    let now = server.resource_version();
    assert_eq!(watch(&server, &format!("{MAPS}?watch=1&resourceVersion={now}")).await.next().await, None);
    assert_eq!(begin.elapsed().as_secs(), 1800);

    let mut stream = watch_now(&server).await;
    let _fault = server.faults().inject(Fault::Reset).on(Match::watch());
    assert!(stream.line().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_error_event_ends_a_stream() {
    let server = with_maps(&[]).await;
    let mut stream = watch_now(&server).await;
    let gone = Status::too_old_resource_version(1, 5);
    let _fault = server.faults().inject(Fault::ErrorEvent(gone)).on(Match::watch()).times(1);
    let event = stream.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn half_frames_garbage_and_damaged_objects() {
    let server = with_maps(&[]).await;
    let mut stream = watch_now(&server).await;
    let garbage = server.faults().inject(Fault::GarbageFrame).on(Match::watch()).times(1);
    server.create(config_map("a")).unwrap();
    server.create(config_map("b")).unwrap();
    let line = stream.line().await.unwrap().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&line).is_err(), "{line}");
    assert_eq!(stream.short().await, "ADDED b", "the stream goes on");
    assert_eq!(garbage.hits(), 1);
    drop(garbage);

    let damages = [
        (Damage::Labels, "/object/metadata/labels", json!(5)),
        (Damage::Spec, "/object/spec", json!("not a spec")),
        (Damage::NameWithSlash, "/object/metadata/name", json!("a/b")),
        (Damage::Kind, "/object/kind", json!("Nonsense")),
    ];
    for (damage, path, value) in damages {
        let _fault = server.faults().inject(Fault::Undecodable(damage)).on(Match::watch()).times(1);
        server.update(labelled("a", &format!("{damage:?}"))).unwrap();
        assert_eq!(stream.next().await.unwrap().pointer(path), Some(&value), "{damage:?}");
    }
    for (damage, path) in [
        (Damage::NoMetadata, "/object/metadata"),
        (Damage::NoName, "/object/metadata/name"),
        (Damage::NoResourceVersion, "/object/metadata/resourceVersion"),
    ] {
        let _fault = server.faults().inject(Fault::Undecodable(damage)).on(Match::watch()).times(1);
        server.update(labelled("a", &format!("{damage:?}"))).unwrap();
        assert_eq!(stream.next().await.unwrap().pointer(path), None, "{damage:?}");
    }

    let _half = server.faults().inject(Fault::HalfFrame).on(Match::watch()).times(1);
    server.update(labelled("a", "half")).unwrap();
    let line = stream.line().await.unwrap().unwrap();
    assert!(!line.ends_with('\n') && serde_json::from_str::<serde_json::Value>(&line).is_err(), "{line}");
    assert_eq!(stream.line().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn half_lists_and_damaged_items() {
    let server = with_maps(&["a"]).await;
    let fault = server.faults().inject(Fault::HalfFrame).on(Match::list());
    let answer = get(&server, MAPS).await;
    assert!(answer.code == 200 && serde_json::from_slice::<serde_json::Value>(&answer.body).is_err());
    fault.heal();
    let _fault = server.faults().inject(Fault::Undecodable(Damage::NoName)).on(Match::list());
    assert!(get(&server, MAPS).await.ok()["items"][0]["metadata"].get("name").is_none());
    let _fault = server.faults().inject(Fault::Undecodable(Damage::Labels)).on(Match::get());
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.ok()["metadata"]["labels"], 5);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_events_are_withheld_or_repeated() {
    let server = with_maps(&["a"]).await;
    let fault = server.faults().inject(Fault::WithholdBookmarks).on(Match::watch());
    let mut stream = watch(&server, &format!("{MAPS}?watch=1&allowWatchBookmarks=1")).await;
    assert_eq!(stream.short().await, "ADDED a");
    assert!(stream.quiet(300 * SECOND).await);
    fault.heal();
    assert_eq!(stream.short().await, "BOOKMARK");

    let fault = server.faults().inject(Fault::DropEvents).on(Match::watch()).times(1);
    server.create(config_map("b")).unwrap();
    server.create(config_map("c")).unwrap();
    assert_eq!(stream.short().await, "ADDED c");
    fault.heal();

    let _fault = server.faults().inject(Fault::RepeatEvents).on(Match::watch()).times(1);
    for name in ["d", "e"] {
        server.create(config_map(name)).unwrap();
    }
    assert_eq!(
        [stream.short().await, stream.short().await, stream.short().await],
        ["ADDED d", "ADDED e", "ADDED d"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_comes_in_drops() {
    let server = with_maps(&["a"]).await;
    let plain = get(&server, MAPS).await.body;
    let begin = Instant::now();
    let _fault = server.faults().inject(Fault::Slow { bytes: 10, every: SECOND }).on(Match::list());
    assert_eq!(get(&server, MAPS).await.body, plain);
    assert_eq!(begin.elapsed().as_secs() as usize, (plain.len() - 1) / 10);
}

#[tokio::test(start_paused = true)]
async fn hostile_bodies_never_end_or_are_enormous() {
    let server = with_maps(&[]).await;
    for matching in [Match::list(), Match::watch()] {
        let _fault = server.faults().inject(Fault::EndlessLine).on(matching.clone());
        let path = if format!("{matching:?}").contains("Watch") {
            format!("{MAPS}?watch=1")
        } else {
            MAPS.to_owned()
        };
        let mut client = Client::open(&server).await;
        let mut body = client.send(Method::GET, &path, &[], Bytes::new()).await.unwrap().into_body();
        let mut size = 0;
        while size < 20 << 20 {
            let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
            let data = frame.into_data().unwrap();
            assert!(!data.contains(&b'\n'));
            size += data.len();
        }
    }
    let fault = server.faults().inject(Fault::GiantObject { bytes: 5 << 20 }).everywhere();
    let list = get(&server, MAPS).await;
    assert!(list.body.len() > 5 << 20 && names(&list.json()) == ["giant"]);
    let event: serde_json::Value =
        serde_json::from_slice(&get(&server, &format!("{MAPS}?watch=1")).await.body).unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "giant");
    fault.heal();
    let fault = server.faults().inject(Fault::GzipBomb { bytes: 50 << 20 }).everywhere();
    let answer = get(&server, MAPS).await;
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert!(answer.body.len() < 1 << 20);
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&answer.body[..]), &mut unpacked).unwrap();
    assert!(unpacked.len() > 50 << 20);
    fault.heal();
    let _fault = server.faults().inject(Fault::TruncatedGzip).everywhere();
    let answer = get(&server, MAPS).await;
    let unpacked =
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&answer.body[..]), &mut Vec::new());
    assert!(unpacked.is_err());
}

#[tokio::test(start_paused = true)]
async fn connections_are_cut_in_order_or_reset() {
    let server = with_maps(&[]).await;
    for mode in [CloseMode::Fin, CloseMode::Rst] {
        let mut stream = server.connect().unwrap();
        let id = stream.id();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut buffer = [0; 1024];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        assert!(server.faults().kill_connection(id, mode));
        let end = stream.read(&mut buffer).await;
        match mode {
            CloseMode::Fin => assert_eq!(end.unwrap(), 0),
            CloseMode::Rst => assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset),
        }
        server.wait_for(|server| server.connections() == 0).await.unwrap();
    }
    let _fault = server.faults().inject(Fault::KillConnection(CloseMode::Rst)).everywhere().times(1);
    assert!(request(&server, Method::GET, MAPS, &[], Bytes::new()).await.is_err());
    assert_eq!(get(&server, MAPS).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn black_holes_swallow_either_direction_until_healed() {
    let server = with_maps(&[]).await;
    let mut stream = watch_now(&server).await;

    let hole = server.faults().black_hole(Connections::Existing, Direction::ToClient);
    server.create(config_map("a")).unwrap();
    assert!(stream.quiet(300 * SECOND).await);
    assert_eq!(hole.hits(), 1);
    assert_eq!(get(&server, MAPS).await.code, 200, "new connections are well");
    hole.heal();
    assert_eq!(stream.short().await, "ADDED a");

    // Data from clients does not arrive.
    let hole = server.faults().black_hole(Connections::New, Direction::ToServer);
    let seen = server.requests().len();
    let answer = get(&server, MAPS);
    tokio::pin!(answer);
    assert!(timeout(60 * SECOND, &mut answer).await.is_err());
    assert_eq!(server.requests().len(), seen);
    server.create(config_map("b")).unwrap();
    assert_eq!(stream.short().await, "ADDED b", "old connections are well");
    hole.heal();
    assert_eq!(answer.await.code, 200);

    // Data from the server does not arrive, but the request does.
    let hole = server.faults().black_hole(Connections::All, Direction::ToClient);
    let answer = get(&server, MAPS);
    tokio::pin!(answer);
    assert!(timeout(60 * SECOND, &mut answer).await.is_err());
    assert_eq!(server.requests().len(), seen + 2);
    hole.heal();
    assert_eq!(answer.await.code, 200);

    let hole = server.faults().black_hole(Connections::One(stream.client.id), Direction::Both);
    assert_eq!(hole.hits(), 1);
    hole.keep();
    server.create(config_map("c")).unwrap();
    assert!(stream.quiet(300 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn paused_server_refuses_and_resumes_with_content() {
    let server = with_maps(&["a"]).await;
    let mut stream = watch_now(&server).await;
    server.pause().await;
    assert!(!matches!(stream.line().await, Ok(Some(_))));
    assert_eq!(server.connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(server.connections(), 0);
    server.resume().await.unwrap();
    assert_eq!(names(&get(&server, MAPS).await.ok()), ["a"]);
    server.stop().await;
    assert!(server.connect().is_err());
}

#[tokio::test]
async fn tcp_pause_closes_or_resets_and_keeps_port() {
    let server = start(TestServer::builder()).await;
    let address = ("127.0.0.1", server.port());
    for mode in [CloseMode::Fin, CloseMode::Rst] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut buffer = [0; 1024];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        server.pause_with(mode).await;
        let end = stream.read(&mut buffer).await;
        match mode {
            CloseMode::Fin => assert_eq!(end.unwrap(), 0),
            CloseMode::Rst => assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset),
        }
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        server.resume().await.unwrap();
        tokio::net::TcpStream::connect(address).await.unwrap();
        server.restart(mode).await.unwrap();
    }
    server.stop().await;
}

/// Opens an HTTP/2 connection with prior knowledge, in memory.
async fn http2(
    server: &TestServer,
) -> (h2::client::SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let (sender, connection) = h2::client::handshake(server.connect().unwrap()).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the handle is kept")]
    let task = tokio::spawn(connection);
    (sender, task)
}

fn h2_get(path: &str) -> http::Request<()> {
    http::Request::get(format!("http://test{path}")).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn stream_limits_resets_and_goaway_on_http2() {
    let server = with_maps(&["a"]).await;
    server.faults().limit_streams(Some(3));
    let (mut sender, task) = http2(&server).await;
    let (response, _) = sender.send_request(h2_get(MAPS), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!(sender.current_max_send_streams(), 3);

    let (response, _) = sender.send_request(h2_get(&format!("{MAPS}?watch=1")), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert!(body.data().await.unwrap().unwrap().starts_with(b"{\"type\":\"ADDED\""));
    let reset = server.faults().inject(Fault::Reset).on(Match::watch()).times(1);
    assert!(body.data().await.unwrap().unwrap_err().is_reset(), "RST_STREAM");
    reset.heal();

    let (response, _) =
        sender.send_request(h2_get(&format!("{MAPS}?watch=1&timeoutSeconds=5")), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(server.faults().go_away(), 1);
    body.data().await.unwrap().unwrap();
    // The stream in flight ends normally, and then the connection does.
    while let Some(end) = body.data().await {
        assert_eq!(end.unwrap(), Bytes::new());
    }
    drop(sender);
    let ended = timeout(30 * SECOND, task).await.unwrap().unwrap();
    assert!(ended.is_ok() || ended.unwrap_err().is_go_away());
    server.faults().limit_streams(None);
    let (mut sender, _task) = http2(&server).await;
    let (response, _) = sender.send_request(h2_get(MAPS), true).unwrap();
    response.await.unwrap();
    assert_eq!(sender.current_max_send_streams(), 100);
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_http2_request_ends_connection() {
    let server = start(TestServer::builder().token("secret")).await;
    let (mut sender, task) = http2(&server).await;
    let ask = |token: &str| {
        let mut request = h2_get(MAPS);
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(http::header::AUTHORIZATION, bearer);
        request
    };
    let (known, _) = sender.send_request(ask("secret"), true).unwrap();
    assert_eq!(known.await.unwrap().status(), 200);
    let (unknown, _) = sender.send_request(ask("guessed"), true).unwrap();
    assert_eq!(unknown.await.unwrap().status(), 401);
    // The client has not closed it.
    let ended = timeout(30 * SECOND, task).await.expect("the connection goes on").unwrap();
    assert!(ended.is_ok() || ended.unwrap_err().is_go_away());
    drop(sender);
}

#[tokio::test(start_paused = true)]
async fn held_body_arrives_at_end_or_heal() {
    let server = with_maps(&["a"]).await;
    let fault = server.faults().inject(Fault::HoldUntilEnd).on(Match::watch());
    let (mut sender, _task) = http2(&server).await;
    let (held, _) = sender.send_request(h2_get(&format!("{MAPS}?watch=1&timeoutSeconds=60")), true).unwrap();
    let mut held = held.await.unwrap().into_body();
    assert!(timeout(59 * SECOND, held.data()).await.is_err());
    assert!(timeout(2 * SECOND, held.data()).await.unwrap().unwrap().is_ok(), "it has ended");
    let (held, _) = sender.send_request(h2_get(&format!("{MAPS}?watch=1&timeoutSeconds=60")), true).unwrap();
    let mut held = held.await.unwrap().into_body();
    assert!(timeout(30 * SECOND, held.data()).await.is_err());
    fault.heal();
    assert!(timeout(SECOND, held.data()).await.unwrap().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn endless_body_is_not_held() {
    let server = with_maps(&["a"]).await;
    let _held = server.faults().inject(Fault::HoldUntilEnd).on(Match::watch());
    let _endless = server.faults().inject(Fault::EndlessLine).on(Match::watch());
    let (mut sender, _task) = http2(&server).await;
    let (endless, _) = sender.send_request(h2_get(&format!("{MAPS}?watch=1")), true).unwrap();
    let mut endless = endless.await.unwrap().into_body();
    assert!(timeout(SECOND, endless.data()).await.unwrap().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_does_not_stall_its_connection() {
    let server = with_maps(&["a"]).await;
    let _fault = server.faults().inject(Fault::Stall).on(Match::watch());
    let (mut sender, _task) = http2(&server).await;
    let (stalled, _) = sender.send_request(h2_get(&format!("{MAPS}?watch=1")), true).unwrap();
    let mut stalled = stalled.await.unwrap().into_body();
    assert!(timeout(60 * SECOND, stalled.data()).await.is_err());
    let (fine, _) = sender.send_request(h2_get(MAPS), true).unwrap();
    assert_eq!(fine.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn tokens_rights_and_reviews() {
    let server = start(TestServer::builder().token("secret")).await;
    get(&server, MAPS).await.failed(401, "Unauthorized", "Unauthorized");
    assert_eq!(get(&server, "/healthz").await.code, 200);
    let bearer = [("authorization", "Bearer secret")];
    assert_eq!(get_with(&server, MAPS, &bearer).await.code, 200);
    assert!(server.kubeconfig().contains("token: \"secret\""));

    server.auth().add_token("eve", User::new("eve"));
    let forbidden = server.auth().forbid(Match::list().resource("configmaps"));
    get_with(&server, MAPS, &[("authorization", "Bearer eve")]).await.failed(
        403,
        "Forbidden",
        "configmaps is forbidden: User \"eve\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"",
    );
    drop(forbidden);
    server.auth().answer_reviews(|question| question.user != "eve" || question.verb == "get");
    server.auth().enforce(true);
    assert_eq!(get_with(&server, MAPS, &[("authorization", "Bearer eve")]).await.code, 403);
    assert_eq!(get_with(&server, MAPS, &bearer).await.code, 200);

    let post = async |path: &str, body: serde_json::Value| {
        let body = Bytes::from(body.to_string());
        let answer = request(&server, Method::POST, path, &bearer, body).await.unwrap();
        assert_eq!(answer.code, 201, "{:?}", answer.body);
        answer.json()["status"].clone()
    };
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let known = post(path, json!({"spec": {"token": "eve"}})).await;
    assert_eq!((&known["authenticated"], &known["user"]["username"]), (&json!(true), &json!("eve")));
    assert!(post(path, json!({"spec": {"token": "nobody"}})).await.get("authenticated").is_none());
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let spec = |verb: &str| json!({"spec": {"user": "eve", "resourceAttributes": {"verb": verb, "resource": "pods"}}});
    assert_eq!(post(path, spec("list")).await["allowed"], false);
    assert_eq!(post(path, spec("get")).await["allowed"], true);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(post(path, json!({"spec": {"resourceAttributes": {"verb": "list"}}})).await["allowed"], true);
    server.auth().remove_token("eve");
    assert_eq!(get_with(&server, MAPS, &[("authorization", "Bearer eve")]).await.code, 401);
}

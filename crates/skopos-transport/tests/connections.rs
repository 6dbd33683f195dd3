//! The connections of a transport: their number, the times of the dials, and that none is left behind.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod bench;

use std::time::Duration;

use bench::{Bench, Mode, READ, WATCH, ask, get, next, text};
use futures::future::join_all;
use skopos_transport::{
    ConnectionId, Deadlines, Protocol, RequestOptions, TransportErrorKind, TransportOptions,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn stream_limit_opens_more_connections() {
    let bench = Bench::with_max_streams(10);
    let transport = bench.transport();
    let begin = Instant::now();
    let requests: Vec<_> = (0..95).map(|_| transport.send(get(WATCH))).collect();
    let mut bodies: Vec<_> = join_all(requests).await.into_iter().map(|r| r.unwrap().into_body()).collect();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(bench.pipes().len(), 10);
    assert_eq!(transport.stats().open_streams(), 95);
    bench.event("all");
    for body in &mut bodies {
        assert_eq!(next(body).await.unwrap().unwrap(), "all");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_limit_returns_exhausted_error() {
    let bench = Bench::with_max_streams(2);
    let transport = bench.transport_with(TransportOptions { max_connections: 2, ..Bench::options() });
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(transport.send(get(WATCH)).await.unwrap());
    }
    let error = transport.send(get(WATCH)).await.unwrap_err();
    assert_eq!(*error.kind(), TransportErrorKind::Exhausted { connections: 2 });
    // Lists are not affected.
    ask(&transport, READ).await.unwrap();
    bodies.pop();
    transport.send(get(WATCH)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_one_connection_is_enough() {
    let bench = Bench::with_max_streams(None);
    let transport = bench.transport();
    let requests: Vec<_> = (0..500).map(|_| transport.send(get(WATCH))).collect();
    let bodies = join_all(requests).await;
    assert!(bodies.iter().all(Result::is_ok));
    assert_eq!(bench.pipes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unread_watches_do_not_starve_reads() {
    let bench = Bench::new();
    let transport = bench.transport();
    let unread = join_all((0..50).map(|_| transport.send(get("/api/v1/big")))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    assert_eq!(ask(&transport, "/api/v1/big").await.unwrap().len(), 8 << 20);
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(bench.pipes().len(), 1);
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_use_different_connections() {
    let bench = Bench::new();
    let transport = bench.transport();
    let watch = transport.send(get(WATCH)).await.unwrap();
    let list = transport.send(get("/api/v1/pods")).await.unwrap();
    let id = |r: &http::Response<_>| *r.extensions().get::<ConnectionId>().unwrap();
    assert_ne!(id(&watch), id(&list));
    let list = text(list).await.unwrap();
    assert_eq!(list, "/api/v1/pods");
}

#[tokio::test(start_paused = true)]
async fn a_second_opinion_comes_over_another_connection() {
    let bench = Bench::new();
    let transport = bench.transport();
    let first = transport.send(get(WATCH)).await.unwrap();
    let avoid_connection = first.extensions().get::<ConnectionId>().copied();
    let mut request = get(WATCH);
    request.extensions_mut().insert(RequestOptions { avoid_connection, ..Default::default() });
    let second = transport.send(request).await.unwrap();
    assert_ne!(second.extensions().get::<ConnectionId>().copied(), avoid_connection);
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_gets_bounded_dials() {
    let bench = Bench::new();
    bench.mode(Mode::Refuse);
    let transport = bench.transport();
    let mut errors = 0;
    while bench.elapsed() < Duration::from_secs(180) {
        // A hundred callers that retry without end.
        for result in join_all((0..100).map(|_| ask(&transport, READ))).await {
            let error = result.unwrap_err();
            assert_eq!(error.kind().root().label(), "refused", "{error}");
            errors += 1;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let dials = bench.dials();
    let first_minute = dials.iter().filter(|at| **at < Duration::from_secs(60)).count();
    assert!((48..=60).contains(&first_minute), "{first_minute} dials in the first minute");
    let later = dials.len() - first_minute;
    assert!((24..=30).contains(&later), "{later} dials in the two minutes after");
    assert!(dials.windows(2).all(|w| w[1] - w[0] >= Duration::from_secs(1)), "{dials:?}");
    assert!(errors > 50_000, "callers were answered at once: {errors}");
    let down = transport.stats().down.unwrap();
    assert_eq!(down.attempts as usize, dials.len());
}

#[tokio::test(start_paused = true)]
async fn recovered_server_is_found_within_2s() {
    let bench = Bench::new();
    bench.mode(Mode::Refuse);
    let transport = bench.transport();
    for _ in 0..3 {
        ask(&transport, READ).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(7)).await;
    }
    // A watch waits for the connection; its bound is the connect deadline.
    let begin = Instant::now();
    let error = transport.send(get(WATCH)).await.unwrap_err();
    assert_eq!(error.kind().label(), "refused");
    assert!(begin.elapsed() <= Duration::from_millis(10_100), "{:?}", begin.elapsed());

    let watching = transport.send(get(WATCH));
    let returns = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        bench.mode(Mode::Serve);
        Instant::now()
    };
    let (response, back) = tokio::join!(watching, returns);
    response.unwrap();
    assert!(back.elapsed() <= Duration::from_secs(2), "{:?}", back.elapsed());
    assert!(transport.stats().down.is_none());
}

#[tokio::test(start_paused = true)]
async fn backing_off_error_reports_cause_and_time() {
    let bench = Bench::new();
    bench.mode(Mode::Refuse);
    let transport = bench.transport();
    assert_eq!(ask(&transport, READ).await.unwrap_err().kind().label(), "refused");
    let begin = Instant::now();
    let error = ask(&transport, READ).await.unwrap_err();
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let TransportErrorKind::BackingOff { until, last } = error.kind() else { panic!("{error}") };
    assert!(*until > begin && last.label() == "refused");
    // The same caller may choose to wait.
    bench.mode(Mode::Serve);
    transport.connected(Duration::from_secs(5)).await.unwrap();
    ask(&transport, READ).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silent_server_fails_at_connect_deadline() {
    let bench = Bench::new();
    bench.mode(Mode::Silent);
    let transport = bench.transport();
    let begin = Instant::now();
    let errors = join_all((0..50).map(|_| ask(&transport, READ))).await;
    assert!(begin.elapsed() <= Duration::from_millis(10_100), "{:?}", begin.elapsed());
    assert!(errors.iter().all(|e| e.as_ref().unwrap_err().kind().label() == "connect_timeout"));
    assert_eq!(bench.dials().len(), 1);
    // A caller's own deadline applies.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut request = get(READ);
    let deadline = Some(Duration::from_secs(1));
    request.extensions_mut().insert(RequestOptions { deadline, ..Default::default() });
    let begin = Instant::now();
    let error = transport.send(request).await.unwrap_err();
    assert!(begin.elapsed() <= Duration::from_millis(1_050), "{:?}", begin.elapsed());
    let TransportErrorKind::CallerDeadline { because: Some(because), .. } = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(because.label(), "connect_timeout");
}

#[tokio::test(start_paused = true)]
async fn immediate_hangups_back_off() {
    for bench in [Bench::new(), Bench::http1()] {
        bench.mode(Mode::Hangup);
        let transport = bench.transport();
        while bench.elapsed() < Duration::from_secs(60) {
            ask(&transport, READ).await.unwrap_err();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(bench.dials().len() <= 60, "{} dials", bench.dials().len());
        bench.mode(Mode::Serve);
        transport.connected(Duration::from_secs(2)).await.unwrap();
        ask(&transport, READ).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn goaway_storm_causes_bounded_dials() {
    let bench = Bench::new();
    let transport = bench.transport_with(TransportOptions { max_connections: 5, ..Bench::options() });
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        // Every connection is ended after one request.
        ask(&transport, READ).await.unwrap();
        bench.pipes().last().unwrap().go_away();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let dials = bench.dials().len();
    assert!((200..=255).contains(&dials), "10 at once and 4 a second, but {dials}");
}

#[tokio::test(start_paused = true)]
async fn repeated_restarts_leave_no_dead_connections() {
    let bench = Bench::new();
    let transport = bench.transport();
    for round in 0..10 {
        let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
        ask(&transport, READ).await.unwrap();
        bench.mode(Mode::Refuse);
        for pipe in bench.pipes() {
            match round % 3 {
                0 => pipe.reset(),
                1 => pipe.fin(),
                _ => pipe.freeze(),
            }
        }
        next(&mut body).await.unwrap().unwrap_err();
        tokio::time::sleep(Duration::from_secs(3)).await;
        bench.mode(Mode::Serve);
        let back = Instant::now();
        let (watch, read) = tokio::join!(transport.send(get(WATCH)), async {
            transport.connected(Duration::from_secs(2)).await.unwrap();
            ask(&transport, READ).await
        });
        watch.unwrap();
        read.unwrap();
        assert!(back.elapsed() <= Duration::from_secs(2), "round {round}: {:?}", back.elapsed());
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(transport.stats().connections.len(), 2);
    assert_eq!(bench.pipes().iter().filter(|p| !p.is_closed()).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn shutdown_leaves_nothing_and_says_so() {
    for bench in [Bench::new(), Bench::http1()] {
        let transport = bench.transport();
        let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
        ask(&transport, READ).await.unwrap();
        let hanging = transport.send(get("/hang"));
        let down = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let begin = Instant::now();
            assert!(transport.shutdown(Duration::from_secs(1)).await);
            assert!(begin.elapsed() <= Duration::from_secs(1));
        };
        let (hanging, ()) = tokio::join!(hanging, down);
        assert!(hanging.unwrap_err().is_closed());
        assert_eq!(*next(&mut body).await.unwrap().unwrap_err().kind(), TransportErrorKind::Closed);
        assert!(ask(&transport, READ).await.unwrap_err().is_closed());
        assert!(transport.connected(Duration::from_secs(1)).await.unwrap_err().is_closed());
        assert!(bench.pipes().iter().all(bench::Pipe::is_closed));
        assert_eq!(transport.stats().connections.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_dials_and_waits() {
    for mode in [Mode::Silent, Mode::Refuse, Mode::Mute] {
        let bench = Bench::new();
        bench.mode(mode);
        let transport = bench.transport();
        let waiting = transport.send(get(WATCH));
        let down = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(transport.shutdown(Duration::from_secs(1)).await);
        };
        let begin = Instant::now();
        let (result, ()) = tokio::join!(waiting, down);
        assert!(result.unwrap_err().is_closed());
        assert!(begin.elapsed() <= Duration::from_secs(3), "{mode:?}");
        assert!(bench.pipes().iter().all(bench::Pipe::is_closed), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_last_handle_closes_connections() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    drop(transport);
    bench.event("the body keeps it alive");
    next(&mut body).await.unwrap().unwrap();
    drop(body);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(bench.pipes()[0].is_closed());
    assert_eq!(bench.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn retired_old_connections_keep_their_streams() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    tokio::time::sleep(Duration::from_secs(73 * 60)).await;
    transport.send(get(WATCH)).await.unwrap();
    assert_eq!(bench.pipes().len(), 2, "after 72 minutes at the latest");
    bench.event("still there");
    next(&mut body).await.unwrap().unwrap();
    assert!(transport.stats().errors.is_empty(), "age is no error");
}

#[tokio::test(start_paused = true)]
async fn closes_idle_connections() {
    let bench = Bench::new();
    let transport = bench.transport();
    ask(&transport, READ).await.unwrap();
    tokio::time::sleep(Duration::from_secs(305)).await;
    assert!(bench.pipes()[0].is_closed());
}

#[tokio::test(start_paused = true)]
async fn configured_user_agent_replaces_default() {
    let bench = Bench::new();
    let mut config = kube::Config::new("http://cluster.test:8080/".parse().unwrap());
    ask(&bench.transport_of(config.clone(), Bench::options()), READ).await.unwrap();
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static("mine/1")));
    ask(&bench.transport_of(config, Bench::options()), READ).await.unwrap();
    let agents = |n: usize| -> Vec<String> {
        let requests = bench.requests();
        let named = requests[n].headers.get_all("user-agent");
        named.iter().map(|agent| agent.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(agents(0), [concat!("skopos/", env!("CARGO_PKG_VERSION"))]);
    assert_eq!(agents(1), ["mine/1"]);
}

#[tokio::test(start_paused = true)]
async fn http1_reuses_connection_between_requests() {
    let bench = Bench::http1();
    let transport = bench.transport();
    for _ in 0..5 {
        ask(&transport, READ).await.unwrap();
    }
    assert_eq!(bench.pipes().len(), 1, "reused");
    let stats = transport.stats();
    assert_eq!(stats.connections[0].protocol, Protocol::Http1);
    assert_eq!(bench.requests()[0].headers["host"], "cluster.test:8080");

    let watches = join_all((0..20).map(|_| transport.send(get(WATCH)))).await;
    let mut bodies: Vec<_> = watches.into_iter().map(|r| r.unwrap().into_body()).collect();
    assert_eq!(bench.pipes().len(), 21);
    bench.event("all");
    for body in &mut bodies {
        assert_eq!(next(body).await.unwrap().unwrap(), "all");
    }
    drop(bodies);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(bench.pipes().iter().all(bench::Pipe::is_closed), "idle ones go");
}

#[tokio::test(start_paused = true)]
async fn http1_has_same_deadlines_and_errors() {
    let bench = Bench::http1();
    let transport = bench.transport();
    let error = ask(&transport, "/hang").await.unwrap_err();
    assert_eq!(error.kind().label(), "headers_deadline");
    let error = ask(&transport, "/api/v1/loris").await.unwrap_err();
    assert_eq!(error.kind().label(), "progress_deadline");
    let error = ask(&transport, "/api/v1/broken").await.unwrap_err();
    assert_eq!(error.kind().label(), "eof");
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    bench.pipes().last().unwrap().reset();
    assert_eq!(next(&mut body).await.unwrap().unwrap_err().kind().label(), "reset");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(bench.pipes().iter().all(bench::Pipe::is_closed));
}

#[tokio::test(start_paused = true)]
async fn http1_closes_connection_of_dropped_body() {
    let bench = Bench::http1();
    let transport = bench.transport();
    for _ in 0..5 {
        drop(transport.send(get("/api/v1/big")).await.unwrap());
        drop(transport.send(get("/api/v1/loris")).await.unwrap());
    }
    let begin = Instant::now();
    ask(&transport, READ).await.unwrap();
    assert!(begin.elapsed() <= Duration::from_millis(100), "{:?}", begin.elapsed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.pipes().iter().filter(|p| !p.is_closed()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn http1_skips_connections_closed_while_idle() {
    let bench = Bench::http1();
    let transport = bench.transport();
    for _ in 0..10 {
        ask(&transport, READ).await.unwrap();
        bench.pipes().last().unwrap().fin();
        // Without a pause: the request and the FIN cross.
        ask(&transport, READ).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn token_file_is_reread_after_401() {
    let bench = Bench::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let mut config = kube::Config::new("http://cluster.test/".parse().unwrap());
    config.auth_info.token_file = Some(file.path().display().to_string());
    let transport = bench.transport_of(config, Bench::options());
    bench.token("old");
    assert_eq!(transport.send(get(READ)).await.unwrap().status(), 200);
    bench.token("new");
    std::fs::write(file.path(), "new").unwrap();
    assert_eq!(transport.send(get(READ)).await.unwrap().status(), 401);
    assert_eq!(transport.send(get(READ)).await.unwrap().status(), 200);
    // At most once every five seconds.
    bench.token("nobody has it");
    for _ in 0..10 {
        assert_eq!(transport.send(get(READ)).await.unwrap().status(), 401);
    }
    assert_eq!(transport.stats().credential_refreshes, 1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(transport.send(get(READ)).await.unwrap().status(), 401);
    assert_eq!(transport.stats().credential_refreshes, 2);
}

#[tokio::test(start_paused = true)]
async fn parked_transport_dials_only_after_wake() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut watch = transport.send(get(WATCH)).await.unwrap().into_body();
    transport.park("the cluster is paused");
    bench.mode(Mode::Silent);
    let parked = TransportErrorKind::Parked("the cluster is paused".into());
    assert_eq!(*next(&mut watch).await.unwrap().unwrap_err().kind(), parked, "what was open ends");
    let dials = bench.dials().len();
    let mut waiting = JoinSet::new();
    waiting.spawn({
        let transport = transport.clone();
        async move { transport.send(get(WATCH)).await.map(|_| Instant::now()) }
    });
    let begin = Instant::now();
    assert_eq!(*ask(&transport, READ).await.unwrap_err().kind(), parked);
    assert_eq!(begin.elapsed(), Duration::ZERO, "others do not wait");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(bench.dials().len(), dials, "nobody is dialed");
    bench.mode(Mode::Serve);
    let woken = Instant::now();
    transport.wake();
    let answered = waiting.join_next().await.unwrap().unwrap().unwrap();
    assert!(answered - woken < Duration::from_millis(100), "{:?}", answered - woken);
}

#[tokio::test(start_paused = true)]
async fn wake_restarts_connect_deadline_of_parked_request() {
    let bench = Bench::new();
    let transport = bench.transport();
    transport.park("the cluster is paused");
    bench.mode(Mode::Refuse);
    let watching = transport.send(get(WATCH));
    let waking = async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        transport.wake();
        Instant::now()
    };
    let (failed, woken) = tokio::join!(watching, waking);
    assert_eq!(failed.unwrap_err().kind().label(), "refused");
    let waited = woken.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(11)).contains(&waited), "{waited:?}");
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn parked_request_is_sent_with_fresh_credentials() {
    let bench = Bench::new();
    let answer = tempfile::NamedTempFile::new().unwrap();
    // Has expired, so that each request asks for another.
    let token = |token| {
        let status = serde_json::json!({"token": token, "expirationTimestamp": "2001-01-01T00:00:00Z"});
        let credential = serde_json::json!({
            "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status,
        });
        std::fs::write(answer.path(), credential.to_string()).unwrap();
        bench.token(token);
    };
    token("old");
    let mut config = kube::Config::new("http://cluster.test/".parse().unwrap());
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "cat", "args": [answer.path()],
    });
    config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
    let transport = bench.transport_of(config, Bench::options());
    assert_eq!(transport.send(get(READ)).await.unwrap().status(), 200);
    transport.park("the cluster is paused");
    let watching = transport.send(get(WATCH));
    let waking = async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        token("new");
        transport.wake();
    };
    let (watch, ()) = tokio::join!(watching, waking);
    assert_eq!(watch.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn only_requests_behind_gate_wait() {
    let bench = Bench::new();
    let (transport, gate) = (bench.transport(), CancellationToken::new());
    let behind = transport.behind(gate.clone());
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { behind.send(get(WATCH)).await.map(|_| Instant::now()) });
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(bench.dials().is_empty(), "nobody is dialed");
    ask(&transport, READ).await.unwrap();
    assert!(waiting.try_join_next().is_none());
    let opened = Instant::now();
    gate.cancel();
    let answered = waiting.join_next().await.unwrap().unwrap().unwrap();
    assert!(answered - opened < Duration::from_millis(100), "{:?}", answered - opened);
    // Its own deadline counts meanwhile, and no connection is blamed.
    let options = RequestOptions { deadline: Some(Duration::from_secs(1)), ..RequestOptions::default() };
    let mut request = get(READ);
    request.extensions_mut().insert(options);
    let failed = transport.behind(CancellationToken::new()).send(request).await.unwrap_err();
    assert!(matches!(failed.kind(), TransportErrorKind::CallerDeadline { .. }), "{failed}");
    ask(&transport, READ).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wake_interrupts_backoff_and_stuck_dial() {
    for mode in [Mode::Refuse, Mode::Silent] {
        let bench = Bench::new();
        let transport = bench.transport();
        bench.mode(mode);
        for _ in 0..20 {
            ask(&transport, READ).await.unwrap_err();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let mut waiting = JoinSet::new();
        waiting.spawn({
            let transport = transport.clone();
            async move { transport.send(get(WATCH)).await.map(|_| Instant::now()) }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.mode(Mode::Serve);
        let woken = Instant::now();
        transport.wake();
        let answered = waiting.join_next().await.unwrap().unwrap().unwrap();
        assert!(answered - woken < Duration::from_millis(100), "{mode:?}: {:?}", answered - woken);
    }
}

#[tokio::test(start_paused = true)]
async fn informer_accepts_maximum_duration_everywhere() {
    const MAX: Duration = Duration::MAX;
    let mut options = TransportOptions {
        connect_timeout: MAX,
        ping_interval: MAX,
        ping_timeout: MAX,
        max_connection_age: MAX,
        idle_timeout: MAX,
        credential_refresh_interval: MAX,
        tls_refresh_interval: MAX,
        ..Bench::options()
    };
    options.deadlines.read = Deadlines { headers: Some(MAX), progress: Some(MAX), body: Some(MAX) };
    let bench = Bench::new();
    let transport = bench.transport_with(options);
    let mut request = get(READ);
    request.extensions_mut().insert(RequestOptions { deadline: Some(MAX), ..RequestOptions::default() });
    let response = transport.send(request).await.unwrap();
    assert_eq!(text(response).await.unwrap(), READ);
    transport.connected(MAX).await.unwrap();
    assert!(transport.shutdown(MAX).await);
}

#[tokio::test(start_paused = true)]
async fn server_without_streams_causes_bounded_dials() {
    let bench = Bench::with_max_streams(0);
    let transport = bench.transport();
    let answers = join_all((0..100).map(|_| ask(&transport, READ))).await;
    for error in answers.into_iter().map(Result::unwrap_err) {
        assert!(error.to_string().contains("for the server to allow a stream"), "{error}");
    }
    assert!(bench.pipes().len() <= 3, "{} connections in 10 s", bench.pipes().len());
}

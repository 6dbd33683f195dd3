//! Tests that every failure of a connection or request is detected in time and has a reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod bench;

use std::time::Duration;

use bench::{Bench, Mode, READ, WATCH, ask, get, next, post, text};
use skopos_transport::{
    ConnectionId, Dialed, Fault, Protocol, RequestClass, RequestOptions, Transport, TransportBody,
    TransportErrorKind, TransportOptions, WallClock, dialer_fn,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

/// The guaranteed detection time of a silently dead connection.
const SILENCE: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_found_within_fifteen_seconds() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    bench.event("one");
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "one");

    bench.pipes()[0].freeze();
    let silent_since = Instant::now();
    let error = next(&mut body).await.unwrap().unwrap_err();
    assert_eq!(*error.kind(), TransportErrorKind::PingTimeout);
    assert_eq!(error.fault(), Fault::Network);
    assert!(silent_since.elapsed() <= SILENCE, "{:?}", silent_since.elapsed());
    assert!(next(&mut body).await.is_none());

    // And the next request does not go there.
    let response = transport.send(get(WATCH)).await.unwrap();
    assert_ne!(response.extensions().get::<ConnectionId>().copied(), error.connection());
    assert_eq!(transport.stats().errors["ping_timeout"], 1);
}

/// Reads an event every five seconds, while plenty are buffered.
async fn read_slowly(body: &mut TransportBody) {
    while next(body).await.is_some() {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// Opens two watches on one connection: at the first, events for more than three minutes wait; the other has read all.
async fn beside_a_slow_reader(bench: &Bench, transport: &Transport) -> (TransportBody, TransportBody) {
    let slow = transport.send(get(WATCH)).await.unwrap().into_body();
    let mut other = transport.send(get(WATCH)).await.unwrap().into_body();
    for _ in 0..40 {
        bench.event("x");
        assert_eq!(next(&mut other).await.unwrap().unwrap(), "x");
    }
    assert_eq!(bench.pipes().len(), 1);
    (slow, other)
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_does_not_hide_a_silent_peer() {
    let bench = Bench::new();
    let transport = bench.transport();
    let (mut slow, mut other) = beside_a_slow_reader(&bench, &transport).await;
    bench.pipes()[0].freeze();
    let silent_since = Instant::now();
    let error = tokio::select! {
        () = read_slowly(&mut slow) => panic!("read to the end"),
        end = next(&mut other) => end.unwrap().unwrap_err(),
    };
    assert_eq!(*error.kind(), TransportErrorKind::PingTimeout);
    assert!(silent_since.elapsed() <= SILENCE, "{:?}", silent_since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn pings_keep_quiet_peer_beside_slow_reader() {
    let bench = Bench::new();
    let transport = bench.transport();
    let (mut slow, mut other) = beside_a_slow_reader(&bench, &transport).await;
    let heard = transport.stats().connections[0].bytes_in;
    tokio::select! {
        () = read_slowly(&mut slow) => panic!("read to the end"),
        end = next(&mut other) => panic!("{end:?}"),
        () = tokio::time::sleep(Duration::from_secs(150)) => {}
    }
    let stats = transport.stats();
    assert!(stats.errors.is_empty(), "{stats:?}");
    // The answer to a PING has 17 bytes.
    let answers = (stats.connections[0].bytes_in - heard) / 17;
    assert!((13..=16).contains(&answers), "{answers} answers");
    bench.event("both are still there");
    assert_eq!(next(&mut other).await.unwrap().unwrap(), "both are still there");
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_found_also_while_idle() {
    let bench = Bench::new();
    let transport = bench.transport();
    ask(&transport, READ).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(transport.stats().connections.len(), 1, "a healthy idle connection lives on");

    bench.pipes()[0].freeze();
    tokio::time::sleep(SILENCE).await;
    let stats = transport.stats();
    assert!(stats.connections.is_empty(), "{stats:?}");
    assert_eq!(*stats.last_error.unwrap().kind, TransportErrorKind::PingTimeout);
    let before = Instant::now();
    ask(&transport, READ).await.unwrap();
    assert!(before.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn headers_deadline_retires_connection_not_streams() {
    let bench = Bench::new();
    let transport = bench.transport();
    let slow = transport.send(get("/api/v1/namespaces/a/pods/endless")).await.unwrap();
    let begin = Instant::now();
    let error = transport.send(get("/api/v1/namespaces/a/pods/hang")).await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::HeadersDeadline { .. }), "{error}");
    assert!(begin.elapsed() <= Duration::from_millis(30_050), "{:?}", begin.elapsed());
    ask(&transport, READ).await.unwrap();
    assert_eq!(bench.pipes().len(), 2, "the connection was not used again");
    let mut body = slow.into_body();
    for _ in 0..3 {
        next(&mut body).await.unwrap().unwrap();
    }
    drop(body);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(bench.pipes()[0].is_closed(), "a retired connection ends with its last stream");
}

#[tokio::test(start_paused = true)]
async fn headers_deadline_depends_on_request_class() {
    let bench = Bench::new();
    let transport = bench.transport();
    for (class, bound) in [
        (RequestClass::Read, 30),
        (RequestClass::List, 30),
        (RequestClass::Watch, 90),
        (RequestClass::Write, 65),
        (RequestClass::Probe, 10),
    ] {
        let mut request = get("/hang");
        request.extensions_mut().insert(class);
        let begin = Instant::now();
        let error = transport.send(request).await.unwrap_err();
        assert!(matches!(error.kind(), TransportErrorKind::HeadersDeadline { .. }), "{class}: {error}");
        let took = begin.elapsed();
        assert!((bound * 1000..bound * 1000 + 100).contains(&(took.as_millis() as u64)), "{class}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_loris_ends_in_time() {
    let bench = Bench::new();
    let transport = bench.transport();
    let begin = Instant::now();
    let error = ask(&transport, "/api/v1/loris").await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::ProgressDeadline { .. }), "{error}");
    assert!(begin.elapsed() <= Duration::from_millis(10_100), "{:?}", begin.elapsed());
    assert!(transport.stats().connections.iter().all(|c| c.retired.is_some()));
}

#[tokio::test(start_paused = true)]
async fn unpolled_time_does_not_count_as_stalled_progress() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get("/api/v1/namespaces/a/pods/endless")).await.unwrap().into_body();
    for _ in 0..4 {
        next(&mut body).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_without_end_ends_in_time() {
    let bench = Bench::new();
    let transport = bench.transport();
    let begin = Instant::now();
    let error = ask(&transport, "/api/v1/namespaces/a/pods/endless").await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::BodyDeadline { .. }), "{error}");
    assert!(begin.elapsed() <= Duration::from_millis(60_100), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_silent_for_hours() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    bench.event("late");
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "late");
}

#[tokio::test(start_paused = true)]
async fn caller_deadline_does_not_retire_connection() {
    let bench = Bench::new();
    let transport = bench.transport();
    ask(&transport, READ).await.unwrap();
    let mut request = get("/hang");
    let deadline = Some(Duration::from_secs(2));
    request.extensions_mut().insert(RequestOptions { deadline, ..Default::default() });
    let begin = Instant::now();
    let error = transport.send(request).await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::CallerDeadline { .. }), "{error}");
    assert!(begin.elapsed() <= Duration::from_millis(2_050));
    // Also in the body.
    let mut request = get("/api/v1/namespaces/a/pods/endless");
    request.extensions_mut().insert(RequestOptions { deadline, ..Default::default() });
    let error = text(transport.send(request).await.unwrap()).await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::CallerDeadline { .. }), "{error}");
    ask(&transport, READ).await.unwrap();
    assert_eq!(bench.pipes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deadlines_apply_to_slow_readers() {
    let bench = Bench::new();
    let transport = bench.transport();
    let callers = RequestOptions { deadline: Some(Duration::from_secs(2)), ..Default::default() };
    for (options, pause, kind, bound) in [
        (callers, Duration::from_millis(100), "caller_deadline", Duration::from_secs(2)),
        (RequestOptions::default(), Duration::from_secs(2), "body_deadline", Duration::from_secs(60)),
    ] {
        let mut request = get("/big");
        request.extensions_mut().insert(options);
        let begin = Instant::now();
        let mut body = transport.send(request).await.unwrap().into_body();
        let error = loop {
            tokio::time::sleep(pause).await;
            if let Err(error) = next(&mut body).await.expect("no end before the deadline") {
                break error;
            }
        };
        assert_eq!(error.kind().label(), kind);
        assert!(begin.elapsed() <= bound + pause * 3, "{kind}: {:?}", begin.elapsed());
        assert!(next(&mut body).await.is_none());
    }
    // The peer is not at fault.
    ask(&transport, READ).await.unwrap();
    assert_eq!(bench.pipes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn late_reader_does_not_extend_deadline() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get("/endless")).await.unwrap().into_body();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let begin = Instant::now();
    let error = loop {
        if let Err(error) = next(&mut body).await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.kind().label(), "body_deadline");
    assert!(begin.elapsed() <= Duration::from_secs(6), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn process_stop_extends_body_deadline() {
    let bench = Bench::new();
    let transport = bench.transport();
    let begin = Instant::now();
    let mut body = transport.send(get("/endless")).await.unwrap().into_body();
    while begin.elapsed() < Duration::from_secs(50) {
        next(&mut body).await.unwrap().unwrap();
    }
    // Beyond the deadline of 60 s.
    tokio::time::advance(Duration::from_secs(30)).await;
    let error = loop {
        if let Err(error) = next(&mut body).await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.kind().label(), "body_deadline");
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(85), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn goaway_keeps_open_streams_and_dials_for_new() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut old = transport.send(get(WATCH)).await.unwrap().into_body();
    bench.pipes()[0].go_away();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut new = transport.send(get(WATCH)).await.unwrap().into_body();
    assert_eq!(bench.pipes().len(), 2);
    bench.event("both");
    assert_eq!(next(&mut old).await.unwrap().unwrap(), "both");
    assert_eq!(next(&mut new).await.unwrap().unwrap(), "both");
    let stats = transport.stats();
    assert!(matches!(*stats.last_error.unwrap().kind, TransportErrorKind::GoAway { .. }));
    drop(old);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(bench.pipes()[0].is_closed());
    assert_eq!(transport.stats().connections.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn response_sent_with_goaway_is_delivered() {
    for bench in [Bench::new(), Bench::http1()] {
        let transport = bench.transport();
        for round in 0..20 {
            assert_eq!(ask(&transport, "/farewell").await.unwrap(), "/farewell", "round {round}");
            assert!(transport.stats().down.is_none(), "round {round}: {:?}", transport.stats());
        }
        assert_eq!(transport.stats().dial_failures, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn response_before_server_close_is_delivered() {
    for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "HTTP/1.0 200 OK\r\n\r\nok"] {
        let servers = tokio_util::task::TaskTracker::new();
        let dialer = dialer_fn(move |_| {
            let (client, mut server) = tokio::io::duplex(1 << 16);
            servers.spawn(async move {
                let mut asked = [0; 1024];
                if server.read(&mut asked).await.is_ok_and(|bytes| bytes > 0) {
                    server.write_all(answer.as_bytes()).await.unwrap();
                }
            });
            async move { Ok(Dialed::new(client, Protocol::Http1)) }
        });
        let config = kube::Config::new("http://cluster.test/".parse().unwrap());
        let transport = Transport::with_dialer(config, Bench::options(), dialer).unwrap();
        for round in 0..20 {
            assert_eq!(ask(&transport, READ).await.unwrap(), "ok", "round {round}: {answer:?}");
        }
        assert!(transport.stats().down.is_none(), "{:?}", transport.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn detects_silent_connection_after_goaway() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    bench.pipes()[0].go_away();
    tokio::time::sleep(Duration::from_millis(10)).await;
    bench.pipes()[0].freeze();
    let begin = Instant::now();
    next(&mut body).await.unwrap().unwrap_err();
    assert!(begin.elapsed() <= SILENCE, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_retired_connection_reports_ping_timeout() {
    let bench = Bench::new();
    let transport = bench.transport();
    let response = transport.send(get(WATCH)).await.unwrap();
    transport.retire(*response.extensions().get::<ConnectionId>().unwrap(), "stalled");
    tokio::time::sleep(Duration::from_millis(10)).await;
    bench.pipes()[0].freeze();
    let begin = Instant::now();
    let error = next(&mut response.into_body()).await.unwrap().unwrap_err();
    assert_eq!(*error.kind(), TransportErrorKind::PingTimeout);
    assert!(begin.elapsed() <= SILENCE, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reset_or_eof_fails_every_stream_at_once() {
    type Cut = fn(&bench::Pipe);
    let cuts: [(Cut, &str); 2] = [(|p| p.reset(), "reset"), (|p| p.fin(), "eof")];
    for (cut, kind) in cuts {
        let bench = Bench::new();
        let transport = bench.transport();
        let mut bodies = Vec::new();
        for _ in 0..5 {
            bodies.push(transport.send(get(WATCH)).await.unwrap().into_body());
        }
        let waiting = transport.send(get("/hang?watch=true&x=/hang"));
        drop(waiting);
        let begin = Instant::now();
        cut(&bench.pipes()[0]);
        for body in &mut bodies {
            let error = next(body).await.unwrap().unwrap_err();
            assert_eq!(error.kind().label(), kind, "{error:?}");
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        assert_eq!(transport.stats().errors[kind], 1, "one connection, one error");
    }
}

#[tokio::test(start_paused = true)]
async fn reset_before_headers_is_reported() {
    let bench = Bench::new();
    let transport = bench.transport();
    let hang = get("/api/v1/namespaces/a/pods/hang");
    let (result, ()) = tokio::join!(transport.send(hang), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.pipes()[0].reset();
    });
    assert_eq!(result.unwrap_err().kind().label(), "reset");
}

#[tokio::test(start_paused = true)]
async fn a_stream_reset_concerns_only_its_stream() {
    let bench = Bench::new();
    let transport = bench.transport();
    let error = ask(&transport, "/api/v1/namespaces/a/pods/broken").await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::StreamReset { .. }), "{error}");
    ask(&transport, READ).await.unwrap();
    assert_eq!(bench.pipes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn connect_timeout_names_handshake_stage() {
    let bench = Bench::new();
    bench.mode(Mode::Mute);
    let transport = bench.transport();
    let begin = Instant::now();
    let error = ask(&transport, READ).await.unwrap_err();
    let TransportErrorKind::ConnectTimeout { stage, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*stage, "http/2 settings");
    assert!(begin.elapsed() <= Duration::from_millis(10_050), "{:?}", begin.elapsed());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(bench.pipes()[0].is_closed(), "the half-made connection is gone");
}

#[tokio::test(start_paused = true)]
async fn refused_redirect_names_location() {
    let bench = Bench::new();
    let transport = bench.transport();
    let error = ask(&transport, "/redirect").await.unwrap_err();
    let expected = TransportErrorKind::Redirected { status: 302, location: "https://evil.test/".into() };
    assert_eq!(*error.kind(), expected);
    assert_eq!(bench.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refuses_unrequested_compression() {
    let bench = Bench::new();
    let transport = bench.transport();
    let error = ask(&transport, "/zipped").await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::UnaskedEncoding { .. }), "{error}");
    let mut request = get("/zipped");
    request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    transport.send(request).await.unwrap();
    // A watch never gets it, even if its caller requests it.
    let mut request = get(WATCH);
    request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    transport.send(request).await.unwrap();
    assert_eq!(bench.requests().last().unwrap().headers["accept-encoding"], "identity");
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_refused_with_a_reason() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut request = get("/api/v1/namespaces/a/pods/b/exec");
    request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let error = transport.send(request).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Caller);
}

#[tokio::test(start_paused = true)]
async fn a_suspend_ends_all_connections_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let ahead = Arc::new(AtomicU64::new(0));
    let clock = {
        let (ahead, begin) = (ahead.clone(), Instant::now());
        WallClock::from_fn(move || {
            std::time::UNIX_EPOCH + begin.elapsed() + Duration::from_secs(ahead.load(Ordering::Relaxed))
        })
    };
    let bench = Bench::new();
    let transport = bench.transport_with(TransportOptions { wall_clock: Some(clock), ..Bench::options() });
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(transport.stats().suspends, 0);
    ahead.store(3600, Ordering::Relaxed);
    let begin = Instant::now();
    let error = next(&mut body).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::Suspended { .. }), "{error}");
    assert!(begin.elapsed() <= Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(transport.stats().suspends, 1);
    transport.send(get(WATCH)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_starved_process_does_not_kill_its_connections() {
    let bench = Bench::new();
    let transport = bench.transport();
    let mut body = transport.send(get(WATCH)).await.unwrap().into_body();
    for _ in 0..20 {
        // The whole process, client and server alike, gets no CPU for a while.
        tokio::time::advance(Duration::from_secs(20)).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    bench.event("alive");
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "alive");
    assert!(transport.stats().lagged >= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn write_is_not_resent_after_reset() {
    let bench = Bench::new();
    let transport = bench.transport();
    transport.send(post("/api/v1/namespaces/a/pods")).await.unwrap();
    let hang = post("/api/v1/namespaces/a/pods/hang");
    let (result, ()) = tokio::join!(transport.send(hang), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.pipes()[0].reset();
    });
    result.unwrap_err();
    assert_eq!(bench.requests().iter().filter(|r| r.path.ends_with("hang")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_error_reset_is_not_end_of_body() {
    // hyper reports a RST_STREAM with NO_ERROR as the end of the body; a truncated list must not look complete.
    let tasks = tokio_util::task::TaskTracker::new();
    let dialer = {
        let tasks = tasks.clone();
        dialer_fn(move |_| {
            let (client, server) = tokio::io::duplex(1 << 16);
            let inner = tasks.clone();
            tasks.spawn(async move {
                let mut connection = h2::server::handshake(server).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    body.send_data("half".into(), false).unwrap();
                    inner.spawn(async move {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        body.send_reset(h2::Reason::NO_ERROR);
                    });
                }
            });
            async move { Ok(Dialed::new(client, Protocol::Http2)) }
        })
    };
    let config = kube::Config::new("http://cluster.test/".parse().unwrap());
    let transport = Transport::with_dialer(config, Bench::options(), dialer).unwrap();
    let mut body = transport.send(get("/api/v1/pods")).await.unwrap().into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "half");
    let error = next(&mut body).await.unwrap().unwrap_err();
    assert_eq!(*error.kind(), TransportErrorKind::StreamReset { code: "NO_ERROR".into() });
}

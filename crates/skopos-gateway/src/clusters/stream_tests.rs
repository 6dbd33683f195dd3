//! Streams into pods: a client in memory, a member that the test plays, and the complete gateway between them.

use std::time::Duration;

use skopos_fleet::{Paused, PausedBy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep, timeout};

use crate::config::{Config, ConnectPolicy, Limits, LoopbackTrust, Span};
use crate::gateway::Gateway;
use crate::listen::InMemory;
use crate::testing::{ByHand, Lab, head};
use crate::tests::secrecy::Log;

const EXEC: &str = "/clusters/a/api/v1/namespaces/shop/pods/web/exec?command=ls&command=-l+a&stdin=true";

const WEBSOCKET: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: key\r\n\
                         sec-websocket-version: 13\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n";

const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\n\
      sec-websocket-accept: accept\r\nsec-websocket-protocol: v5.channel.k8s.io\r\nset-cookie: a=b\r\n\
      skopos-source: forged\r\n\r\n";

struct Desk {
    front: InMemory<Gateway>,
    member: ByHand,
    lab: Lab,
}

impl Desk {
    fn from_lab(lab: Lab) -> Self {
        let front = InMemory::new(lab.gateway.clone(), Limits::default());
        Self { front, member: lab.by_hand(), lab }
    }

    /// Makes a gateway that trusts all callers.
    fn trusting(change: impl FnOnce(&mut Config)) -> Self {
        Self::from_lab(Lab::with(&["a"], |config| {
            config.authorization.loopback = LoopbackTrust::Trusted;
            config.outbound.connect = ConnectPolicy::Streams;
            change(config);
        }))
    }

    /// Makes a gateway whose callers have tokens, and whose member decides.
    fn guarded(change: impl FnOnce(&mut Config)) -> Self {
        let desk = Self::from_lab(Lab::guarded(&["a"], |config| {
            config.outbound.connect = ConnectPolicy::Streams;
            config.outbound.impersonate = true;
            change(config);
        }));
        desk.lab.admit("t-jane", "jane");
        desk.lab.member("a").auth().answer_reviews(|_| true);
        desk
    }

    /// Opens a connection and sends this request.
    async fn send(&self, line: &str, headers: &str, more: &str) -> DuplexStream {
        let mut client = self.front.connect();
        let sent = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{more}");
        client.write_all(sent.as_bytes()).await.unwrap();
        client
    }

    /// Opens a stream: returns the client's end and the member's.
    async fn stream(&self, headers: &str) -> (DuplexStream, DuplexStream) {
        let mut client = self.send(&format!("GET {EXEC}"), headers, "").await;
        let asked = timeout(Duration::from_secs(60), self.member.accept()).await;
        let (_, mut member) = asked.expect("the member is asked");
        member.write_all(SWITCHED).await.unwrap();
        let answer = head(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        (client, member)
    }

    /// Returns the answer on a connection that is closed then. The member must get no request.
    async fn refused(&self, line: &str, headers: &str, more: &str) -> (u16, String) {
        let mut client = self.send(line, headers, more).await;
        let said = rest(&mut client).await;
        let answers = said.lines().filter(|line| line.starts_with("HTTP/1."));
        assert_eq!(answers.count(), 1, "{line}: {said}");
        assert_eq!(self.member.waiting(), 0, "{line}");
        (said.split(' ').nth(1).unwrap().parse().unwrap(), said)
    }

    /// Waits until no stream is left.
    async fn is_empty(&self) {
        let gone = async {
            while self.front.connections() > 0 || self.lab.services.streams.open() > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(1), gone).await.expect("something is left");
    }
}

/// Reads until the other end closes the stream.
async fn rest(stream: &mut DuplexStream) -> String {
    let mut said = Vec::new();
    let reading = stream.read_to_end(&mut said);
    timeout(Duration::from_secs(7200), reading).await.expect("an end").unwrap();
    String::from_utf8(said).unwrap()
}

async fn says(from: &mut DuplexStream, to: &mut DuplexStream, text: &str) {
    from.write_all(text.as_bytes()).await.unwrap();
    let mut heard = vec![0; text.len()];
    to.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, text.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn stream_impersonates_caller_and_filters_headers() {
    let desk = Desk::guarded(|_| {});
    let headers = format!(
        "{WEBSOCKET}authorization: Bearer t-jane\r\ncookie: session=1\r\nx-remote-user: admin\r\n\
         x-forwarded-for: 10.0.0.1\r\norigin: https://localhost\r\nsec-websocket-origin: x\r\nuser-agent: kubectl\r\n"
    );
    let mut client = desk.send(&format!("GET {EXEC}"), &headers, "early").await;
    let (asked, mut member) = desk.member.accept().await;
    let mut lines: Vec<&str> = asked.trim_end().split("\r\n").collect();
    assert_eq!(
        lines.remove(0),
        "GET /api/v1/namespaces/shop/pods/web/exec?command=ls&command=-l%20a&stdin=true HTTP/1.1"
    );
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "connection: Upgrade",
            "host: member",
            "impersonate-group: system:authenticated",
            "impersonate-user: jane",
            "sec-websocket-key: key",
            "sec-websocket-protocol: v5.channel.k8s.io",
            "sec-websocket-version: 13",
            "upgrade: websocket",
            "user-agent: kubectl",
        ]
    );
    // Data that the client sends before the answer does not reach a member that has not switched.
    assert!(timeout(Duration::from_secs(5), member.read_u8()).await.is_err());
    member.write_all(&[SWITCHED, b"first"].concat()).await.unwrap();
    let answer = head(&mut client).await.to_lowercase();
    for line in ["http/1.1 101", "upgrade: websocket", "connection: upgrade", "sec-websocket-accept: accept"]
    {
        assert!(answer.contains(line), "{line}: {answer}");
    }
    for secret in ["set-cookie", "forged"] {
        assert!(!answer.contains(secret), "{answer}");
    }
    let mut both = [0; 5];
    client.read_exact(&mut both).await.unwrap();
    assert_eq!(&both, b"first");
    member.read_exact(&mut both).await.unwrap();
    assert_eq!(&both, b"early");
    // A request inside the stream is only data.
    says(&mut client, &mut member, "GET /clusters/a/api HTTP/1.1\r\n\r\n").await;
    says(&mut member, &mut client, "HTTP/1.1 302 Found\r\n\r\n").await;
    assert_eq!(desk.lab.services.streams.open(), 1);
    drop(member);
    assert_eq!(rest(&mut client).await, "");
    drop(client);
    desk.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn non_switching_answer_closes_both_sides() {
    let desk = Desk::trusting(|_| {});
    let answer = "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    let more = format!("GET {EXEC} HTTP/1.1\r\nhost: localhost\r\n{WEBSOCKET}\r\n");
    for method in ["GET", "POST"] {
        let spdy =
            "connection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n";
        let mut client = desk.send(&format!("{method} {EXEC}"), spdy, &more).await;
        let (asked, mut member) = desk.member.accept().await;
        assert!(asked.contains("\r\nupgrade: SPDY/3.1\r\n"), "{asked}");
        assert!(asked.contains("\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n"), "{asked}");
        member.write_all(answer.as_bytes()).await.unwrap();
        // An answer without a request.
        let _ = member.write_all(answer.as_bytes()).await;
        assert_eq!(rest(&mut member).await, "", "something more was asked of the member");
        let said = rest(&mut client).await;
        assert!(said.starts_with("HTTP/1.1 403") && said.ends_with("{}"), "{said}");
        assert!(said.contains("connection: close") && said.contains("skopos-source: member"), "{said}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
        drop(client);
        desk.is_empty().await;
    }
    assert_eq!(desk.member.waiting(), 0);

    for (answer, code) in [
        ("HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n", "503"),
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n", "503"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "503"),
        ("SSH-2.0-hello\r\n\r\n", "503"),
        ("", "503"),
    ] {
        let mut client = desk.send(&format!("GET {EXEC}"), WEBSOCKET, "").await;
        let (_, mut member) = desk.member.accept().await;
        member.write_all(answer.as_bytes()).await.unwrap();
        drop(member);
        let said = rest(&mut client).await;
        assert!(
            said.starts_with(&format!("HTTP/1.1 {code}")) && !said.contains("\r\nlocation"),
            "{answer}: {said}"
        );
    }
    let long =
        format!("HTTP/1.1 400 Bad Request\r\ncontent-length: 2000000\r\n\r\n{}", "x".repeat(2_000_000));
    let mut client = desk.send(&format!("GET {EXEC}"), WEBSOCKET, "").await;
    let (_, mut member) = desk.member.accept().await;
    assert!(member.write_all(long.as_bytes()).await.is_err());
    assert!(rest(&mut client).await.starts_with("HTTP/1.1 503"));
    drop(client);
    desk.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn silent_member_fails_upgrade_at_deadline() {
    let desk = Desk::trusting(|config| config.outbound.deadline = Span::seconds(20));
    let begun = Instant::now();
    let mut client = desk.send(&format!("GET {EXEC}"), WEBSOCKET, "").await;
    let (_, mut member) = desk.member.accept().await;
    assert_eq!(rest(&mut member).await, "");
    let said = rest(&mut client).await;
    assert!(said.starts_with("HTTP/1.1 504") && said.contains("connection: close"), "{said}");
    assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
    // A member that sends headers byte by byte, too.
    let begun = Instant::now();
    let mut client = desk.send(&format!("GET {EXEC}"), WEBSOCKET, "").await;
    let (_, mut member) = desk.member.accept().await;
    for byte in SWITCHED {
        sleep(Duration::from_secs(1)).await;
        if member.write_all(&[*byte]).await.is_err() {
            break;
        }
    }
    assert!(rest(&mut client).await.starts_with("HTTP/1.1 504"));
    assert!(begun.elapsed() <= Duration::from_secs(22), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let desk = Desk::trusting(|_| {});
    // Before the member's answer.
    let client = desk.send(&format!("GET {EXEC}"), WEBSOCKET, "").await;
    let (_, mut member) = desk.member.accept().await;
    drop(client);
    assert_eq!(timeout(Duration::from_secs(1), rest(&mut member)).await.expect("closed"), "");
    desk.is_empty().await;
    // On the stream: the member sees the end, and may stay silent for a minute.
    let begun = Instant::now();
    let (client, mut member) = desk.stream(WEBSOCKET).await;
    drop(client);
    assert_eq!(timeout(Duration::from_secs(1), rest(&mut member)).await.expect("closed"), "");
    while desk.front.connections() > 0 {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(begun.elapsed() <= Duration::from_secs(65), "{:?}", begun.elapsed());
    desk.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn revoked_right_cuts_stream_within_sixty_seconds() {
    let desk = Desk::guarded(|_| {});
    let jane = format!("{WEBSOCKET}authorization: Bearer t-jane\r\n");
    // A WebSocket needs the permissions to get and to create, as on the API server.
    for missing in ["get", "create"] {
        desk.lab.member("a").auth().answer_reviews(move |asked| asked.verb != missing);
        let (code, said) = desk.refused(&format!("GET {EXEC}"), &jane, "").await;
        assert_eq!(code, 403, "{said}");
        let wanted = format!("cannot {missing} resource \\\"pods/exec\\\"");
        assert!(said.contains(&wanted), "{said}");
        sleep(Duration::from_secs(11)).await;
    }
    for gone in ["get", "create"] {
        desk.lab.member("a").auth().answer_reviews(|asked| {
            (asked.resource.as_str(), asked.namespace.as_str(), asked.name.as_str())
                == ("pods", "shop", "web")
        });
        let (mut client, mut member) = desk.stream(&jane).await;
        for _ in 0..10 {
            sleep(Duration::from_secs(10)).await;
            says(&mut client, &mut member, "still here").await;
        }
        desk.lab.member("a").auth().answer_reviews(move |asked| asked.verb != gone);
        let begun = Instant::now();
        assert_eq!(rest(&mut client).await, "");
        assert!(begun.elapsed() <= Duration::from_secs(60), "{gone}: {:?}", begun.elapsed());
        assert_eq!(rest(&mut member).await, "");
        desk.is_empty().await;
        // Until the cached decisions expire.
        sleep(Duration::from_secs(11)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stream_count_lifetime_and_shutdown_are_enforced() {
    let desk = Desk::trusting(|config| {
        config.outbound.streams.per_user = 2;
        config.outbound.streams.lifetime = Span::seconds(3600);
    });
    let (begun, (mut one, mut member)) = (Instant::now(), desk.stream(WEBSOCKET).await);
    let (mut two, other_member) = desk.stream(WEBSOCKET).await;
    let (code, said) = desk.refused(&format!("GET {EXEC}"), WEBSOCKET, "").await;
    assert!(code == 429 && said.contains("2 streams open"), "{said}");
    // Even if it is busy.
    let busy = async {
        loop {
            let mut byte = [0];
            if member.write_all(b"x").await.is_err() || one.read(&mut byte).await.unwrap_or(0) == 0 {
                return;
            }
            sleep(Duration::from_secs(10)).await;
        }
    };
    busy.await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(3600) && took <= Duration::from_secs(3611), "{took:?}");
    // The other stream was silent for longer than 15 minutes.
    assert_eq!(rest(&mut two).await, "");
    drop((one, two, other_member));
    desk.is_empty().await;

    // A paused cluster gets no requests.
    let (mut client, mut member) = desk.stream(WEBSOCKET).await;
    let cluster = desk.lab.services.fleet.cluster("a").unwrap();
    cluster.pause(Paused { by: PausedBy::Operator, since: None });
    assert_eq!((rest(&mut client).await, rest(&mut member).await), (String::new(), String::new()));
    let (code, said) = desk.refused(&format!("GET {EXEC}"), WEBSOCKET, "").await;
    assert!(code == 503 && said.contains("operator"), "{said}");
    cluster.resume();

    let (mut client, mut member) = desk.stream(WEBSOCKET).await;
    let begun = Instant::now();
    desk.front.drain().await;
    assert_eq!((rest(&mut client).await, rest(&mut member).await), (String::new(), String::new()));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let (_, streaming) =
        (desk.is_empty().await, desk.lab.services.fleet.shutdown(Duration::from_secs(5)).await);
    assert!(streaming, "the transport still has a stream");
}

#[tokio::test(start_paused = true)]
async fn disabled_connect_refuses_all_upgrades() {
    for connect in [ConnectPolicy::Refused, ConnectPolicy::Logs] {
        let desk = Desk::trusting(|config| config.outbound.connect = connect);
        for line in [format!("GET {EXEC}"), format!("POST {EXEC}"), "GET /clusters/a/api/v1/pods".to_owned()]
        {
            let (code, said) = desk.refused(&line, WEBSOCKET, "").await;
            let refusal = "connections into pods do not go through the gateway";
            assert!(code == 403 && said.contains(refusal), "{line}: {said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_else_gets_into_a_member_by_a_switch() {
    let desk = Desk::guarded(|_| {});
    let pod = "/clusters/a/api/v1/namespaces/shop/pods/web";
    let exec = format!("GET {EXEC}");
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\n";
    let spdy = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n";
    let smuggled = "GET /clusters/a/api/v1/nodes HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (line, headers, more, code) in [
        // Headers that name other identities, or remove those that the gateway sets.
        (exec.clone(), format!("{upgrade}impersonate-anything: admin\r\n"), "", 403),
        (exec.clone(), format!("{upgrade}Impersonate_Group: system:masters\r\n"), "", 403),
        (exec.clone(), "connection: Upgrade, Impersonate-User\r\nupgrade: websocket\r\n".into(), "", 400),
        (exec.clone(), format!("{upgrade}connection: impersonate-group\r\n"), "", 400),
        (
            exec.clone(),
            format!("{upgrade}sec-websocket-protocol: base64url.bearer.authorization.k8s.io.eA\r\n"),
            "",
            400,
        ),
        (exec.clone(), format!("{upgrade}origin: https://evil.example\r\n"), "", 403),
        // Bodies, which a server that switches would misread.
        (format!("POST {EXEC}"), format!("{spdy}content-length: 5\r\n"), "hello", 400),
        (
            format!("POST {EXEC}"),
            format!("{spdy}transfer-encoding: chunked\r\n"),
            "5\r\nhello\r\n0\r\n\r\n",
            400,
        ),
        (format!("POST {EXEC}"), format!("{spdy}transfer-encoding: chunked\r\n"), "0\r\n\r\n", 400),
        (format!("POST {EXEC}"), format!("{spdy}content-length: 0\r\ncontent-length: 70\r\n"), smuggled, 400),
        (
            format!("POST {EXEC}"),
            format!("{spdy}content-length: 70\r\ntransfer-encoding: chunked\r\n"),
            "0\r\n\r\n",
            400,
        ),
        // Other protocols, and none.
        (exec.clone(), "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n".into(), "", 400),
        (exec.clone(), "connection: Upgrade\r\nupgrade: h2c\r\n".into(), "", 400),
        (exec.clone(), "connection: Upgrade\r\nupgrade: websocket, h2c\r\n".into(), "", 400),
        (exec.clone(), format!("{upgrade}upgrade: SPDY/3.1\r\n"), smuggled, 400),
        (exec.clone(), "upgrade: websocket\r\n".into(), smuggled, 400),
        (exec.clone(), "connection: Upgrade\r\n".into(), smuggled, 400),
        (format!("PUT {EXEC}"), upgrade.into(), "", 400),
        (format!("DELETE {EXEC}"), upgrade.into(), "", 400),
        // Other paths.
        ("GET /clusters/a/api/v1/namespaces/shop/pods".into(), upgrade.into(), smuggled, 403),
        (format!("GET {pod}"), upgrade.into(), "", 403),
        (format!("GET {pod}/log?follow=true"), upgrade.into(), "", 403),
        (format!("GET {pod}/proxy/"), upgrade.into(), "", 403),
        (format!("GET {pod}/exec/more"), upgrade.into(), "", 403),
        (format!("GET {pod}/exec/../log"), upgrade.into(), "", 400),
        (format!("GET {pod}%2Fexec"), upgrade.into(), "", 400),
        ("GET /clusters/a/api/v1/pods/web/exec".into(), upgrade.into(), "", 403),
        ("GET /clusters/a/api/v1/nodes/n/proxy/exec/shop/web/c".into(), upgrade.into(), "", 403),
        ("GET /clusters/a/api/v1/namespaces/shop/services/web/proxy/".into(), upgrade.into(), "", 403),
        ("GET /clusters/a/apis/x.io/v1/namespaces/shop/pods/web/exec".into(), upgrade.into(), "", 403),
        ("GET /clusters/a/healthz".into(), upgrade.into(), "", 403),
        ("GET /fleet/api/v1/namespaces/shop/pods/web/exec".into(), upgrade.into(), "", 403),
        ("GET /metrics".into(), upgrade.into(), "", 403),
        ("CONNECT localhost:443".into(), String::new(), "", 403),
    ] {
        let headers = format!("{headers}authorization: Bearer t-jane\r\n");
        let (answered, said) = desk.refused(&line, &headers, more).await;
        assert_eq!(answered, code, "{line} {headers} {said}");
    }
    // HTTP/1.0 allows no upgrade.
    let mut client = desk.front.connect();
    let old = format!("{exec} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer t-jane\r\n{upgrade}\r\n");
    client.write_all(old.as_bytes()).await.unwrap();
    let said = rest(&mut client).await;
    assert!(said.starts_with("HTTP/1.0 400") || said.starts_with("HTTP/1.1 400"), "{said}");
    // A request without an upgrade, as by HTTP/2: the error names what is missing.
    let told = desk.lab.get_as("t-jane", EXEC).await;
    assert!(told.code == 400 && told.message().contains("Upgrade request required"), "{told:?}");
    // An unknown caller gets no information.
    assert_eq!(desk.refused(&exec, WEBSOCKET, "").await.0, 401);
    assert_eq!(desk.member.waiting(), 0);

    let unnamed = Desk::guarded(|config| config.outbound.impersonate = false);
    let jane = format!("{WEBSOCKET}authorization: Bearer t-jane\r\n");
    let (code, said) = unnamed.refused(&exec, &jane, "").await;
    assert!(code == 403 && said.contains("outbound.impersonate"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn audit_log_records_stream_start_and_end() {
    let desk = Desk::guarded(|_| {});
    let log = Log::default();
    let guard = log.start();
    let (mut client, mut member) = desk.stream(&format!("{WEBSOCKET}authorization: Bearer t-jane\r\n")).await;
    says(&mut client, &mut member, "what is typed").await;
    says(&mut member, &mut client, "and shown").await;
    drop((client, member));
    desk.is_empty().await;
    drop(guard);
    let text = log.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("skopos::audit")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, parts) in lines.iter().zip([
        &["code=101", "allowed=true", "by=\"member\"", "source=\"member\"", "route=\"clusters\""][..],
        &["stream ended", "why=\"done\"", "to_member=13", "to_client=9", "took="],
    ]) {
        let common = ["user=\"jane\"", "cluster=\"a\"", "what=\"get v1/pods/web/exec in shop\""];
        for part in common.iter().chain(parts) {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    assert!(
        !text.contains("what is typed") && !text.contains("and shown") && !text.contains("t-jane"),
        "{text}"
    );
}

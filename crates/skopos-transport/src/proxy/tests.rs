//! Tests with proxies whose every byte the test sends itself, in memory.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::environment::proxy_of;
use super::*;
use crate::address_filter::AddressFilter;
use crate::error::Fault;

/// The timeout of every operation.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The request to an HTTP proxy without credentials.
const CONNECT: &str = "CONNECT api.test:6443 HTTP/1.1\r\nHost: api.test:6443\r\n\r\n";

fn from_config(proxy: &str, server: &str, options: &TransportOptions) -> Result<Proxy, ConfigError> {
    let mut config = kube::Config::new(server.parse().unwrap());
    config.proxy_url = Some(proxy.parse().unwrap());
    let port = config.cluster_url.port_u16().unwrap();
    Proxy::from_config(&config, port, options).map(|proxy| proxy.expect("there is one"))
}

fn proxy(url: &str) -> Proxy {
    from_config(url, "https://api.test:6443/", &TransportOptions::default()).unwrap()
}

fn attempt() -> DialAttempt {
    DialAttempt::new("https://api.test:6443/".parse().unwrap(), 1, Duration::from_secs(1))
}

/// Returns the result of asking the proxy, and the bytes that it received. After each number of received bytes the proxy
/// sends the bytes beside it, one by one, and after the last of them closes the connection.
async fn asked(
    proxy: &Proxy,
    turns: &[(usize, &[u8])],
) -> (Result<Box<dyn Io>, TransportErrorKind>, Vec<u8>) {
    let (near, mut far) = tokio::io::duplex(64);
    let speaking = async move {
        let mut heard = Vec::new();
        for (bytes, answer) in turns {
            let before = heard.len();
            heard.resize(before + bytes, 0);
            far.read_exact(&mut heard[before..]).await.unwrap();
            for byte in *answer {
                if far.write_all(&[*byte]).await.is_err() {
                    return heard;
                }
            }
        }
        heard
    };
    let attempt = attempt();
    let both = async { tokio::join!(proxy.connect(near, None, &attempt), speaking) };
    tokio::time::timeout(TIMEOUT, both).await.expect("an end")
}

fn fault(result: Result<Box<dyn Io>, TransportErrorKind>) -> ProxyFault {
    match result.map(drop) {
        Err(TransportErrorKind::Proxy { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

async fn rest(stream: Box<dyn Io>) -> String {
    let mut stream = stream;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    rest
}

#[tokio::test]
async fn http_connect_leaves_server_bytes_untouched() {
    for head in [
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200 OK\r\nProxy-Agent: old\r\nContent-Length: 7\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 299 Fine\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        // The server may speak first.
        let answer = format!("{head}SETTINGS");
        let (stream, heard) =
            asked(&proxy("http://proxy.test:3128"), &[(CONNECT.len(), answer.as_bytes())]).await;
        assert_eq!(String::from_utf8(heard).unwrap(), CONNECT);
        assert_eq!(rest(stream.unwrap()).await, "SETTINGS", "{head}");
    }
}

#[tokio::test]
async fn tunnel_passes_bytes_received_with_proxy_response() {
    let (near, mut far) = tokio::io::duplex(4096);
    let proxy = proxy("http://proxy.test:3128");
    let attempt = attempt();
    let speaking = async {
        far.read_exact(&mut [0; CONNECT.len()]).await.unwrap();
        far.write_all(b"HTTP/1.1 200 OK\r\n\r\nfirst").await.unwrap();
    };
    let (stream, ()) = tokio::join!(proxy.connect(near, None, &attempt), speaking);
    let mut stream = stream.unwrap();
    let mut words = [0; 5];
    let reading = tokio::time::timeout(TIMEOUT, stream.read_exact(&mut words));
    reading.await.expect("in time").unwrap();
    assert_eq!(&words, b"first");
    stream.write_all(b"ours").await.unwrap();
    far.read_exact(&mut words[..4]).await.unwrap();
    far.write_all(b"later").await.unwrap();
    assert_eq!(&words[..4], b"ours");
    stream.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"later");
}

#[tokio::test]
async fn proxy_credentials_are_percent_decoded() {
    for (login, encoded) in [
        ("Aladdin:open%20sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ("me:a%40b%3Ac:d", "Basic bWU6YUBiOmM6ZA=="),
        ("token", "Basic dG9rZW46"),
    ] {
        let expected = CONNECT.trim_end().to_owned() + &format!("\r\nProxy-Authorization: {encoded}\r\n\r\n");
        let answer = b"HTTP/1.1 200 OK\r\n\r\n";
        let url = format!("http://{login}@proxy.test:3128");
        let (stream, heard) = asked(&proxy(&url), &[(expected.len(), answer)]).await;
        assert_eq!(String::from_utf8(heard).unwrap(), expected);
        stream.unwrap();
    }
}

#[tokio::test]
async fn http_proxy_refusal_reports_status_code() {
    let (open, known) = (proxy("http://proxy.test"), proxy("http://me:secret@proxy.test"));
    let known_words = CONNECT.len() + "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n".len();
    let cases: [(u16, ProxyFault, ProxyFault, Fault); 6] = [
        (407, ProxyFault::NoCredentials, ProxyFault::WrongCredentials, Fault::Caller),
        (403, ProxyFault::Status(403), ProxyFault::Status(403), Fault::Caller),
        (302, ProxyFault::Status(302), ProxyFault::Status(302), Fault::Caller),
        (429, ProxyFault::Status(429), ProxyFault::Status(429), Fault::Network),
        (502, ProxyFault::Status(502), ProxyFault::Status(502), Fault::Network),
        (504, ProxyFault::Status(504), ProxyFault::Status(504), Fault::Network),
    ];
    for (status, without, with, whose) in cases {
        let answer = format!("HTTP/1.1 {status} canary\r\nX: canary\r\nContent-Length: 6\r\n\r\ncanary");
        let (result, _) = asked(&open, &[(CONNECT.len(), answer.as_bytes())]).await;
        let error = result.map(drop).unwrap_err();
        assert_eq!(error.fault(), whose, "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        assert!(error.to_string().starts_with("proxy http://proxy.test: it "), "{error}");
        assert_eq!(error, TransportErrorKind::Proxy { proxy: "http://proxy.test".into(), fault: without });
        let (result, _) = asked(&known, &[(known_words, answer.as_bytes())]).await;
        assert_eq!(fault(result), with);
    }
}

#[tokio::test]
async fn invalid_proxy_response_is_bounded_error() {
    let http = proxy("http://proxy.test");
    let endless = "HTTP/1.1 200 OK\r\n".to_owned() + &"X: y\r\n".repeat(100_000);
    let line = "HTTP/1.1 200 ".to_owned() + &"x".repeat(1_000_000);
    for answer in [&endless, &line, "SSH-2.0-OpenSSH_9.9\r\n\r\n", "\u{0}\u{1}\u{2}\u{3}\r\n\r\n"] {
        let (result, _) = asked(&http, &[(CONNECT.len(), answer.as_bytes())]).await;
        assert!(matches!(fault(result), ProxyFault::Garbled(_)), "{}", &answer[..10]);
    }
    for answer in ["", "HTTP/1.1 200 OK\r\n"] {
        let (result, _) = asked(&http, &[(CONNECT.len(), answer.as_bytes())]).await;
        assert_eq!(fault(result), ProxyFault::Closed, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_proxy_is_reported_as_dial_stage() {
    for url in ["http://proxy.test", "socks5://proxy.test"] {
        let (near, _far) = tokio::io::duplex(4096);
        let (proxy, attempt) = (proxy(url), attempt());
        let asking = proxy.connect(near, None, &attempt);
        assert!(tokio::time::timeout(Duration::from_secs(600), asking).await.is_err());
        assert_eq!(attempt.stage(), "proxy");
    }
}

#[tokio::test]
async fn socks_proxy_resolves_host_name() {
    for url in ["socks5://proxy.test", "SOCKS5H://proxy.test:1080"] {
        let bound: [&[u8]; 3] = [&[1, 10, 0, 0, 1, 0, 80], &[4; 19], &[3, 4, b'h', b'o', b's', b't', 0, 80]];
        for bound in bound {
            let answer = [&[5, 0, 0], bound, b"SETTINGS"].concat();
            let (stream, heard) = asked(&proxy(url), &[(3, &[5, 0]), (15, &answer)]).await;
            assert_eq!(heard, b"\x05\x01\x00\x05\x01\x00\x03\x08api.test\x19\x2b");
            assert_eq!(rest(stream.unwrap()).await, "SETTINGS");
        }
    }
    for (server, address) in [
        ("https://10.0.0.1:6443", &[1, 10, 0, 0, 1][..]),
        ("https://[::1]:6443", &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        let proxy = from_config("socks5://proxy.test", server, &TransportOptions::default()).unwrap();
        let said = 3 + address.len() + 2;
        let (stream, heard) = asked(&proxy, &[(3, &[5, 0]), (said, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])]).await;
        assert_eq!(heard[6..heard.len() - 2], *address);
        stream.unwrap();
    }
}

#[tokio::test]
async fn socks_credentials_are_sent_on_request() {
    let known = proxy("socks5://me:s%20t@proxy.test");
    let yes: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let (stream, heard) = asked(&known, &[(4, &[5, 2]), (8, &[1, 0]), (15, yes)]).await;
    assert_eq!(heard[..12], *b"\x05\x02\x00\x02\x01\x02me\x03s t");
    stream.unwrap();
    let (stream, _) = asked(&known, &[(4, &[5, 0]), (15, yes)]).await;
    stream.unwrap();
    let (result, _) = asked(&known, &[(4, &[5, 2]), (8, &[1, 1])]).await;
    assert_eq!(fault(result), ProxyFault::WrongCredentials);
    let (result, _) = asked(&known, &[(4, &[5, 0xff])]).await;
    assert_eq!(fault(result), ProxyFault::WrongCredentials);
    let (result, _) = asked(&proxy("socks5://proxy.test"), &[(3, &[5, 0xff])]).await;
    assert_eq!(fault(result), ProxyFault::NoCredentials);
}

#[tokio::test]
async fn socks_refusal_reports_reply_code() {
    let proxy = proxy("socks5://proxy.test");
    for (reply, whose, words) in [
        (1, Fault::Network, "general failure"),
        (2, Fault::Caller, "not allowed by its rules"),
        (5, Fault::Network, "connection refused"),
        (77, Fault::Caller, "reply 77"),
    ] {
        let (result, _) = asked(&proxy, &[(3, &[5, 0]), (15, &[5, reply, 0, 1])]).await;
        let fault = fault(result);
        assert_eq!((&fault, fault.fault()), (&ProxyFault::Reply(reply), whose));
        assert!(fault.to_string().contains(words), "{fault}");
    }
    let garbled: [&[(usize, &[u8])]; 5] = [
        &[(3, b"HTTP/1.1 400")],
        // GSSAPI, and user and password, which the client did not offer.
        &[(3, &[5, 1])],
        &[(3, &[5, 2])],
        &[(3, &[5, 0]), (15, &[4, 0, 0, 1])],
        &[(3, &[5, 0]), (15, &[5, 0, 0, 9])],
    ];
    for turns in garbled {
        let (result, _) = asked(&proxy, turns).await;
        assert!(matches!(fault(result), ProxyFault::Garbled(_)), "{turns:?}");
    }
    let short: [&[(usize, &[u8])]; 3] =
        [&[(3, &[])], &[(3, &[5, 0]), (15, &[])], &[(3, &[5, 0]), (15, &[5, 0, 0, 3, 200, 1])]];
    for turns in short {
        let (result, _) = asked(&proxy, turns).await;
        assert_eq!(fault(result), ProxyFault::Closed, "{turns:?}");
    }
}

#[test]
fn invalid_proxy_url_error_hides_password() {
    let judged = AddressFilter::new(|_| Ok(()));
    let guarded = TransportOptions { addresses: judged, ..Default::default() };
    let long = format!("socks5://me:{}@canary.test", "secret".repeat(50));
    for (url, options, reason) in [
        ("ftp://me:secret@canary.test", &TransportOptions::default(), "has to begin with http://"),
        ("socks4://me:secret@canary.test", &TransportOptions::default(), "has to begin with http://"),
        ("http://me:secret@canary.test:0", &TransportOptions::default(), "has a port that is none"),
        ("http://me:secret@canary.test:99999", &TransportOptions::default(), "has a port that is none"),
        ("socks5://:secret@canary.test", &TransportOptions::default(), "1 to 255 bytes"),
        (&long, &TransportOptions::default(), "1 to 255 bytes"),
        ("http://me:secret@canary.test", &guarded, "cannot be checked here"),
        ("socks5://me:secret@canary.test", &guarded, "cannot be checked here"),
    ] {
        let error = from_config(url, "https://api.test:6443", options).map(drop).unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(told.contains(reason) && told.contains("://canary.test"), "{told}");
        assert!(!told.contains("secret") && !told.contains("me:"), "{told}");
    }
}

#[test]
fn proxy_url_defaults_port_and_scheme() {
    for (url, port, name) in [
        ("http://proxy.test", 80, "http://proxy.test"),
        ("http://proxy.test:/path", 80, "http://proxy.test:"),
        ("https://u:p@proxy.test", 443, "https://proxy.test"),
        ("socks5://proxy.test", 1080, "socks5://proxy.test"),
        ("proxy.test:3128", 3128, "http://proxy.test:3128"),
        ("http://[::1]:3128", 3128, "http://[::1]:3128"),
    ] {
        let proxy = proxy(url);
        assert_eq!((proxy.port, &*proxy.name), (port, name), "{url}");
        assert_eq!(&*proxy.host, if url.contains("::1") { "::1" } else { "proxy.test" });
    }
}

#[test]
fn proxy_environment_follows_go_rules() {
    let of = |url: &str, variables: &[(&str, &str)]| {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        proxy_of(&url.parse().unwrap(), variable).map(|proxy| proxy.map(|proxy| proxy.to_string()))
    };
    let both = [("HTTPS_PROXY", "http://s.test:1"), ("HTTP_PROXY", "http://p.test:1")];
    assert_eq!(of("https://a.test", &both).unwrap().unwrap(), "http://s.test:1/");
    assert_eq!(of("http://a.test", &both).unwrap().unwrap(), "http://p.test:1/");
    assert_eq!(of("http://a.test", &both[..1]).unwrap(), None);
    assert_eq!(of("http://a.test", &[both[1], ("REQUEST_METHOD", "GET")]).unwrap(), None);
    assert_eq!(of("https://a.test", &[("HTTPS_PROXY", ""), ("https_proxy", "p:1")]).unwrap().unwrap(), "p:1");
    assert_eq!(of("https://a.test", &[("ALL_PROXY", "http://p.test:1")]).unwrap(), None);
    assert!(of("https://a.test", &[("HTTPS_PROXY", "no url")]).is_err());
    assert_eq!(of("https://localhost:6443", &[("HTTPS_PROXY", "no url")]).unwrap(), None);

    for (exempt, direct, through) in [
        (
            "",
            &["https://localhost", "https://127.9.9.9", "https://[::1]", "https://[::ffff:127.0.0.1]"][..],
            &["https://a.test"][..],
        ),
        ("*", &["https://a.test", "https://10.0.0.1"], &[]),
        (
            " a.test , b.test",
            &["https://a.test", "https://x.A.test:6443", "https://b.test."],
            &["https://xa.test", "https://a.test.c"],
        ),
        (
            ".a.test,*.b.test",
            &["https://x.a.test", "https://y.x.b.test"],
            &["https://a.test", "https://b.test"],
        ),
        (
            "a.test:6443",
            &["https://a.test:6443", "https://x.a.test:6443"],
            &["https://a.test", "https://a.test:443"],
        ),
        (
            "10.0.0.0/8,fd00::/8",
            &["https://10.1.2.3", "https://[fd00::1]"],
            &["https://11.0.0.1", "https://10.a.test"],
        ),
        ("10.0.0.1,::2", &["https://10.0.0.1:6443", "https://[::2]"], &["https://10.0.0.2", "https://[::3]"]),
        (
            "10.0.0.1:443,[::2]:443",
            &["https://10.0.0.1", "https://[::2]"],
            &["https://10.0.0.1:6443", "https://[::2]:1"],
        ),
        (",,%%, ,svc", &["https://kubernetes.default.svc"], &["https://svc.test"]),
    ] {
        let of = |url: &str| of(url, &[("HTTPS_PROXY", "http://p.test"), ("no_proxy", exempt)]).unwrap();
        direct.iter().for_each(|url| assert_eq!(of(url), None, "{url} is direct by {exempt:?}"));
        through.iter().for_each(|url| assert!(of(url).is_some(), "{url} is not direct by {exempt:?}"));
    }
}

//! Web pages against a whole gateway: they get no rights of the person at the browser, and no member's answer acts as a page.

use std::sync::Arc;

use http::{Method, Request};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::CertificateDer;

use super::body::LimitedBody;
use crate::config::{Authentication, AuthorizationMode, ClientCertificates, Config, PolicyRule};
use crate::listen::Peer;
use crate::testing::{Lab, Told, told};

/// A page that would read other clusters if a browser ran it.
const PAGE: &str = "<!doctype html><script>fetch('/clusters/other/api/v1/secrets')</script>";

/// Allows everything to all callers, with impersonation.
fn open(config: &mut Config) {
    config.outbound.impersonate = true;
    config.authorization.mode = AuthorizationMode::Policy;
    config.authorization.policy =
        vec![PolicyRule { users: vec!["*".into()], verbs: vec!["*".into()], ..PolicyRule::default() }];
}

fn certificate(user: &str) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

/// A gateway with certificate authentication, and the requests of a browser with a certificate.
struct Desk {
    lab: Lab,
    peer: Arc<Peer>,
}

impl Desk {
    fn new() -> Self {
        let lab = Lab::with(&["a"], |config| {
            let ca = ClientCertificates::new("ca.pem");
            config.authentication =
                Authentication { client_certificates: Some(ca), ..Authentication::default() };
            open(config);
        });
        let peer = Peer::new("10.0.0.9:1234".parse().unwrap(), true, lab.draining.clone());
        let peer = Peer { certificate: Some(certificate("bob")), ..peer };
        Self { lab, peer: Arc::new(peer) }
    }

    async fn send(&self, method: &Method, path: &str, lines: &[(&str, &str)], body: &'static str) -> Told {
        let mut builder = Request::builder().method(method).uri(path).header("host", "gateway:6443");
        for (name, value) in lines {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(LimitedBody::whole(body)).unwrap();
        told(self.lab.gateway.answer(self.peer.clone(), request).await).await
    }
}

#[tokio::test(start_paused = true)]
async fn member_pages_are_served_as_text() {
    let lab = Lab::trusting(&["a"]);
    let evil = lab.add_echo("evil");
    for kind in ["text/html", "image/svg+xml", "application/xhtml+xml", "application/json, text/html"] {
        evil.answers(200, &[("content-type", kind)], PAGE);
        for path in ["evil.html", "api/v1/namespaces/x/secrets/y", "apis/example.com/v1/pages", "healthz"] {
            let shown = lab.get(&format!("/clusters/evil/{path}"), &[]).await;
            assert_eq!((shown.code, &shown.body[..]), (200, PAGE.as_bytes()), "{path}");
            assert_eq!(shown.header("content-type"), "text/plain; charset=utf-8", "{kind} {path}");
            is_harmless(&shown);
        }
    }
    let mine = lab.get("/clusters/a/api/v1/namespaces", &[]).await;
    assert_eq!(mine.header("content-type"), "application/json");
    is_harmless(&mine);
    for path in [
        "/healthz",
        "/metrics",
        "/nothing",
        "/clusters/a/version",
        "/fleet/api/v1/pods",
        "/clusters/none/api",
    ] {
        is_harmless(&lab.get(path, &[]).await);
    }
}

#[tokio::test(start_paused = true)]
async fn member_pages_are_not_cached_as_documents() {
    let lab = Lab::trusting(&[]);
    let evil = lab.add_echo("evil");
    evil.answers(200, &[("content-type", "text/html"), ("etag", "\"x\"")], PAGE);
    for path in ["version", "openapi/v2", "openapi/v3", "api", "apis"] {
        for known in [&[][..], &[("if-none-match", "\"x\"")]] {
            let refused = lab.get(&format!("/clusters/evil/{path}"), known).await;
            assert_eq!((refused.code, refused.header("content-type")), (502, "application/json"), "{path}");
            is_harmless(&refused);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_refused_with_client_certificates() {
    let desk = Desk::new();
    desk.lab.member("a").clear_requests();
    let json = ("content-type", "application/json");
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"csrf"}}"#;
    let maps = "/clusters/a/api/v1/namespaces/default/configmaps";
    let elsewhere: [&[(&str, &str)]; 5] = [
        &[json, ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")],
        &[json, ("origin", "https://gateway")],
        &[json, ("origin", "http://gateway:6443")],
        &[json, ("origin", "null")],
        &[json, ("sec-fetch-site", "same-site")],
    ];
    for lines in elsewhere {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(desk.send(&method, maps, lines, object).await.code, 403, "{method} {lines:?}");
        }
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let sent = desk.send(&Method::POST, maps, &[("content-type", kind)], object).await;
        assert_eq!((sent.code, sent.json()["kind"].as_str()), (415, Some("Status")), "{kind}");
    }
    let reads: [&[(&str, &str)]; 4] = [
        &[("sec-fetch-mode", "navigate"), ("sec-fetch-site", "none")],
        &[("sec-fetch-mode", "no-cors"), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-mode", "cors"), ("origin", "https://evil.example")],
        &[("sec-fetch-mode", "no-cors"), ("sec-fetch-site", "same-site"), ("sec-fetch-dest", "script")],
    ];
    for lines in reads {
        assert_eq!(desk.send(&Method::GET, maps, lines, "").await.code, 403, "{lines:?}");
    }
    assert!(desk.lab.member("a").requests().is_empty());

    let own = [json, ("origin", "https://gateway:6443"), ("sec-fetch-site", "same-origin")];
    assert_eq!(desk.send(&Method::POST, maps, &own, object).await.code, 201);
    assert_eq!(desk.send(&Method::GET, maps, &[], "").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn pages_are_refused_on_loopback() {
    let lab = Lab::trusting(&["a"]);
    let namespaces = "/clusters/a/api/v1/namespaces";
    for lines in [
        [("host", "localhost:8001"), ("origin", "http://localhost:3000")],
        [("host", "127.0.0.1:8001"), ("origin", "http://localhost:8001")],
        [("host", "localhost:8001"), ("sec-fetch-mode", "navigate")],
        [("host", "localhost:8001"), ("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(lab.get(namespaces, &lines).await.code, 403, "{lines:?}");
    }
    assert_eq!(lab.get(namespaces, &[("host", "evil.example")]).await.code, 401);
    // Health checks are open to all callers.
    assert_eq!(lab.get("/readyz", &[("sec-fetch-mode", "navigate")]).await.code, 503);
}

/// Browsers never send bearer tokens automatically.
#[tokio::test(start_paused = true)]
async fn bearer_tokens_permit_cross_origin_reads_only() {
    let lab = Lab::guarded(&["a"], open);
    lab.admit("t-jane", "jane");
    let lines = [
        ("authorization", "Bearer t-jane"),
        ("origin", "https://evil.example"),
        ("content-type", "application/json"),
    ];
    let maps = "/clusters/a/api/v1/namespaces/default/configmaps";
    assert_eq!(lab.get(maps, &lines).await.code, 200);
    assert_eq!(told(lab.send(Method::POST, maps, &lines, "{}").await).await.code, 403);
}

fn is_harmless(answer: &Told) {
    assert_eq!(
        answer.header("content-security-policy"),
        "sandbox; default-src 'none'; frame-ancestors 'none'"
    );
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

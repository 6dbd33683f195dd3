//! Tests of TLS on loopback: the server's CA signs its certificate, and both HTTP versions are spoken.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use skopos_testserver::TestServer;
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

async fn connect(server: &TestServer, ca_pem: &str, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

#[tokio::test]
async fn kubeconfig_ca_suffices_for_both_protocols() {
    let server = start(TestServer::builder().tls(true)).await;
    let ca = server.ca_pem().unwrap();
    assert!(server.url().starts_with("https://127.0.0.1:"));
    assert!(server.kubeconfig().contains("certificate-authority-data: "));

    let mut stream = connect(&server, &ca, "http/1.1").await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK") && answer.ends_with(b"ok"));

    let stream = connect(&server, &ca, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    let request = http::Request::get("https://127.0.0.1/healthz").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn expired_and_rotated_certificates_are_noticed() {
    let server = start(TestServer::builder().expired_certificate()).await;
    let error = connect(&server, &server.ca_pem().unwrap(), "h2").await.unwrap_err();
    assert!(error.to_string().contains("xpired"), "{error}");
    let old = server.ca_pem().unwrap();
    server.rotate_certificates().unwrap();
    assert!(connect(&server, &old, "h2").await.is_err());
    assert!(connect(&server, &server.ca_pem().unwrap(), "h2").await.is_ok());
}

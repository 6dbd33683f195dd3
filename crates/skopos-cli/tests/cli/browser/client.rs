//! A client of the gateway that is no browser, for the requests that the user could make directly.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{TIMEOUT, text};

/// Client for single requests by HTTP/1.1, over TLS with bob's certificate.
pub(super) struct Client {
    url: String,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

impl Client {
    /// Makes a client of the gateway at `url`, with the certificates of `folder`.
    pub(super) fn new(url: &str, folder: &Path) -> Self {
        let (scheme, address) = url.split_once("://").expect("a URL");
        let tls = (scheme == "https").then(|| Arc::new(identified(folder)));
        Self { url: url.to_owned(), address: address.parse().expect("an address"), tls }
    }

    /// Returns the gateway's origin.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the code and the body of the answer.
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").expect("a string");
        }
        if !headers.iter().any(|(name, _)| *name == "connection") {
            head.push_str("connection: close\r\n");
        }
        if !body.is_empty() {
            write!(head, "content-length: {}\r\n", body.len()).expect("a string");
        }
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let request = format!("{head}\r\n{body}");
        let answer = match &self.tls {
            None => answer(stream, &request),
            Some(tls) => {
                let name = self.address.ip().into();
                let session = ClientConnection::new(tls.clone(), name).expect("a configuration");
                answer(StreamOwned::new(session, stream), &request)
            }
        };
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.unwrap_or_else(|| panic!("no HTTP: {answer:?}")), answer)
    }
}

fn identified(folder: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).expect("a CA")).expect("a CA");
    let certificate = CertificateDer::from_pem_file(folder.join("bob.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join("bob.key")).expect("a key");
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    builder.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key).expect("a client")
}

/// Returns the whole response. A connection may end without TLS's own end.
fn answer(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    text(&bytes)
}

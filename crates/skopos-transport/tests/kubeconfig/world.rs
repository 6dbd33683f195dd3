//! Server that records its callers, and the two readers of a kubeconfig: Skopos, and kubectl if it is installed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use skopos_transport::{KubeconfigPaths, Transport, TransportOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

/// The result of reading a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A request to the server.
    Asked(Caller),
    /// No request, or no trust in the server.
    Refused,
}

/// The identity that the server saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) authorization: Option<String>,
    pub(crate) certificate: bool,
    pub(crate) impersonated: Option<String>,
    pub(crate) path: String,
}

/// Servers, a CA, and a folder for kubeconfigs.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    /// `https://127.0.0.1:PORT`, with a certificate of the CA.
    pub(crate) https: String,
    /// `127.0.0.1:PORT`, without TLS.
    pub(crate) http: SocketAddr,
    seen: Arc<Mutex<Vec<Caller>>>,
    tasks: JoinSet<()>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A kubeconfig as a reader gets it.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// As one file.
    File(PathBuf),
    /// As a list in `$KUBECONFIG`.
    List(String),
}

pub(crate) fn base64(text: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Creates a self-signed certificate for the server's address.
pub(crate) fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Identity { certificate: certificate.pem(), key: key.serialize_pem() }
}

impl World {
    pub(crate) async fn start() -> Self {
        let _ = ring::default_provider().install_default();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut world = Self {
            folder: tempfile::tempdir().unwrap(),
            authority,
            https: String::new(),
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
            seen: Arc::default(),
            tasks: JoinSet::new(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        world.http = listener.local_addr().unwrap();
        world.serve(listener, None);
        let identity = world.issue(|_| {});
        world.https = world.tls(&identity).await;
        world
    }

    /// Starts another TLS server with this certificate.
    pub(crate) async fn tls(&mut self, identity: &Identity) -> String {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let mut clients = rustls::RootCertStore::empty();
        clients.add(self.authority.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider.clone());
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        self.serve(listener, Some(Arc::new(config)));
        url
    }

    fn serve(&mut self, listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>) {
        let seen = self.seen.clone();
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (seen, tls) = (seen.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => answer(socket, seen, false).await,
                        Some(tls) => {
                            let accepted = tokio_rustls::TlsAcceptor::from(tls).accept(socket).await;
                            let Ok(stream) = accepted else { return };
                            let certificate = stream.get_ref().1.peer_certificates().is_some();
                            answer(stream, seen, certificate).await;
                        }
                    }
                });
            }
        });
    }

    /// Issues a certificate of the CA for the server's address.
    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names = ["127.0.0.1".to_owned(), "server.test".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn ca(&self) -> String {
        self.authority.pem()
    }

    /// Returns the fields of a valid cluster.
    pub(crate) fn cluster(&self) -> String {
        format!("server: '{}', certificate-authority-data: {}", self.https, base64(self.ca()))
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Creates a program that prints this.
    pub(crate) fn plugin(&self, name: &str, answer: &str) -> PathBuf {
        let text = format!("#!/bin/sh\necho run >>\"$0.runs\"\ncat <<'EOF'\n{answer}\nEOF\n");
        let draft = self.write(&format!("{name}.draft"), text);
        let path = self.folder.path().join(name);
        // Another process writes the program: what this one has open for writing, a concurrent fork has open for a moment more, and
        // then it cannot be executed.
        let install = std::process::Command::new("install").arg("-m755").arg(draft).arg(&path).status();
        assert!(install.unwrap().success());
        path
    }

    /// Checks both readers with a kubeconfig of this cluster and user, in flow style.
    pub(crate) async fn check(&self, cluster: &str, user: &str, expected: &Outcome) {
        let path = self.write("config", kubeconfig(cluster, user));
        self.check_given(&Given::File(path), expected).await;
    }

    /// Checks both readers with the same input, and compares their results.
    pub(crate) async fn check_given(&self, given: &Given, expected: &Outcome) {
        let (outcome, reason) = self.by_skopos(given).await;
        assert_eq!(&outcome, expected, "by Skopos: {reason}");
        if let Some((outcome, reason)) = self.by_kubectl(given).await {
            assert_eq!(&outcome, expected, "by kubectl: {reason}");
        }
    }

    /// Checks Skopos alone with a kubeconfig, where it differs from kubectl on purpose.
    pub(crate) async fn check_skopos(&self, cluster: &str, user: &str, expected: &Outcome) -> String {
        let path = self.write("config", kubeconfig(cluster, user));
        let (outcome, reason) = self.by_skopos(&Given::File(path)).await;
        assert_eq!(&outcome, expected, "{reason}");
        reason
    }

    /// Checks Skopos alone with other forms of input.
    pub(crate) async fn check_skopos_given(&self, given: &Given, expected: &Outcome) {
        let (outcome, reason) = self.by_skopos(given).await;
        assert_eq!(&outcome, expected, "{reason}");
    }

    async fn by_skopos(&self, given: &Given) -> (Outcome, String) {
        let paths = match given {
            Given::File(path) => KubeconfigPaths::file(path),
            Given::List(list) => KubeconfigPaths::list(list),
        };
        self.seen.lock().clear();
        let asked = async {
            let kubeconfig = paths.read().map_err(|error| error.to_string())?;
            let config = kubeconfig.config(None).map_err(|error| error.to_string())?;
            let options = TransportOptions::default();
            let transport = Transport::from_config(config, options).map_err(|error| error.to_string())?;
            let request = Request::get("/version").body(Body::empty()).unwrap();
            let answer = transport.send(request).await.map_err(|error| error.to_string());
            transport.shutdown(Duration::from_secs(5)).await;
            answer.map(drop)
        };
        self.outcome(asked.await)
    }

    /// Runs kubectl; returns `None` if it is not installed: then only its recorded results count.
    async fn by_kubectl(&self, given: &Given) -> Option<(Outcome, String)> {
        let mut command = Command::new("kubectl");
        command.env_clear().envs(BTreeMap::from([
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", self.folder.path().display().to_string()),
        ]));
        match given {
            Given::File(path) => _ = command.arg("--kubeconfig").arg(path),
            Given::List(list) => _ = command.env("KUBECONFIG", list),
        }
        command.args(["get", "--raw", "/version", "--request-timeout=10s"]);
        self.seen.lock().clear();
        let output = match command.stdin(Stdio::null()).output().await {
            Ok(output) => output,
            Err(error) => {
                let required = std::env::var_os("SKOPOS_KUBECTL").is_some();
                assert!(!required, "SKOPOS_KUBECTL is set, and kubectl cannot be run: {error}");
                eprintln!("SKIPPED: kubectl cannot be run ({error}), so nothing is compared with it");
                return None;
            }
        };
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Some(self.outcome(if output.status.success() { Ok(()) } else { Err(stderr) }))
    }

    fn outcome(&self, asked: Result<(), String>) -> (Outcome, String) {
        match (asked, self.seen.lock().last().cloned()) {
            (Ok(()), Some(caller)) => (Outcome::Asked(caller), String::new()),
            (Ok(()), None) => (Outcome::Refused, "the server was not asked".to_owned()),
            (Err(reason), _) => (Outcome::Refused, reason),
        }
    }
}

async fn answer<S>(stream: S, seen: Arc<Mutex<Vec<Caller>>>, certificate: bool)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        seen.lock().push(Caller {
            authorization: header("authorization"),
            certificate,
            impersonated: header("impersonate-user"),
            path: request.uri().path().to_owned(),
        });
        let body = Full::new(Bytes::from_static(br#"{"major":"1","minor":"36"}"#));
        let answer = Response::builder().header("content-type", "application/json").body(body).unwrap();
        async { Ok::<_, Infallible>(answer) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Returns a kubeconfig with the fields of cluster and user in flow style.
pub(crate) fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
         contexts: [{{name: main, context: {{cluster: c, user: u}}}}]\n"
    )
}

pub(crate) fn asked_by(authorization: &str) -> Outcome {
    Outcome::Asked(Caller { authorization: Some(authorization.to_owned()), ..anonymous() })
}

pub(crate) fn asked_anonymously() -> Outcome {
    Outcome::Asked(anonymous())
}

pub(crate) fn asked_with_certificate() -> Outcome {
    Outcome::Asked(Caller { certificate: true, ..anonymous() })
}

fn anonymous() -> Caller {
    Caller { path: "/version".to_owned(), ..Caller::default() }
}

pub(crate) fn list(paths: &[&Path]) -> Given {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Given::List(paths.join(":"))
}

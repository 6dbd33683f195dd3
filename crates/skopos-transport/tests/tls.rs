//! Real sockets and TLS: tests of certificates, names, credentials and addresses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kube::client::Body;
use kube::config::{ExecConfig, KubeConfigOptions};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use skopos_transport::{
    AddressFilter, ConfigError, Protocol, RequestOptions, TlsFault, Transport, TransportError,
    TransportErrorKind, TransportOptions, Upgrade, config_from_kubeconfig,
};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, both as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Identity {
    fn new(authority: &Issuer, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Self {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        Self { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn base64(&self) -> (String, String) {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        (encode(&self.certificate), encode(&self.key))
    }
}

struct Server {
    address: SocketAddr,
    tasks: TaskTracker,
    /// The server's certificate; read for each handshake.
    identity: Arc<Mutex<Arc<rustls::ServerConfig>>>,
    authorization: Arc<Mutex<Vec<String>>>,
    /// Client certificates of the requests.
    clients: Arc<Mutex<Vec<Option<CertificateDer<'static>>>>>,
    /// A client certificate that is answered with 401: it was valid when the connection was made.
    expired: Arc<Mutex<Option<CertificateDer<'static>>>>,
}

fn server_config(identity: &Identity, alpn: &[&str], clients: Option<&Issuer>) -> Arc<rustls::ServerConfig> {
    use rustls::pki_types::pem::PemObject;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    Arc::new(config)
}

impl Server {
    async fn start(config: Arc<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            tasks: TaskTracker::new(),
            identity: Arc::new(Mutex::new(config)),
            authorization: Arc::default(),
            clients: Arc::default(),
            expired: Arc::default(),
        };
        let (tasks, identity, seen) =
            (server.tasks.clone(), server.identity.clone(), server.authorization.clone());
        let (clients, expired) = (server.clients.clone(), server.expired.clone());
        server.tasks.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let acceptor = tokio_rustls::TlsAcceptor::from(identity.lock().clone());
                let (seen, clients, expired) = (seen.clone(), clients.clone(), expired.clone());
                tasks.spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let client =
                        stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone().into_owned());
                    let service = service_fn(move |request: Request<Incoming>| {
                        let value = request.headers().get("authorization");
                        seen.lock().push(value.map_or("none", |v| v.to_str().unwrap()).to_owned());
                        clients.lock().push(client.clone());
                        let mut answer = Response::new(Full::new(Bytes::from_static(PODS)));
                        if client.is_some() && client == *expired.lock() {
                            *answer.status_mut() = StatusCode::UNAUTHORIZED;
                        }
                        async { Ok::<_, Infallible>(answer) }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        server
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.address.port())
    }
}

const PODS: &[u8] = br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;

fn config(url: &str, authority: &Issuer) -> kube::Config {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = Some(vec![authority.der().to_vec()]);
    config
}

fn transport(config: kube::Config) -> Transport {
    Transport::from_config(config, TransportOptions::default()).unwrap()
}

async fn ask(transport: &Transport) -> Result<StatusCode, TransportError> {
    let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    let answer = transport.send(request).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}

#[tokio::test]
async fn alpn_selects_protocol_for_kube_client() {
    let authority = authority();
    let identity = Identity::new(&authority, &["localhost", "127.0.0.1"], |_| {});
    let both: &[&str] = &["h2", "http/1.1"];
    for (alpn, http1_only, protocol) in [
        (both, false, Protocol::Http2),
        (both, true, Protocol::Http1),
        (&["http/1.1"], false, Protocol::Http1),
        (&[], false, Protocol::Http1),
    ] {
        let server = Server::start(server_config(&identity, alpn, None)).await;
        // By name, so that it is resolved: localhost may have an address of each family.
        let config = config(&server.url("localhost"), &authority);
        let options = TransportOptions { http1_only, ..Default::default() };
        let transport = Transport::from_config(config, options).unwrap();
        let pods: Api<Pod> = Api::all(transport.client("default"));
        let list = pods.list(&ListParams::default()).await.unwrap();
        assert_eq!(list.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(transport.stats().connections[0].protocol, protocol, "{alpn:?} {http1_only}");
        assert!(transport.shutdown(Duration::from_secs(1)).await);
    }
}

#[tokio::test]
async fn for_another_protocol_nothing_but_http1_is_offered() {
    let authority = authority();
    let identity = Identity::new(&authority, &["localhost"], |_| {});
    let server = Server::start(server_config(&identity, &["h2", "http/1.1"], None)).await;
    let transport = transport(config(&server.url("localhost"), &authority));
    ask(&transport).await.unwrap();
    let exec = || Request::get("/exec").header("upgrade", "websocket").body(Body::empty()).unwrap();
    let Upgrade::Answered(answer) = transport.upgrade(exec()).await.unwrap() else { panic!("a stream") };
    assert_eq!((answer.version(), &answer.body()[..]), (http::Version::HTTP_11, PODS));
    // Other requests continue as before.
    ask(&transport).await.unwrap();
    let stats = transport.stats();
    assert_eq!((stats.connections.len(), stats.connections[0].protocol), (1, Protocol::Http2));

    // Every dial is checked, also this one.
    let denied = AddressFilter::new(|_| Err("not there".into()));
    let options = TransportOptions { addresses: denied, ..Default::default() };
    let transport = Transport::from_config(config(&server.url("localhost"), &authority), options).unwrap();
    let error = transport.upgrade(exec()).await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::AddressDenied { .. }), "{error}");
    // And so is its certificate.
    let transport = self::transport(config(&server.url("localhost"), &self::authority()));
    let error = transport.upgrade(exec()).await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::Tls(TlsFault::Untrusted(_))), "{error}");
}

#[tokio::test]
async fn distinguishes_untrusted_and_expired_server() {
    let authority = authority();
    let stranger = self::authority();
    let good = server_config(&Identity::new(&authority, &["127.0.0.1"], |_| {}), &["h2"], None);
    let foreign = server_config(&Identity::new(&stranger, &["127.0.0.1"], |_| {}), &["h2"], None);
    let misnamed = server_config(&Identity::new(&authority, &["other.test"], |_| {}), &["h2"], None);
    let expired = Identity::new(&authority, &["127.0.0.1"], |p| {
        p.not_before = date_time_ymd(2001, 1, 1);
        p.not_after = date_time_ymd(2002, 1, 1);
    });
    let expired = server_config(&expired, &["h2"], None);

    let server = Server::start(foreign).await;
    let transport = transport(config(&server.url("127.0.0.1"), &authority));
    for (identity, expected) in
        [(None, "tls_untrusted"), (Some(misnamed), "tls_untrusted"), (Some(expired), "tls_expired")]
    {
        if let Some(identity) = identity {
            *server.identity.lock() = identity;
        }
        let error = next_attempt(&transport).await.unwrap_err();
        assert_eq!(error.kind().label(), expected, "{error}");
    }
    *server.identity.lock() = good;
    next_attempt(&transport).await.unwrap();
}

/// Waits out the backoff, then sends one request.
async fn next_attempt(transport: &Transport) -> Result<StatusCode, TransportError> {
    if let Some(down) = transport.stats().down {
        tokio::time::sleep_until(down.next).await;
    }
    ask(transport).await
}

#[tokio::test]
async fn tls_server_name_replaces_host() {
    let authority = authority();
    let identity = Identity::new(&authority, &["kubernetes.test"], |_| {});
    let server = Server::start(server_config(&identity, &["h2"], None)).await;
    let mut config = config(&server.url("127.0.0.1"), &authority);
    config.tls_server_name = Some("kubernetes.test".into());
    ask(&transport(config)).await.unwrap();
}

#[tokio::test]
async fn reloads_rotated_client_certificate() {
    let authority = authority();
    let identity = Identity::new(&authority, &["127.0.0.1"], |_| {});
    let stranger = self::authority();
    let clients = self::authority();
    let server = Server::start(server_config(&identity, &["h2"], Some(&clients))).await;
    let dir = tempfile::tempdir().unwrap();
    let write = |identity: Identity| {
        std::fs::write(dir.path().join("tls.crt"), identity.certificate).unwrap();
        std::fs::write(dir.path().join("tls.key"), identity.key).unwrap();
    };
    write(Identity::new(&stranger, &["me"], |_| {}));
    let mut config = config(&server.url("127.0.0.1"), &authority);
    config.auth_info.client_certificate = Some(dir.path().join("tls.crt").display().to_string());
    config.auth_info.client_key = Some(dir.path().join("tls.key").display().to_string());
    let transport = transport(config);
    let error = ask(&transport).await.unwrap_err();
    assert_eq!(error.kind().label(), "tls_client_certificate", "{error}");
    write(Identity::new(&clients, &["me"], |_| {}));
    next_attempt(&transport).await.unwrap();
}

#[tokio::test]
async fn replaces_expired_certificate_of_open_connection() {
    let (authority, clients) = (authority(), self::authority());
    let identity = Identity::new(&authority, &["127.0.0.1"], |_| {});
    let server = Server::start(server_config(&identity, &["h2"], Some(&clients))).await;
    let dir = tempfile::tempdir().unwrap();
    let rotate = || {
        let identity = Identity::new(&clients, &["me"], |_| {});
        std::fs::write(dir.path().join("tls.crt"), identity.certificate).unwrap();
        std::fs::write(dir.path().join("tls.key"), identity.key).unwrap();
    };
    rotate();
    let mut config = config(&server.url("127.0.0.1"), &authority);
    config.auth_info.client_certificate = Some(dir.path().join("tls.crt").display().to_string());
    config.auth_info.client_key = Some(dir.path().join("tls.key").display().to_string());
    let options = TransportOptions { credential_refresh_interval: Duration::ZERO, ..Default::default() };
    let transport = Transport::from_config(config, options).unwrap();
    assert_eq!(ask(&transport).await.unwrap(), 200);
    *server.expired.lock() = server.clients.lock()[0].clone();
    // Without another certificate, a new connection would not help.
    for _ in 0..2 {
        assert_eq!(ask(&transport).await.unwrap(), 401);
        assert_eq!(transport.stats().dials, 1);
    }
    rotate();
    assert_eq!(ask(&transport).await.unwrap(), 401, "which makes us look");
    assert_eq!(ask(&transport).await.unwrap(), 200);
    assert_eq!(ask(&transport).await.unwrap(), 200);
    assert_eq!(transport.stats().dials, 2);
}

#[cfg(unix)]
#[tokio::test]
async fn failed_plugin_never_dials_anonymously() {
    let (authority, clients) = (authority(), self::authority());
    let identity = Identity::new(&authority, &["127.0.0.1"], |_| {});
    let server = Server::start(server_config(&identity, &["h2"], Some(&clients))).await;
    let dir = tempfile::tempdir().unwrap();
    let me = Identity::new(&clients, &["me"], |_| {});
    let status =
        serde_json::json!({"clientCertificateData": me.certificate, "clientKeyData": me.key.clone()});
    std::fs::write(dir.path().join("answer"), credential(status)).unwrap();
    // Succeeds the first time, for the headers, and fails when the connection is dialed.
    let script = "cd \"$0\"; echo run >>runs; n=$(wc -l <runs); [ $n -ne 2 ] && [ ! -e down ] && cat answer";
    let mut config = config(&server.url("127.0.0.1"), &authority);
    config.auth_info.exec = Some(plugin(script, dir.path()));
    let options = TransportOptions { tls_refresh_interval: Duration::ZERO, ..Default::default() };
    let transport = Transport::from_config(config, options).unwrap();
    let error = ask(&transport).await.unwrap_err();
    assert_eq!(error.kind().label(), "tls_client_certificate", "{error}");
    assert_eq!(next_attempt(&transport).await.unwrap(), 200);
    // Old settings are better than none.
    std::fs::write(dir.path().join("down"), "").unwrap();
    transport.retire(transport.stats().connections[0].id, "another shall be dialed");
    assert_eq!(next_attempt(&transport).await.unwrap(), 200);
    assert_eq!(transport.stats().dials, 3);
    assert!(server.clients.lock().iter().all(Option::is_some), "anonymous");
}

#[tokio::test]
async fn reloads_rotated_ca_file() {
    let (old, new) = (authority(), authority());
    let identity =
        |authority: &Issuer| server_config(&Identity::new(authority, &["127.0.0.1"], |_| {}), &["h2"], None);
    let server = Server::start(identity(&old)).await;
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, old.pem()).unwrap();
    let kubeconfig = serde_json::from_value(serde_json::json!({
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {
            "server": server.url("127.0.0.1"), "certificate-authority": ca.display().to_string(),
        }}],
    }));
    let config = config_from_kubeconfig(kubeconfig.unwrap(), &KubeConfigOptions::default()).await.unwrap();
    let transport = transport(config);
    ask(&transport).await.unwrap();

    // The server has a certificate of the new CA before the file has the CA.
    *server.identity.lock() = identity(&new);
    let connection = transport.stats().connections[0].id;
    transport.retire(connection, "rotated");
    let error = next_attempt(&transport).await.unwrap_err();
    assert_eq!(error.kind().label(), "tls_untrusted", "{error}");
    // A file that is missing for a moment breaks nothing.
    std::fs::remove_file(&ca).unwrap();
    let error = next_attempt(&transport).await.unwrap_err();
    assert_eq!(error.kind().label(), "tls_untrusted", "{error}");
    std::fs::write(&ca, new.pem()).unwrap();
    next_attempt(&transport).await.unwrap();
}

#[test]
fn rejects_bad_configuration_before_first_dial() {
    let authority = authority();
    let build = |change: &dyn Fn(&mut kube::Config)| {
        let mut config = config("https://127.0.0.1:1/", &authority);
        change(&mut config);
        Transport::from_config(config, TransportOptions::default()).map(drop).unwrap_err()
    };
    let expired = Identity::new(&authority, &["me"], |p| {
        p.not_before = date_time_ymd(2001, 1, 1);
        p.not_after = date_time_ymd(2002, 1, 1);
    });
    let (certificate, key) = expired.base64();
    let error = build(&|c| {
        c.auth_info.client_certificate_data = Some(certificate.clone());
        c.auth_info.client_key_data = Some(key.clone().into());
    });
    assert!(matches!(error, ConfigError::ClientCertificateExpired { not_after: 1_009_843_200 }), "{error}");
    let error = build(&|c| c.auth_info.client_certificate = Some("/nowhere/tls.crt".into()));
    assert!(matches!(error, ConfigError::ClientCertificate(_)), "{error}");
    let error = build(&|c| c.auth_info.client_certificate_data = Some("!".into()));
    assert!(matches!(error, ConfigError::ClientCertificate(_)), "{error}");
    let error = build(&|c| c.root_cert = Some(vec![b"nonsense".to_vec()]));
    assert!(matches!(error, ConfigError::CertificateAuthority(_)), "{error}");
    let error = build(&|c| c.root_cert_file = Some("/nowhere/ca.crt".into()));
    assert!(matches!(error, ConfigError::CertificateAuthority(_)), "{error}");
    let error = build(&|c| c.auth_info.token_file = Some("/nowhere/token".into()));
    assert!(matches!(error, ConfigError::Auth(_)), "{error}");
    let error = build(&|c| c.tls_server_name = Some("not a name".into()));
    assert!(matches!(error, ConfigError::ServerName(_)), "{error}");
    let error = build(&|c| c.cluster_url = "ftp://somewhere/".parse().unwrap());
    assert!(matches!(error, ConfigError::Url { .. }), "{error}");
    let error = build(&|c| c.cluster_url = "/path".parse().unwrap());
    assert!(matches!(error, ConfigError::Url { .. }), "{error}");
    let error = build(&|c| c.proxy_url = Some("ftp://me:secret@proxy.test:3128".parse().unwrap()));
    assert!(matches!(error, ConfigError::Proxy { .. }) && !error.to_string().contains("secret"), "{error}");
    let error = build(&|c| c.auth_info.impersonate = Some("a\nb".into()));
    assert!(matches!(error, ConfigError::Header(_)), "{error}");
    let options = TransportOptions { max_streams: 0, ..Default::default() };
    let error = Transport::from_config(config("https://127.0.0.1:1/", &authority), options).unwrap_err();
    assert!(matches!(error, ConfigError::Option { name: "max_streams", .. }), "{error}");
}

#[tokio::test]
async fn reports_dns_failure_and_refused_port() {
    let error = ask(&transport(kube::Config::new("http://no-such-host.invalid/".parse().unwrap()))).await;
    assert_eq!(error.unwrap_err().kind().label(), "dns");
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/");
    let error = ask(&transport(kube::Config::new(url.parse().unwrap()))).await;
    assert_eq!(error.unwrap_err().kind().label(), "refused");
}

#[tokio::test]
async fn plain_text_server_is_tls_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let serve = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        socket
    };
    let authority = authority();
    let transport = transport(config(&url, &authority));
    let (error, _socket) = tokio::join!(ask(&transport), serve);
    let error = error.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::Tls(TlsFault::Other(_))), "{error}");
}

/// Creates a shell script that has `path` as its `$0`.
#[cfg(unix)]
fn plugin(script: &str, path: &Path) -> ExecConfig {
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script, path],
        "interactiveMode": "Never",
    });
    serde_json::from_value(exec).unwrap()
}

/// Returns a plugin's output.
#[cfg(unix)]
fn credential(status: serde_json::Value) -> String {
    let api_version = "client.authentication.k8s.io/v1";
    serde_json::json!({"kind": "ExecCredential", "apiVersion": api_version, "status": status}).to_string()
}

#[cfg(unix)]
#[tokio::test]
async fn exec_plugin_supplies_tokens_or_reports_failure() {
    let authority = authority();
    let identity = Identity::new(&authority, &["127.0.0.1"], |_| {});
    let server = Server::start(server_config(&identity, &["h2"], None)).await;
    let dir = tempfile::tempdir().unwrap();
    let answer = dir.path().join("answer.json");
    let mut config = config(&server.url("127.0.0.1"), &authority);
    config.auth_info.exec = Some(plugin("cat \"$0\"", &answer));
    // Building a transport runs nothing, so it cannot fail or hang on a plugin.
    let refresh = Duration::from_millis(200);
    let options = TransportOptions { credential_refresh_interval: refresh, ..Default::default() };
    let transport = Transport::from_config(config, options).unwrap();
    let error = ask(&transport).await.unwrap_err();
    assert!(matches!(error.kind(), TransportErrorKind::Auth(_)), "{error}");
    assert!(error.to_string().contains("answer.json"), "what the plugin says: {error}");
    let status = serde_json::json!({"token": "from-plugin", "expirationTimestamp": "2100-01-01T00:00:00Z"});
    std::fs::write(&answer, credential(status)).unwrap();
    tokio::time::sleep(refresh).await;
    ask(&transport).await.unwrap();
    assert_eq!(*server.authorization.lock(), ["Bearer from-plugin"]);
}

#[cfg(unix)]
#[tokio::test]
async fn plugin_output_stays_out_of_errors() {
    let credential = |token, expires: serde_json::Value| {
        credential(serde_json::json!({"token": token, "expirationTimestamp": expires}))
    };
    let (good, due) = ("2100-01-01T00:00:00Z".into(), "2001-01-01T00:00:00Z".into());
    let (good, due) = (credential("good", good), credential("due", due));
    let not_a_time = credential("canary", serde_json::json!({}));
    let nor_is_this = credential("token", "canary".into());
    let cut = "{\n  \"kind\": \"ExecCredential\",\n  \"status\": {\n    \"token\": \"canary\",\n";
    // The plugin fails when a token is requested, when it must be renewed, and when the connection is dialed.
    for (well, first) in [(0, &good), (1, &due), (1, &good)] {
        for bad in [&not_a_time, &nor_is_this, cut, "canary: [", "canary"] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("first"), first).unwrap();
            std::fs::write(dir.path().join("bad"), bad).unwrap();
            let script = format!(
                "cd \"$0\"; echo run >>runs; if [ $(wc -l <runs) -le {well} ]; then cat first; else cat bad; fi"
            );
            let mut config = config("https://127.0.0.1:1/", &authority());
            config.auth_info.exec = Some(plugin(&script, dir.path()));
            let error = ask(&transport(config)).await.unwrap_err();
            let mut told = format!("{error} {error:?}");
            let mut source = std::error::Error::source(&error);
            while let Some(error) = source {
                told = format!("{told} {error} {error:?}");
                source = error.source();
            }
            assert!(!told.contains("canary") && told.contains("plugin"), "{bad} after {well}: {told}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn slow_plugin_is_awaited_and_not_rerun() {
    let authority = authority();
    let identity = Identity::new(&authority, &["127.0.0.1"], |_| {});
    let server = Server::start(server_config(&identity, &["h2"], None)).await;
    // Once for the headers, once for TLS; and once more if the first token is already about to expire.
    for (first_expires, most_runs) in [("2100-01-01T00:00:00Z", 2), ("2001-01-01T00:00:00Z", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let token =
            |expires| credential(serde_json::json!({"token": "from-plugin", "expirationTimestamp": expires}));
        std::fs::write(dir.path().join("first"), token(first_expires)).unwrap();
        std::fs::write(dir.path().join("later"), token("2100-01-01T00:00:00Z")).unwrap();
        let script = "cd \"$0\"; echo run >>runs; n=$(wc -l <runs); sleep 1
            if [ $n -eq 1 ]; then cat first; else cat later; fi";
        let mut config = config(&server.url("127.0.0.1"), &authority);
        config.auth_info.exec = Some(plugin(script, dir.path()));
        let mut options =
            TransportOptions { connect_timeout: Duration::from_millis(300), ..Default::default() };
        options.backoff.first = Duration::from_millis(50);
        let transport = Transport::from_config(config, options).unwrap();
        let until_answered = async { while next_attempt(&transport).await.is_err() {} };
        let answered = tokio::time::timeout(Duration::from_secs(20), until_answered).await;
        let runs = std::fs::read_to_string(dir.path().join("runs")).unwrap().lines().count();
        assert!(answered.is_ok() && runs <= most_runs, "{answered:?} after {runs} runs");
    }
}

#[tokio::test]
async fn accepts_ping_interval_of_any_length() {
    let authority = authority();
    let server =
        Server::start(server_config(&Identity::new(&authority, &["127.0.0.1"], |_| {}), &["h2"], None)).await;
    for never in [Duration::from_secs(40_000), Duration::MAX] {
        let options = TransportOptions { ping_interval: never, ping_timeout: never, ..Default::default() };
        let config = config(&server.url("127.0.0.1"), &authority);
        assert_eq!(ask(&Transport::from_config(config, options).unwrap()).await.unwrap(), 200);
    }
}

#[tokio::test]
async fn deadlines_hold_on_real_sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The listener never accepts: the kernel completes the handshake, and then nothing comes.
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let transport = transport(config(&url, &authority()));
    let mut request = Request::get("/version").body(Body::empty()).unwrap();
    let deadline = Some(Duration::from_millis(200));
    request.extensions_mut().insert(RequestOptions { deadline, ..Default::default() });
    let begin = tokio::time::Instant::now();
    let error = transport.send(request).await.unwrap_err();
    assert_eq!(error.kind().label(), "caller_deadline");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(transport.shutdown(Duration::from_secs(1)).await);
}

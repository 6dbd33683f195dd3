//! Real sockets and TLS through a proxy: successes, and the errors of failures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod proxy;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::config::KubeConfigOptions;
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use skopos_testserver::TestServer;
use skopos_transport::{
    Fault, Protocol, ProxyFault, Transport, TransportError, TransportErrorKind, TransportOptions, Upgrade,
    config_from_kubeconfig,
};

use self::proxy::TestProxy;

/// A name that this machine cannot resolve, and that the test server has a certificate for.
const NAME: &str = "kubernetes.default.svc";

async fn tls_server() -> (TestServer, SocketAddr) {
    let server = TestServer::builder().tls(true).start().await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    (server, address)
}

/// Returns a configuration of the server by a name that only the proxy knows.
async fn config(server: &TestServer, proxy: &str) -> kube::Config {
    let kubeconfig = server.kubeconfig().replace("127.0.0.1", NAME);
    let kubeconfig = kubeconfig.replacen("    server:", &format!("    proxy-url: {proxy}\n    server:"), 1);
    let kubeconfig = serde_saphyr::from_str(&kubeconfig).unwrap();
    config_from_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

fn transport(config: kube::Config) -> Transport {
    Transport::from_config(config, TransportOptions::default()).unwrap()
}

async fn ask(transport: &Transport) -> Result<(), TransportError> {
    let request = Request::get("/version").body(Body::empty()).unwrap();
    transport.send(request).await.map(drop)
}

#[tokio::test]
async fn lists_and_watches_through_every_proxy_kind() {
    let (server, address) = tls_server().await;
    let target = format!("{NAME}:{}", server.port());
    for (scheme, user, login) in [
        ("http", "", None),
        ("http", "me:se%40cret@", Some("Basic bWU6c2VAY3JldA==")),
        ("socks5", "", None),
        ("socks5h", "me:se%40cret@", Some("me:se@cret")),
    ] {
        let test_proxy = TestProxy::to(address).await;
        login.into_iter().for_each(|login| test_proxy.login(login));
        let transport = transport(config(&server, &format!("{scheme}://{user}{}", test_proxy.address)).await);
        let maps: Api<ConfigMap> = Api::default_namespaced(transport.client("default"));
        let list = maps.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let mut events = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
        let name = format!("{scheme}-{}", user.len());
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}});
        server.create(map).unwrap();
        events.try_next().await.unwrap().unwrap();
        // An upgrade has its own connection, through the proxy too.
        let exec = Request::get("/version").header("upgrade", "websocket").body(Body::empty()).unwrap();
        assert!(matches!(transport.upgrade(exec).await.unwrap(), Upgrade::Answered(_)));

        let stats = transport.stats();
        assert_eq!((stats.connections.len(), stats.dials), (2, 3));
        assert_eq!(test_proxy.asked(), vec![target.clone(); 3], "all of them through the proxy, by name");
        for connection in &stats.connections {
            assert_eq!(connection.protocol, Protocol::Http2);
            assert_eq!(*connection.peer, format!("{target} through {}", test_proxy.address));
        }
        let told = format!("{stats:?}");
        assert!(!told.contains("se@cret") && !told.contains("se%40"), "{told}");
        drop(events);
        assert!(transport.shutdown(Duration::from_secs(1)).await);
    }
    server.stop().await;
}

#[tokio::test]
async fn connects_to_plain_http_cluster_through_proxy() {
    let server = TestServer::builder().start().await.unwrap();
    let test_proxy = TestProxy::to(SocketAddr::from(([127, 0, 0, 1], server.port()))).await;
    for http2_prior_knowledge in [false, true] {
        let options = TransportOptions { http2_prior_knowledge, ..Default::default() };
        let config = config(&server, &format!("http://{}", test_proxy.address)).await;
        let transport = Transport::from_config(config, options).unwrap();
        ask(&transport).await.unwrap();
        let http2 = transport.stats().connections[0].protocol == Protocol::Http2;
        assert_eq!(http2, http2_prior_knowledge);
    }
    assert_eq!(test_proxy.asked(), vec![format!("{NAME}:{}", server.port()); 2]);
    server.stop().await;
}

#[tokio::test]
async fn proxy_error_shows_reason_but_no_password() {
    let (server, address) = tls_server().await;
    let page = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 6\r\n\r\ncanary");
    let refused = |status: u16| ProxyFault::Status(status);
    for (answer, user, fault, whose) in [
        (None, "", ProxyFault::NoCredentials, Fault::Caller),
        (None, "me:canary@", ProxyFault::WrongCredentials, Fault::Caller),
        (Some(page("403 Forbidden")), "me:canary@", refused(403), Fault::Caller),
        (Some(page("503 Unavailable")), "me:canary@", refused(503), Fault::Network),
        (Some(String::new()), "me:canary@", ProxyFault::Closed, Fault::Network),
    ] {
        let test_proxy = TestProxy::to(address).await;
        test_proxy.login("somebody else");
        answer.iter().for_each(|answer| test_proxy.refuse(answer));
        let transport = transport(config(&server, &format!("http://{user}{}", test_proxy.address)).await);
        let error = ask(&transport).await.unwrap_err();
        let name = format!("http://{}", test_proxy.address).into();
        assert_eq!(*error.kind(), TransportErrorKind::Proxy { proxy: name, fault });
        assert_eq!(error.fault(), whose);
        let next = ask(&transport).await.unwrap_err();
        assert!(matches!(next.kind(), TransportErrorKind::BackingOff { .. }), "{next}");
        let told = format!("{error} {error:?} {next} {next:?} {:?}", transport.stats());
        assert!(!told.contains("canary"), "{told}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named() {
    let (server, address) = tls_server().await;
    let test_proxy = TestProxy::to(address).await;
    test_proxy.end().await;
    for proxy in
        [format!("http://u:canary@{}", test_proxy.address), "socks5://u:canary@no-such.invalid".to_owned()]
    {
        let error = ask(&transport(config(&server, &proxy).await)).await.unwrap_err();
        let TransportErrorKind::Proxy { fault: ProxyFault::Connection(error_kind), .. } = error.kind() else {
            panic!("{error:?}")
        };
        assert!(
            matches!(**error_kind, TransportErrorKind::Refused { .. } | TransportErrorKind::Dns { .. }),
            "{error}"
        );
        assert!(error.to_string().starts_with("proxy ") && error.fault() == Fault::Network, "{error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn mute_proxy_fails_within_connect_deadline() {
    let (server, address) = tls_server().await;
    let test_proxy = TestProxy::to(address).await;
    test_proxy.mute();
    for scheme in ["http", "socks5"] {
        let config = config(&server, &format!("{scheme}://{}", test_proxy.address)).await;
        let options = TransportOptions { connect_timeout: Duration::from_millis(500), ..Default::default() };
        let error = ask(&Transport::from_config(config, options).unwrap()).await.unwrap_err();
        assert!(matches!(error.kind(), TransportErrorKind::ConnectTimeout { stage: "proxy", .. }), "{error}");
    }
    server.stop().await;
}

#[tokio::test]
async fn reconnects_after_proxy_restart() {
    let (server, address) = tls_server().await;
    let test_proxy = TestProxy::to(address).await;
    let transport = transport(config(&server, &format!("http://{}", test_proxy.address)).await);
    let maps: Api<ConfigMap> = Api::all(transport.client("default"));
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
    test_proxy.end().await;
    while let Ok(Some(_)) = events.try_next().await {}
    let error = ask(&transport).await.unwrap_err();
    assert!(matches!(error.kind().root(), TransportErrorKind::Proxy { .. }), "{error}");
    let test_proxy = test_proxy.again();
    transport.connected(Duration::from_secs(5)).await.unwrap();
    ask(&transport).await.unwrap();
    assert!(!test_proxy.asked().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn pings_reach_server_through_proxy() {
    let (server, address) = tls_server().await;
    let test_proxy = TestProxy::to(address).await;
    let ping = Duration::from_millis(200);
    let options = TransportOptions { ping_interval: ping, ping_timeout: ping, ..Default::default() };
    let config = config(&server, &format!("socks5://{}", test_proxy.address)).await;
    let transport = Transport::from_config(config, options).unwrap();
    let maps: Api<ConfigMap> = Api::all(transport.client("default"));
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
    // The proxy stays, and its sockets acknowledge all bytes.
    test_proxy.freeze();
    while let Ok(Some(_)) = events.try_next().await {}
    let errors = &transport.stats().errors;
    assert!(format!("{errors:?}").contains("ping_timeout"), "{errors:?}");
    server.stop().await;
}

#[tokio::test]
async fn tls_proxy_gets_no_client_certificate() {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (ours, strangers) = (authority(), authority());
    let tls = |authority: &CertifiedIssuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // A client that presents a certificate of the cluster's CA is rejected.
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let clients = clients.clear_root_hint_subjects().allow_unauthenticated().build().unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.unwrap())
    };
    let server = TestServer::builder().client_certificates().start().await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let test_proxy = TestProxy::over_tls(address, tls(&ours)).await;
    let strange = TestProxy::over_tls(address, tls(&strangers)).await;
    let config = |test_proxy: &TestProxy| {
        let (server, proxy) = (&server, format!("https://{}", test_proxy.address));
        let ours = ours.der().to_vec();
        async move {
            let mut config = config(server, &proxy).await;
            config.root_cert.as_mut().unwrap().push(ours);
            // Applies to the cluster only.
            config.tls_server_name = Some(NAME.to_owned());
            config
        }
    };
    let transport = transport(config(&test_proxy).await);
    ask(&transport).await.unwrap();
    assert_eq!(test_proxy.asked().len(), 1);
    assert_eq!(transport.stats().connections[0].protocol, Protocol::Http2);

    let error = ask(&self::transport(config(&strange).await)).await.unwrap_err();
    let TransportErrorKind::Proxy { fault: ProxyFault::Connection(error_kind), .. } = error.kind() else {
        panic!("{error:?}")
    };
    assert_eq!(error_kind.label(), "tls_untrusted", "{error}");
    assert_eq!(error.fault(), Fault::Caller);
    assert!(strange.asked().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn config_keeps_proxy_url_of_kubeconfig() {
    let (server, _) = tls_server().await;
    let proxied = config(&server, "socks5://me:secret@proxy.test").await;
    assert_eq!(proxied.proxy_url.unwrap(), "socks5://me:secret@proxy.test");
    // The environment sets none for this machine.
    let kubeconfig = serde_saphyr::from_str(&server.kubeconfig()).unwrap();
    let direct = config_from_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    assert_eq!(direct.proxy_url, None);
    server.stop().await;
}

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const NS: &str = "vcluster-shop";

async fn one(cluster: &VirtualCluster) -> VirtualClusters {
    let host = TestServer::builder().workloads(true).start_in_memory().unwrap();
    let virtuals = VirtualClusters::on(host).in_memory().start();
    virtuals.create(cluster).unwrap();
    virtuals.wait_up(cluster.namespace(), cluster.name()).await.unwrap();
    virtuals
}

fn settings(colour: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
           "data": {"colour": colour}})
}

/// Returns the response to a request, or nothing if the connection is dead.
async fn ask(stream: &mut MemoryStream) -> String {
    let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut answer = [0; 1024];
    if stream.write_all(request).await.is_err() {
        return String::new();
    }
    let read = stream.read(&mut answer).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

fn secret_text(secret: &Value, key: &str) -> String {
    use base64::Engine as _;
    let encoded = secret["data"][key].as_str().unwrap();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn scaled_down_cluster_returns_with_its_data() {
    let virtuals = one(&VirtualCluster::new("shop")).await;
    let server = virtuals.server(NS, "shop").unwrap();
    server.create(settings("blue")).unwrap();
    let (before, version) =
        (server.get("configmaps", Some("default"), "settings").unwrap(), server.resource_version());
    let mut open = virtuals.connect("shop.vcluster-shop:443").unwrap();
    assert!(ask(&mut open).await.starts_with("HTTP/1.1 200"));

    virtuals.scale(NS, "shop", 0).unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
    assert_eq!(ask(&mut open).await, "", "an open connection died");
    let refused = virtuals.connect("shop.vcluster-shop.svc").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    virtuals.scale(NS, "shop", 1).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    let mut again = virtuals.connect("shop.vcluster-shop").unwrap();
    assert!(ask(&mut again).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.get("configmaps", Some("default"), "settings").unwrap(), before);
    assert_eq!(server.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_needs_its_etcd() {
    let virtuals = one(&VirtualCluster::new("shop").deployed_etcd()).await;
    assert!(virtuals.host().get("persistentvolumeclaims", Some(NS), "data-shop-0").is_err());
    virtuals.scale(NS, "shop-etcd", 0).unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
    virtuals.scale(NS, "shop-etcd", 1).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    virtuals.scale(NS, "shop", 0).unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cluster_ends_with_workload_and_volume() {
    let virtuals = one(&VirtualCluster::new("shop")).await;
    let host = virtuals.host().clone();
    let old = virtuals.server(NS, "shop").unwrap();
    old.create(settings("blue")).unwrap();
    host.delete("statefulsets", Some(NS), "shop").unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();

    // The volume still exists, so the next cluster of the name has the data.
    let set = VirtualCluster::new("shop").manifests().pop().unwrap();
    host.create(set.clone()).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    assert_eq!(virtuals.server(NS, "shop").unwrap().count("configmaps"), 1);

    host.delete("statefulsets", Some(NS), "shop").unwrap();
    host.delete("persistentvolumeclaims", Some(NS), "data-shop-0").unwrap();
    virtuals.wait_gone(NS, "shop").await.unwrap();
    assert!(old.connect().is_err());
    host.create(set).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    assert_eq!(virtuals.server(NS, "shop").unwrap().count("configmaps"), 0);
}

#[tokio::test(start_paused = true)]
async fn syncer_secret_is_deleted_with_service() {
    let virtuals = one(&VirtualCluster::new("shop")).await;
    let host = virtuals.host().clone();
    let secret = host.get("secrets", Some(NS), "vc-shop").unwrap();
    assert_eq!(secret["metadata"]["labels"], json!({"app": "vcluster", "vcluster-name": "shop"}));
    let config = secret_text(&secret, "config");
    assert!(config.contains("server: https://localhost:8443"), "{config}");
    assert!(secret_text(&secret, "client-key").contains("PRIVATE KEY"));
    assert_eq!(secret_text(&secret, "token"), "");
    host.delete("services", Some(NS), "shop").unwrap();
    host.wait_for(|host| host.get("secrets", Some(NS), "vc-shop").is_err()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_container_stops_server() {
    let virtuals = one(&VirtualCluster::new("shop")).await;
    let pod = |host: &TestServer| host.get("pods", Some(NS), "shop-0").unwrap();
    // The pod becomes ready after the server starts; that would overwrite earlier writes of its status.
    virtuals.host().wait_for(|host| pod(host)["status"]["phase"] == "Running").await.unwrap();
    let mut pod = pod(virtuals.host());
    pod["status"]["containerStatuses"] =
        json!([{"name": "syncer", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]);
    pod["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    virtuals.host().update(pod).unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
}

#[tokio::test]
async fn tcp_port_refuses_when_down_and_stays_same() {
    let host = TestServer::builder().workloads(true).start().await.unwrap();
    let virtuals = VirtualClusters::on(host.clone()).export_addresses().start();
    virtuals.create(&VirtualCluster::new("shop")).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    let address = virtuals.address("shop.vcluster-shop").unwrap();
    assert!(TcpStream::connect(address).await.is_ok());
    virtuals.scale(NS, "shop", 0).unwrap();
    virtuals.wait_down(NS, "shop").await.unwrap();
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(virtuals.address("shop.vcluster-shop"), Some(address));
    virtuals.scale(NS, "shop", 1).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    assert!(TcpStream::connect(address).await.is_ok());
    let config = secret_text(&host.get("secrets", Some(NS), "vc-shop").unwrap(), "config");
    assert!(config.contains(&format!("server: https://{address}")), "{config}");
    virtuals.stop().await;
    host.stop().await;
}

/// Performs a TLS handshake with the certificates of the Secret `vc-shop`, for that server name.
async fn handshake(
    address: SocketAddr,
    secret: &Value,
    name: &'static str,
    certificate: bool,
) -> io::Result<()> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(secret_text(secret, "certificate-authority").as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = if certificate {
        let chain =
            CertificateDer::from_pem_slice(secret_text(secret, "client-certificate").as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(secret_text(secret, "client-key").as_bytes()).unwrap();
        config.with_client_auth_cert(vec![chain], key).unwrap()
    } else {
        config.with_no_client_auth()
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name).unwrap();
    let mut tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    // With TLS 1.3 the server's refusal of a client comes with the first read.
    tls.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut first = [0; 12];
    tls.read_exact(&mut first).await.map(drop)
}

#[tokio::test]
async fn handshake_needs_syncer_name_and_client_certificate() {
    let host = TestServer::builder().workloads(true).start().await.unwrap();
    let virtuals = VirtualClusters::on(host.clone()).start();
    virtuals.create(&VirtualCluster::new("shop")).unwrap();
    virtuals.wait_up(NS, "shop").await.unwrap();
    let address = virtuals.address("shop.vcluster-shop").unwrap();
    let secret = host.get("secrets", Some(NS), "vc-shop").unwrap();
    for name in
        ["shop", "shop.vcluster-shop", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1"]
    {
        handshake(address, &secret, name, true).await.unwrap();
    }
    assert!(handshake(address, &secret, "shop.vcluster-shop.svc", true).await.is_err());
    assert!(handshake(address, &secret, "localhost", false).await.is_err());
    virtuals.stop().await;
}

#[tokio::test]
async fn a_sample_is_up_and_something_runs_in_it() {
    let virtuals = VirtualClusters::sample(["shop", "blog"]).await.unwrap();
    for name in ["shop", "blog"] {
        let server = virtuals.server(&format!("vcluster-{name}"), name).unwrap();
        server.wait_for(|server| server.count("pods") >= 4).await.unwrap();
    }
    let twice = VirtualClusters::sample(["shop", "shop"]).await.unwrap_err();
    assert!(matches!(twice, SampleError::Refused(_)), "{twice}");
    virtuals.stop().await;
}

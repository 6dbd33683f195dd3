//! `skopos watch` on a cluster that only a proxy can reach.
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tempfile::NamedTempFile;

use super::support::{Running, Server, skopos, text};

/// A name that is in the test server's certificate, and that cannot be resolved here.
const NAME: &str = "kubernetes.default.svc";

/// An HTTP proxy to one server, for clients with the credentials `me:secret`. Its threads end with the process.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Self { address: listener.local_addr().expect("bound"), asked: Arc::default() };
        let asked = proxy.asked.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let asked = asked.clone();
                thread::spawn(move || lead(client?, server, &asked));
            }
        });
        proxy
    }
}

fn lead(mut client: TcpStream, server: SocketAddr, asked: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = text(&head);
    asked.lock().push(head.lines().next().unwrap_or_default().to_owned());
    if !head.contains("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n") {
        return client.write_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n");
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let mut server = TcpStream::connect(server)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        to_server.shutdown(Shutdown::Write)
    });
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Write)
}

fn address(server: &Server) -> SocketAddr {
    format!("127.0.0.1:{}", server.port()).parse().expect("an address")
}

/// Writes the server's kubeconfig with a name that only the proxy knows, and with this proxy.
fn kubeconfig(server: &Server, proxy: Option<&str>) -> NamedTempFile {
    let proxy = proxy.map(|url| format!("proxy-url: {url}\n    ")).unwrap_or_default();
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).expect("it was written");
    let named =
        kubeconfig.replacen("server: https://127.0.0.1", &format!("{proxy}server: https://{NAME}"), 1);
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(named.as_bytes()).expect("written");
    file
}

fn pods(kubeconfig: &NamedTempFile, limit: &str) -> Command {
    let mut command = skopos();
    command.args(["watch", "pods", "-A", "-o", "name", "--sync-timeout", limit, "--kubeconfig"]);
    command.arg(kubeconfig.path());
    for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn watch_uses_proxy_of_kubeconfig_or_environment() {
    let server = Server::start(&["--tls", "--objects", "1"]);
    let proxy = Proxy::to(address(&server));
    let url = format!("http://me:secret@{}", proxy.address);
    let target = format!("CONNECT {NAME}:{} HTTP/1.1", server.port());
    // The kubeconfig takes precedence over the environment.
    let file = kubeconfig(&server, Some(&url));
    let watch =
        Running::start(pods(&file, "60s").env("HTTPS_PROXY", "http://127.0.0.1:1").env("NO_PROXY", "*"));
    assert!(watch.line(|_| true).starts_with("pod/"));
    drop(watch);
    let file = kubeconfig(&server, None);
    let watch = Running::start(pods(&file, "60s").env("HTTPS_PROXY", &url).env("NO_PROXY", "elsewhere.test"));
    assert!(watch.line(|_| true).starts_with("pod/"));
    drop(watch);
    let asked = std::mem::take(&mut *proxy.asked.lock());
    assert!(asked.len() >= 4 && asked.iter().all(|line| *line == target), "{asked:?}");

    // The server is exempt from the proxy, and its name cannot be resolved. A server on this machine is never reached by a proxy.
    let failed = pods(&file, "2s").env("HTTPS_PROXY", &url).env("NO_PROXY", ".svc").output();
    let stderr = text(&failed.expect("it runs").stderr);
    assert!(stderr.contains("cannot resolve kubernetes.default.svc"), "{stderr}");
    let mut direct = skopos();
    direct.args(["watch", "pods", "-A", "-o", "name", "--kubeconfig", server.kubeconfig()]);
    let watch = Running::start(direct.env("HTTPS_PROXY", &url));
    assert!(watch.line(|_| true).starts_with("pod/"));
    assert!(proxy.asked.lock().is_empty());
}

#[test]
fn proxy_failure_is_one_error_line() {
    let server = Server::start(&["--tls", "--objects", "1"]);
    let proxy = Proxy::to(address(&server));
    for (url, told) in [
        (
            format!("http://{}", proxy.address),
            format!(
                "proxy http://{}: it asks for user and password: put them before its host",
                proxy.address
            ),
        ),
        (
            format!("http://me:canary@{}", proxy.address),
            format!("proxy http://{}: it does not accept the user and password in its URL", proxy.address),
        ),
        (
            "ftp://me:canary@proxy.test".to_owned(),
            "proxy-url has to begin with http://, https:// or socks5://".to_owned(),
        ),
    ] {
        let output = pods(&kubeconfig(&server, Some(&url)), "60s").output().expect("it runs");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("error: ") && lines[0].contains(&told), "{stderr}");
        assert!(!stderr.contains("canary"), "{stderr}");
    }
}

//! A gateway with few file descriptors keeps answering.
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use super::support::{Running, TIMEOUT, utf8};

/// Starts a gateway with these limits on open files of its process: the soft and the hard one.
fn gateway(folder: &tempfile::TempDir, soft: u32, hard: u32) -> (Running, SocketAddr) {
    let config = folder.path().join("gateway.yaml");
    let clusters = folder.path().join("clusters");
    std::fs::create_dir(&clusters).expect("a folder");
    let text = format!(
        "listen: {{address: '127.0.0.1:0'}}\nauthorization: {{loopback: Trusted}}\nclusters: {{folders: [{{path: '{}'}}]}}\n",
        utf8(&clusters)
    );
    std::fs::write(&config, text).expect("a file");
    let limited = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" serve --config \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_skopos"), utf8(&config)]);
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").stdin(std::process::Stdio::null());
    let gateway = Running::start(&mut command);
    let line = gateway.line(|line| line.starts_with("serving at "));
    (gateway, line.trim_start_matches("serving at http://").parse().expect("an address"))
}

fn ask(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    Ok(stream)
}

fn is_answered(mut stream: TcpStream) -> bool {
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).is_ok() && &answer == b"HTTP/1.1 200"
}

#[test]
fn idle_connections_do_not_exhaust_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, address) = gateway(&folder, 96, 96);
    gateway.error_line(|line| line.contains("listen.limits.connections") && line.contains("raise it"));
    let mut idle = Vec::new();
    for n in 0..300 {
        // A connection that was closed in favour of others may be refused meanwhile.
        idle.extend(ask(address));
        if n % 50 == 49 {
            let stream = ask(address).unwrap();
            assert!(is_answered(stream), "after {n} connections");
        }
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    assert!(files < 90, "{files}");
}

#[test]
fn raises_soft_limit_of_open_files() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, address) = gateway(&folder, 128, 1024);
    assert!(is_answered(ask(address).unwrap()));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["1024", "1024"], "soft and hard: {files}");
}

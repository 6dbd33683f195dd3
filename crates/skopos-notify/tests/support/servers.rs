//! Real servers on loopback, each with its own folder and port. A test without the program prints this and passes.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, MessageBuilder, Name, Ttl};
use domain::rdata::tsig::Time48;
use domain::rdata::{A, Txt};
use domain::tsig::{Algorithm, ClientTransaction, Key};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use skopos_notify::sink::dns::{DnsKey, DnsOptions, DnsSink};
use skopos_notify::sink::haproxy::{HaproxyOptions, HaproxySink};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub const ZONE: &str = "apps.example.test";
const SECRET: &[u8] = b"a secret of thirty-two bytes....";

/// A DNS server with one zone, which accepts updates and transfers with the key `skopos`.
pub struct DnsServer {
    pub address: SocketAddr,
    pub folder: TempDir,
    kind: Kind,
    child: Option<Child>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bind,
    Knot,
}

/// A balancer with some empty backends.
pub struct Haproxy {
    pub socket: PathBuf,
    pub port: u16,
    folder: TempDir,
    child: Option<Child>,
}

/// Returns whether a program is installed, and prints if not; such a test has nothing to do.
pub fn is_installed(program: &str, package: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder: PathBuf| folder.join(program)).any(|path| path.is_file());
    if !found {
        eprintln!("SKIPPED: {program} is not installed (apt-get install {package})");
    }
    found
}

/// Returns a port that no other test of this process gets, below those that the system uses for connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 8_000) as u16;
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port")
}

pub fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().expect("a pid")), signal).expect("it runs");
}

impl DnsServer {
    /// Starts a server; `extra` is added to the zone's file.
    pub async fn start(kind: Kind, extra: &str) -> Option<Self> {
        let installed = match kind {
            Kind::Bind => is_installed("named", "bind9"),
            Kind::Knot => is_installed("knotd", "knot"),
        };
        if !installed {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let zone = format!(
            "$TTL 300\n@ IN SOA ns hostmaster 1 3600 600 86400 60\n@ IN NS ns\nns IN A 127.0.0.1\n{extra}\n"
        );
        std::fs::write(folder.path().join("zone"), zone).expect("a zone");
        let mut server = Self { address, folder, kind, child: None };
        server.configure("");
        server.run().await;
        Some(server)
    }

    /// Writes the configuration of a primary; `more` replaces the permissions of the zone (BIND).
    pub fn configure(&self, more: &str) {
        let bind = match more {
            "" => "allow-update { key skopos; }; allow-transfer { key skopos; };",
            more => more,
        };
        self.write(&format!("type primary; {bind}"), "", "    acl: ours\n", SECRET);
    }

    /// Writes the configuration of a primary that notifies others of changes.
    pub fn configure_primary(&self, tells: &[SocketAddr]) {
        let addresses =
            |line: &dyn Fn(SocketAddr) -> String| tells.iter().copied().map(line).collect::<String>();
        let bind = addresses(&|at| format!("{} port {}; ", at.ip(), at.port()));
        let bind = format!(
            "type primary; allow-update {{ key skopos; }}; allow-transfer {{ key skopos; }}; notify explicit; notify-delay 0; also-notify {{ {bind}}};"
        );
        let remotes =
            addresses(&|at| format!("  - id: to-{}\n    address: {}@{}\n", at.port(), at.ip(), at.port()));
        let remotes = if remotes.is_empty() { remotes } else { format!("remote:\n{remotes}") };
        let names: Vec<_> = tells.iter().map(|at| format!("to-{}", at.port())).collect();
        self.write(&bind, &remotes, &format!("    acl: ours\n    notify: [{}]\n", names.join(", ")), SECRET);
    }

    /// Writes the configuration of a secondary, with an initial zone and serial.
    pub fn configure_secondary(&self, of: SocketAddr) {
        let (ip, port) = (of.ip(), of.port());
        let bind = format!(
            "type secondary; primaries {{ {ip} port {port} key skopos; }}; allow-transfer {{ key skopos; }}; allow-notify {{ {ip}; }}; notify no; masterfile-format text;"
        );
        let knot = format!(
            "remote:\n  - id: primary\n    address: {ip}@{port}\n    key: skopos\nacl:\n  - id: notify\n    address: {ip}\n    action: notify\n  - id: read\n    key: skopos\n    action: transfer\n"
        );
        self.write(&bind, &knot, "    acl: [read, notify]\n    master: primary\n", SECRET);
    }

    /// Writes the configuration of a primary with another secret of the key.
    pub fn configure_key(&self, secret: &[u8]) {
        let bind = "type primary; allow-update { key skopos; }; allow-transfer { key skopos; };";
        self.write(bind, "", "    acl: ours\n", secret);
    }

    /// Writes the configuration: options of BIND's zone, sections of Knot, and options of Knot's zone.
    fn write(&self, bind: &str, sections: &str, knot: &str, key: &[u8]) {
        let (folder, port) = (self.folder.path().display(), self.address.port());
        let secret = secret(key);
        let ours = "acl:\n  - id: ours\n    key: skopos\n    action: [update, transfer]\n";
        let acl = if sections.contains("acl:") { "" } else { ours };
        let text = match self.kind {
            Kind::Bind => format!(
                "options {{ directory \"{folder}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file \"{folder}/pid\";\n\
                 recursion no; dnssec-validation no; session-keyfile \"{folder}/session.key\"; }};\n\
                 controls {{ }};\n\
                 key skopos {{ algorithm hmac-sha256; secret \"{secret}\"; }};\n\
                 key other {{ algorithm hmac-sha256; secret \"b3RoZXI=\"; }};\n\
                 zone \"{ZONE}\" {{ file \"{folder}/zone\"; {bind} }};\n"
            ),
            Kind::Knot => format!(
                "server:\n  rundir: \"{folder}\"\n  listen: 127.0.0.1@{port}\n  pidfile: \"{folder}/pid\"\n\
                 database:\n  storage: \"{folder}\"\n\
                 key:\n  - id: skopos\n    algorithm: hmac-sha256\n    secret: {secret}\n\
                 {sections}{acl}zone:\n  - domain: {ZONE}\n    storage: \"{folder}\"\n    file: zone\n{knot}"
            ),
        };
        std::fs::write(self.folder.path().join("conf"), text).expect("a configuration");
    }

    /// Reloads the configuration.
    pub fn reload(&self) {
        signal(self.child(), Signal::SIGHUP);
    }

    pub async fn run(&mut self) {
        let (folder, conf) = (self.folder.path(), self.folder.path().join("conf"));
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut command = match self.kind {
            Kind::Bind => Command::new("/usr/sbin/named"),
            Kind::Knot => Command::new("/usr/sbin/knotd"),
        };
        match self.kind {
            Kind::Bind => command.args(["-g", "-n", "1", "-c"]).arg(&conf),
            Kind::Knot => command.arg("-c").arg(&conf),
        };
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        self.child = Some(child);
        listens(self.address, folder).await;
    }

    pub fn child(&self) -> &Child {
        self.child.as_ref().expect("it runs")
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    pub fn options(&self) -> DnsOptions {
        let mut options = DnsOptions::new(ZONE, self.address, "tests");
        options.key = Some(DnsKey::new("skopos", "hmac-sha256", SECRET).expect("a key"));
        options
    }

    pub fn sink(&self) -> DnsSink {
        DnsSink::new(self.options()).expect("a sink")
    }

    /// Returns the secret of the key, in the form for files.
    pub fn secret(&self) -> String {
        secret(SECRET)
    }

    /// Replaces the addresses of a name, as another program does (RFC 2136).
    pub async fn set_address(&self, name: &str, address: Ipv4Addr) {
        let zone: Name<Vec<u8>> = ZONE.parse().expect("a zone");
        let at: Name<Vec<u8>> = format!("{name}.{ZONE}").parse().expect("a name");
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_opcode(Opcode::UPDATE);
        let mut message = message.question();
        message.push((&zone, Rtype::SOA, Class::IN)).expect("room");
        let mut message = message.authority();
        let none = UnknownRecordData::from_octets(Rtype::A, Vec::new()).expect("short");
        message.push((&at, Class::ANY, Ttl::ZERO, none)).expect("room");
        message.push((&at, Class::IN, Ttl::from_secs(30), A::new(address))).expect("room");
        let mut message = message.additional();
        let key = Key::new(Algorithm::Sha256, SECRET, "skopos".parse().expect("a name"), None, None);
        let transaction = ClientTransaction::request(key.expect("a key"), &mut message, Time48::now());
        let mut answer = self.exchange(&message.finish()).await;
        transaction.expect("room").answer(&mut answer, Time48::now()).expect("the server's signature");
        assert_eq!(answer.header().rcode(), Rcode::NOERROR, "{name} {address}");
    }

    /// Reads the text at a name, as other programs see it.
    pub async fn text(&self, at: &str) -> Option<String> {
        let at: Name<Vec<u8>> = at.parse().expect("a name");
        let mut message = MessageBuilder::new_vec().question();
        message.push((&at, Rtype::TXT, Class::IN)).expect("room");
        let answer = self.exchange(&message.finish()).await;
        let mut texts = answer.answer().expect("an answer").limit_to::<Txt<_>>();
        texts.next().map(|text| String::from_utf8(text.expect("a text").data().text()).expect("UTF-8"))
    }

    async fn exchange(&self, message: &[u8]) -> Message<Vec<u8>> {
        let mut stream = tokio::net::TcpStream::connect(self.address).await.expect("it listens");
        stream.write_u16(message.len().try_into().expect("short")).await.expect("it reads");
        stream.write_all(message).await.expect("it reads");
        let mut answer = vec![0; stream.read_u16().await.expect("an answer").into()];
        stream.read_exact(&mut answer).await.expect("an answer");
        Message::from_octets(answer).expect("a message")
    }
}

fn secret(secret: &[u8]) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, secret)
}

impl Haproxy {
    pub async fn start(backends: &[&str]) -> Option<Self> {
        if !is_installed("haproxy", "haproxy") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut haproxy = Self { socket: folder.path().join("sock"), port: free_port(), folder, child: None };
        haproxy.configure(backends);
        haproxy.run().await;
        Some(haproxy)
    }

    pub fn configure(&self, backends: &[&str]) {
        let (socket, port) = (self.socket.display(), self.port);
        let first = backends.first().expect("a backend");
        let mut text = format!(
            "global\n  stats socket {socket} mode 600 level admin\ndefaults\n  mode tcp\n  timeout connect 1s\n  timeout client 600s\n  timeout server 600s\n\
             frontend front\n  bind 127.0.0.1:{port}\n  default_backend {first}\n"
        );
        for backend in backends {
            text += &format!("backend {backend}\n  balance roundrobin\n");
        }
        std::fs::write(self.folder.path().join("cfg"), text).expect("a configuration");
    }

    pub async fn run(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log");
        let mut command = Command::new("/usr/sbin/haproxy");
        command.args(["-W", "-f"]).arg(self.folder.path().join("cfg"));
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts"));
        listens(SocketAddr::from(([127, 0, 0, 1], self.port)), self.folder.path()).await;
    }

    pub fn reload(&self) {
        signal(self.child.as_ref().expect("it runs"), Signal::SIGUSR2);
    }

    pub fn sink(&self) -> HaproxySink {
        let mut options = HaproxyOptions::at(&self.socket);
        options.check = false;
        HaproxySink::new(options)
    }

    /// Sends a command to HAProxy.
    pub async fn command(&self, command: &str) -> String {
        let mut stream = tokio::net::UnixStream::connect(&self.socket).await.expect("a socket");
        stream.write_all(format!("{command}\n").as_bytes()).await.expect("it takes it");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        end(self.child.take());
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        end(self.child.take());
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // The master notifies its workers; a frozen one must be woken first.
        let pid = Pid::from_raw(child.id() as i32);
        let _ = kill(pid, Signal::SIGCONT);
        let _ = kill(pid, Signal::SIGTERM);
        let _ = child.wait();
    }
}

async fn listens(address: SocketAddr, folder: &Path) {
    for _ in 0..500 {
        if tokio::net::TcpStream::connect(address).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it does not listen: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default());
}

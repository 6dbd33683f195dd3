//! BIND on loopback, with a folder, a port and a zone of its own.
//!
//! The notifiers come from 127.0.0.1 with a key. We come from 127.0.0.3 and may read and change the zone by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::sleep;

pub(crate) const ZONE: &str = "apps.example.test";
/// The secret of the key `skopos`, in base64.
pub(crate) const SECRET: &str = "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcy4uLi4=";
/// What the zone allows where nothing else is said.
const ALLOWED: &str = "allow-update { key skopos; 127.0.0.3; }; allow-transfer { key skopos; 127.0.0.3; };";

/// A server. It is killed when this is dropped.
pub(crate) struct Bind {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    child: Option<Child>,
}

/// Returns the name of a host in the zone.
pub(crate) fn full(host: &str) -> String {
    format!("{host}.{ZONE}")
}

impl Bind {
    /// Starts it; `extra` goes into the zone's file, and `allowed` into its configuration where it is not empty.
    pub(crate) async fn start(extra: &str, allowed: &str) -> Result<Self> {
        let port = free_port().await?;
        let folder = tempfile::tempdir()?;
        let zone = format!(
            "$TTL 300\n@ IN SOA ns hostmaster 1 3600 600 86400 0\n@ IN NS ns\nns IN A 127.0.0.1\n{extra}\n"
        );
        std::fs::write(folder.path().join("zone"), zone)?;
        let mut bind = Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), folder, child: None };
        bind.allow(if allowed.is_empty() { ALLOWED } else { allowed })?;
        bind.run().await?;
        Ok(bind)
    }

    /// Writes the configuration for the next start.
    pub(crate) fn allow(&self, allowed: &str) -> Result<()> {
        let (folder, port) = (self.folder.path().display(), self.address.port());
        let text = format!(
            "options {{ directory \"{folder}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
             pid-file \"{folder}/pid\"; recursion no; dnssec-validation no; session-keyfile \"{folder}/session.key\"; }};\n\
             controls {{ }};\n\
             key skopos {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
             zone \"{ZONE}\" {{ type primary; file \"{folder}/zone\"; {allowed} }};\n"
        );
        Ok(std::fs::write(self.folder.path().join("conf"), text)?)
    }

    pub(crate) async fn run(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = Command::new("/usr/sbin/named");
        command.args(["-g", "-n", "1", "-c"]).arg(self.folder.path().join("conf"));
        let child = command.stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn();
        self.child = Some(child.context("BIND does not start: apt-get install bind9 bind9-dnsutils")?);
        for _ in 0..500 {
            if TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("BIND does not listen: {}", self.log())
    }

    /// Ends it as a crash does.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub(crate) fn wake(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.as_ref().and_then(Child::id).context("BIND does not run")?;
        Ok(kill(Pid::from_raw(pid.try_into()?), signal)?)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Counts the lines of its log with a text.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Reads the whole zone: `(name, type, value)`, without SOA.
    pub(crate) async fn transfer(&self) -> Result<Vec<(String, String, String)>> {
        let port = self.address.port().to_string();
        let mut dig = Command::new("dig");
        dig.args(["@127.0.0.1", "-b", "127.0.0.3", "-p", &port, "+tcp", "+noall", "+answer", ZONE, "AXFR"]);
        let output = dig.output().await.context("dig: apt-get install bind9-dnsutils")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && text.contains("SOA"), "the transfer failed: {text}");
        let mut records: Vec<_> = text.lines().filter_map(record).collect();
        records.sort();
        Ok(records)
    }

    /// Reads what stands at one name, by type.
    pub(crate) async fn at(&self, host: &str, kind: &str) -> Result<Vec<String>> {
        let name = full(host);
        let records = self.transfer().await?.into_iter();
        Ok(records.filter(|record| record.0 == name && record.1 == kind).map(|record| record.2).collect())
    }

    /// Changes the zone by hand: lines of nsupdate.
    pub(crate) async fn change(&self, lines: &str) -> Result<()> {
        let mut nsupdate = Command::new("nsupdate").stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
        let port = self.address.port();
        let script = format!("server 127.0.0.1 {port}\nlocal 127.0.0.3\nzone {ZONE}\n{lines}\nsend\n");
        let mut stdin = nsupdate.stdin.take().context("no standard input")?;
        stdin.write_all(script.as_bytes()).await?;
        drop(stdin);
        ensure!(nsupdate.wait().await?.success(), "nsupdate failed: {lines}");
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn record(line: &str) -> Option<(String, String, String)> {
    let mut words = line.split_whitespace();
    let (name, _ttl, _class, kind) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let value = words.collect::<Vec<_>>().join(" ");
    let plain = |text: &str| text.trim_end_matches('.').to_owned();
    (kind != "SOA").then(|| (plain(name), kind.to_owned(), plain(&value)))
}

async fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}

//! The server made of Kubernetes' own libraries, as a process of its own.

#![allow(dead_code, reason = "each of the two programs uses a part")]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::kit::client;
use crate::kit::target::{Stream, Target};

/// A running server. It ends when this is dropped.
pub(crate) struct RealServer {
    program: PathBuf,
    flags: &'static [&'static str],
    data: TempDir,
    port: u16,
    tls: TlsConnector,
    process: Mutex<Child>,
}

/// How long a start or an end may take.
const TIMEOUT: Duration = Duration::from_secs(90);

impl RealServer {
    /// Starts a server on a free port, with no content but what the flags ask for.
    pub(crate) async fn start(program: &Path, flags: &'static [&'static str]) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let (process, port) = launch(program, flags, data.path(), 0).await?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(certificate(&data))? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            program: program.to_owned(),
            flags,
            data,
            port,
            tls: TlsConnector::from(Arc::new(config)),
            process: Mutex::new(process),
        })
    }

    /// The port on 127.0.0.1, also after a restart.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The program that it is.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The file with its certificate and that of its CA.
    pub(crate) fn certificate(&self) -> PathBuf {
        certificate(&self.data)
    }

    /// What is in that file.
    pub(crate) fn certificates(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        Ok(CertificateDer::pem_file_iter(self.certificate())?.collect::<Result<_, _>>()?)
    }

    /// Ends the server without a word.
    pub(crate) async fn kill(&self) -> io::Result<()> {
        self.process.lock().await.kill().await
    }

    /// Starts it again on what it had stored.
    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        let (process, _) = launch(&self.program, self.flags, self.data.path(), self.port).await?;
        *self.process.lock().await = process;
        Ok(())
    }

    /// Asks for what clients of an API server cannot; gives the revision.
    async fn debug(&self, path: &str) -> io::Result<u64> {
        let answer = client::send(self, Method::POST, path, &[], Bytes::new()).await?;
        let code = answer.code;
        let said = answer.whole().await?;
        let revision = serde_json::from_slice(&said).ok().and_then(|said: Value| said["revision"].as_u64());
        revision
            .filter(|_| code == 200)
            .ok_or_else(|| io::Error::other(format!("{path}: {code}: {}", String::from_utf8_lossy(&said))))
    }

    /// Asks the server to end, and waits until it has.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        signal(&process, Signal::SIGTERM)?;
        timeout(TIMEOUT, process.wait()).await.context("the server does not end")??;
        Ok(())
    }
}

impl Target for RealServer {
    async fn connect(&self) -> io::Result<Stream> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
        Ok(Box::pin(self.tls.connect(name, tcp).await?))
    }

    async fn compact(&self) -> io::Result<()> {
        self.debug("/debug/compact").await.map(drop)
    }

    async fn expire(&self, keys: &[String]) -> io::Result<u64> {
        self.debug(&format!("/debug/expire?key={}", keys.join("&key="))).await
    }

    async fn restart(&self) -> io::Result<()> {
        self.kill().await?;
        self.start_again().await.map_err(io::Error::other)
    }
}

fn certificate(data: &TempDir) -> PathBuf {
    data.path().join("certificate/apiserver.crt")
}

/// Starts the program and waits until it is ready; gives the port too.
async fn launch(program: &Path, flags: &[&str], data: &Path, port: u16) -> anyhow::Result<(Child, u16)> {
    let mut process = Command::new(program)
        .args(["--port", &port.to_string(), "--data-dir"])
        .arg(data)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} does not start", program.display()))?;
    let output = process.stdout.take().ok_or_else(|| anyhow!("the server has no output"))?;
    let mut lines = BufReader::new(output).lines();
    let line = timeout(TIMEOUT, lines.next_line()).await.context("the server is not ready in time")??;
    let line = line.ok_or_else(|| anyhow!("the server ended before it was ready"))?;
    let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
    Ok((process, port.with_context(|| format!("the server says {line:?}, and no port"))?))
}

fn signal(process: &Child, signal: Signal) -> anyhow::Result<()> {
    let Some(id) = process.id() else { return Ok(()) };
    kill(Pid::from_raw(i32::try_from(id)?), signal)?;
    Ok(())
}

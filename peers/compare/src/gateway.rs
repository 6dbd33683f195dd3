//! `skopos serve` in a process of its own, in front of one cluster.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// It is killed when this is dropped.
pub(crate) struct Gateway {
    child: Child,
    /// The file with the certificate that clients trust, if it speaks TLS.
    certificate: Option<PathBuf>,
    port: u16,
    cluster: String,
}

/// Longer than it takes to start.
const PLENTY: Duration = Duration::from_secs(60);

impl Gateway {
    /// Of the cluster that a kubeconfig's current context names.
    pub(crate) async fn start(program: &Path, folder: &Path, member: &str) -> Result<Self> {
        Self::launch(program, folder, member, "{}", None).await
    }

    /// The same over TLS, with this cache.
    pub(crate) async fn start_with_tls(
        program: &Path,
        folder: &Path,
        member: &str,
        cache: &str,
    ) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let (certificate, key) = (folder.join("gateway.crt"), folder.join("gateway.key"));
        std::fs::write(&certificate, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        Self::launch(program, folder, member, cache, Some((certificate, key))).await
    }

    async fn launch(
        program: &Path,
        folder: &Path,
        member: &str,
        cache: &str,
        tls: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self> {
        let context = member.lines().find_map(|line| line.trim().strip_prefix("current-context:"));
        let cluster = context.context("the kubeconfig has no current context")?.trim().trim_matches('"');
        let kubeconfig = folder.join("member.yaml");
        std::fs::write(&kubeconfig, member)?;
        let config = folder.join("gateway.yaml");
        let tls_text = tls.as_ref().map_or_else(String::new, |(certificate, key)| {
            format!(", tls: {{certificate: '{}', key: '{}'}}", certificate.display(), key.display())
        });
        let text = format!(
            "listen: {{address: '127.0.0.1:0'{tls_text}}}\nauthorization: {{loopback: Trusted}}\ncache: {cache}\n\
             clusters: {{kubeconfigs: [{{path: '{}'}}]}}\n",
            kubeconfig.display()
        );
        std::fs::write(&config, text)?;
        let mut child = Command::new(program)
            .args(["serve", "--config"])
            .arg(&config)
            // A line for each request would bury what is compared.
            .env("SKOPOS_LOG", std::env::var("SKOPOS_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} does not start; `--build` builds it", program.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let first = timeout(PLENTY, lines.next_line()).await??.context("the gateway ended")?;
        let port = first.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
        let port = port.with_context(|| format!("no port in {first:?}"))?;
        let certificate = tls.map(|(certificate, _)| certificate);
        Ok(Self { child, certificate, port, cluster: cluster.to_owned() })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// For clients of the cluster, through a port in front of the gateway.
    pub(crate) fn kubeconfig(&self, port: u16) -> String {
        let (scheme, trust) = match &self.certificate {
            Some(file) => ("https", format!(", certificate-authority: '{}'", file.display())),
            None => ("http", String::new()),
        };
        let server = format!("{scheme}://127.0.0.1:{port}/clusters/{}", self.cluster);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}'{trust}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        )
    }

    /// For the gateway's own answers, such as its status.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the gateway ended by itself");
        self.child.kill().await?;
        Ok(())
    }
}

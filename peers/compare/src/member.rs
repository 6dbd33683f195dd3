//! The cluster that a comparison runs on: one that is there already, or `peers/apiserver`.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};

use crate::server::{Kind, Server};

/// A cluster.
pub(crate) struct Member {
    /// With one context and no files beside it.
    kubeconfig: String,
    server: Option<Server>,
}

impl Member {
    /// Takes the cluster of a kubeconfig's current context; without one, starts peers/apiserver.
    pub(crate) async fn start(kubeconfig: Option<&Path>, folder: &Path) -> Result<Self> {
        if let Some(file) = kubeconfig {
            return Ok(Self { kubeconfig: flatten(file).await?, server: None });
        }
        let server = Server::start(Kind::Real, 0).await?;
        let file = folder.join("apiserver.yaml");
        std::fs::write(&file, server.kubeconfig()?)?;
        Ok(Self { kubeconfig: flatten(&file).await?, server: Some(server) })
    }

    pub(crate) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Stops what was started for it.
    pub(crate) async fn stop(self) -> Result<()> {
        match self.server {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }
}

/// Returns the current context of a kubeconfig alone, with the content of the files that it names.
async fn flatten(file: &Path) -> Result<String> {
    ensure!(file.exists(), "{} does not exist", file.display());
    let output = tokio::process::Command::new("kubectl")
        .args(["config", "view", "--minify", "--flatten", "--raw", "--kubeconfig"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .await
        .context("kubectl does not start: is it installed?")?;
    if !output.status.success() {
        bail!("kubectl cannot read {}: {}", file.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

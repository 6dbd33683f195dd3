//! Folders, configurations and certificates of a run; gone when it ends.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Target;
use crate::process::Process;

/// The files of a run.
pub(crate) struct Setup {
    folder: TempDir,
}

/// A gateway and how to reach it.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) target: Target,
    pub(crate) url: String,
}

impl Setup {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir()? })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new folder.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// A gateway over the clusters of a folder, with what `cache` says. Whoever is on this machine is trusted.
    pub(crate) async fn gateway(
        &self,
        name: &str,
        clusters: &Path,
        cache: Value,
        cores: Option<&str>,
    ) -> Result<Gateway> {
        let config = self.config(json!({"folders": [{"path": clusters}]}), cache, Value::Null);
        let process = self.start(name, &config, cores).await?;
        let url = process.ready.clone();
        Ok(Gateway { target: Target::plain(&url)?, process, url })
    }

    /// A gateway over the one cluster of a kubeconfig, which speaks TLS.
    pub(crate) async fn gateway_with_tls(
        &self,
        name: &str,
        kubeconfig: &Path,
        cache: Value,
    ) -> Result<Gateway> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let (certificate, key) = (self.path("gateway.crt"), self.path("gateway.key"));
        std::fs::write(&certificate, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        let tls = json!({"certificate": certificate, "key": key});
        let config = self.config(json!({"kubeconfigs": [{"path": kubeconfig}]}), cache, tls);
        let process = self.start(name, &config, None).await?;
        let url = process.ready.clone();
        let to_gateway = self.path("gateway.kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "gateway",
            "clusters": [{"name": "gateway", "cluster": {"server": url, "certificate-authority": certificate}}],
            "users": [{"name": "anybody", "user": {}}],
            "contexts": [{"name": "gateway", "context": {"cluster": "gateway", "user": "anybody"}}],
        });
        std::fs::write(&to_gateway, config.to_string())?;
        Ok(Gateway { target: Target::of_kubeconfig(&to_gateway).await?, process, url })
    }

    fn config(&self, mut clusters: Value, cache: Value, tls: Value) -> Value {
        clusters["addresses"] = json!({"allow": ["127.0.0.0/8"]});
        // All clients of a benchmark are one caller at one address.
        let limits =
            json!({"watchesPerUser": 100_000, "halfOpen": 100_000, "unauthenticatedPerAddress": 100_000});
        let mut listen = json!({"address": "127.0.0.1:0", "limits": limits});
        if !tls.is_null() {
            listen["tls"] = tls;
        }
        json!({"listen": listen, "authorization": {"loopback": "Trusted"}, "clusters": clusters, "cache": cache})
    }

    async fn start(&self, name: &str, config: &Value, cores: Option<&str>) -> Result<Process> {
        let file = self.path(&format!("{name}.gateway.yaml"));
        std::fs::write(&file, config.to_string())?;
        Process::of_self(cores, ["gateway".as_ref(), "--config".as_ref(), file.as_os_str()]).await
    }
}

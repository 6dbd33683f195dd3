//! The program that a kubeconfig has its credentials from.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use kube::config::{ExecAuthCluster, ExecConfig};

use super::error::KubeconfigError;
use super::file::ClusterEntry;
use super::{AUTHORITY_DATA, Kubeconfig, decode, some};

/// The extension of a cluster that is meant for it.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

impl Kubeconfig {
    /// The program, from where kubectl runs it, with what it wants to know.
    pub(super) fn plugin(
        &self,
        exec: &ExecConfig,
        cluster: &ClusterEntry,
    ) -> Result<ExecConfig, KubeconfigError> {
        let mut exec = exec.clone();
        // A name alone is looked for in PATH.
        if let Some(command) = exec.command.as_mut().filter(|name| name.contains(std::path::is_separator)) {
            *command = self.path(command).to_string_lossy().into_owned();
        }
        exec.cluster = exec.provide_cluster_info.then(|| self.told(cluster)).transpose()?;
        Ok(exec)
    }

    /// What it is told of the cluster (`provideClusterInfo`).
    fn told(&self, cluster: &ClusterEntry) -> Result<ExecAuthCluster, KubeconfigError> {
        let extension = cluster.extensions.iter().find(|extension| extension.name == EXTENSION);
        Ok(ExecAuthCluster {
            server: cluster.server.clone(),
            insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
            certificate_authority_data: self.authority(cluster)?,
            proxy_url: some(&cluster.proxy_url).map(str::to_owned),
            tls_server_name: some(&cluster.tls_server_name).map(str::to_owned),
            config: extension.map(|extension| extension.extension.clone()),
        })
    }

    fn authority(&self, cluster: &ClusterEntry) -> Result<Option<Vec<u8>>, KubeconfigError> {
        match (some(&cluster.certificate_authority_data), some(&cluster.certificate_authority)) {
            (Some(data), _) => decode(AUTHORITY_DATA, data).map(|pem| Some(pem.to_vec())),
            // That it cannot be read is told by whoever connects, and may be over by then.
            (None, Some(path)) => Ok(read(&self.path(path), self.policy.max_bytes).ok()),
            (None, None) => Ok(None),
        }
    }
}

fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(limit as u64).read_to_end(&mut content)?;
    Ok(content)
}

//! A cluster's configuration out of a kubeconfig, with the files that may change under it.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// What a kubeconfig says of one cluster, as [`kube::Config::from_custom_kubeconfig`] reads it; but a CA that the kubeconfig
/// names as a file stays one ([`kube::Config::root_cert_file`]), so that a [`Transport`](crate::Transport) follows its
/// rotation. In a pod, [`kube::Config::incluster`] does that too.
///
/// # Errors
///
/// When context, cluster or user are missing, or their files cannot be read.
pub async fn config_from_kubeconfig(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, KubeconfigError> {
    let authority = authority_file(&kubeconfig, options);
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, options).await?;
    config.root_cert_file = authority;
    Ok(config)
}

/// The file of the chosen cluster's CA, if it is a file.
fn authority_file(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<PathBuf> {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *context)?.context.as_ref()?;
    let name = options.cluster.as_ref().unwrap_or(&context.cluster);
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == *name)?.cluster.as_ref()?;
    // What stands in the kubeconfig itself goes before the file.
    let inline = cluster.certificate_authority_data.as_ref().is_some_and(|data| !data.is_empty());
    let file = cluster.certificate_authority.as_ref().filter(|file| !inline && !file.is_empty())?;
    Some(PathBuf::from(file))
}

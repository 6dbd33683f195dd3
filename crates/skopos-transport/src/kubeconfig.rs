//! A cluster's configuration out of a kubeconfig, with the files that may change under it.

use std::path::PathBuf;

use kube::config::{Cluster, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::proxy::proxy_from_environment;

/// What a kubeconfig says of one cluster, as [`kube::Config::from_custom_kubeconfig`] reads it; but a CA that the kubeconfig
/// names as a file stays one ([`kube::Config::root_cert_file`]), so that a [`Transport`](crate::Transport) follows its
/// rotation. In a pod, [`kube::Config::incluster`] does that too.
///
/// The proxy is the cluster's `proxy-url`, whatever `NO_PROXY` says; else the one of the environment
/// ([`proxy_from_environment`]).
///
/// # Errors
///
/// When context, cluster or user are missing, their files cannot be read, or the proxy is no URL.
pub async fn config_from_kubeconfig(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, KubeconfigError> {
    let cluster = cluster(&kubeconfig, options);
    let authority = cluster.and_then(authority_file);
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.clone()).filter(|url| !url.is_empty());
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, options).await?;
    config.root_cert_file = authority;
    let proxy = match proxy {
        Some(url) => url.parse().map(Some),
        None => proxy_from_environment(&config.cluster_url),
    };
    config.proxy_url = proxy.map_err(KubeconfigError::ParseProxyUrl)?;
    Ok(config)
}

/// The current context of `$KUBECONFIG` or `~/.kube/config`, read as [`config_from_kubeconfig`] reads it; where there is none,
/// the service account of the pod that this runs in, which has no proxy. As [`kube::Config::infer`] but for CA files and
/// `NO_PROXY`.
///
/// # Errors
///
/// When neither can be used.
pub async fn infer_config() -> Result<kube::Config, InferConfigError> {
    let of_kubeconfig =
        async { config_from_kubeconfig(Kubeconfig::read()?, &KubeConfigOptions::default()).await };
    match of_kubeconfig.await {
        Ok(mut config) => {
            config.apply_debug_overrides();
            Ok(config)
        }
        Err(_) => kube::Config::infer().await,
    }
}

/// The chosen one.
fn cluster<'a>(kubeconfig: &'a Kubeconfig, options: &'a KubeConfigOptions) -> Option<&'a Cluster> {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *context)?.context.as_ref()?;
    let name = options.cluster.as_ref().unwrap_or(&context.cluster);
    kubeconfig.clusters.iter().find(|named| named.name == *name)?.cluster.as_ref()
}

/// The file of its CA, if it is a file.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    // What stands in the kubeconfig itself goes before the file.
    let inline = cluster.certificate_authority_data.as_ref().is_some_and(|data| !data.is_empty());
    let file = cluster.certificate_authority.as_ref().filter(|file| !inline && !file.is_empty())?;
    Some(PathBuf::from(file))
}

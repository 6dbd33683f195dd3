//! Factories from a kubeconfig, in one call.

use skopos_transport::kubeconfig::{Kubeconfig, KubeconfigError, KubeconfigReadError};
use skopos_transport::{ConfigError, Transport, TransportOptions};
use thiserror::Error;

use super::InformerFactory;
use crate::informer::options::FactoryOptions;

impl InformerFactory {
    /// Creates a factory with default options for the cluster that kubectl would use: the current context of `$KUBECONFIG` or
    /// `~/.kube/config`, or else the service account of this process's pod.
    ///
    /// # Errors
    /// If there is no usable kubeconfig and no service account.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let factory = skopos::InformerFactory::infer().await?;
    /// let client = factory.transport().client("default");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn infer() -> Result<Self, ConnectError> {
        Self::from_config(skopos_transport::infer_config().await?)
    }

    /// Creates a factory with default options for the current context of a kubeconfig's text, such as
    /// `skopos_testserver::TestServer::kubeconfig()` returns. Paths in it are relative to the working directory.
    ///
    /// # Errors
    /// If the text is no kubeconfig, or its current context cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn from_kubeconfig(yaml: &str) -> Result<Self, ConnectError> {
        Self::from_config(Kubeconfig::parse(yaml.as_bytes(), yaml.len())?.config(None)?)
    }

    fn from_config(config: kube::Config) -> Result<Self, ConnectError> {
        let transport = Transport::from_config(config, TransportOptions::default())?;
        Ok(Self::new(transport, FactoryOptions::default()))
    }
}

/// A failure of [`InformerFactory::infer`], `from_kubeconfig` or `from_test_server`. Nothing was sent to the cluster yet.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No kubeconfig or service account that can be used.
    #[error(transparent)]
    NotFound(#[from] KubeconfigReadError),
    /// A text that is no kubeconfig, or one whose current context cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// A kubeconfig with invalid content: a URL, a certificate, a proxy.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

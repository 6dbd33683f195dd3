//! The ports of pods, which port-forwards lead to.

use std::sync::Arc;
use std::{fmt, io};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream to what listens in a pod.
pub(crate) trait PodStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PodStream for T {}

/// Connector to the ports of pods.
#[derive(Clone)]
pub(crate) struct PodPorts(Arc<Connect>);

type Connect = dyn Fn(&Value, u16) -> BoxFuture<'static, io::Result<Box<dyn PodStream>>> + Send + Sync;

impl PodPorts {
    /// Uses a function that connects to a port of a pod.
    pub(crate) fn new(
        connect: impl Fn(&Value, u16) -> BoxFuture<'static, io::Result<Box<dyn PodStream>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }

    /// Connects to a port of a pod.
    pub(crate) fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Box<dyn PodStream>>> {
        (self.0)(pod, port)
    }
}

impl Default for PodPorts {
    /// Returns ports that refuse connections.
    fn default() -> Self {
        Self::new(|_, _| Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into()))))
    }
}

impl fmt::Debug for PodPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PodPorts")
    }
}

//! Servers on which scripts are played.

use std::future::Future;
use std::io;
use std::pin::Pin;

use skopos_testserver::{CloseMode, TestServer};
use tokio::io::{AsyncRead, AsyncWrite};

/// Server under test.
pub(crate) trait Target {
    /// Opens a connection for HTTP/1.1.
    fn connect(&self) -> impl Future<Output = io::Result<Stream>>;

    /// Forgets all old versions now; watches keep the events of their window.
    fn compact(&self) -> impl Future<Output = io::Result<()>>;

    /// Deletes objects (`resource/namespace/name`) at one revision, as the expiry of a shared lease does; returns the revision.
    fn expire(&self, keys: &[String]) -> impl Future<Output = io::Result<u64>>;

    /// Kills the server and restarts it with its stored content. Its window of events is lost.
    fn restart(&self) -> impl Future<Output = io::Result<()>>;
}

/// Connection to a server.
pub(crate) type Stream = Pin<Box<dyn Io>>;

/// Operations of a connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

impl Target for TestServer {
    async fn connect(&self) -> io::Result<Stream> {
        Ok(Box::pin(TestServer::connect(self)?))
    }

    async fn compact(&self) -> io::Result<()> {
        self.compact_versions();
        Ok(())
    }

    async fn expire(&self, keys: &[String]) -> io::Result<u64> {
        let lease: Vec<_> = keys.iter().filter_map(|key| key.split_once('/')).collect();
        let lease = lease.into_iter().map(|(resource, rest)| match rest.split_once('/') {
            Some((namespace, name)) => (resource, Some(namespace), name),
            None => (resource, None, rest),
        });
        TestServer::expire(self, lease).map_err(|status| io::Error::other(status.message))?;
        Ok(self.resource_version())
    }

    async fn restart(&self) -> io::Result<()> {
        self.forget_events();
        TestServer::restart(self, CloseMode::Rst).await.map_err(io::Error::other)
    }
}

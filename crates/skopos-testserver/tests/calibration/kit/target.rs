//! The servers that scripts are played on.

use std::future::Future;
use std::io;
use std::pin::Pin;

use skopos_testserver::{How, TestServer};
use tokio::io::{AsyncRead, AsyncWrite};

/// A server under test.
pub(crate) trait Target {
    /// Opens a connection that speaks HTTP/1.1.
    fn connect(&self) -> impl Future<Output = io::Result<Stream>>;

    /// Forgets all old versions now; watches keep what their window has.
    fn compact(&self) -> impl Future<Output = io::Result<()>>;

    /// Lets objects (`resource/namespace/name`) end at one revision, as a lease that they share does; gives the revision.
    fn expire(&self, keys: &[String]) -> impl Future<Output = io::Result<u64>>;

    /// Ends the server without a word and starts it again on what it had stored. Its window of events is lost.
    fn restart(&self) -> impl Future<Output = io::Result<()>>;
}

/// A connection.
pub(crate) type Stream = Pin<Box<dyn Io>>;

/// What a connection can do.
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
        TestServer::restart(self, How::Rst).await.map_err(io::Error::other)
    }
}

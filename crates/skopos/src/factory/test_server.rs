//! Factories that reach a test server in the same process.

use std::io;
use std::sync::Arc;

use http::Uri;
use skopos_testserver::TestServer;
use skopos_transport::{
    Dialed, Dialer, Protocol, Transport, TransportErrorKind, TransportOptions, dialer_fn,
};

use super::InformerFactory;
use super::connect::ConnectError;
use crate::informer::options::FactoryOptions;

impl InformerFactory {
    /// Creates a factory with default options for a test server, over pipes in memory. They work under tokio's paused clock, and
    /// for a server without a port.
    ///
    /// # Errors
    /// None at present.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use skopos::InformerFactory;
    /// use skopos_testserver::TestServer;
    ///
    /// let server = TestServer::builder().start_in_memory()?;
    /// let factory = InformerFactory::from_test_server(&server)?;
    /// let client: kube::Client = factory.transport().client("default");
    /// assert_eq!(client.list_api_groups().await?.groups.is_empty(), false);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_test_server(server: &TestServer) -> Result<Self, ConnectError> {
        let config = kube::Config::new(Uri::from_static("http://memory.test"));
        let transport =
            Transport::with_dialer(config, TransportOptions::default(), test_server_dialer(server))?;
        Ok(Self::new(transport, FactoryOptions::default()))
    }
}

/// Creates a dialer to a test server, over pipes in memory: for a transport with its own options. Dials are refused while the
/// server is paused or stopped.
pub fn test_server_dialer(server: &TestServer) -> Arc<dyn Dialer> {
    let server = server.clone();
    dialer_fn(move |_| {
        let connected = server.connect();
        async move {
            let refused = |error: io::Error| TransportErrorKind::Refused {
                to: "memory".into(),
                reason: error.to_string().into(),
            };
            connected.map(|stream| Dialed::new(stream, Protocol::Http2)).map_err(refused)
        }
    })
}

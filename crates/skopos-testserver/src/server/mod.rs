//! Handle of a test server.

mod builder;
mod objects;
mod waiting;

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos_serve::Registry;
use thiserror::Error;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::builder::TestServerBuilder;
pub use self::objects::UnknownRevision;
pub use self::waiting::WaitTimeout;
use crate::auth::Auth;
use crate::faults::{CloseMode, Faults};
use crate::log::RequestRecord;
use crate::serve::{
    Credential, HttpServer, IdentityPlan, MemoryStream, ServerIdentity, Validity, listen, reserve,
};
use crate::state::ServerState;

/// Kubernetes API server in this process. Clones are handles to the same server; when the last is dropped, it stops.
///
/// ```
/// use serde_json::json;
/// use skopos_testserver::TestServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = TestServer::builder().start().await?;
/// server.create(json!({"apiVersion": "v1", "kind": "ConfigMap",
///     "metadata": {"name": "settings", "namespace": "default"}, "data": {"colour": "blue"}}))?;
/// assert_eq!(server.count("configmaps"), 1);
/// println!("export KUBECONFIG with:\n{}", server.kubeconfig());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    http_server: Arc<HttpServer>,
    /// Port; `None` if the server is reached in memory only.
    port: Option<u16>,
    tls: Mutex<Option<Tls>>,
    token: Option<String>,
    /// Cancelled while paused: no port is open, and the connections are closed.
    open: Mutex<CancellationToken>,
    port_state: Mutex<PortState>,
    /// Cancelled when the server has stopped for good.
    stopped: CancellationToken,
}

/// State of the port.
#[derive(Debug)]
enum PortState {
    /// There is no port.
    None,
    /// Listening, until this task ends.
    Open(JoinHandle<()>),
    /// Reserved: the port is closed, and no other process gets it.
    Closed(TcpSocket),
}

#[derive(Debug)]
struct Tls {
    identity: ServerIdentity,
    plan: IdentityPlan,
}

/// Reason why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The port is taken, or no socket is available.
    #[error("cannot listen on 127.0.0.1:{port}: {error}")]
    Listen {
        /// Requested port; 0 is any.
        port: u16,
        /// Error of the operating system.
        error: io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(Box<dyn std::error::Error + Send + Sync>),
    /// An initial object is not accepted.
    #[error("cannot start with that object: {0}")]
    Object(Box<skopos_wire::Status>),
}

impl From<skopos_wire::Status> for StartError {
    fn from(status: skopos_wire::Status) -> Self {
        Self::Object(Box::new(status))
    }
}

impl TestServer {
    /// Returns the options of a server; [`TestServerBuilder::start`] starts it.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::default()
    }

    /// Returns `http://127.0.0.1:PORT`, or `https://...`.
    pub fn url(&self) -> String {
        let scheme = if self.inner.tls.lock().is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port())
    }

    /// Returns the port on 127.0.0.1; 0 if the server is reached in memory only. It is unchanged after [`TestServer::pause`] and
    /// [`TestServer::restart`].
    pub fn port(&self) -> u16 {
        self.inner.port.unwrap_or(0)
    }

    /// Returns the certificate of the server's CA, if it serves TLS.
    pub fn ca_pem(&self) -> Option<String> {
        self.inner.tls.lock().as_ref().map(|tls| tls.identity.ca_pem.clone())
    }

    /// Returns a kubeconfig with inline server, CA and credentials.
    pub fn kubeconfig(&self) -> String {
        use base64::Engine as _;
        let mut cluster = format!("    server: {}\n", self.url());
        if let Some(pem) = self.ca_pem() {
            let data = base64::engine::general_purpose::STANDARD.encode(pem);
            cluster.push_str(&format!("    certificate-authority-data: {data}\n"));
        }
        let user = match &self.inner.token {
            Some(token) => format!("    token: {}\n", serde_json::Value::from(token.as_str())),
            // kubectl prompts for a user name and password before it uses TLS without any credentials.
            None if self.ca_pem().is_some() => "    token: not-checked\n".to_owned(),
            None => "    {}\n".to_owned(),
        };
        let user = match self.client_credential() {
            Some(Credential { certificate, key }) => {
                let data = |pem: String| base64::engine::general_purpose::STANDARD.encode(pem);
                let (certificate, key) = (data(certificate), data(key));
                let token = if self.inner.token.is_some() { user } else { String::new() };
                format!("{token}    client-certificate-data: {certificate}\n    client-key-data: {key}\n")
            }
            None => user,
        };
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: skopos-test\n\
             clusters:\n- name: skopos-test\n  cluster:\n{cluster}\
             users:\n- name: skopos-test\n  user:\n{user}\
             contexts:\n- name: skopos-test\n  context:\n    cluster: skopos-test\n    user: skopos-test\n    namespace: default\n"
        )
    }

    /// Returns the fault injector.
    pub fn faults(&self) -> &Faults {
        &self.state().faults
    }

    /// Returns the users and permissions.
    pub fn auth(&self) -> &Auth {
        &self.state().auth
    }

    /// Returns the served resources.
    pub fn registry(&self) -> &Registry {
        &self.state().registry
    }

    /// Opens an in-memory connection. It works under tokio's paused clock, and is served like one over TCP without TLS.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] while the server is paused or stopped.
    pub fn connect(&self) -> io::Result<MemoryStream> {
        let open = self.inner.open.lock().clone();
        if open.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the test server is paused"));
        }
        Ok(self.inner.http_server.connect(open))
    }

    /// Returns the latest requests, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.state().log.records()
    }

    /// Clears the request log.
    pub fn clear_requests(&self) {
        self.state().log.clear();
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.faults().connections().len()
    }

    /// Returns the number of open watches.
    pub fn open_watches(&self) -> usize {
        self.state().log.open_watches()
    }

    /// Returns the number of watches of a resource that the server closed because their clients did not read. 0 for unknown
    /// resources.
    pub fn evicted_watches(&self, resource: &str) -> u64 {
        let Ok(resource) = self.registry().lookup(resource) else { return 0 };
        self.state().storage.window(&(&*resource).into()).stats().evicted
    }

    /// Returns the client certificate for a server that requires one.
    pub(crate) fn client_credential(&self) -> Option<Credential> {
        self.inner.tls.lock().as_ref().and_then(|tls| tls.identity.client.clone())
    }

    /// Stops listening and closes all connections; the content stays. No other process gets the port meanwhile.
    pub async fn pause(&self) {
        self.pause_with(CloseMode::Fin).await;
    }

    /// Pauses the server, with resets if `how` says so.
    pub async fn pause_with(&self, mode: CloseMode) {
        if mode == CloseMode::Rst {
            self.faults().kill_connections(mode);
        }
        let open = self.inner.open.lock().clone();
        open.cancel();
        self.wait_until(|server| server.connections() == 0).await;
        if let Ok(Some(port)) = self.release_port().await {
            *self.inner.port_state.lock() = PortState::Closed(port);
        }
    }

    /// Returns the reserved port, once it is closed.
    async fn release_port(&self) -> io::Result<Option<TcpSocket>> {
        let Some(port) = self.inner.port else { return Ok(None) };
        let port_state = std::mem::replace(&mut *self.inner.port_state.lock(), PortState::None);
        match port_state {
            PortState::Closed(reserved) => return Ok(Some(reserved)),
            // The task only ends because it was cancelled.
            PortState::Open(listening) => drop(listening.await),
            PortState::None => {}
        }
        reserve(port).map(Some)
    }

    /// Listens again on the same port, with the same content.
    ///
    /// # Errors
    /// When another process took the port.
    pub async fn resume(&self) -> Result<(), StartError> {
        if !self.inner.open.lock().is_cancelled() {
            return Ok(());
        }
        let open = self.inner.stopped.child_token();
        let taken = |error| StartError::Listen { port: self.port(), error };
        if let Some(port) = self.release_port().await.map_err(taken)? {
            let listener = listen(port).map_err(taken)?;
            *self.inner.port_state.lock() =
                PortState::Open(self.inner.http_server.listen(listener, open.clone()));
        }
        *self.inner.open.lock() = open;
        Ok(())
    }

    /// Pauses and resumes: all clients have to reconnect, and find the same content.
    ///
    /// To leave old connections hanging, use [`Faults::black_hole`] with [`Connections::Existing`](crate::Connections::Existing)
    /// instead.
    ///
    /// # Errors
    /// When another process took the port in between.
    pub async fn restart(&self, mode: CloseMode) -> Result<(), StartError> {
        self.pause_with(mode).await;
        self.resume().await
    }

    /// Uses a new CA and a new certificate from now on, as after a rotation; open connections stay.
    ///
    /// # Errors
    /// When no certificate can be made. Does nothing if the server does not serve TLS.
    pub fn rotate_certificates(&self) -> Result<(), StartError> {
        self.set_certificate(Validity::Long)
    }

    /// Uses an expired certificate from now on.
    ///
    /// # Errors
    /// When no certificate can be made. Does nothing if the server does not serve TLS.
    pub fn expire_certificate(&self) -> Result<(), StartError> {
        self.set_certificate(Validity::Expired)
    }

    fn set_certificate(&self, validity: Validity) -> Result<(), StartError> {
        let mut tls = self.inner.tls.lock();
        if let Some(tls) = tls.as_mut() {
            tls.identity = ServerIdentity::generate(&tls.plan, validity).map_err(StartError::Certificate)?;
            self.inner.http_server.set_tls(Some(tls.identity.config.clone()));
        }
        Ok(())
    }

    /// Stops for good, and waits until no task and no connection is left.
    pub async fn stop(&self) {
        self.inner.stopped.cancel();
        self.inner.http_server.finished().await;
    }

    pub(crate) fn state(&self) -> &Arc<ServerState> {
        &self.inner.http_server.state
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}

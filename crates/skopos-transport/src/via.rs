//! Ways to a server other than TCP, such as a port-forward through the API server of another cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::dialer::Io;
use crate::error::TransportErrorKind;

/// A way to a server other than TCP. By default it is used while the server's name does not resolve. Cheap to clone.
///
/// TLS is done over its stream as over TCP, with the same names and certificates, so the way in between sees nothing.
#[derive(Clone)]
pub struct Via {
    name: Arc<str>,
    open: Arc<Open>,
    is_only_way: bool,
}

type Open = dyn Fn() -> BoxFuture<'static, Result<Box<dyn Io>, Arc<str>>> + Send + Sync;

/// Time for the resolver, after which a name does not resolve. A resolver without a network takes longer than a dial may.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Via {
    /// Creates a way. `name` is for people, such as `port-forward by host`. `open` returns a byte stream that leads to
    /// the server, or the reason why there is none; each dial calls it, and bounds it by its deadline.
    pub fn new<Fut>(name: impl Into<Arc<str>>, open: impl Fn() -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<Box<dyn Io>, Arc<str>>> + Send + 'static,
    {
        Self { name: name.into(), open: Arc::new(move || Box::pin(open())), is_only_way: false }
    }

    /// Makes it the only way: the name is not resolved.
    #[must_use]
    pub fn only(self) -> Self {
        Self { is_only_way: true, ..self }
    }

    /// Returns its name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it is the only way.
    pub fn is_only_way(&self) -> bool {
        self.is_only_way
    }

    pub(crate) async fn open(&self) -> Result<Box<dyn Io>, TransportErrorKind> {
        (self.open)().await.map_err(|reason| TransportErrorKind::Via { via: self.name.clone(), reason })
    }
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Via").field("name", &self.name).field("is_only_way", &self.is_only_way).finish()
    }
}

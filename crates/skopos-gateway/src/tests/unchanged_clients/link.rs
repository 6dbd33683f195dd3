//! A link to a server, in memory, that can be cut, refuse and fall silent.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A server's end of a connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

type Dial = dyn Fn() -> io::Result<Box<dyn Io>> + Send + Sync;

/// A link to a server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    dial: Box<Dial>,
    mood: watch::Sender<Mood>,
    cut: Mutex<CancellationToken>,
    tasks: TaskTracker,
}

/// The behaviour of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// New connections are refused.
    Refusing,
    /// No bytes pass, not even on new connections.
    Silent,
}

impl Link {
    pub(super) fn new<S: Io + 'static>(dial: impl Fn() -> io::Result<S> + Send + Sync + 'static) -> Self {
        let shared = Shared {
            dial: Box::new(move || dial().map(|io| Box::new(io) as Box<dyn Io>)),
            mood: watch::Sender::new(Mood::Well),
            cut: Mutex::default(),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the client's end of a new connection.
    pub(super) fn connect(&self) -> io::Result<DuplexStream> {
        if *self.shared.mood.borrow() == Mood::Refusing {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let server = (self.shared.dial)()?;
        let (near, far) = tokio::io::duplex(64 * 1024);
        let cut = self.shared.cut.lock().clone();
        let (up, down) = (self.shared.mood.subscribe(), self.shared.mood.subscribe());
        self.shared.tasks.spawn(async move {
            let ((from_server, to_server), (from_client, to_client)) = (split(server), split(far));
            let passing =
                async { tokio::join!(pass(from_client, to_server, up), pass(from_server, to_client, down)) };
            cut.run_until_cancelled(passing).await;
        });
        Ok(near)
    }

    /// Runs the task of a connection.
    pub(super) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn(task);
    }

    pub(super) fn set(&self, mood: Mood) {
        self.shared.mood.send_replace(mood);
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        std::mem::take(&mut *self.shared.cut.lock()).cancel();
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mood: watch::Receiver<Mood>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if mood.wait_for(|mood| *mood != Mood::Silent).await.is_err()
            || to.write_all(&buffer[..read]).await.is_err()
        {
            return;
        }
    }
    // The other direction may continue.
    let _ = to.shutdown().await;
}

//! A TCP proxy that loses, delays and cuts what passes.
//!
//! The kernel acknowledges what the proxy does not pass on: as behind a load balancer or a NAT gateway that has forgotten
//! the connection, only what stands above TCP can notice.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A proxy in front of one client. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    port: u16,
    server: u16,
    door: watch::Sender<Door>,
    /// For connections to come.
    wire: Mutex<Wire>,
    links: Mutex<Vec<Arc<Link>>>,
    accepted: AtomicU64,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What becomes of new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Door {
    /// They are passed on.
    #[default]
    Open,
    /// Nobody listens.
    Refuse,
    /// They are accepted, and nothing comes, also not after the fault.
    Silent,
}

/// What becomes of the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wire {
    /// What the client sends does not arrive.
    pub(crate) to_server_lost: bool,
    /// What the server sends does not arrive.
    pub(crate) to_client_lost: bool,
    /// Bytes a second to the client.
    pub(crate) rate: Option<u32>,
    /// So many bytes reach the client, and then the connection ends.
    pub(crate) cut_after: Option<u64>,
}

/// CloseMode a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    Fin,
    Rst,
}

#[derive(Debug)]
struct Link {
    wire: watch::Sender<Wire>,
    how: Mutex<CloseMode>,
    killed: CancellationToken,
}

impl Proxy {
    /// A proxy in front of a port of this machine.
    pub(crate) async fn start(server: u16) -> Result<Self> {
        let (listener, port) = free_port().await?;
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            port,
            server,
            door: watch::Sender::new(Door::Open),
            wire: Mutex::default(),
            links: Mutex::default(),
            accepted: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        let serving = shared.clone();
        shared
            .tasks
            .spawn(stop.clone().run_until_cancelled_owned(async move { serving.serve(listener).await }));
        Ok(Self { shared, stop })
    }

    pub(crate) fn port(&self) -> u16 {
        self.shared.port
    }

    /// CloseMode many connections it has accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_door(&self, door: Door) {
        self.shared.door.send_replace(door);
    }

    /// For the connections that are open now.
    pub(crate) fn set_open_wires(&self, wire: Wire) {
        for link in self.shared.links.lock().iter() {
            link.wire.send_replace(wire);
        }
    }

    /// For the connections that are opened from now on.
    pub(crate) fn set_new_wires(&self, wire: Wire) {
        *self.shared.wire.lock() = wire;
    }

    /// Ends the connections that are open now.
    pub(crate) fn kill(&self, how: CloseMode) {
        for link in self.shared.links.lock().iter() {
            *link.how.lock() = how;
            link.killed.cancel();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A port outside of the range from which the kernel takes those of outgoing connections: it stays free while nobody
/// listens on it, unless another process asks here. Each process begins at a place of its own.
pub(crate) async fn free_port() -> Result<(TcpListener, u16)> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 10_000;
    let place = (std::process::id() % 97) as u16 * 100;
    for _ in 0..PORTS {
        let port = FIRST + (place + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if let Ok(listener) = listen(port).await {
            return Ok((listener, port));
        }
    }
    anyhow::bail!("no port is free")
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

impl Shared {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut door = self.door.subscribe();
        let mut listener = Some(listener);
        loop {
            let now = *door.borrow_and_update();
            if now == Door::Refuse {
                listener = None;
                if door.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let Some(open) = &listener else {
                match listen(self.port).await {
                    Ok(bound) => listener = Some(bound),
                    Err(_) => sleep(Duration::from_millis(20)).await,
                }
                continue;
            };
            tokio::select! {
                changed = door.changed() => if changed.is_err() { return },
                accepted = open.accept() => if let Ok((client, _)) = accepted {
                    self.accepted.fetch_add(1, Ordering::Relaxed);
                    self.take(client, now);
                },
            }
        }
    }

    fn take(self: &Arc<Self>, client: TcpStream, door: Door) {
        let link = Arc::new(Link {
            wire: watch::Sender::new(*self.wire.lock()),
            how: Mutex::new(CloseMode::Fin),
            killed: CancellationToken::new(),
        });
        self.links.lock().push(link.clone());
        let shared = self.clone();
        let serving = async move {
            shared.pass(client, door, &link).await;
            shared.links.lock().retain(|other| !Arc::ptr_eq(other, &link));
        };
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(serving));
    }

    async fn pass(&self, mut client: TcpStream, door: Door, link: &Link) {
        if door == Door::Silent {
            return link.killed.cancelled().await;
        }
        let _ = client.set_nodelay(true);
        let passed = async {
            let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server)).await?;
            server.set_nodelay(true)?;
            let (from_server, to_server) = server.split();
            let (from_client, to_client) = client.split();
            let up = pump(from_client, to_server, link, |wire| wire.to_server_lost, false);
            let down = pump(from_server, to_client, link, |wire| wire.to_client_lost, true);
            tokio::try_join!(up, down).map(drop)
        };
        let ended = link.killed.run_until_cancelled(passed).await;
        let reset = match ended {
            None => *link.how.lock() == CloseMode::Rst,
            Some(Ok(())) => false,
            Some(Err(error)) => error.kind() != io::ErrorKind::UnexpectedEof,
        };
        if reset {
            let _ = client.set_zero_linger();
        }
    }
}

/// Passes bytes on until their end.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    link: &Link,
    lost: fn(&Wire) -> bool,
    to_client: bool,
) -> io::Result<()> {
    let mut wires = link.wire.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let mut passed: u64 = 0;
    loop {
        let Ok(wire) = wires.wait_for(|wire| !lost(wire)).await.map(|wire| *wire) else { return Ok(()) };
        let wire = if to_client { wire } else { Wire::default() };
        // A tenth of a second at a time.
        let most = wire.rate.map_or(buffer.len(), |rate| (rate as usize / 10).max(1));
        let read = tokio::select! {
            read = from.read(&mut buffer[..most]) => read?,
            _ = wires.changed() => continue,
        };
        if read == 0 {
            return to.shutdown().await;
        }
        // What was underway when the bytes began to get lost gets lost too.
        if wires.wait_for(|wire| !lost(wire)).await.is_err() {
            return Ok(());
        }
        let left = wire.cut_after.map_or(read, |most| read.min(most.saturating_sub(passed) as usize));
        to.write_all(&buffer[..left]).await?;
        passed += left as u64;
        if left < read {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "cut"));
        }
        if wire.rate.is_some() {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The kubeconfig of a server, through a port in front of it.
pub(crate) fn kubeconfig_through(kubeconfig: &str, port: u16) -> Result<String> {
    let line = kubeconfig.lines().find(|line| line.trim_start().starts_with("server:"));
    let line = line.context("the kubeconfig names no server")?;
    let scheme = if line.contains("https://") { "https" } else { "http" };
    let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
    Ok(kubeconfig.replace(line, &format!("{indent}server: {scheme}://127.0.0.1:{port}")))
}

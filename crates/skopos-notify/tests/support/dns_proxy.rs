//! A proxy to a DNS server that counts requests, and can truncate transfers.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub struct DnsProxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    transfers: AtomicUsize,
    serials: AtomicUsize,
    /// Number of bytes after which a transfer's connection is closed.
    cut: AtomicUsize,
}

const AXFR: u16 = 252;
const SOA: u16 = 6;

impl DnsProxy {
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            transfers: AtomicUsize::new(0),
            serials: AtomicUsize::new(0),
            cut: AtomicUsize::new(usize::MAX),
        });
        let (seen, mut tasks) = (shared.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = seen.clone();
                // A connection ends when either side ends it.
                connections.spawn(async move { drop(carry(stream, to, &shared).await) });
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    /// Returns the number of complete transfers.
    pub fn transfers(&self) -> usize {
        self.shared.transfers.load(Ordering::SeqCst)
    }

    /// Returns the number of queries for the serial.
    pub fn serials(&self) -> usize {
        self.shared.serials.load(Ordering::SeqCst)
    }

    /// Truncates transfers after this number of bytes.
    pub fn cut_after(&self, bytes: usize) {
        self.shared.cut.store(bytes, Ordering::SeqCst);
    }
}

/// Carries a connection. Its first message shows its purpose.
async fn carry(mut from: TcpStream, to: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let mut message = vec![0; from.read_u16().await?.into()];
    from.read_exact(&mut message).await?;
    let mut limit = usize::MAX;
    match rtype(&message) {
        Some(AXFR) => {
            shared.transfers.fetch_add(1, Ordering::SeqCst);
            limit = shared.cut.load(Ordering::SeqCst);
        }
        Some(SOA) => drop(shared.serials.fetch_add(1, Ordering::SeqCst)),
        _ => {}
    }
    let mut to = TcpStream::connect(to).await?;
    to.write_u16(message.len().try_into().expect("a message")).await?;
    to.write_all(&message).await?;
    if limit == usize::MAX {
        return tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop);
    }
    let mut part = vec![0; limit];
    to.read_exact(&mut part).await?;
    from.write_all(&part).await
}

/// Returns the type that a query asks for; `None` for other messages.
fn rtype(message: &[u8]) -> Option<u16> {
    let is_query = message[2] & 0x78 == 0;
    let mut at = 12;
    while message[at] > 0 {
        at += usize::from(message[at]) + 1;
    }
    is_query.then(|| u16::from_be_bytes([message[at + 1], message[at + 2]]))
}

//! A receiver of webhooks that says yes to everything.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// It ends when it is dropped.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    told: Arc<Mutex<Told>>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Told {
    names: BTreeSet<String>,
    messages: usize,
}

impl Receiver {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (told, mut tasks) = (Arc::<Mutex<Told>>::default(), JoinSet::new());
        let taken = told.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let told = taken.clone();
                // A connection ends when the notifier ends it.
                connections.spawn(async move { drop(serve(stream, &told).await) });
            }
        });
        Ok(Self { address, told, _tasks: tasks })
    }

    /// Returns the names of the objects that were told.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.told.lock().names.clone()
    }

    pub(super) fn messages(&self) -> usize {
        self.told.lock().messages
    }
}

async fn serve(stream: TcpStream, told: &Mutex<Told>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.trim().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse()?
                }
                None if line.trim().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let message: Value = serde_json::from_slice(&body)?;
        let name = message["data"]["name"].as_str().context("a message without a name")?.to_owned();
        {
            let mut told = told.lock();
            told.messages += 1;
            told.names.insert(name);
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
    }
}

//! The client's process: it syncs and says so, and then counts the events of each series until the last one.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::Notify;

use crate::serve::LAST;
use crate::usage::Usage;

mod kube_rs;
mod skopos;

/// Whose client, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// `watcher` with its defaults into a `reflector`.
    KubeRs,
    /// The same, with streaming lists.
    KubeRsStreaming,
    /// An informer that keeps raw objects, with a handler that looks at their names.
    Skopos,
    /// The same, with every object decoded to a typed `Pod` in the handler.
    SkoposTyped,
}

/// What a client says after the sync.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Synced {
    /// Objects that it has seen.
    pub(crate) objects: u64,
    /// Before the client was made.
    pub(crate) before: Usage,
    /// Now.
    pub(crate) now: Usage,
}

/// What a client has seen and used so far.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Count {
    /// Events after the sync.
    pub(crate) events: u64,
    /// Now.
    pub(crate) now: Usage,
}

/// Syncs, and then answers each line of standard input, until it ends: `count` at once, `await` when the last event of a
/// series has come that was begun after the answer before.
pub(crate) async fn run(peer: Peer, kubeconfig: &Path) -> Result<()> {
    let config = config(kubeconfig).await?;
    let before = Usage::now()?;
    let seen = Arc::new(Seen::default());
    let work = async {
        match peer {
            Peer::KubeRs => kube_rs::run(config, false, &seen).await,
            Peer::KubeRsStreaming => kube_rs::run(config, true, &seen).await,
            Peer::Skopos => skopos::run(config, false, &seen).await,
            Peer::SkoposTyped => skopos::run(config, true, &seen).await,
        }
    };
    tokio::select! {
        ended = work => ended,
        answered = answer(before, &seen) => answered,
    }
}

async fn answer(before: Usage, seen: &Seen) -> Result<()> {
    seen.synced.notified().await;
    let (objects, now) = (seen.counts.lock().objects, Usage::now()?);
    println!("ready {}", serde_json::to_string(&Synced { objects, before, now })?);
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "count" => {}
            "await" => seen.last.notified().await,
            _ => bail!("unknown command {line:?}"),
        }
        let count = Count { events: seen.counts.lock().events, now: Usage::now()? };
        println!("{}", serde_json::to_string(&count)?);
    }
    Ok(())
}

/// What a client's handler has seen.
#[derive(Default)]
struct Seen {
    counts: Mutex<Counts>,
    synced: Notify,
    last: Notify,
}

#[derive(Default)]
struct Counts {
    objects: u64,
    events: u64,
}

impl Seen {
    fn object(&self) {
        self.counts.lock().objects += 1;
    }

    fn event(&self, name: &str) {
        self.counts.lock().events += 1;
        if name == LAST {
            self.last.notify_one();
        }
    }

    fn synced(&self) {
        self.synced.notify_one();
    }
}

/// The configuration of a kubeconfig file.
pub(crate) async fn config(kubeconfig: &Path) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("reading the kubeconfig")?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

//! The client's process: sync, report, count events until the last one, report.

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};

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

/// What a client prints, one line of JSON after the sync and one after the events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Objects that the handler has seen so far.
    pub(crate) objects: u64,
    /// Events that the handler has seen after the sync.
    pub(crate) events: u64,
    /// Before the client was made.
    pub(crate) before: Usage,
    /// Now.
    pub(crate) now: Usage,
}

pub(crate) async fn run(peer: Peer, kubeconfig: &Path) -> Result<()> {
    let config = config(kubeconfig).await?;
    let before = Usage::now()?;
    match peer {
        Peer::KubeRs => kube_rs::run(config, false, before).await,
        Peer::KubeRsStreaming => kube_rs::run(config, true, before).await,
        Peer::Skopos => skopos::run(config, false, before).await,
        Peer::SkoposTyped => skopos::run(config, true, before).await,
    }
}

/// The configuration of a kubeconfig file.
pub(crate) async fn config(kubeconfig: &Path) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("reading the kubeconfig")?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Prints a report on a line of its own.
fn report(objects: u64, events: u64, before: Usage) -> Result<()> {
    println!("{}", serde_json::to_string(&Report { objects, events, before, now: Usage::now()? })?);
    Ok(())
}

//! A plain `kube::Client` on connections that notice their own death.
//!
//! `cargo run -p skopos-transport --example plain_kube_client` lists the pods of the cluster of your kubeconfig, watches
//! them, and says what happened to the connections whenever the watch ends. Stop the API server meanwhile, or pull the cable.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use skopos_transport::{Transport, TransportError, TransportOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = kube::Config::infer().await?;
    let namespace = config.default_namespace.clone();
    let transport = Transport::from_config(config, TransportOptions::default())?;
    let pods: Api<Pod> = Api::all(transport.client(namespace));

    let list = pods.list(&ListParams::default().limit(500)).await?;
    println!("{} pods", list.items.len());
    let mut version = list.metadata.resource_version.unwrap_or_default();
    loop {
        if let Err(error) = follow(&pods, &mut version).await {
            println!("watch ended: {error}");
            if let Some(cause) = cause(&error) {
                println!("  because of its connection: {}", cause.death());
            }
        }
        println!("  {} dials so far, deaths: {:?}", transport.stats().dials, transport.stats().deaths);
        // A real controller would list again when the server says so; skopos-reflect does.
        while transport.connected(Duration::from_secs(10)).await.is_err() {
            println!("  still not connected");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn follow(pods: &Api<Pod>, version: &mut String) -> Result<(), kube::Error> {
    let mut events = std::pin::pin!(pods.watch(&WatchParams::default(), version).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                println!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
                *version = pod.resource_version().unwrap_or_default();
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(())
}

/// The transport's own error, wherever it is in the chain.
fn cause(error: &kube::Error) -> Option<&TransportError> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

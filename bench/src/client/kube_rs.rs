//! kube-runtime's `watcher` into its `reflector`, as its documentation shows.

use anyhow::{Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use kube_runtime::{WatchStreamExt, reflector, watcher};

use super::Seen;

pub(super) async fn run(config: kube::Config, streaming: bool, seen: &Seen) -> Result<()> {
    let api: Api<Pod> = Api::all(Client::try_from(config)?);
    let options =
        if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
    let (_store, writer) = reflector::store();
    let stream = reflector(writer, watcher(api, options).default_backoff());
    futures::pin_mut!(stream);
    while let Some(event) = stream.try_next().await? {
        match event {
            watcher::Event::InitApply(_) => seen.object(),
            watcher::Event::InitDone => seen.synced(),
            watcher::Event::Apply(pod) => seen.event(pod.metadata.name.as_deref().unwrap_or_default()),
            watcher::Event::Init | watcher::Event::Delete(_) => {}
        }
    }
    bail!("the watch ended")
}

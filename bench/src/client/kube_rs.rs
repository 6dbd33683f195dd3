//! kube-runtime's `watcher` into its `reflector`, as its documentation shows.

use anyhow::{Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use kube_runtime::{WatchStreamExt, reflector, watcher};

use super::report;
use crate::serve::LAST;
use crate::usage::Usage;

pub(super) async fn run(config: kube::Config, streaming: bool, before: Usage) -> Result<()> {
    let api: Api<Pod> = Api::all(Client::try_from(config)?);
    let options =
        if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
    let (_store, writer) = reflector::store();
    let stream = reflector(writer, watcher(api, options).default_backoff());
    futures::pin_mut!(stream);
    let (mut objects, mut events) = (0, 0);
    while let Some(event) = stream.try_next().await? {
        match event {
            watcher::Event::InitApply(_) => objects += 1,
            watcher::Event::InitDone => report(objects, 0, before)?,
            watcher::Event::Apply(pod) => {
                events += 1;
                if pod.name_any() == LAST {
                    return report(objects, events, before);
                }
            }
            watcher::Event::Init | watcher::Event::Delete(_) => {}
        }
    }
    bail!("the watch ended before the last event")
}

//! The children as the server has them, looked at from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use peer_protocol::job;
use tokio::time::{Instant, sleep, timeout_at};

/// How often one child is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until all children are as they are wanted. Returns how many are not when the time is over.
///
/// Lists are few, as they would take the server's time: after each, one child that is wrong is looked at until it is right.
pub(super) async fn wait_for(
    api: &Api<ConfigMap>,
    wanted: &BTreeMap<String, ConfigMap>,
    limit: Duration,
) -> Result<usize> {
    let deadline = Instant::now() + limit;
    loop {
        let wrong = wrong(api, wanted).await?;
        let Some(one) = wrong.get(wrong.len() / 2) else { return Ok(0) };
        if timeout_at(deadline, becomes(api, one)).await.is_err() {
            return Ok(self::wrong(api, wanted).await?.len());
        }
    }
}

/// Waits until a child is as it is wanted.
pub(super) async fn becomes(api: &Api<ConfigMap>, wanted: &ConfigMap) {
    let name = wanted.metadata.name.as_deref().unwrap_or_default();
    loop {
        if let Ok(Some(child)) = api.get_opt(name).await
            && job::is_right(&child, wanted)
        {
            return;
        }
        sleep(LOOK).await;
    }
}

async fn wrong<'a>(
    api: &Api<ConfigMap>,
    wanted: &'a BTreeMap<String, ConfigMap>,
) -> Result<Vec<&'a ConfigMap>> {
    let children = api.list(&ListParams::default().labels(job::CHILDREN)).await?.items;
    let found: BTreeMap<&str, &ConfigMap> =
        children.iter().filter_map(|child| Some((child.metadata.name.as_deref()?, child))).collect();
    let right = |wanted: &ConfigMap| {
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        found.get(name).is_some_and(|child| job::is_right(child, wanted))
    };
    Ok(wanted.values().filter(|wanted| !right(wanted)).collect())
}

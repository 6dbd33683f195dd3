//! Ordinary changes in the demo's clusters.
use std::time::Duration;

use serde_json::json;
use skopos_console::pace::Pace;
use skopos_testserver::{TestServer, VirtualClusters, VirtualState};

/// Changes in virtual clusters that are up.
#[derive(Debug)]
pub(crate) struct Life {
    pace: Pace,
    rng: fastrand::Rng,
    serial: u64,
    /// Pods come and go.
    scales: bool,
}

/// Namespace of the sample's objects.
const NAMESPACE: &str = "shop";

const DEPLOYMENTS: [&str; 3] = ["cart", "checkout", "search"];

impl Life {
    /// Makes this many changes per second. With `scales` the number of pods changes too.
    pub(crate) fn new(per_second: u32, scales: bool) -> Self {
        Self { pace: Pace::new(per_second), rng: fastrand::Rng::new(), serial: 0, scales }
    }

    /// Makes the changes that are due after this time since the last call.
    pub(crate) fn go_on(&mut self, virtuals: &VirtualClusters, passed: Duration) {
        for _ in 0..self.pace.due(passed) {
            let up =
                |(namespace, name): &(String, String)| virtuals.state(namespace, name) == VirtualState::Up;
            let names: Vec<_> = virtuals.names().into_iter().filter(up).collect();
            let Some((namespace, name)) = self.rng.choice(&names) else { return };
            if let Some(server) = virtuals.server(namespace, name) {
                self.change(&server);
            }
        }
    }

    /// Makes one change. A conflict with another client, or a deleted object, does no harm.
    fn change(&mut self, server: &TestServer) {
        self.serial += 1;
        if self.scales && self.rng.u8(..4) == 0 {
            let name = DEPLOYMENTS[self.rng.usize(..DEPLOYMENTS.len())];
            if let Ok(mut deployment) = server.get("deployments", Some(NAMESPACE), name) {
                deployment["spec"]["replicas"] = json!(self.rng.u8(1..5));
                let _ = server.update(deployment);
            }
        } else if let Ok(mut settings) = server.get("configmaps", Some(NAMESPACE), "settings") {
            settings["data"]["revision"] = json!(self.serial.to_string());
            let _ = server.update(settings);
        }
    }
}

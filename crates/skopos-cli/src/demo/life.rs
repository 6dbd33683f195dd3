//! What happens in the demo's clusters by itself.
use std::time::Duration;

use serde_json::json;
use skopos_testserver::{TestServer, VirtualClusters, VirtualState};

use crate::world::Pace;

/// Changes in virtual clusters that are up.
#[derive(Debug)]
pub(crate) struct Life {
    pace: Pace,
    rng: fastrand::Rng,
    serial: u64,
    /// Pods come and go.
    scales: bool,
}

/// Where the sample's things are.
const NAMESPACE: &str = "shop";

const DEPLOYMENTS: [&str; 3] = ["cart", "checkout", "search"];

impl Life {
    /// So many changes per second. `scales`: also of how many pods there are.
    pub(crate) fn new(per_second: u32, scales: bool) -> Self {
        Self { pace: Pace::new(per_second), rng: fastrand::Rng::new(), serial: 0, scales }
    }

    /// Lets happen what is due now that so much time has passed since the last call.
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

    /// Somebody with kubectl may have been faster, or deleted what is changed here: that is no harm.
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

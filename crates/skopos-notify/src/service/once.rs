use std::time::Duration;

use super::handle::NotifierHandle;
use super::report::SinkReport;

impl NotifierHandle {
    /// Waits until all sinks are equal to the cluster, or `limit` has passed, and returns how they stand then.
    pub async fn settled(&self, limit: Duration) -> Vec<SinkReport> {
        let all = async {
            for sink in self.sinks() {
                let _ = sink.wait_for(SinkReport::is_equal).await;
            }
        };
        // What did not come to rest is told by the reports.
        let _ = tokio::time::timeout(limit, all).await;
        self.reports()
    }
}

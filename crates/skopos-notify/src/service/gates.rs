//! The readiness gates of pods whose item is outside.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::timeout;

use super::report::Problem;
use crate::desired::Attachment;

/// Writer of the conditions that pods wait for.
///
/// A condition is set once, when the item exists. It is not reset while the item is renewed: that would remove a serving pod from
/// its Service.
pub(super) struct PodGates {
    client: kube::Client,
    /// The uids of pods whose condition was set, but is not in the view yet.
    set: HashSet<Arc<str>>,
    problem: Option<Problem>,
}

/// Number of conditions that are set at the same time, and in one round.
const WRITES: usize = 16;
const ROUND: usize = 64;
/// Time limit of one write.
const TIME_LIMIT: Duration = Duration::from_secs(5);

impl PodGates {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, set: HashSet::new(), problem: None }
    }

    /// Returns the last failure.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Chooses the conditions to set, and forgets the pods that no longer wait.
    pub(super) fn due<'a>(
        &mut self,
        waiting: impl Iterator<Item = &'a Attachment>,
        is_outside: impl Fn(&Attachment) -> bool,
    ) -> Vec<Attachment> {
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            self.problem = None;
        }
        let uids: HashSet<_> = waiting.iter().map(|attachment| &attachment.pod.uid).collect();
        self.set.retain(|uid| uids.contains(uid));
        let due = waiting.into_iter().filter(|attachment| !self.set.contains(&attachment.pod.uid));
        due.filter(|attachment| is_outside(attachment)).take(ROUND).cloned().collect()
    }

    /// Sets conditions; returns whether all succeeded.
    pub(super) async fn set(&mut self, due: Vec<Attachment>) -> bool {
        let client = &self.client;
        let write = |attachment: Attachment| async move {
            let written = set_condition(client, &attachment).await;
            (attachment, written)
        };
        let writes: Vec<_> = due.into_iter().map(write).collect();
        let mut written = stream::iter(writes).buffer_unordered(WRITES);
        let mut problem = None;
        while let Some((attachment, written)) = written.next().await {
            match written {
                Ok(()) => drop(self.set.insert(attachment.pod.uid)),
                Err(message) => problem = Some(Problem { about: attachment.pod.to_string(), message }),
            }
        }
        drop(written);
        if let Some(problem) = &problem
            && self.problem.as_ref() != Some(problem)
        {
            tracing::warn!(pod = problem.about, problem = problem.message, "a readiness gate is not set");
        }
        self.problem = problem;
        self.problem.is_none()
    }
}

async fn set_condition(client: &kube::Client, attachment: &Attachment) -> Result<(), String> {
    let Attachment { pod, gate, .. } = attachment;
    let patch = json!({
        // The uid excludes a pod that was created again.
        "metadata": {"uid": &*pod.uid},
        "status": {"conditions": [{
            "type": gate, "status": "True", "reason": "Attached", "message": "its item is outside",
            "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let parameters =
        PatchParams { field_manager: Some("skopos-notify".to_owned()), ..PatchParams::default() };
    let patch = Patch::Strategic(&patch);
    match timeout(TIME_LIMIT, pods.patch_status(&pod.name, &parameters, &patch)).await {
        Ok(Ok(_)) => Ok(()),
        // The pod is gone, or another pod has its name.
        Ok(Err(kube::Error::Api(answer))) if matches!(answer.code, 404 | 409) => Ok(()),
        Ok(Err(kube::Error::Api(answer))) if answer.code == 403 => {
            Err(format!("condition {gate} cannot be set: grant patch of pods/status ({})", answer.message))
        }
        Ok(Err(error)) => Err(format!("condition {gate} cannot be set: {error}")),
        Err(_) => Err(format!("condition {gate} is not known to be set: no answer in {TIME_LIMIT:?}")),
    }
}

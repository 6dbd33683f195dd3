//! ReplicaSets: the desired number of pods.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::client::{ControllerClient, active, pod_of_template, ready, terminating};

/// Creates or deletes pods, and counts them.
pub(super) fn reconcile(client: ControllerClient<'_>, key: &str) {
    let (Some(sets), Some(pods)) = (client.resource("apps", "replicasets"), client.resource("", "pods"))
    else {
        return;
    };
    let Some(set) = client.get(&sets, key).filter(|set| !terminating(set)) else { return };
    let selector = &set["spec"]["selector"];
    let mut active: Vec<Value> =
        client.controlled(&pods, &set, selector).into_iter().filter(active).collect();
    let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
    for _ in active.len()..wanted {
        let mut pod = pod_of_template(&set);
        pod["metadata"]["generateName"] =
            format!("{}-", set["metadata"]["name"].as_str().unwrap_or_default()).into();
        match client.create(&pods, &set, pod) {
            Ok(pod) => active.push(pod),
            Err(status) => {
                tracing::warn!(%status, set = key, "no pod");
                break;
            }
        }
    }
    if active.len() > wanted {
        // Unready pods are deleted first, then the youngest.
        let age = |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
        active.sort_by_key(|pod| (ready(pod), Reverse(age(pod))));
        for pod in &active[..active.len() - wanted] {
            client.delete(&pods, pod);
        }
        // The deletions trigger another reconciliation, with the right numbers.
        return;
    }
    let ready = active.iter().filter(|pod| ready(pod)).count();
    let mut status = json!({
        "replicas": active.len(),
        "observedGeneration": set["metadata"]["generation"],
    });
    if !active.is_empty() {
        status["fullyLabeledReplicas"] = active.len().into();
    }
    if ready > 0 {
        status["readyReplicas"] = ready.into();
        status["availableReplicas"] = ready.into();
    }
    client.set_status(&sets, &set, &status);
}

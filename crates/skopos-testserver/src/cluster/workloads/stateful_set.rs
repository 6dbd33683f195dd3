//! StatefulSets: numbered pods, created and deleted in order.

use serde_json::{Value, json};

use super::client::{ControllerClient, active, pod_of_template, ready, template_hash, terminating};

const REVISION: &str = "controller-revision-hash";

/// Takes the next step: creates, deletes or replaces one pod.
pub(super) fn reconcile(client: ControllerClient<'_>, key: &str) {
    let (Some(sets), Some(pods)) = (client.resource("apps", "statefulsets"), client.resource("", "pods"))
    else {
        return;
    };
    let Some(set) = client.get(&sets, key).filter(|set| !terminating(set)) else { return };
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
    let revision = format!("{name}-{}", template_hash(&set["spec"]["template"]));
    let parallel = set["spec"]["podManagementPolicy"] == "Parallel";
    let mut owned = client.controlled(&pods, &set, &set["spec"]["selector"]);
    owned.sort_by_key(ordinal);
    let is_new = |pod: &Value| pod["metadata"]["labels"][REVISION] == revision.as_str();
    client.set_status(&sets, &set, &status(&set, &owned, &revision, is_new));

    // Surplus pods are deleted, the last one first.
    let surplus: Vec<&Value> = owned.iter().filter(|pod| ordinal(pod) >= wanted).collect();
    if let Some(last) = surplus.last() {
        let leaving = if parallel { surplus.as_slice() } else { std::slice::from_ref(last) };
        for pod in leaving.iter().filter(|pod| !terminating(pod)) {
            client.delete(&pods, pod);
        }
        if !parallel {
            return;
        }
    }
    // Missing pods are created, the first one first, each after the previous one is ready.
    for number in 0..wanted {
        match owned.iter().find(|pod| ordinal(pod) == number) {
            Some(pod) if parallel || (active(pod) && ready(pod)) => {}
            Some(pod) => {
                // A finished pod is replaced.
                if !active(pod) && !terminating(pod) {
                    client.delete(&pods, pod);
                }
                return;
            }
            None => {
                let pod = new_pod(&set, name, number, &revision);
                if let Err(status) = client.create(&pods, &set, pod) {
                    tracing::warn!(%status, set = key, "no pod");
                    return;
                }
                if !parallel {
                    return;
                }
            }
        }
    }
    // All exist and are ready: replace one old pod, the last one first.
    let settled = owned.len() == wanted && owned.iter().all(|pod| active(pod) && ready(pod));
    if settled && set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        let partition =
            set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_u64().unwrap_or(0) as usize;
        let old = owned.iter().rev().find(|pod| !is_new(pod) && ordinal(pod) >= partition);
        if let Some(pod) = old {
            client.delete(&pods, pod);
        }
    }
}

fn new_pod(set: &Value, name: &str, number: usize, revision: &str) -> Value {
    let mut pod = pod_of_template(set);
    let pod_name = format!("{name}-{number}");
    pod["metadata"]["name"] = pod_name.as_str().into();
    let labels = &mut pod["metadata"]["labels"];
    labels[REVISION] = revision.into();
    labels["apps.kubernetes.io/pod-index"] = number.to_string().into();
    labels["statefulset.kubernetes.io/pod-name"] = pod_name.as_str().into();
    pod["spec"]["hostname"] = pod_name.into();
    if let Some(service) = set["spec"].get("serviceName").filter(|service| *service != "") {
        pod["spec"]["subdomain"] = service.clone();
    }
    pod
}

/// Returns the number at the end of a pod's name.
fn ordinal(pod: &Value) -> usize {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

fn status(set: &Value, owned: &[Value], revision: &str, is_new: impl Fn(&Value) -> bool) -> Value {
    let count = |counts: &dyn Fn(&Value) -> bool| owned.iter().filter(|pod| counts(pod)).count();
    let updated = count(&|pod| is_new(pod) && active(pod));
    let ready = count(&|pod| active(pod) && ready(pod));
    let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
    let earlier = set["status"]["currentRevision"].as_str().unwrap_or(revision);
    let current = if updated == wanted && ready == wanted { revision } else { earlier };
    json!({
        "observedGeneration": set["metadata"]["generation"],
        "replicas": owned.len(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": count(&|pod| pod["metadata"]["labels"][REVISION] == current),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    })
}

//! Jobs: pods until enough of them have succeeded.

use serde_json::{Value, json};

use super::client::{ControllerClient, active, pod_of_template, ready, terminating};

/// Creates pods and counts them.
pub(super) fn reconcile(client: ControllerClient<'_>, key: &str) {
    let (Some(jobs), Some(pods)) = (client.resource("batch", "jobs"), client.resource("", "pods")) else {
        return;
    };
    let Some(job) = client.get(&jobs, key).filter(|job| !terminating(job)) else { return };
    if job["status"].get("completionTime").is_some() || job["spec"]["suspend"] == true {
        return;
    }
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    if job["spec"]["selector"].is_null() {
        // As in Kubernetes, a job identifies its pods by its UID.
        let labels = json!({"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]});
        client.edit(&jobs, &job, |job| {
            job["spec"]["selector"] = json!({"matchLabels": labels});
            for label in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
                job["spec"]["template"]["metadata"]["labels"][label] = job["metadata"]["uid"].clone();
            }
            for label in ["batch.kubernetes.io/job-name", "job-name"] {
                job["spec"]["template"]["metadata"]["labels"][label] = job["metadata"]["name"].clone();
            }
        });
        return;
    }
    let owned = client.controlled(&pods, &job, &job["spec"]["selector"]);
    let wanted = job["spec"]["completions"].as_u64().unwrap_or(1) as usize;
    let at_once = job["spec"]["parallelism"].as_u64().unwrap_or(1) as usize;
    let succeeded = owned.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count();
    let failed = owned.iter().filter(|pod| pod["status"]["phase"] == "Failed").count();
    let mut running: Vec<Value> = owned.into_iter().filter(active).collect();
    let target = wanted.saturating_sub(succeeded).min(at_once);
    for _ in running.len()..target {
        let mut pod = pod_of_template(&job);
        pod["metadata"]["generateName"] = format!("{name}-").into();
        match client.create(&pods, &job, pod) {
            Ok(pod) => running.push(pod),
            Err(status) => {
                tracing::warn!(%status, job = key, "no pod");
                return;
            }
        }
    }
    let now = client.now();
    let started = job["status"].get("startTime").cloned().unwrap_or_else(|| now.as_str().into());
    let mut status = json!({"startTime": started, "ready": running.iter().filter(|pod| ready(pod)).count()});
    for (field, count) in [("active", running.len()), ("succeeded", succeeded), ("failed", failed)] {
        if count > 0 {
            status[field] = count.into();
        }
    }
    if succeeded >= wanted {
        status["completionTime"] = now.as_str().into();
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "CompletionsReached",
                   "message": "Reached expected number of succeeded pods",
                   "lastProbeTime": now, "lastTransitionTime": now})
        };
        status["conditions"] = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
    }
    client.set_status(&jobs, &job, &status);
}

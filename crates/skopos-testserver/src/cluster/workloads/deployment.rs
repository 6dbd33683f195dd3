//! Deployments: one ReplicaSet for each template so far, with pods moved from the old sets to the new one.

use std::sync::Arc;

use serde_json::{Value, json};
use skopos_serve::ResourceType;

use super::client::{ControllerClient, template_hash, terminating};

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

/// Brings a deployment one step closer to its spec.
pub(super) fn reconcile(client: ControllerClient<'_>, key: &str) {
    let (Some(deployments), Some(sets)) =
        (client.resource("apps", "deployments"), client.resource("apps", "replicasets"))
    else {
        return;
    };
    let Some(deployment) = client.get(&deployments, key).filter(|d| !terminating(d)) else { return };
    let selector = &deployment["spec"]["selector"];
    if selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    let hash = template_hash(&deployment["spec"]["template"]);
    let owned = client.controlled(&sets, &deployment, selector);
    let (new, old): (Vec<Value>, Vec<Value>) =
        owned.into_iter().partition(|set| set["metadata"]["labels"][HASH] == hash.as_str());
    let new = match new.into_iter().next() {
        Some(new) => adopt_revision(client, &sets, new, &old),
        None if deployment["spec"]["paused"] == true => None,
        None => create_set(client, &sets, &deployment, &hash, &old),
    };
    if let Some(new) = &new {
        let revision = &new["metadata"]["annotations"][REVISION];
        if deployment["metadata"]["annotations"][REVISION] != *revision {
            client.edit_with_status(&deployments, &deployment, |d| {
                d["metadata"]["annotations"][REVISION] = revision.clone()
            });
        }
        scale(client, &sets, &deployment, new, &old);
        prune_history(client, &sets, &deployment, &old);
    }
    // The writes above are events that trigger another reconciliation; so this status is about the state before them.
    client.set_status(&deployments, &deployment, &status(client, &deployment, new.as_ref(), &old));
}

/// Gives a reused template a new revision.
fn adopt_revision(
    client: ControllerClient<'_>,
    sets: &Arc<ResourceType>,
    new: Value,
    old: &[Value],
) -> Option<Value> {
    let newest = old.iter().map(revision).max().unwrap_or(0);
    if revision(&new) > newest {
        return Some(new);
    }
    let mut renewed = new;
    renewed["metadata"]["annotations"][REVISION] = (newest + 1).to_string().into();
    let revision = renewed["metadata"]["annotations"][REVISION].clone();
    client.edit(sets, &renewed, |set| set["metadata"]["annotations"][REVISION] = revision.clone());
    Some(renewed)
}

fn revision(set: &Value) -> u64 {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn create_set(
    client: ControllerClient<'_>,
    sets: &Arc<ResourceType>,
    deployment: &Value,
    hash: &str,
    old: &[Value],
) -> Option<Value> {
    let name = deployment["metadata"]["name"].as_str()?;
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = hash.into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.into();
    let revision = old.iter().map(revision).max().unwrap_or(0) + 1;
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{name}-{hash}"),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    });
    client.create(sets, deployment, set).inspect_err(|status| tracing::warn!(%status, "no ReplicaSet")).ok()
}

/// Scales up the new set within the surge, and scales down the old ones within the required availability.
fn scale(
    client: ControllerClient<'_>,
    sets: &Arc<ResourceType>,
    deployment: &Value,
    new: &Value,
    old: &[Value],
) {
    let wanted = number(&deployment["spec"]["replicas"]);
    let strategy = &deployment["spec"]["strategy"];
    let old_total: i64 = old.iter().map(|set| number(&set["spec"]["replicas"])).sum();
    let old_pods: i64 = old.iter().map(|set| number(&set["status"]["replicas"])).sum();
    let (surge, missing) = match strategy["type"].as_str() {
        Some("Recreate") => {
            for set in old {
                set_replicas(client, sets, set, 0);
            }
            let target = if old_pods == 0 { wanted } else { number(&new["spec"]["replicas"]).min(wanted) };
            set_replicas(client, sets, new, target);
            return;
        }
        _ => {
            let rolling = &strategy["rollingUpdate"];
            let surge = resolve_percent(&rolling["maxSurge"], wanted, true);
            let missing = resolve_percent(&rolling["maxUnavailable"], wanted, false);
            // If both were zero, the rollout would never progress.
            (surge, if surge == 0 { missing.max(1) } else { missing })
        }
    };
    let room = (wanted + surge - old_total).max(0);
    let target = wanted.min(room).max(number(&new["spec"]["replicas"]).min(wanted));
    set_replicas(client, sets, new, target);

    // Counted by the sets' specs, which are known at once; their status follows.
    let not_there = target - number(&new["status"]["availableReplicas"]).min(target);
    let mut spare = (old_total + target - (wanted - missing) - not_there).max(0);
    for set in old {
        let replicas = number(&set["spec"]["replicas"]);
        let fewer = spare.min(replicas);
        spare -= fewer;
        set_replicas(client, sets, set, replicas - fewer);
    }
}

fn set_replicas(client: ControllerClient<'_>, sets: &Arc<ResourceType>, set: &Value, replicas: i64) {
    if number(&set["spec"]["replicas"]) != replicas {
        client.edit(sets, set, |set| set["spec"]["replicas"] = replicas.into());
    }
}

/// Deletes old sets without pods beyond the history limit; the others are kept for a rollback.
fn prune_history(client: ControllerClient<'_>, sets: &Arc<ResourceType>, deployment: &Value, old: &[Value]) {
    let limit = deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
    let empty =
        |set: &&Value| number(&set["spec"]["replicas"]) == 0 && number(&set["status"]["replicas"]) == 0;
    let mut empty: Vec<&Value> = old.iter().filter(empty).collect();
    empty.sort_by_key(|set| revision(set));
    let surplus = empty.len().saturating_sub(limit);
    for set in &empty[..surplus] {
        client.delete(sets, set);
    }
}

fn status(client: ControllerClient<'_>, deployment: &Value, new: Option<&Value>, old: &[Value]) -> Value {
    let sum = |field: &str| -> i64 { old.iter().chain(new).map(|set| number(&set["status"][field])).sum() };
    let wanted = number(&deployment["spec"]["replicas"]);
    let updated = new.map_or(0, |new| number(&new["status"]["replicas"]));
    let (replicas, available) = (sum("replicas"), sum("availableReplicas"));
    let missing =
        resolve_percent(&deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], wanted, false);
    let enough = available >= wanted - missing;
    let done = updated == wanted && replicas == wanted && available == wanted;
    let available_condition = if enough {
        ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned())
    } else {
        (
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.".to_owned(),
        )
    };
    let set = new.map_or("", |new| new["metadata"]["name"].as_str().unwrap_or_default());
    let progressing = if done {
        let message = format!("ReplicaSet \"{set}\" has successfully progressed.");
        ("Progressing", "True", "NewReplicaSetAvailable", message)
    } else {
        ("Progressing", "True", "ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing."))
    };
    let mut status = json!({
        "observedGeneration": deployment["metadata"]["generation"],
        "conditions": [
            condition(client, deployment, available_condition),
            condition(client, deployment, progressing),
        ],
    });
    for (field, count) in [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted - available).max(0)),
    ] {
        if count > 0 {
            status[field] = count.into();
        }
    }
    status
}

/// Returns a condition that keeps its times while it is unchanged.
fn condition(
    client: ControllerClient<'_>,
    object: &Value,
    (kind, status, reason, message): (&str, &str, &str, String),
) -> Value {
    let earlier = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind);
    let now = Value::from(client.now());
    let (changed, updated) = match earlier {
        Some(c) if c["status"] == status => {
            let same = c["reason"] == reason && c["message"] == message.as_str();
            (c["lastTransitionTime"].clone(), if same { c["lastUpdateTime"].clone() } else { now })
        }
        _ => (now.clone(), now),
    };
    json!({"type": kind, "status": status, "reason": reason, "message": message,
           "lastTransitionTime": changed, "lastUpdateTime": updated})
}

/// Returns a number, or a percentage of `total` rounded up or down.
fn resolve_percent(value: &Value, total: i64, up: bool) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            if up { (total * percent + 99) / 100 } else { total * percent / 100 }
        }
        _ => 0,
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

//! The columns of the kinds that make pods.

use jiff::Timestamp;
use serde_json::Value;

use super::pod::containers;
use super::{AGE, Column, NAME, Row, human_duration, printed_selector};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "Deployment" => DEPLOYMENT,
        "ReplicaSet" | "ReplicationController" => REPLICA_SET,
        "StatefulSet" => STATEFUL_SET,
        "DaemonSet" => DAEMON_SET,
        "Job" => JOB,
        "CronJob" => CRON_JOB,
        "HorizontalPodAutoscaler" => AUTOSCALER,
        "PodDisruptionBudget" => DISRUPTION_BUDGET,
        "ControllerRevision" => REVISION,
        _ => return None,
    })
}

const CONTAINERS: Column = Column::wide("Containers", "string", |row| containers(row, "name"));
const IMAGES: Column = Column::wide("Images", "string", |row| containers(row, "image"));
const SELECTOR: Column =
    Column::wide("Selector", "string", |row| printed_selector(row.get(&["spec", "selector"])).into());

const DEPLOYMENT: &[Column] = &[
    NAME,
    Column::new("Ready", "string", ready_of_wanted),
    Column::new("Up-to-date", "string", |row| row.number(&["status", "updatedReplicas"]).into()),
    Column::new("Available", "string", |row| row.number(&["status", "availableReplicas"]).into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REPLICA_SET: &[Column] = &[
    NAME,
    Column::new("Desired", "integer", |row| row.number(&["spec", "replicas"]).into()),
    Column::new("Current", "integer", |row| row.number(&["status", "replicas"]).into()),
    Column::new("Ready", "integer", |row| row.number(&["status", "readyReplicas"]).into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const STATEFUL_SET: &[Column] =
    &[NAME, Column::new("Ready", "string", ready_of_wanted), AGE, CONTAINERS, IMAGES];

const DAEMON_SET: &[Column] = &[
    NAME,
    Column::new("Desired", "integer", |row| row.number(&["status", "desiredNumberScheduled"]).into()),
    Column::new("Current", "integer", |row| row.number(&["status", "currentNumberScheduled"]).into()),
    Column::new("Ready", "integer", |row| row.number(&["status", "numberReady"]).into()),
    Column::new("Up-to-date", "integer", |row| row.number(&["status", "updatedNumberScheduled"]).into()),
    Column::new("Available", "integer", |row| row.number(&["status", "numberAvailable"]).into()),
    Column::new("Node Selector", "string", |row| {
        printed_selector(row.get(&["spec", "template", "spec", "nodeSelector"])).into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const JOB: &[Column] = &[
    NAME,
    Column::new("Status", "string", job_status),
    Column::new("Completions", "string", job_completions),
    Column::new("Duration", "string", job_duration),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CRON_JOB: &[Column] = &[
    NAME,
    Column::new("Schedule", "string", |row| row.at(&["spec", "schedule"])),
    Column::new("Timezone", "string", |row| row.text_or(&["spec", "timeZone"], "<none>")),
    Column::new("Suspend", "boolean", |row| {
        if row.get(&["spec", "suspend"]) == true { "True" } else { "False" }.into()
    }),
    Column::new("Active", "integer", |row| row.count(&["status", "active"]).into()),
    Column::new("Last Schedule", "string", |row| match row.text(&["status", "lastScheduleTime"]) {
        "" => "<none>".into(),
        time => row.since_text(time).into(),
    }),
    AGE,
];

const AUTOSCALER: &[Column] = &[
    NAME,
    Column::new("Reference", "string", |row| {
        let target = |field: &str| row.text(&["spec", "scaleTargetRef", field]);
        format!("{}/{}", target("kind"), target("name")).into()
    }),
    Column::new("MinPods", "string", |row| row.number(&["spec", "minReplicas"]).max(1).into()),
    Column::new("MaxPods", "string", |row| row.number(&["spec", "maxReplicas"]).into()),
    Column::new("Replicas", "string", |row| row.number(&["status", "currentReplicas"]).into()),
    AGE,
];

const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    Column::new("Min Available", "string", |row| number_or_percent(row, "minAvailable")),
    Column::new("Max Unavailable", "string", |row| number_or_percent(row, "maxUnavailable")),
    Column::new("Allowed Disruptions", "integer", |row| row.number(&["status", "disruptionsAllowed"]).into()),
    AGE,
];

const REVISION: &[Column] = &[
    NAME,
    Column::new("Controller", "string", |row| {
        let owner = row.items(&["metadata", "ownerReferences"]).find(|owner| owner["controller"] == true);
        let text = |field: &str| owner.and_then(|o| o[field].as_str()).unwrap_or_default().to_lowercase();
        match owner {
            Some(_) => format!("{}/{}", text("kind"), text("name")).into(),
            None => "<none>".into(),
        }
    }),
    Column::new("Revision", "string", |row| row.number(&["revision"]).into()),
    AGE,
];

fn ready_of_wanted(row: &Row<'_>) -> Value {
    format!("{}/{}", row.number(&["status", "readyReplicas"]), row.number(&["spec", "replicas"])).into()
}

fn job_status(row: &Row<'_>) -> Value {
    let has =
        |kind: &str| row.items(&["status", "conditions"]).any(|c| c["type"] == kind && c["status"] == "True");
    for (condition, word) in [("Complete", "Complete"), ("Failed", "Failed")] {
        if has(condition) {
            return word.into();
        }
    }
    if !row.get(&["metadata", "deletionTimestamp"]).is_null() {
        return "Terminating".into();
    }
    for (condition, word) in [("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")] {
        if has(condition) {
            return word.into();
        }
    }
    "Running".into()
}

fn job_completions(row: &Row<'_>) -> Value {
    let succeeded = row.number(&["status", "succeeded"]);
    match (row.get(&["spec", "completions"]).as_i64(), row.number(&["spec", "parallelism"])) {
        (Some(completions), _) => format!("{succeeded}/{completions}").into(),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        (None, _) => format!("{succeeded}/1").into(),
    }
}

fn job_duration(row: &Row<'_>) -> Value {
    let time = |field: &str| row.text(&["status", field]).parse::<Timestamp>().ok();
    match (time("startTime"), time("completionTime")) {
        (None, _) => "".into(),
        (Some(start), end) => human_duration(end.unwrap_or(row.now).duration_since(start).as_secs()).into(),
    }
}

fn number_or_percent(row: &Row<'_>, field: &str) -> Value {
    match row.get(&["spec", field]) {
        Value::Null => "N/A".into(),
        Value::String(percent) => percent.clone().into(),
        number => number.to_string().into(),
    }
}

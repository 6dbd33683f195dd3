//! Columns of the workload kinds, their pod templates, revisions and disruption budgets.

use serde_json::Value;

use super::super::age::seconds_between;
use super::super::human_duration;
use super::super::row::{AGE, Column, NAME, NONE, Row, UNSET, joined, list};
use super::super::selector::{parse_selector, printed_labels, printed_selector_or};

pub(super) fn core_columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "ReplicationController" => REPLICATION_CONTROLLER,
        "PodTemplate" => POD_TEMPLATE,
        _ => return None,
    })
}

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "Deployment" => DEPLOYMENT,
        "ReplicaSet" => REPLICA_SET,
        "StatefulSet" => STATEFUL_SET,
        "DaemonSet" => DAEMON_SET,
        "ControllerRevision" => REVISION,
        "Job" => JOB,
        "CronJob" => CRON_JOB,
        "PodDisruptionBudget" => DISRUPTION_BUDGET,
        _ => return None,
    })
}

const CONTAINERS: Column = Column::wide("Containers", |row| containers(row, TEMPLATE, "name"));
const IMAGES: Column = Column::wide("Images", |row| containers(row, TEMPLATE, "image"));
const SELECTOR: Column =
    Column::wide("Selector", |row| printed_selector_or(row.get(&["spec", "selector"]), "<error>").into());

const TEMPLATE: &[&str] = &["spec", "template", "spec", "containers"];
const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec", "containers"];

const DESIRED: Column = Column::new("Desired", "integer", |row| row.number(&["spec", "replicas"]).into());
const CURRENT: Column = Column::new("Current", "integer", |row| row.number(&["status", "replicas"]).into());
const READY: Column = Column::new("Ready", "integer", |row| row.number(&["status", "readyReplicas"]).into());

const REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    DESIRED,
    CURRENT,
    READY,
    AGE,
    CONTAINERS,
    IMAGES,
    Column::wide("Selector", |row| printed_labels(row.get(&["spec", "selector"])).into()),
];

const REPLICA_SET: &[Column] = &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR];

const POD_TEMPLATE: &[Column] = &[
    NAME,
    Column::new("Containers", "string", |row| containers(row, &["template", "spec", "containers"], "name")),
    Column::new("Images", "string", |row| containers(row, &["template", "spec", "containers"], "image")),
    Column::new("Pod Labels", "string", |row| {
        printed_labels(row.get(&["template", "metadata", "labels"])).into()
    }),
];

const DEPLOYMENT: &[Column] = &[
    NAME,
    Column::new("Ready", "string", ready_of_desired),
    Column::new("Up-to-date", "string", |row| row.number(&["status", "updatedReplicas"]).into()),
    Column::new("Available", "string", |row| row.number(&["status", "availableReplicas"]).into()),
    AGE,
    CONTAINERS,
    IMAGES,
    // Unlike the others, it shows nothing for a selector that selects everything.
    Column::wide("Selector", |row| {
        parse_selector(row.get(&["spec", "selector"])).unwrap_or_else(|| "<invalid>".to_owned()).into()
    }),
];

const STATEFUL_SET: &[Column] =
    &[NAME, Column::new("Ready", "string", ready_of_desired), AGE, CONTAINERS, IMAGES];

const DAEMON_SET: &[Column] = &[
    NAME,
    Column::new("Desired", "integer", |row| row.number(&["status", "desiredNumberScheduled"]).into()),
    Column::new("Current", "integer", |row| row.number(&["status", "currentNumberScheduled"]).into()),
    Column::new("Ready", "integer", |row| row.number(&["status", "numberReady"]).into()),
    Column::new("Up-to-date", "integer", |row| row.number(&["status", "updatedNumberScheduled"]).into()),
    Column::new("Available", "integer", |row| row.number(&["status", "numberAvailable"]).into()),
    Column::new("Node Selector", "string", |row| {
        printed_labels(row.get(&["spec", "template", "spec", "nodeSelector"])).into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REVISION: &[Column] = &[
    NAME,
    Column::new("Controller", "string", controller),
    Column::new("Revision", "string", |row| row.number(&["revision"]).into()),
    AGE,
];

const JOB: &[Column] = &[
    NAME,
    Column::new("Status", "string", |row| job_status(row).into()),
    Column::new("Completions", "string", job_completions),
    Column::new("Duration", "string", job_duration),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CRON_JOB: &[Column] = &[
    NAME,
    Column::new("Schedule", "string", |row| row.cell(&["spec", "schedule"])),
    Column::new("Timezone", "string", |row| row.set_or(&["spec", "timeZone"], NONE)),
    Column::new("Suspend", "boolean", |row| match row.get(&["spec", "suspend"]) {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        _ => UNSET.into(),
    }),
    Column::new("Active", "integer", |row| row.count(&["status", "active"]).into()),
    Column::new("Last Schedule", "string", |row| match row.text(&["status", "lastScheduleTime"]) {
        "" => NONE.into(),
        time => row.since_text(time).into(),
    }),
    AGE,
    Column::wide("Containers", |row| containers(row, JOB_TEMPLATE, "name")),
    Column::wide("Images", |row| containers(row, JOB_TEMPLATE, "image")),
    Column::wide("Selector", |row| {
        printed_selector_or(row.get(&["spec", "jobTemplate", "spec", "selector"]), "<error>").into()
    }),
];

const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    Column::new("Min Available", "string", |row| number_or_percent(row.get(&["spec", "minAvailable"]))),
    Column::new("Max Unavailable", "string", |row| number_or_percent(row.get(&["spec", "maxUnavailable"]))),
    Column::new("Allowed Disruptions", "integer", |row| row.number(&["status", "disruptionsAllowed"]).into()),
    AGE,
];

fn containers(row: &Row<'_>, path: &[&str], field: &str) -> Value {
    joined(row.items(path).map(|container| container[field].as_str().unwrap_or_default())).into()
}

fn ready_of_desired(row: &Row<'_>) -> Value {
    format!("{}/{}", row.number(&["status", "readyReplicas"]), row.number(&["spec", "replicas"])).into()
}

fn controller(row: &Row<'_>) -> Value {
    let owner = list(row.get(&["metadata", "ownerReferences"])).find(|owner| owner["controller"] == true);
    let Some(owner) = owner else { return NONE.into() };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let kind = match text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{}.{group}", text("kind")),
        None => text("kind").to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), text("name")).into()
}

fn job_status(row: &Row<'_>) -> &'static str {
    let has = |r#type: &&str| row.condition(r#type).is_some_and(|c| c["status"] == "True");
    let over = ["Complete", "Failed"].into_iter().find(has);
    let going = || row.is_deleted().then_some("Terminating");
    let held = || ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(has);
    over.or_else(going).or_else(held).unwrap_or("Running")
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
    match (row.time(&["status", "startTime"]), row.time(&["status", "completionTime"])) {
        (None, _) => "".into(),
        (Some(start), end) => human_duration(seconds_between(start, end.unwrap_or(row.now))).into(),
    }
}

fn number_or_percent(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::String(percent) => percent.as_str().into(),
        number => number.to_string().into(),
    }
}

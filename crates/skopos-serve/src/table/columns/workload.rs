//! Columns of the workload kinds, their pod templates, revisions and disruption budgets.

use serde_json::Value;

use super::super::age::seconds_between;
use super::super::human_duration;
use super::super::row::{AGE, BuiltinColumn, NAME, NONE, TableRow, UNSET, joined, list};
use super::super::selector::{parse_selector, printed_labels, printed_selector_or};

pub(super) fn core_columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "ReplicationController" => REPLICATION_CONTROLLER,
        "PodTemplate" => POD_TEMPLATE,
        _ => return None,
    })
}

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
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

const CONTAINERS: BuiltinColumn = BuiltinColumn::wide("Containers", |row| containers(row, TEMPLATE, "name"));
const IMAGES: BuiltinColumn = BuiltinColumn::wide("Images", |row| containers(row, TEMPLATE, "image"));
const SELECTOR: BuiltinColumn = BuiltinColumn::wide("Selector", |row| {
    printed_selector_or(row.get(&["spec", "selector"]), "<error>").into()
});

const TEMPLATE: &[&str] = &["spec", "template", "spec", "containers"];
const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec", "containers"];

const DESIRED: BuiltinColumn =
    BuiltinColumn::new("Desired", "integer", |row| row.number(&["spec", "replicas"]).into());
const CURRENT: BuiltinColumn =
    BuiltinColumn::new("Current", "integer", |row| row.number(&["status", "replicas"]).into());
const READY: BuiltinColumn =
    BuiltinColumn::new("Ready", "integer", |row| row.number(&["status", "readyReplicas"]).into());

const REPLICATION_CONTROLLER: &[BuiltinColumn] = &[
    NAME,
    DESIRED,
    CURRENT,
    READY,
    AGE,
    CONTAINERS,
    IMAGES,
    BuiltinColumn::wide("Selector", |row| printed_labels(row.get(&["spec", "selector"])).into()),
];

const REPLICA_SET: &[BuiltinColumn] = &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR];

const POD_TEMPLATE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Containers", "string", |row| {
        containers(row, &["template", "spec", "containers"], "name")
    }),
    BuiltinColumn::new("Images", "string", |row| {
        containers(row, &["template", "spec", "containers"], "image")
    }),
    BuiltinColumn::new("Pod Labels", "string", |row| {
        printed_labels(row.get(&["template", "metadata", "labels"])).into()
    }),
];

const DEPLOYMENT: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Ready", "string", ready_of_desired),
    BuiltinColumn::new("Up-to-date", "string", |row| row.number(&["status", "updatedReplicas"]).into()),
    BuiltinColumn::new("Available", "string", |row| row.number(&["status", "availableReplicas"]).into()),
    AGE,
    CONTAINERS,
    IMAGES,
    // Unlike the others, it shows nothing for a selector that selects everything.
    BuiltinColumn::wide("Selector", |row| {
        parse_selector(row.get(&["spec", "selector"])).unwrap_or_else(|| "<invalid>".to_owned()).into()
    }),
];

const STATEFUL_SET: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("Ready", "string", ready_of_desired), AGE, CONTAINERS, IMAGES];

const DAEMON_SET: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Desired", "integer", |row| row.number(&["status", "desiredNumberScheduled"]).into()),
    BuiltinColumn::new("Current", "integer", |row| row.number(&["status", "currentNumberScheduled"]).into()),
    BuiltinColumn::new("Ready", "integer", |row| row.number(&["status", "numberReady"]).into()),
    BuiltinColumn::new("Up-to-date", "integer", |row| {
        row.number(&["status", "updatedNumberScheduled"]).into()
    }),
    BuiltinColumn::new("Available", "integer", |row| row.number(&["status", "numberAvailable"]).into()),
    BuiltinColumn::new("Node Selector", "string", |row| {
        printed_labels(row.get(&["spec", "template", "spec", "nodeSelector"])).into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REVISION: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Controller", "string", controller),
    BuiltinColumn::new("Revision", "string", |row| row.number(&["revision"]).into()),
    AGE,
];

const JOB: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Status", "string", |row| job_status(row).into()),
    BuiltinColumn::new("Completions", "string", job_completions),
    BuiltinColumn::new("Duration", "string", job_duration),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CRON_JOB: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Schedule", "string", |row| row.cell(&["spec", "schedule"])),
    BuiltinColumn::new("Timezone", "string", |row| row.set_or(&["spec", "timeZone"], NONE)),
    BuiltinColumn::new("Suspend", "boolean", |row| match row.get(&["spec", "suspend"]) {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        _ => UNSET.into(),
    }),
    BuiltinColumn::new("Active", "integer", |row| row.count(&["status", "active"]).into()),
    BuiltinColumn::new("Last Schedule", "string", |row| match row.text(&["status", "lastScheduleTime"]) {
        "" => NONE.into(),
        time => row.since_text(time).into(),
    }),
    AGE,
    BuiltinColumn::wide("Containers", |row| containers(row, JOB_TEMPLATE, "name")),
    BuiltinColumn::wide("Images", |row| containers(row, JOB_TEMPLATE, "image")),
    BuiltinColumn::wide("Selector", |row| {
        printed_selector_or(row.get(&["spec", "jobTemplate", "spec", "selector"]), "<error>").into()
    }),
];

const DISRUPTION_BUDGET: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Min Available", "string", |row| {
        number_or_percent(row.get(&["spec", "minAvailable"]))
    }),
    BuiltinColumn::new("Max Unavailable", "string", |row| {
        number_or_percent(row.get(&["spec", "maxUnavailable"]))
    }),
    BuiltinColumn::new("Allowed Disruptions", "integer", |row| {
        row.number(&["status", "disruptionsAllowed"]).into()
    }),
    AGE,
];

fn containers(row: &TableRow<'_>, path: &[&str], field: &str) -> Value {
    joined(row.items(path).map(|container| container[field].as_str().unwrap_or_default())).into()
}

fn ready_of_desired(row: &TableRow<'_>) -> Value {
    format!("{}/{}", row.number(&["status", "readyReplicas"]), row.number(&["spec", "replicas"])).into()
}

fn controller(row: &TableRow<'_>) -> Value {
    let owner = list(row.get(&["metadata", "ownerReferences"])).find(|owner| owner["controller"] == true);
    let Some(owner) = owner else { return NONE.into() };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let kind = match text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{}.{group}", text("kind")),
        None => text("kind").to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), text("name")).into()
}

fn job_status(row: &TableRow<'_>) -> &'static str {
    let has = |r#type: &&str| row.condition(r#type).is_some_and(|c| c["status"] == "True");
    let over = ["Complete", "Failed"].into_iter().find(has);
    let going = || row.is_deleted().then_some("Terminating");
    let held = || ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(has);
    over.or_else(going).or_else(held).unwrap_or("Running")
}

fn job_completions(row: &TableRow<'_>) -> Value {
    let succeeded = row.number(&["status", "succeeded"]);
    match (row.get(&["spec", "completions"]).as_i64(), row.number(&["spec", "parallelism"])) {
        (Some(completions), _) => format!("{succeeded}/{completions}").into(),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        (None, _) => format!("{succeeded}/1").into(),
    }
}

fn job_duration(row: &TableRow<'_>) -> Value {
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

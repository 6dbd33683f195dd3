//! Columns of pods.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::super::row::{AGE, BuiltinColumn, NAME, NONE, TableRow, list};

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    (kind == "Pod").then_some(POD)
}

const POD: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Ready", "string", |row| format!("{}/{}", row.pod().ready, row.pod().total).into()),
    BuiltinColumn::new("Status", "string", |row| (*row.pod().status).into()),
    BuiltinColumn::new("Restarts", "string", restarts),
    AGE,
    BuiltinColumn::wide("IP", |row| match row.items(&["status", "podIPs"]).next() {
        Some(first) => first["ip"].as_str().unwrap_or(NONE).into(),
        None => row.text_or(&["status", "podIP"], NONE),
    }),
    BuiltinColumn::wide("Node", |row| row.text_or(&["spec", "nodeName"], NONE)),
    BuiltinColumn::wide("Nominated Node", |row| row.text_or(&["status", "nominatedNodeName"], NONE)),
    BuiltinColumn::wide("Readiness Gates", readiness_gates),
];

/// Returns the conditions of a pod's row: whether it has completed.
pub(in super::super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod["status"]["phase"].as_str()? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn restarts(row: &TableRow<'_>) -> Value {
    let Restarts { count, last } = row.pod().restarts;
    if count != 0 && !last.is_empty() {
        return format!("{count} ({} ago)", row.since_text(last)).into();
    }
    count.to_string().into()
}

fn readiness_gates(row: &TableRow<'_>) -> Value {
    let gates = row.items(&["spec", "readinessGates"]);
    if gates.len() == 0 {
        return NONE.into();
    }
    let is_met = |gate: &&Value| {
        let condition = row.condition(gate["conditionType"].as_str().unwrap_or_default());
        condition.is_some_and(|condition| condition["status"] == "True")
    };
    format!("{}/{}", gates.clone().filter(is_met).count(), gates.len()).into()
}

/// A summary of the states of a pod's containers.
pub(in super::super) struct PodSummary<'a> {
    ready: usize,
    total: usize,
    /// Phase, or the most specific reason of the containers.
    status: Cow<'a, str>,
    restarts: Restarts<'a>,
}

#[derive(Clone, Copy, Default)]
struct Restarts<'a> {
    count: i64,
    /// Time at which a container ended before the last restart.
    last: &'a str,
}

impl<'a> PodSummary<'a> {
    pub(in super::super) fn new(pod: &'a Value) -> Self {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let mut summary = Self {
            ready: 0,
            total: list(&spec["containers"]).len() + list(&spec["initContainers"]).filter(is_sidecar).count(),
            status: match text(&status["reason"]) {
                "" => text(&status["phase"]),
                reason => reason,
            }
            .into(),
            restarts: Restarts::default(),
        };
        if has_condition(pod, |c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated") {
            summary.status = "SchedulingGated".into();
        }
        let initialized = list(&status["conditions"]).find(|c| c["type"] == "Initialized");
        let is_initialized = initialized.is_some_and(|c| c["status"] == "True");
        let sidecars = summary.add_init_containers(pod);
        if sidecars.is_ok() || is_initialized {
            summary.restarts = sidecars.unwrap_or_else(|sidecars| sidecars);
            summary.add_containers(pod);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            if status["reason"] == "NodeLost" {
                summary.status = "Unknown".into();
            } else if !matches!(text(&status["phase"]), "Succeeded" | "Failed") {
                summary.status = "Terminating".into();
            }
        }
        summary
    }

    /// Adds the init containers up to the one that blocks the pod. Returns the restarts of the sidecars among them: as an error
    /// if the pod is blocked.
    fn add_init_containers(&mut self, pod: &'a Value) -> Result<Restarts<'a>, Restarts<'a>> {
        let declared = &pod["spec"]["initContainers"];
        let mut sidecars = Restarts::default();
        for (index, container) in list(&pod["status"]["initContainerStatuses"]).enumerate() {
            let is_sidecar =
                list(declared).rfind(|c| c["name"] == container["name"]).is_some_and(|c| is_sidecar(&c));
            self.restarts.add(container);
            if is_sidecar {
                sidecars.add(container);
            }
            let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
            let is_done = !terminated.is_null() && exit_code(terminated) == 0;
            if is_done {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waits_for = waiting["reason"].as_str().unwrap_or_default();
            self.status = if !terminated.is_null() {
                format!("Init:{}", end(terminated))
            } else if !waits_for.is_empty() && waits_for != "PodInitializing" {
                format!("Init:{waits_for}")
            } else {
                format!("Init:{index}/{}", list(declared).len())
            }
            .into();
            return Err(sidecars);
        }
        Ok(sidecars)
    }

    fn add_containers(&mut self, pod: &'a Value) {
        let (mut is_running, mut error) = (false, None);
        // The first container has precedence, so it comes last.
        for container in list(&pod["status"]["containerStatuses"]).rev() {
            self.restarts.add(container);
            let state = &container["state"];
            let waits_for = state["waiting"]["reason"].as_str().unwrap_or_default();
            if !waits_for.is_empty() {
                self.status = waits_for.into();
            } else if !state["terminated"].is_null() {
                self.status = end(&state["terminated"]);
                if exit_code(&state["terminated"]) != 0 {
                    error = Some(self.status.clone());
                }
            } else if container["ready"] == true && !state["running"].is_null() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.status != "Completed" {
            return;
        }
        if is_running && has_condition(pod, |c| c["type"] == "Ready" && c["status"] == "True") {
            self.status = "Running".into();
        } else if let Some(error) = error {
            self.status = error;
        } else if is_running {
            self.status = "NotReady".into();
        }
    }
}

impl<'a> Restarts<'a> {
    fn add(&mut self, container: &'a Value) {
        self.count += container["restartCount"].as_i64().unwrap_or(0);
        let ended = container["lastState"]["terminated"]["finishedAt"].as_str().unwrap_or_default();
        // Times of one zone sort as texts.
        self.last = self.last.max(ended);
    }
}

/// Returns whether an init container keeps running beside the containers.
fn is_sidecar(container: &&Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn has_condition(pod: &Value, is_it: impl Fn(&Value) -> bool) -> bool {
    list(&pod["status"]["conditions"]).any(is_it)
}

fn exit_code(terminated: &Value) -> i64 {
    terminated["exitCode"].as_i64().unwrap_or(0)
}

fn end(terminated: &Value) -> Cow<'_, str> {
    match (terminated["reason"].as_str().unwrap_or_default(), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", exit_code(terminated)).into(),
        ("", signal) => format!("Signal:{signal}").into(),
        (reason, _) => reason.into(),
    }
}

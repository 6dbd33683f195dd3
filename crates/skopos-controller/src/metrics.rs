//! Metrics of controllers, for a `prometheus_client` registry.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use skopos::workqueue::Durations;

use crate::handle::{ControllerHandle, ControllerStats, ControllerStatus};

/// The names of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// `skopos_controller_*`.
    Skopos,
    /// `controller_runtime_*` and `workqueue_*`, as controller-runtime names them, for existing dashboards.
    ControllerRuntime,
}

/// The metrics of some controllers. Register it with `registry.register_collector(Box::new(metrics))`.
#[derive(Clone, Debug)]
pub struct Metrics {
    controllers: Vec<ControllerHandle>,
    names: Names,
}

/// One metric and its label beside the controller's name.
struct Sample {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    values: fn(&ControllerStats, &ControllerStatus) -> Vec<(&'static str, f64)>,
    /// The name of the label that distinguishes the values, if there are several.
    label: &'static str,
}

impl Metrics {
    /// Makes the metrics of these controllers.
    pub fn new(controllers: impl IntoIterator<Item = ControllerHandle>, names: Names) -> Self {
        Self { controllers: controllers.into_iter().collect(), names }
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let controllers: Vec<_> =
            self.controllers.iter().map(|handle| (handle.stats(), handle.status())).collect();
        let (samples, histograms) = match self.names {
            Names::Skopos => (OURS, OUR_DURATIONS),
            Names::ControllerRuntime => (CONTROLLER_RUNTIME, CONTROLLER_RUNTIME_DURATIONS),
        };
        for sample in samples {
            let mut family = encoder.encode_descriptor(sample.name, sample.help, None, sample.kind)?;
            let own_label = label_of(sample.name);
            for (stats, status) in &controllers {
                for (label, value) in (sample.values)(stats, status) {
                    let labels: &[(&str, &str)] = match sample.label.is_empty() {
                        true => &[(own_label, &stats.name)],
                        false => &[(own_label, &stats.name), (sample.label, label)],
                    };
                    let metric = family.encode_family(&labels)?;
                    match sample.kind {
                        MetricType::Counter => ConstCounter::new(value).encode(metric)?,
                        _ => ConstGauge::new(value).encode(metric)?,
                    }
                }
            }
        }
        for (name, help, durations) in histograms {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (stats, _) in &controllers {
                let labels: &[(&str, &str)] = &[(label_of(name), &stats.name)];
                encode_durations(family.encode_family(&labels)?, durations(stats))?;
            }
        }
        Ok(())
    }
}

/// Returns the label of the controller's name: client-go's work queues use another one.
fn label_of(metric: &str) -> &'static str {
    if metric.starts_with("workqueue") { "name" } else { "controller" }
}

fn encode_durations(mut encoder: MetricEncoder<'_>, durations: &Durations) -> Result<(), fmt::Error> {
    let mut below = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(Durations::BOUNDS.len() + 1);
    for (bound, at_most) in Durations::BOUNDS.iter().zip(durations.at_most) {
        buckets.push((bound.as_secs_f64(), at_most - below));
        below = at_most;
    }
    buckets.push((f64::INFINITY, durations.count - below));
    encoder.encode_histogram::<[(&str, &str); 0]>(
        durations.sum.as_secs_f64(),
        durations.count,
        &buckets,
        None,
    )
}

/// A histogram: its name, its help, and its durations.
type Histogram = (&'static str, &'static str, fn(&ControllerStats) -> &Durations);

const OUR_DURATIONS: &[Histogram] = &[
    ("skopos_controller_reconcile_seconds", "Seconds that reconciliations took", |stats| &stats.reconcile),
    ("skopos_controller_queue_seconds", "Seconds that keys waited for a worker", |stats| {
        &stats.queue.latency
    }),
];

const CONTROLLER_RUNTIME_DURATIONS: &[Histogram] = &[
    (
        "controller_runtime_reconcile_time_seconds",
        "Length of time per reconciliation per controller",
        |stats| &stats.reconcile,
    ),
    (
        "workqueue_queue_duration_seconds",
        "How long in seconds an item stays in workqueue before being requested",
        |stats| &stats.queue.latency,
    ),
    (
        "workqueue_work_duration_seconds",
        "How long in seconds processing an item from workqueue takes",
        |stats| &stats.queue.work,
    ),
];

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;

/// Our names. Counters get `_total`.
const OURS: &[Sample] = &[
    Sample {
        name: "skopos_controller_reconcile",
        help: "Reconciliations that ended, by result",
        kind: COUNTER,
        label: "result",
        values: |stats, _| {
            vec![
                ("success", stats.succeeded as f64),
                ("requeue_after", stats.requeued as f64),
                ("error", stats.failed as f64),
                ("terminal", stats.failed_terminally as f64),
                ("panic", stats.panicked as f64),
                ("timeout", stats.timed_out as f64),
                ("term_ended", stats.dropped as f64),
            ]
        },
    },
    Sample {
        name: "skopos_controller_put_off",
        help: "Times that a key was put off, by reason",
        kind: COUNTER,
        label: "reason",
        values: |stats, _| {
            vec![("stale", stats.put_off_stale as f64), ("own_write", stats.put_off_own_write as f64)]
        },
    },
    Sample {
        name: "skopos_controller_longest_running_seconds",
        help: "Seconds for which the reconciliation has run that has run longest",
        kind: GAUGE,
        label: "",
        values: longest_running,
    },
    Sample {
        name: "skopos_controller_active_workers",
        help: "Reconciliations that run",
        kind: GAUGE,
        label: "",
        values: active_workers,
    },
    Sample {
        name: "skopos_controller_waiting_for_own_writes",
        help: "Keys that wait until the view shows the controller's own write",
        kind: GAUGE,
        label: "",
        values: |stats, _| vec![("", stats.waiting_for_own_writes as f64)],
    },
    Sample {
        name: "skopos_controller_queue_depth",
        help: "Keys that wait, by place",
        kind: GAUGE,
        label: "place",
        values: |stats, _| {
            vec![("waiting", stats.queue.depth as f64), ("delayed", stats.queue.delayed as f64)]
        },
    },
    Sample {
        name: "skopos_controller_status",
        help: "1 for the status that the controller has",
        kind: GAUGE,
        label: "status",
        values: |_, status| {
            let is = |this: bool| f64::from(u8::from(this));
            vec![
                ("standby", is(*status == ControllerStatus::Standby)),
                ("stale", is(matches!(status, ControllerStatus::Stale { .. }))),
                ("working", is(*status == ControllerStatus::Working)),
            ]
        },
    },
];

/// controller-runtime's names, from `pkg/internal/controller/metrics` and `pkg/metrics/workqueue.go`. Counters get `_total`.
const CONTROLLER_RUNTIME: &[Sample] = &[
    Sample {
        name: "controller_runtime_reconcile",
        help: "Total number of reconciliations per controller",
        kind: COUNTER,
        label: "result",
        values: |stats, _| {
            let errors = stats.failed + stats.failed_terminally + stats.panicked + stats.timed_out;
            vec![
                ("success", stats.succeeded as f64),
                ("requeue_after", stats.requeued as f64),
                ("error", errors as f64),
            ]
        },
    },
    Sample {
        name: "controller_runtime_reconcile_errors",
        help: "Total number of reconciliation errors per controller",
        kind: COUNTER,
        label: "",
        values: |stats, _| {
            vec![("", (stats.failed + stats.failed_terminally + stats.panicked + stats.timed_out) as f64)]
        },
    },
    Sample {
        name: "controller_runtime_terminal_reconcile_errors",
        help: "Total number of terminal reconciliation errors per controller",
        kind: COUNTER,
        label: "",
        values: |stats, _| vec![("", stats.failed_terminally as f64)],
    },
    Sample {
        name: "controller_runtime_reconcile_panics",
        help: "Total number of reconciliation panics per controller",
        kind: COUNTER,
        label: "",
        values: |stats, _| vec![("", stats.panicked as f64)],
    },
    Sample {
        name: "controller_runtime_reconcile_timeouts",
        help: "Total number of reconciliation timeouts per controller",
        kind: COUNTER,
        label: "",
        values: |stats, _| vec![("", stats.timed_out as f64)],
    },
    Sample {
        name: "controller_runtime_max_concurrent_reconciles",
        help: "Maximum number of concurrent reconciles per controller",
        kind: GAUGE,
        label: "",
        values: |stats, _| vec![("", stats.workers as f64)],
    },
    Sample {
        name: "controller_runtime_active_workers",
        help: "Number of currently used workers per controller",
        kind: GAUGE,
        label: "",
        values: active_workers,
    },
    Sample {
        name: "workqueue_depth",
        help: "Current depth of workqueue",
        kind: GAUGE,
        label: "",
        values: |stats, _| vec![("", stats.queue.depth as f64)],
    },
    Sample {
        name: "workqueue_adds",
        help: "Total number of adds handled by workqueue",
        kind: COUNTER,
        label: "",
        values: |stats, _| vec![("", stats.queue.adds as f64)],
    },
    Sample {
        name: "workqueue_retries",
        help: "Total number of retries handled by workqueue",
        kind: COUNTER,
        label: "",
        values: |stats, _| vec![("", stats.queue.retries as f64)],
    },
    Sample {
        name: "workqueue_unfinished_work_seconds",
        help: "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
        kind: GAUGE,
        label: "",
        values: |stats, _| vec![("", stats.queue.unfinished.as_secs_f64())],
    },
    Sample {
        name: "workqueue_longest_running_processor_seconds",
        help: "How many seconds has the longest running processor for workqueue been running",
        kind: GAUGE,
        label: "",
        values: longest_running,
    },
];

/// Returns the number of active workers. Keys that wait for their own writes hold none.
fn active_workers(stats: &ControllerStats, _: &ControllerStatus) -> Vec<(&'static str, f64)> {
    vec![("", stats.queue.processing.saturating_sub(stats.waiting_for_own_writes) as f64)]
}

fn longest_running(stats: &ControllerStats, _: &ControllerStatus) -> Vec<(&'static str, f64)> {
    vec![("", stats.queue.longest_running.unwrap_or_default().as_secs_f64())]
}

//! Metrics of a notifier for Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::control::NotifierPhase;
use super::propagation::MetricLabels;
use super::report::SinkReport;
use crate::plan::HoldReason;

type Values = Family<MetricLabels, Gauge<f64, AtomicU64>>;

/// Writes all metrics as text. With an election, `lease` is the time for which the term is valid without a renewal.
pub fn metrics(phase: &NotifierPhase, lease: Option<Duration>) -> String {
    let mut registry = Registry::default();
    let reports = phase.reports();
    let one =
        |text: &str, help: &str, registry: &mut Registry, value: &dyn Fn(&SinkReport) -> Option<f64>| {
            let family = Values::default();
            for report in &reports {
                if let Some(value) = value(report) {
                    family.get_or_create(&vec![("sink", report.name.clone())]).set(value);
                }
            }
            registry.register(text, help, family);
        };
    let leads = ConstGauge::new(i64::from(matches!(phase, NotifierPhase::Working(_))));
    registry.register("skopos_notify_working", "Whether this process writes; 0 on standby", leads);
    if let Some(remaining) = lease {
        let remaining = ConstGauge::new(remaining.as_secs_f64());
        registry.register(
            "skopos_notify_lease_remaining_seconds",
            "For how long the term is valid, if no renewal is acknowledged any more",
            remaining,
        );
    }
    one(
        "skopos_notify_outside_age_seconds",
        "How old the state of the cluster is that the outside was last seen equal to; +Inf before the first time",
        &mut registry,
        &|report| Some(report.outside_age_seconds.unwrap_or(f64::INFINITY)),
    );
    one("skopos_notify_view_age_seconds", "How old the view of the cluster is", &mut registry, &|report| {
        Some(report.view_age_seconds.unwrap_or(f64::INFINITY))
    });
    one("skopos_notify_names_wanted", "Names that are wanted", &mut registry, &|report| {
        Some(report.wanted as f64)
    });
    one("skopos_notify_names_outside", "Names that are outside and ours", &mut registry, &|report| {
        Some(report.outside as f64)
    });
    one("skopos_notify_pending", "Names that are not yet as they are to be", &mut registry, &|report| {
        Some(report.pending as f64)
    });
    one("skopos_notify_refused", "Names that cannot be written", &mut registry, &|report| {
        Some(report.problem_count as f64)
    });
    one("skopos_notify_foreign", "Names outside that belong to another program", &mut registry, &|report| {
        Some(report.foreign_count as f64)
    });
    one("skopos_notify_rejected", "Objects that ask for what they cannot have", &mut registry, &|report| {
        Some(report.rejected_count as f64)
    });
    one("skopos_notify_sink_up", "Whether the sink could be read the last time", &mut registry, &|report| {
        Some(f64::from(u8::from(report.sink_problem.is_none())))
    });
    one(
        "skopos_notify_dead_letters",
        "Messages that the receiver will never take",
        &mut registry,
        &|report| Some(report.dead_count as f64),
    );
    one(
        "skopos_notify_oldest_pending_seconds",
        "How long the oldest message waits",
        &mut registry,
        &|report| report.oldest_pending_seconds,
    );
    if let NotifierPhase::Working(handle) = phase {
        registry.register(
            "skopos_notify_propagation_seconds",
            "How long a change took from the view of the cluster to the outside that was seen with it",
            handle.propagation().clone(),
        );
    }
    let held = Values::default();
    for report in &reports {
        for reason in HoldReason::all() {
            let count: usize =
                report.held.iter().filter(|held| held.reason == reason.as_str()).map(|held| held.count).sum();
            held.get_or_create(&vec![("sink", report.name.clone()), ("reason", reason.as_str().to_owned())])
                .set(count as f64);
        }
    }
    registry.register("skopos_notify_held", "Removals that wait, by reason", held);
    let (steps, drift) =
        (Family::<MetricLabels, Counter>::default(), Family::<MetricLabels, Counter>::default());
    for report in &reports {
        for (result, count) in &report.steps {
            steps
                .get_or_create(&vec![("sink", report.name.clone()), ("result", result.clone())])
                .inc_by(*count);
        }
        drift.get_or_create(&vec![("sink", report.name.clone())]).inc_by(report.drift);
    }
    registry.register("skopos_notify_steps", "Changes of one name, by how they went", steps);
    registry.register("skopos_notify_drift", "Changes of our names by other programs", drift);
    let mut text = String::new();
    // Writing into a text cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_notifier_has_metrics() {
        let text = metrics(&NotifierPhase::Standby, None);
        assert!(text.contains("skopos_notify_working 0"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}

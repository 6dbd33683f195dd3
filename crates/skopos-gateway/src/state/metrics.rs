//! Metrics, computed from the clusters' figures at each scrape. Clusters that have left do not appear any more.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use skopos_fleet::{ClusterStats, Condition, DurationStats, Fleet, IncidentStats, KindStats};

use super::Shared;
use super::requests::Requests;
use crate::clusters::Served;

/// The registry of all metrics.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Requests,
}

/// A metric of each cluster: name, help, type and value.
type ClusterMetric = (&'static str, &'static str, MetricType, fn(&ClusterStats) -> Option<f64>);

/// A metric of each kind.
type KindMetric = (&'static str, &'static str, MetricType, fn(&KindStats) -> Option<f64>);

const GAUGE: MetricType = MetricType::Gauge;
const COUNTER: MetricType = MetricType::Counter;

const CLUSTER_METRICS: [ClusterMetric; 14] = [
    ("cluster_up", "1 if the cluster answers", GAUGE, |c| {
        let up = matches!(c.state.condition, Condition::Live | Condition::Degraded);
        Some(f64::from(u8::from(up)))
    }),
    ("cluster_paused", "1 if the cluster is switched off, and that is known", GAUGE, |c| {
        Some(f64::from(u8::from(c.state.condition == Condition::Paused)))
    }),
    ("cluster_state_seconds", "Time that the cluster has been in its state", GAUGE, |c| {
        Some(c.state.since.elapsed().as_secs_f64())
    }),
    (
        "cluster_silent_seconds",
        "Time since the cluster answered anything, or joined if it never did",
        GAUGE,
        |c| {
            // Also for clusters that have been dead since the process started. The alert on silence needs them most.
            Some(c.state.answered_at.unwrap_or(c.joined).elapsed().as_secs_f64())
        },
    ),
    ("cluster_bytes", "JSON in memory", GAUGE, |c| Some(c.bytes as f64)),
    ("cluster_budget_bytes", "JSON that may be in memory", GAUGE, |c| {
        c.memory_budget.map(|bytes| bytes as f64)
    }),
    ("cluster_evictions", "Kinds let go because they did not fit", COUNTER, |c| Some(c.evictions as f64)),
    ("cluster_requests", "Requests passed through", COUNTER, |c| Some(c.requests as f64)),
    ("cluster_request_failures", "Those of them without an answer", COUNTER, |c| {
        Some(c.request_failures as f64)
    }),
    ("cluster_dials", "Connections begun", COUNTER, |c| c.transport.as_ref().map(|t| t.dials as f64)),
    ("cluster_dial_failures", "Those of them that failed", COUNTER, |c| {
        c.transport.as_ref().map(|t| t.dial_failures as f64)
    }),
    ("cluster_checkpoint_age_seconds", "Time since the checkpoints had what the memory had", GAUGE, |c| {
        c.kept.as_ref().and_then(|kept| kept.age).map(|age| age.as_secs_f64())
    }),
    ("cluster_checkpoint_bytes", "Bytes of the checkpoints", GAUGE, |c| {
        c.kept.as_ref().map(|kept| kept.bytes as f64)
    }),
    ("cluster_checkpoints_refused", "Checkpoints refused: damaged, or of something else", COUNTER, |c| {
        c.kept.as_ref().map(|kept| kept.refused as f64)
    }),
];

/// A metric of memory used beside the stores.
type MemoryMetric = (&'static str, &'static str, fn(&Served) -> usize);

const MEMORY_METRICS: [MemoryMetric; 3] = [
    (
        "event_bytes",
        "JSON that the events kept for watches hold, at most; the stores hold some of it, too",
        |s| s.event_bytes,
    ),
    ("frame_bytes", "Frames kept for watches", |s| s.frame_bytes),
    (
        "paged_bytes",
        "JSON that states kept for further pages of lists hold, and the newest do not; about",
        |s| s.paged_bytes,
    ),
];

const KIND_METRICS: [KindMetric; 10] = [
    ("kind_live", "1 if the content is proven to be young and its watch is well", GAUGE, |k| {
        Some(f64::from(u8::from(k.informer.freshness.is_live())))
    }),
    ("kind_age_seconds", "Upper bound on the age of the content; absent while there is none", GAUGE, |k| {
        k.informer.freshness.age().map(|age| age.as_secs_f64())
    }),
    ("kind_objects", "Objects in memory", GAUGE, |k| Some(k.informer.objects as f64)),
    ("kind_bytes", "Their JSON", GAUGE, |k| Some(k.informer.bytes as f64)),
    ("kind_events", "Watch events applied", COUNTER, |k| Some(k.informer.events as f64)),
    ("kind_relists", "Lists begun because the watch could not be continued", COUNTER, |k| {
        Some(k.informer.relists as f64)
    }),
    ("kind_reconnects", "Watches opened", COUNTER, |k| Some(k.informer.watches_sent as f64)),
    ("kind_failures", "Requests of the list/watch that failed", COUNTER, |k| {
        Some(k.informer.failures as f64)
    }),
    ("kind_audits", "Audits completed", COUNTER, |k| Some(k.informer.audits.completed as f64)),
    ("kind_audit_mismatches", "Audits that found a difference", COUNTER, |k| {
        Some(k.informer.audits.mismatches as f64)
    }),
];

impl Metrics {
    /// Makes the registry. `max_age` is `cache.maxAge`.
    pub(crate) fn new(shared: Weak<Shared>, max_age: Duration) -> Self {
        let mut registry = Registry::with_prefix("skopos");
        let requests = Requests::register(&mut registry, max_age);
        registry.register_collector(Box::new(Scrape { shared }));
        Self { registry, requests }
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// A collector that reads the clusters' figures.
struct Scrape {
    shared: Weak<Shared>,
}

/// The clusters and resources that fit under the cap.
struct Fitting {
    clusters: Vec<ClusterStats>,
    /// The number of resources of each cluster, in the same order.
    kinds: Vec<usize>,
    left_out: usize,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let services = &shared.services;
        let most = services.config.metrics.max_series as usize;
        let members = services.fleet.members();
        let total = members.len();
        let most_clusters = (most / CLUSTER_METRICS.len()).min(total);
        let stats = members.values().take(most_clusters).map(skopos_fleet::Cluster::stats).collect();
        let fitting = Fitting::new(stats, total, most);

        let mut own = |name: &str, help: &str, kind: MetricType, value: f64| {
            let metric = encoder.encode_descriptor(name, help, None, kind)?;
            match kind {
                MetricType::Counter => ConstCounter::new(value).encode(metric),
                _ => ConstGauge::new(value).encode(metric),
            }
        };
        own("clusters", "Clusters of the fleet", GAUGE, total as f64)?;
        own(
            "left_out",
            "Clusters and kinds without series, because of metrics.maxSeries",
            GAUGE,
            fitting.left_out as f64,
        )?;
        own("watches_open", "Watches of clients", GAUGE, services.watches.open() as f64)?;
        own("streams_open", "Streams into pods", GAUGE, services.streams.open() as f64)?;
        let served =
            shared.routes.read().as_ref().map(|(clusters, merged)| (clusters.served(), merged.served()));
        if let Some((served, _)) = &served {
            let encoded = served.frames_encoded as f64;
            own("watch_frames_encoded", "Frames made for watches, each for all who watch", COUNTER, encoded)?;
            let evictions = served.evictions as f64;
            own("watch_evictions", "Watches ended because their clients did not read", COUNTER, evictions)?;
            let blocks = served.blocks;
            own("compressed_bytes", "Compressed objects, with the objects", GAUGE, blocks.bytes as f64)?;
            own("compressed_objects", "Objects compressed for lists", COUNTER, blocks.compressed as f64)?;
            own(
                "compressed_found",
                "Objects of lists that were compressed already",
                COUNTER,
                blocks.found as f64,
            )?;
        }
        if let Some(listen) = shared.listen.read().as_ref() {
            own("connections_open", "Connections of clients", GAUGE, listen.connections() as f64)?;
            own(
                "connections_half_open",
                "Those without a complete request",
                GAUGE,
                listen.half_open() as f64,
            )?;
            own(
                "connections_permitted",
                "Connections that there may be: as configured, and as the process has file descriptors for",
                GAUGE,
                listen.permitted() as f64,
            )?;
            own("connections_accepted", "Connections accepted", COUNTER, listen.accepted() as f64)?;
            let metric = encoder.encode_descriptor(
                "connections_closed",
                "Connections closed for breaking a limit",
                None,
                COUNTER,
            );
            let mut family = metric?;
            for (reason, count) in listen.closed() {
                let labels = [("limit", reason)];
                ConstCounter::new(count as f64).encode(family.encode_family(&labels)?)?;
            }
        }
        if let Some((served, of_all)) = &served {
            for (name, help, held) in MEMORY_METRICS {
                let mut family = encoder.encode_descriptor(name, help, None, GAUGE)?;
                for (path, served) in [("clusters", served), ("fleet", of_all)] {
                    let labels = [("path", path)];
                    ConstGauge::new(held(served) as f64).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        if let Some(config) = &shared.config {
            let config = config.borrow().clone();
            let mut own = |name: &str, help: &str, value: f64| {
                let metric = encoder.encode_descriptor(name, help, None, GAUGE)?;
                ConstGauge::new(value).encode(metric)
            };
            own("config_generation", "Configurations that came into force", config.generation as f64)?;
            let refused = f64::from(u8::from(config.refused.is_some()));
            own("config_refused", "1 if the file's content is not in force because it is wrong", refused)?;
        }
        encode_incidents(&mut encoder, &services.fleet)?;
        fitting.encode(&mut encoder)
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Fitting {
    fn new(clusters: Vec<ClusterStats>, total: usize, most: usize) -> Self {
        let mut room = most.saturating_sub(clusters.len() * CLUSTER_METRICS.len());
        let mut left_out = total - clusters.len();
        let mut kinds = Vec::with_capacity(clusters.len());
        for cluster in &clusters {
            let fit = (room / KIND_METRICS.len()).min(cluster.kinds.len());
            room -= fit * KIND_METRICS.len();
            left_out += cluster.kinds.len() - fit;
            kinds.push(fit);
        }
        Self { clusters, kinds, left_out }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, kind, value) in CLUSTER_METRICS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for cluster in &self.clusters {
                let Some(value) = value(cluster) else { continue };
                let labels = [("cluster", cluster.id.as_str())];
                sample(family.encode_family(&labels)?, kind, value)?;
            }
        }
        for (name, help, kind, value) in KIND_METRICS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (cluster, fit) in self.clusters.iter().zip(&self.kinds) {
                for of_kind in cluster.kinds.iter().take(*fit) {
                    let Some(value) = value(of_kind) else { continue };
                    let resource = &of_kind.informer.resource;
                    let labels = [
                        ("cluster", cluster.id.as_str()),
                        ("group", &resource.group),
                        ("version", &resource.version),
                        ("resource", &resource.plural),
                    ];
                    sample(family.encode_family(&labels)?, kind, value)?;
                }
            }
        }
        Ok(())
    }
}

/// A distribution of the incidents of a cause: name, help and figures.
type IncidentMetric = (&'static str, &'static str, fn(&IncidentStats) -> &DurationStats);

const INCIDENT_METRICS: [IncidentMetric; 2] = [
    (
        "incident_detection_seconds",
        "Time from the last proof that a live cluster was well until its problem was found",
        |incidents| &incidents.detection,
    ),
    (
        "incident_healing_seconds",
        "Time from the detection of a problem until the cluster was live again",
        |incidents| &incidents.healing,
    ),
];

fn encode_incidents(encoder: &mut DescriptorEncoder<'_>, fleet: &Fleet) -> Result<(), fmt::Error> {
    let incidents = fleet.incidents();
    for (name, help, durations) in INCIDENT_METRICS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (cause, stats) in &incidents {
            let durations = durations(stats);
            let bounds = DurationStats::BOUNDS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(durations.buckets).collect();
            let labels = [("cause", *cause)];
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                durations.sum.as_secs_f64(),
                durations.count,
                &buckets,
                None,
            )?;
        }
    }
    Ok(())
}

fn sample(
    metric: prometheus_client::encoding::MetricEncoder<'_>,
    kind: MetricType,
    value: f64,
) -> Result<(), fmt::Error> {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(metric),
        _ => ConstGauge::new(value).encode(metric),
    }
}

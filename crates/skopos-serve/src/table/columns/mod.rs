//! Columns of the built-in kinds, as kube-apiserver 1.36 prints them (`pkg/printers/internalversion`).
//!
//! `peers/tables` records rows of every kind from kube-apiserver's own code; the tests of `table` compare with them.

mod access;
mod autoscaler;
mod cluster;
mod devices;
mod network;
mod pod;
mod storage;
mod workload;

pub(super) use self::pod::{PodSummary, conditions as pod_conditions};
use super::row::{BuiltinColumn, NAME};

/// Returns the columns of a kind, by its API group.
pub(super) fn for_kind(group: &str, kind: &str) -> &'static [BuiltinColumn] {
    match group {
        "" => pod::columns(kind)
            .or_else(|| workload::core_columns(kind))
            .or_else(|| network::core_columns(kind))
            .or_else(|| storage::core_columns(kind))
            .or_else(|| cluster::core_columns(kind)),
        "apps" | "batch" | "policy" => workload::columns(kind),
        "autoscaling" => autoscaler::columns(kind),
        "networking.k8s.io" | "discovery.k8s.io" => network::columns(kind),
        "storage.k8s.io" => storage::columns(kind),
        "resource.k8s.io" => devices::columns(kind),
        "rbac.authorization.k8s.io" | "certificates.k8s.io" | "admissionregistration.k8s.io" => {
            access::columns(kind)
        }
        _ => cluster::columns(group, kind),
    }
    .unwrap_or(DEFAULT)
}

/// Columns of kinds that have none of their own.
const DEFAULT: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Created At", "date", |row| row.set_or(&["metadata", "creationTimestamp"], ZERO)),
];

/// Go's zero time, of an object without a creation time.
const ZERO: &str = "0001-01-01T00:00:00Z";

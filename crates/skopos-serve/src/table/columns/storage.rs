//! Columns of volumes, claims, storage classes, attachments and CSI drivers.

use serde_json::Value;

use super::super::row::{AGE, Column, NAME, NONE, Row, UNSET, joined, or, texts};

pub(super) fn core_columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        _ => return None,
    })
}

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "StorageClass" => STORAGE_CLASS,
        "VolumeAttributesClass" => ATTRIBUTES_CLASS,
        "VolumeAttachment" => ATTACHMENT,
        "CSINode" => CSI_NODE,
        "CSIDriver" => CSI_DRIVER,
        _ => return None,
    })
}

const ATTRIBUTES: Column = Column::new("VolumeAttributesClass", "string", |row| {
    row.set_or(&["spec", "volumeAttributesClassName"], UNSET)
});
const MODE: Column = Column::wide("VolumeMode", |row| row.set_or(&["spec", "volumeMode"], UNSET));
const CLASS: Column = Column::new("StorageClass", "string", |row| {
    // The class was an annotation before it was a field, and the annotation still has precedence.
    let annotation = ["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"];
    if row.is_set(&annotation) { row.cell(&annotation) } else { row.cell(&["spec", "storageClassName"]) }
});
const PHASE: Column = Column::new("Status", "string", |row| {
    if row.is_deleted() { "Terminating".into() } else { row.cell(&["status", "phase"]) }
});

const VOLUME: &[Column] = &[
    NAME,
    Column::new("Capacity", "string", |row| quantity(row.get(&["spec", "capacity", "storage"]))),
    Column::new("Access Modes", "string", |row| access_modes(row.get(&["spec", "accessModes"]))),
    Column::new("Reclaim Policy", "string", |row| row.cell(&["spec", "persistentVolumeReclaimPolicy"])),
    PHASE,
    Column::new("Claim", "string", |row| {
        let claim = |field: &str| row.text(&["spec", "claimRef", field]);
        match row.is_set(&["spec", "claimRef"]) {
            true => format!("{}/{}", claim("namespace"), claim("name")).into(),
            false => "".into(),
        }
    }),
    CLASS,
    ATTRIBUTES,
    Column::new("Reason", "string", |row| row.cell(&["status", "reason"])),
    AGE,
    MODE,
];

const CLAIM: &[Column] = &[
    NAME,
    PHASE,
    Column::new("Volume", "string", |row| row.cell(&["spec", "volumeName"])),
    Column::new("Capacity", "string", |row| {
        if_bound(row, |row| quantity(row.get(&["status", "capacity", "storage"])))
    }),
    Column::new("Access Modes", "string", |row| {
        if_bound(row, |row| access_modes(row.get(&["status", "accessModes"])))
    }),
    CLASS,
    ATTRIBUTES,
    AGE,
    MODE,
];

const STORAGE_CLASS: &[Column] = &[
    Column::new("Name", "string", |row| {
        let annotation = |key: &str| row.text(&["metadata", "annotations", key]) == "true";
        let is_default = annotation("storageclass.kubernetes.io/is-default-class")
            || annotation("storageclass.beta.kubernetes.io/is-default-class");
        format!("{}{}", row.text(&["metadata", "name"]), if is_default { " (default)" } else { "" }).into()
    })
    .with_format("name"),
    Column::new("Provisioner", "string", |row| row.cell(&["provisioner"])),
    Column::new("ReclaimPolicy", "string", |row| row.set_or(&["reclaimPolicy"], "Delete")),
    Column::new("VolumeBindingMode", "string", |row| row.set_or(&["volumeBindingMode"], "Immediate")),
    Column::new("AllowVolumeExpansion", "string", |row| row.flag(&["allowVolumeExpansion"])),
    AGE,
];

const ATTRIBUTES_CLASS: &[Column] =
    &[NAME, Column::new("DriverName", "string", |row| row.cell(&["driverName"])), AGE];

const ATTACHMENT: &[Column] = &[
    NAME,
    Column::new("Attacher", "string", |row| row.cell(&["spec", "attacher"])).with_format("name"),
    Column::new("PV", "string", |row| row.cell(&["spec", "source", "persistentVolumeName"])),
    Column::new("Node", "string", |row| row.cell(&["spec", "nodeName"])),
    Column::new("Attached", "boolean", |row| row.flag(&["status", "attached"])),
    AGE,
];

const CSI_NODE: &[Column] =
    &[NAME, Column::new("Drivers", "integer", |row| row.count(&["spec", "drivers"]).into()), AGE];

const CSI_DRIVER: &[Column] = &[
    NAME,
    Column::new("AttachRequired", "boolean", |row| (row.get(&["spec", "attachRequired"]) != false).into()),
    Column::new("PodInfoOnMount", "boolean", |row| row.flag(&["spec", "podInfoOnMount"])),
    Column::new("StorageCapacity", "boolean", |row| row.flag(&["spec", "storageCapacity"])),
    Column::new("TokenRequests", "string", |row| match row.is_set(&["spec", "tokenRequests"]) {
        true => {
            let requests = row.items(&["spec", "tokenRequests"]);
            joined(requests.map(|request| request["audience"].as_str().unwrap_or_default())).into()
        }
        false => UNSET.into(),
    }),
    Column::new("RequiresRepublish", "boolean", |row| row.flag(&["spec", "requiresRepublish"])),
    Column::new("Modes", "string", |row| or(joined(texts(row.get(&["spec", "volumeLifecycleModes"]))), NONE)),
    AGE,
];

/// Returns the cell of a claim that has a volume; the others show nothing.
fn if_bound(row: &Row<'_>, cell: impl Fn(&Row<'_>) -> Value) -> Value {
    if row.text(&["spec", "volumeName"]).is_empty() { "".into() } else { cell(row) }
}

/// Returns the text of a quantity; Go always has one.
pub(super) fn quantity(value: &Value) -> Value {
    match value {
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => number.to_string().into(),
        _ => "0".into(),
    }
}

/// Abbreviates access modes, each once, in kubectl's order.
fn access_modes(modes: &Value) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let there = SHORT.iter().filter(|(long, _)| texts(modes).any(|mode| mode == *long));
    joined(there.map(|(_, short)| *short)).into()
}

//! Columns of volumes, claims, storage classes, attachments and CSI drivers.

use serde_json::Value;

use super::super::row::{AGE, BuiltinColumn, NAME, NONE, TableRow, UNSET, joined, or, texts};

pub(super) fn core_columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        _ => return None,
    })
}

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "StorageClass" => STORAGE_CLASS,
        "VolumeAttributesClass" => ATTRIBUTES_CLASS,
        "VolumeAttachment" => ATTACHMENT,
        "CSINode" => CSI_NODE,
        "CSIDriver" => CSI_DRIVER,
        _ => return None,
    })
}

const ATTRIBUTES: BuiltinColumn = BuiltinColumn::new("VolumeAttributesClass", "string", |row| {
    row.set_or(&["spec", "volumeAttributesClassName"], UNSET)
});
const MODE: BuiltinColumn =
    BuiltinColumn::wide("VolumeMode", |row| row.set_or(&["spec", "volumeMode"], UNSET));
const CLASS: BuiltinColumn = BuiltinColumn::new("StorageClass", "string", |row| {
    // The class was an annotation before it was a field, and the annotation still has precedence.
    let annotation = ["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"];
    if row.is_set(&annotation) { row.cell(&annotation) } else { row.cell(&["spec", "storageClassName"]) }
});
const PHASE: BuiltinColumn = BuiltinColumn::new("Status", "string", |row| {
    if row.is_deleted() { "Terminating".into() } else { row.cell(&["status", "phase"]) }
});

const VOLUME: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Capacity", "string", |row| quantity(row.get(&["spec", "capacity", "storage"]))),
    BuiltinColumn::new("Access Modes", "string", |row| access_modes(row.get(&["spec", "accessModes"]))),
    BuiltinColumn::new("Reclaim Policy", "string", |row| {
        row.cell(&["spec", "persistentVolumeReclaimPolicy"])
    }),
    PHASE,
    BuiltinColumn::new("Claim", "string", |row| {
        let claim = |field: &str| row.text(&["spec", "claimRef", field]);
        match row.is_set(&["spec", "claimRef"]) {
            true => format!("{}/{}", claim("namespace"), claim("name")).into(),
            false => "".into(),
        }
    }),
    CLASS,
    ATTRIBUTES,
    BuiltinColumn::new("Reason", "string", |row| row.cell(&["status", "reason"])),
    AGE,
    MODE,
];

const CLAIM: &[BuiltinColumn] = &[
    NAME,
    PHASE,
    BuiltinColumn::new("Volume", "string", |row| row.cell(&["spec", "volumeName"])),
    BuiltinColumn::new("Capacity", "string", |row| {
        if_bound(row, |row| quantity(row.get(&["status", "capacity", "storage"])))
    }),
    BuiltinColumn::new("Access Modes", "string", |row| {
        if_bound(row, |row| access_modes(row.get(&["status", "accessModes"])))
    }),
    CLASS,
    ATTRIBUTES,
    AGE,
    MODE,
];

const STORAGE_CLASS: &[BuiltinColumn] = &[
    BuiltinColumn::new("Name", "string", |row| {
        let annotation = |key: &str| row.text(&["metadata", "annotations", key]) == "true";
        let is_default = annotation("storageclass.kubernetes.io/is-default-class")
            || annotation("storageclass.beta.kubernetes.io/is-default-class");
        format!("{}{}", row.text(&["metadata", "name"]), if is_default { " (default)" } else { "" }).into()
    })
    .with_format("name"),
    BuiltinColumn::new("Provisioner", "string", |row| row.cell(&["provisioner"])),
    BuiltinColumn::new("ReclaimPolicy", "string", |row| row.set_or(&["reclaimPolicy"], "Delete")),
    BuiltinColumn::new("VolumeBindingMode", "string", |row| row.set_or(&["volumeBindingMode"], "Immediate")),
    BuiltinColumn::new("AllowVolumeExpansion", "string", |row| row.flag(&["allowVolumeExpansion"])),
    AGE,
];

const ATTRIBUTES_CLASS: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("DriverName", "string", |row| row.cell(&["driverName"])), AGE];

const ATTACHMENT: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Attacher", "string", |row| row.cell(&["spec", "attacher"])).with_format("name"),
    BuiltinColumn::new("PV", "string", |row| row.cell(&["spec", "source", "persistentVolumeName"])),
    BuiltinColumn::new("Node", "string", |row| row.cell(&["spec", "nodeName"])),
    BuiltinColumn::new("Attached", "boolean", |row| row.flag(&["status", "attached"])),
    AGE,
];

const CSI_NODE: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("Drivers", "integer", |row| row.count(&["spec", "drivers"]).into()), AGE];

const CSI_DRIVER: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("AttachRequired", "boolean", |row| {
        (row.get(&["spec", "attachRequired"]) != false).into()
    }),
    BuiltinColumn::new("PodInfoOnMount", "boolean", |row| row.flag(&["spec", "podInfoOnMount"])),
    BuiltinColumn::new("StorageCapacity", "boolean", |row| row.flag(&["spec", "storageCapacity"])),
    BuiltinColumn::new("TokenRequests", "string", |row| match row.is_set(&["spec", "tokenRequests"]) {
        true => {
            let requests = row.items(&["spec", "tokenRequests"]);
            joined(requests.map(|request| request["audience"].as_str().unwrap_or_default())).into()
        }
        false => UNSET.into(),
    }),
    BuiltinColumn::new("RequiresRepublish", "boolean", |row| row.flag(&["spec", "requiresRepublish"])),
    BuiltinColumn::new("Modes", "string", |row| {
        or(joined(texts(row.get(&["spec", "volumeLifecycleModes"]))), NONE)
    }),
    AGE,
];

/// Returns the cell of a claim that has a volume; the others show nothing.
fn if_bound(row: &TableRow<'_>, cell: impl Fn(&TableRow<'_>) -> Value) -> Value {
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

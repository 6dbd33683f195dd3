//! Columns of dynamic resource allocation.

use super::super::row::{AGE, Column, NAME};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "DeviceClass" | "ResourceClaimTemplate" => NAME_AND_AGE,
        "ResourceClaim" => CLAIM,
        "ResourceSlice" => SLICE,
        "DeviceTaintRule" => TAINT,
        _ => return None,
    })
}

const NAME_AND_AGE: &[Column] = &[NAME, AGE];

const CLAIM: &[Column] = &[
    NAME,
    Column::new("State", "string", |row| {
        let is_allocated = row.is_set(&["status", "allocation"]);
        let states = [
            ("deleted", row.is_deleted()),
            ("pending", !is_allocated && !row.is_deleted()),
            ("allocated", is_allocated),
            ("reserved", is_allocated && row.count(&["status", "reservedFor"]) > 0),
        ];
        let states = states.into_iter().filter(|(_, holds)| *holds).map(|(state, _)| state);
        states.collect::<Vec<_>>().join(",").into()
    }),
    AGE,
];

const SLICE: &[Column] = &[
    NAME,
    Column::new("Node", "string", |row| row.cell(&["spec", "nodeName"])),
    Column::new("Driver", "string", |row| row.cell(&["spec", "driver"])),
    Column::new("Pool", "string", |row| row.cell(&["spec", "pool", "name"])),
    AGE,
];

const TAINT: &[Column] = &[
    NAME,
    Column::new("Key", "string", |row| row.cell(&["spec", "taint", "key"])),
    Column::new("Value", "string", |row| row.cell(&["spec", "taint", "value"])),
    Column::new("Effect", "string", |row| row.cell(&["spec", "taint", "effect"])),
    Column::new("TimeAdded", "string", |row| match row.text(&["spec", "taint", "timeAdded"]) {
        "" => "".into(),
        time => row.since_text(time).into(),
    }),
    AGE,
];

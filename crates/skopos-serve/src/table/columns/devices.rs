//! Columns of dynamic resource allocation.

use super::super::row::{AGE, BuiltinColumn, NAME};

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "DeviceClass" | "ResourceClaimTemplate" => NAME_AND_AGE,
        "ResourceClaim" => CLAIM,
        "ResourceSlice" => SLICE,
        "DeviceTaintRule" => TAINT,
        _ => return None,
    })
}

const NAME_AND_AGE: &[BuiltinColumn] = &[NAME, AGE];

const CLAIM: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("State", "string", |row| {
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

const SLICE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Node", "string", |row| row.cell(&["spec", "nodeName"])),
    BuiltinColumn::new("Driver", "string", |row| row.cell(&["spec", "driver"])),
    BuiltinColumn::new("Pool", "string", |row| row.cell(&["spec", "pool", "name"])),
    AGE,
];

const TAINT: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Key", "string", |row| row.cell(&["spec", "taint", "key"])),
    BuiltinColumn::new("Value", "string", |row| row.cell(&["spec", "taint", "value"])),
    BuiltinColumn::new("Effect", "string", |row| row.cell(&["spec", "taint", "effect"])),
    BuiltinColumn::new("TimeAdded", "string", |row| match row.text(&["spec", "taint", "timeAdded"]) {
        "" => "".into(),
        time => row.since_text(time).into(),
    }),
    AGE,
];

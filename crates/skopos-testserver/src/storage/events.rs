//! Events are one kind in two API groups: `v1` and `events.k8s.io/v1` have different names for some fields. Each Event is stored
//! in both forms, so that readers of either group find all of them, with the same versions.

use serde_json::{Map, Value};

use super::{Draft, ResourceKey};

const CORE: &str = "v1";
const NEW: &str = "events.k8s.io/v1";

/// Renamed fields: `(name in v1, name in events.k8s.io/v1)`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Returns the resource with the same objects in another form, if the resource is Events.
pub(super) fn counterpart(resource: &ResourceKey) -> Option<ResourceKey> {
    match (&*resource.group, &*resource.plural) {
        ("", "events") => Some(ResourceKey::new("events.k8s.io", "events")),
        ("events.k8s.io", "events") => Some(ResourceKey::new("", "events")),
        _ => None,
    }
}

/// Converts an Event to the form of `counterpart`.
pub(super) fn convert(draft: &Draft, counterpart: &ResourceKey) -> Draft {
    let to_core = counterpart.group.is_empty();
    let rename = |name: &str| {
        let renamed = RENAMED.iter().find(|(core, new)| *(if to_core { new } else { core }) == name);
        renamed.map_or(name, |(core, new)| if to_core { core } else { new }).to_owned()
    };
    let Value::Object(event) = draft.to_value() else { return draft.clone() };
    let mut event: Map<String, Value> =
        event.into_iter().map(|(name, value)| (rename(&name), value)).collect();
    event.insert("apiVersion".into(), (if to_core { CORE } else { NEW }).into());
    // Only names of fields changed, so it can still be stored.
    Draft::from_value(&Value::Object(event)).unwrap_or_else(|_| draft.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_converts_between_groups_and_back() {
        let core = json!({"kind": "Event", "apiVersion": "v1",
            "metadata": {"name": "e", "namespace": "n", "uid": "u", "resourceVersion": ""},
            "involvedObject": {"kind": "Pod", "name": "p"}, "message": "m", "reason": "R", "count": 2,
            "source": {"component": "c"}, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z", "reportingComponent": "k", "series": {"count": 3}});
        let draft = Draft::from_value(&core).unwrap();
        let new = convert(&draft, &ResourceKey::new("events.k8s.io", "events"));
        let expected = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": "e", "namespace": "n", "uid": "u", "resourceVersion": ""},
            "regarding": {"kind": "Pod", "name": "p"}, "note": "m", "reason": "R", "deprecatedCount": 2,
            "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedLastTimestamp": "2026-01-01T00:00:00Z", "reportingController": "k", "series": {"count": 3}});
        assert_eq!(new.to_value(), expected);
        assert_eq!(convert(&new, &ResourceKey::new("", "events")).to_value(), core);
    }
}

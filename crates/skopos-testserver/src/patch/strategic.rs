//! Strategic merge patch: a merge patch that merges lists by key and supports directives (`$patch`, `$retainKeys`,
//! `$setElementOrder/FIELD`, `$deleteFromPrimitiveList/FIELD`).

use serde_json::{Map, Value};

use super::shape::ListShape;
use super::{PatchError, PatchShape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into `target`; both are objects.
pub(super) fn merge(target: &mut Value, patch: &Value, shape: PatchShape<'_>) -> Result<(), PatchError> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_map(target, patch, shape),
        (target, patch) => {
            *target = without_directives(patch);
            Ok(())
        }
    }
}

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    shape: PatchShape<'_>,
) -> Result<(), PatchError> {
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *target = map_without_directives(patch);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(other) => return Err(unprocessable(format!("unknown patch type: {other}"))),
    }
    if let Some(keep) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        target.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            delete_scalars(target, field, value);
        } else if !key.starts_with('$') {
            merge_field(target, key, value, patch, shape.field(key))?;
        }
    }
    // A patch may reorder a list that it does not change otherwise.
    for (key, order) in patch {
        let Some(field) = key.strip_prefix(ELEMENT_ORDER) else { continue };
        if !patch.contains_key(field)
            && let Some(Value::Array(items)) = target.get_mut(field)
        {
            let before = items.clone();
            sort_by(items, order, &before, shape.field(field));
        }
    }
    Ok(())
}

fn merge_field(
    target: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    patch: &Map<String, Value>,
    shape: PatchShape<'_>,
) -> Result<(), PatchError> {
    if value.is_null() {
        target.remove(key);
        return Ok(());
    }
    match (target.get_mut(key), value) {
        (Some(Value::Object(inner)), Value::Object(value)) => merge_map(inner, value, shape),
        // The items of the patch are in its order.
        (Some(Value::Array(items)), Value::Array(changes)) => {
            let before = items.clone();
            merge_list(items, changes, shape)?;
            if shape.strategic_list() != ListShape::Atomic {
                sort_by(items, value, &before, shape);
            }
            if let Some(order) = patch.get(&format!("{ELEMENT_ORDER}{key}")) {
                sort_by(items, order, &before, shape);
            }
            Ok(())
        }
        _ => {
            target.insert(key.to_owned(), without_directives(value));
            Ok(())
        }
    }
}

fn merge_list(items: &mut Vec<Value>, changes: &[Value], shape: PatchShape<'_>) -> Result<(), PatchError> {
    match shape.strategic_list() {
        ListShape::Atomic => *items = changes.iter().map(without_directives).collect(),
        ListShape::Set => {
            for change in changes {
                if !items.contains(change) {
                    items.push(change.clone());
                }
            }
        }
        ListShape::Keyed(keys) => {
            let key = keys.first().copied().unwrap_or("name");
            if changes.iter().any(|change| change[PATCH] == "replace") {
                items.clear();
            }
            for change in changes {
                merge_item(items, change, key, shape.item())?;
            }
        }
    }
    Ok(())
}

fn merge_item(
    items: &mut Vec<Value>,
    change: &Value,
    key: &str,
    shape: PatchShape<'_>,
) -> Result<(), PatchError> {
    let wanted = match (change.get(key), change[PATCH].as_str()) {
        (Some(wanted), _) => wanted,
        (None, Some("replace")) => return Ok(()),
        (None, _) => {
            return Err(unprocessable(format!("map: {change} does not contain declared merge key: {key}")));
        }
    };
    let place = items.iter().position(|item| item.get(key) == Some(wanted));
    match (place, change[PATCH].as_str()) {
        (Some(at), Some("delete")) => {
            items.remove(at);
        }
        (None, Some("delete")) => {}
        (Some(at), _) => merge(&mut items[at], change, shape)?,
        (None, _) => items.push(without_directives(change)),
    }
    Ok(())
}

fn delete_scalars(target: &mut Map<String, Value>, field: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(field), gone) {
        items.retain(|item| !gone.contains(item));
    }
}

/// Sorts `items` in the order of the patch. Items that the patch does not name keep their position relative to the preceding
/// items on the server.
fn sort_by(items: &mut Vec<Value>, order: &Value, before: &[Value], shape: PatchShape<'_>) {
    let Some(order) = order.as_array() else { return };
    let key = match shape.strategic_list() {
        ListShape::Keyed(keys) => keys.first().copied(),
        _ => None,
    };
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    };
    let place_in = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, others): (Vec<_>, Vec<_>) =
        std::mem::take(items).into_iter().partition(|item| place_in(order, item).is_some());
    named.sort_by_key(|item| place_in(order, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (named.peek(), others.peek()) {
        let other_first = match (place_in(before, left), place_in(before, right)) {
            (Some(left), Some(right)) => right < left,
            _ => false,
        };
        items.extend(if other_first { others.next() } else { named.next() });
    }
    items.extend(named);
    items.extend(others);
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map_without_directives(map)),
        Value::Array(items) => {
            let kept = items.iter().filter(|item| item[PATCH] != "delete" && item[PATCH] != "replace");
            Value::Array(kept.map(without_directives).collect())
        }
        scalar => scalar.clone(),
    }
}

fn map_without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let is_directive = |key: &str| {
        key == PATCH || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || key.starts_with(DELETE_FROM)
    };
    let kept = map.iter().filter(|(key, value)| !value.is_null() && !is_directive(key));
    kept.map(|(key, value)| (key.clone(), without_directives(value))).collect()
}

fn unprocessable(message: String) -> PatchError {
    PatchError::Unprocessable(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut target: Value, patch: &Value) -> Value {
        merge(&mut target, patch, PatchShape::builtin()).unwrap();
        target
    }

    fn pod(containers: Value) -> Value {
        json!({"spec": {"containers": containers}})
    }

    #[test]
    fn containers_merge_by_name() {
        let before =
            pod(json!([{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]));
        let patch =
            pod(json!([{"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]));
        let expected = pod(json!([
            {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
            {"name": "c"}, {"name": "b"},
        ]));
        assert_eq!(merged(before, &patch), expected);
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let before = pod(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"$patch": "delete", "name": "b"}, {"name": "c", "image": "c:2"}],
        }});
        assert_eq!(
            merged(before.clone(), &patch),
            pod(json!([{"name": "c", "image": "c:2"}, {"name": "a"}]))
        );
        let patch = pod(json!([{"name": "z"}, {"$patch": "replace"}]));
        assert_eq!(merged(before, &patch), pod(json!([{"name": "z"}])));
    }

    #[test]
    fn unnamed_item_stays_after_its_predecessor() {
        let before = pod(json!([{"name": "a"}, {"name": "server"}, {"name": "b"}]));
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}, {"name": "n"}],
                                    "containers": [{"name": "n"}]}});
        let expected = pod(json!([{"name": "a"}, {"name": "server"}, {"name": "b"}, {"name": "n"}]));
        assert_eq!(merged(before, &patch), expected);
    }

    #[test]
    fn scalars_are_added_to_and_deleted_from_sets() {
        let before = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patch = json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}});
        assert_eq!(merged(before, &patch), json!({"metadata": {"finalizers": ["c", "b"]}}));
    }

    #[test]
    fn retain_keys_clears_other_union_members() {
        let before =
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
        let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        assert_eq!(merged(before, &patch), json!({"spec": {"strategy": {"type": "Recreate"}}}));
    }

    #[test]
    fn other_lists_are_replaced_and_null_removes() {
        let before = json!({"spec": {"tolerations": [{"key": "a"}], "nodeName": "n"}});
        let patch =
            json!({"spec": {"tolerations": [{"key": "b"}], "nodeName": null, "new": {"x": null, "y": 1}}});
        assert_eq!(merged(before, &patch), json!({"spec": {"tolerations": [{"key": "b"}], "new": {"y": 1}}}));
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        let mut before = pod(json!([{"name": "a"}]));
        let error = merge(&mut before, &pod(json!([{"image": "x"}])), PatchShape::builtin());
        assert!(matches!(error, Err(PatchError::Unprocessable(_))), "{error:?}");
    }
}

//! Server-side apply: merging what one manager wants into an object that others manage too.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{FieldSet, field_edge, item_edge};
use super::managed::{Manager, Managers};
use super::shape::ListShape;
use super::{PatchError, Shape};

/// A field that somebody else owns and that this apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Who owns it, as the API server prints a manager: `"kubectl" using apps/v1`.
    pub(crate) manager: String,
    /// Which field: `.spec.replicas`.
    pub(crate) path: String,
}

/// Applies `config` as `manager` to `live` (`None`: the object is created), and updates `managers`.
///
/// Both objects come without `managedFields`. Fields that this manager applied before and leaves out now are removed,
/// unless others own them too.
///
/// # Errors
/// When fields with other values are owned by others and `force` is not set.
pub(crate) fn apply(
    live: Option<&Value>,
    config: &Value,
    managers: &mut Managers,
    manager: &Manager,
    force: bool,
    shape: Shape<'_>,
) -> Result<Value, PatchError> {
    let config = without_nulls(config);
    let wanted = super::managed::without_unmanaged(&FieldSet::of(&config, shape, false));
    let Some(live) = live else {
        managers.set(manager, wanted);
        return Ok(config);
    };
    let merged = merge(live, &config, shape);
    let changed = super::fields::changes(live, &merged, shape).written;

    let mut conflicts = Vec::new();
    for (other, owned) in managers.others(manager) {
        let taken = owned.intersection(&changed);
        conflicts.extend(taken.paths().into_iter().map(|path| Conflict { manager: other.printed(), path }));
    }
    if !conflicts.is_empty() && !force {
        return Err(PatchError::Conflict(conflicts));
    }
    managers.take_from_others(manager, &changed);

    let before = managers.of(manager);
    managers.set(manager, wanted.clone());
    let dropped = before.difference_sparing(&wanted.union(&managers.union_of_others(manager)));
    Ok(prune(&merged, &dropped, shape))
}

/// The message of a 409 about these conflicts.
pub(crate) fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.path);
    }
    let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(&conflict.path);
    }
    let mut lines = Vec::new();
    for (manager, paths) in by_manager {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(paths.iter().map(|path| format!("- {path}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

fn merge(live: &Value, config: &Value, shape: Shape<'_>) -> Value {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !shape.is_atomic_map() => {
            let mut result = live.clone();
            for (name, value) in config {
                let merged = match live.get(name) {
                    Some(live) => merge(live, value, shape.field(name)),
                    None => value.clone(),
                };
                result.insert(name.clone(), merged);
            }
            Value::Object(result)
        }
        (Value::Array(live), Value::Array(config)) if shape.list() != ListShape::Atomic => {
            merge_items(live, config, shape)
        }
        _ => config.clone(),
    }
}

fn merge_items(live: &[Value], config: &[Value], shape: Shape<'_>) -> Value {
    let mut result = live.to_vec();
    for item in config {
        let edge = item_edge(item, shape);
        match result.iter_mut().find(|live| item_edge(live, shape) == edge) {
            Some(live) => *live = merge(live, item, shape.item()),
            None => result.push(item.clone()),
        }
    }
    Value::Array(result)
}

/// Removes fields; an object or list that becomes empty by it goes too.
fn prune(value: &Value, gone: &FieldSet, shape: Shape<'_>) -> Value {
    prune_below(value, gone, shape).unwrap_or_else(|| Value::Object(serde_json::Map::new()))
}

fn prune_below(value: &Value, gone: &FieldSet, shape: Shape<'_>) -> Option<Value> {
    let keep = |edge: &str, value: &Value, shape: Shape<'_>| match gone.child(edge) {
        None => Some(value.clone()),
        Some(below) if below.is_member() => None,
        Some(below) => prune_below(value, below, shape),
    };
    let kept = match value {
        Value::Object(map) => {
            let fields = map.iter();
            let kept =
                fields.filter_map(|(k, v)| Some((k.clone(), keep(&field_edge(k), v, shape.field(k))?)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => {
            Value::Array(items.iter().filter_map(|i| keep(&item_edge(i, shape), i, shape.item())).collect())
        }
        scalar => scalar.clone(),
    };
    let emptied =
        kept.as_object().is_some_and(|m| m.is_empty()) || kept.as_array().is_some_and(Vec::is_empty);
    (!emptied || kept == *value).then_some(kept)
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::managed::Operation;

    fn manager(name: &str) -> Manager {
        Manager::new(name, Operation::Apply, "apps/v1", None)
    }

    fn deployment(replicas: i64, labels: Value) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"replicas": replicas}})
    }

    #[test]
    fn a_second_apply_removes_what_it_leaves_out() {
        let mut managers = Managers::default();
        let a = manager("a");
        let first = deployment(1, json!({"x": "1", "y": "2"}));
        let live = apply(None, &first, &mut managers, &a, false, Shape::builtin()).unwrap();
        let second = deployment(1, json!({"x": "1"}));
        let live = apply(Some(&live), &second, &mut managers, &a, false, Shape::builtin()).unwrap();
        assert_eq!(live, second);
    }

    #[test]
    fn another_owner_keeps_a_field() {
        let mut managers = Managers::default();
        let (a, b) = (manager("a"), manager("b"));
        let config = deployment(1, json!({"x": "1"}));
        let live = apply(None, &config, &mut managers, &a, false, Shape::builtin()).unwrap();
        let live = apply(Some(&live), &config, &mut managers, &b, false, Shape::builtin()).unwrap();
        let nothing = json!({"metadata": {}});
        let live = apply(Some(&live), &nothing, &mut managers, &a, false, Shape::builtin()).unwrap();
        assert_eq!(live["spec"]["replicas"], 1);
        let live = apply(Some(&live), &nothing, &mut managers, &b, false, Shape::builtin()).unwrap();
        assert_eq!(live.get("spec"), None);
    }

    #[test]
    fn conflicts_are_named_and_force_takes_over() {
        let mut managers = Managers::default();
        let (a, b) = (manager("a"), manager("b"));
        let live = apply(None, &deployment(1, json!({"x": "1"})), &mut managers, &a, false, Shape::builtin())
            .unwrap();
        let wish = deployment(2, json!({}));
        let error = apply(Some(&live), &wish, &mut managers, &b, false, Shape::builtin()).unwrap_err();
        assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas");
        let live = apply(Some(&live), &wish, &mut managers, &b, true, Shape::builtin()).unwrap();
        assert_eq!(live["spec"]["replicas"], 2);
        assert_eq!(managers.of(&a).paths(), [".metadata.labels.x"]);
        let error =
            apply(Some(&live), &deployment(3, json!({"x": "1"})), &mut managers, &a, false, Shape::builtin());
        assert!(matches!(error, Err(PatchError::Conflict(_))));
    }

    #[test]
    fn a_dropped_container_goes_as_a_whole() {
        let mut managers = Managers::default();
        let a = manager("a");
        let pod = |names: &[&str]| {
            let containers: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
            json!({"spec": {"containers": containers}})
        };
        let mut live = apply(None, &pod(&["x", "y"]), &mut managers, &a, false, Shape::builtin()).unwrap();
        live["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
        let live = apply(Some(&live), &pod(&["x"]), &mut managers, &a, false, Shape::builtin()).unwrap();
        assert_eq!(live, pod(&["x"]));
    }

    #[test]
    fn many_conflicts_are_listed_by_manager() {
        let conflict =
            |manager: &str, path: &str| Conflict { manager: format!("{manager:?}"), path: path.into() };
        let message = conflict_message(&[conflict("a", ".x"), conflict("b", ".y"), conflict("a", ".z")]);
        let expected =
            "Apply failed with 3 conflicts: conflicts with \"a\":\n- .x\n- .z\nconflicts with \"b\":\n- .y";
        assert_eq!(message, expected);
    }
}

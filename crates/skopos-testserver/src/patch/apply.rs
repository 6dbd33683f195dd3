//! Server-side apply: merging one manager's configuration into an object with other managers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fields::{FieldSet, field_edge, item_edge};
use super::managed::{Manager, Managers};
use super::shape::ListShape;
use super::{PatchError, PatchShape};

/// Conflict: a field that another manager owns and that this apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Owner, as the API server prints a manager: `"kubectl" using apps/v1`.
    pub(crate) manager: String,
    /// Path of the field: `.spec.replicas`.
    pub(crate) path: String,
}

/// Applies `config` as `manager` to `live` (`None`: the object is created), and updates `managers`.
///
/// Neither object has `managedFields`. Fields that this manager applied before and omits now are removed, unless other managers
/// own them too.
///
/// # Errors
/// When other managers own fields with other values and `force` is not set.
pub(crate) fn apply(
    live: Option<&Value>,
    config: &Value,
    managers: &mut Managers,
    manager: &Manager,
    force: bool,
    shape: PatchShape<'_>,
) -> Result<Value, PatchError> {
    let config = without_nulls(config);
    let wanted = super::managed::without_unmanaged(&FieldSet::from_value(&config, shape, false));
    let Some(live) = live else {
        managers.set(manager, wanted);
        return Ok(config);
    };
    let merged = merge(live, &config, shape);
    let before = managers.fields_of(manager);
    managers.set(manager, wanted);
    let new = prune(merged, &before, managers, shape);
    let changes = super::fields::changes(live, &new, shape);

    let mut conflicts = Vec::new();
    for (other, owned) in managers.others(manager) {
        let taken = owned.intersection(&changes.written);
        conflicts.extend(taken.paths().into_iter().map(|path| Conflict { manager: other.printed(), path }));
    }
    if !conflicts.is_empty() && !force {
        return Err(PatchError::Conflict(conflicts));
    }
    managers.take_from_others(manager, &changes.written);
    managers.take_from_others(manager, &changes.removed);
    Ok(new)
}

/// Returns the message of a 409 with these conflicts.
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

fn merge(live: &Value, config: &Value, shape: PatchShape<'_>) -> Value {
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

/// Merges two lists item by item. The items of `config` keep their order. Those that only `live` has keep their positions between
/// the common items.
fn merge_items(live: &[Value], config: &[Value], shape: PatchShape<'_>) -> Value {
    let live = Items::new(live, shape);
    let config = Items::new(config, shape);
    let mut shared = config.edges.iter().filter(|edge| live.has(edge));
    let mut next_shared = shared.next();
    let mut merged = BTreeSet::new();
    let mut result = Vec::with_capacity(live.edges.len().max(config.edges.len()));
    let (mut l, mut r) = (0, 0);
    while l < live.edges.len() || r < config.edges.len() {
        if let (Some(left), Some(right)) = (live.edges.get(l), config.edges.get(r)) {
            if left == right {
                merged.insert(left);
                result.push(config.merged_into(&live, right, shape));
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if config.has(left) && next_shared.is_some_and(|next| next != left) {
                // It comes later in the new order.
                l += 1;
                continue;
            }
        }
        if let Some(left) = live.edges.get(l) {
            if !config.has(left) {
                result.push(live.values[l].clone());
                l += 1;
                continue;
            }
            if merged.contains(left) {
                l += 1;
            }
        }
        if let Some(right) = config.edges.get(r) {
            merged.insert(right);
            result.push(config.merged_into(&live, right, shape));
            r += 1;
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }
    Value::Array(result)
}

/// Items of a list, with their merge keys.
struct Items<'a> {
    values: &'a [Value],
    edges: Vec<String>,
    by_edge: BTreeMap<String, Vec<&'a Value>>,
}

impl<'a> Items<'a> {
    fn new(values: &'a [Value], shape: PatchShape<'_>) -> Self {
        let edges: Vec<String> = values.iter().map(|item| item_edge(item, shape)).collect();
        let mut by_edge: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for (edge, value) in edges.iter().zip(values) {
            by_edge.entry(edge.clone()).or_default().push(value);
        }
        Self { values, edges, by_edge }
    }

    fn has(&self, edge: &str) -> bool {
        self.by_edge.contains_key(edge)
    }

    /// Returns an item merged into its counterpart in `live`. If `live` has several with that key, none is the counterpart.
    fn merged_into(&self, live: &Items<'_>, edge: &str, shape: PatchShape<'_>) -> Value {
        let own = self.by_edge.get(edge).and_then(|items| items.first());
        match (live.by_edge.get(edge).map(Vec::as_slice), own) {
            (Some([there]), Some(own)) => merge(there, own, shape.item()),
            (_, own) => own.map(|own| (*own).clone()).unwrap_or_default(),
        }
    }
}

/// Removes fields that the manager applied `before` and no longer applies, unless another manager owns them.
///
/// A list item is removed as a whole, even if other managers own some of its fields. Only an owner of the item itself keeps it.
fn prune(merged: Value, before: &FieldSet, managers: &Managers, shape: PatchShape<'_>) -> Value {
    if before.is_empty() {
        return merged;
    }
    let before = before.with_named_fields();
    let all = |object: &Value| FieldSet::from_value(object, shape, false).with_named_fields();
    let everything = all(&merged);
    let left = all(&without(&merged, &before, shape));
    let kept = left.union(&managers.union_of_all().with_named_fields());
    let left = all(&without(&merged, &everything.difference(&kept), shape));
    without(&merged, &everything.difference(&left).intersection(&before), shape)
}

/// Removes fields; an object or list that becomes empty is removed too.
fn without(value: &Value, gone: &FieldSet, shape: PatchShape<'_>) -> Value {
    without_below(value, gone, shape).unwrap_or_else(|| Value::Object(serde_json::Map::new()))
}

fn without_below(value: &Value, gone: &FieldSet, shape: PatchShape<'_>) -> Option<Value> {
    let keep = |edge: &str, value: &Value, shape: PatchShape<'_>| match gone.child(edge) {
        None => Some(value.clone()),
        Some(below) if below.is_member() => None,
        Some(below) => without_below(value, below, shape),
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
    use crate::patch::managed::{self, Operation};

    fn manager(name: &str) -> Manager {
        Manager::new(name, Operation::Apply, "apps/v1", None)
    }

    fn deployment(replicas: i64, labels: Value) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"replicas": replicas}})
    }

    #[test]
    fn second_apply_removes_omitted_fields() {
        let mut managers = Managers::default();
        let a = manager("a");
        let first = deployment(1, json!({"x": "1", "y": "2"}));
        let live = apply(None, &first, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        let second = deployment(1, json!({"x": "1"}));
        let live = apply(Some(&live), &second, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        assert_eq!(live, second);
    }

    #[test]
    fn another_owner_keeps_a_field() {
        let mut managers = Managers::default();
        let (a, b) = (manager("a"), manager("b"));
        let config = deployment(1, json!({"x": "1"}));
        let live = apply(None, &config, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        let live = apply(Some(&live), &config, &mut managers, &b, false, PatchShape::builtin()).unwrap();
        let nothing = json!({"metadata": {}});
        let live = apply(Some(&live), &nothing, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        assert_eq!(live["spec"]["replicas"], 1);
        let live = apply(Some(&live), &nothing, &mut managers, &b, false, PatchShape::builtin()).unwrap();
        assert_eq!(live.get("spec"), None);
    }

    #[test]
    fn conflicts_are_named_and_force_takes_over() {
        let mut managers = Managers::default();
        let (a, b) = (manager("a"), manager("b"));
        let live =
            apply(None, &deployment(1, json!({"x": "1"})), &mut managers, &a, false, PatchShape::builtin())
                .unwrap();
        let wish = deployment(2, json!({}));
        let error = apply(Some(&live), &wish, &mut managers, &b, false, PatchShape::builtin()).unwrap_err();
        assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas");
        let live = apply(Some(&live), &wish, &mut managers, &b, true, PatchShape::builtin()).unwrap();
        assert_eq!(live["spec"]["replicas"], 2);
        assert_eq!(managers.fields_of(&a).paths(), [".metadata.labels.x"]);
        let error = apply(
            Some(&live),
            &deployment(3, json!({"x": "1"})),
            &mut managers,
            &a,
            false,
            PatchShape::builtin(),
        );
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
        let mut live =
            apply(None, &pod(&["x", "y"]), &mut managers, &a, false, PatchShape::builtin()).unwrap();
        live["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
        let live = apply(Some(&live), &pod(&["x"]), &mut managers, &a, false, PatchShape::builtin()).unwrap();
        assert_eq!(live, pod(&["x"]));
    }

    fn containers(images: &[(&str, &str)]) -> Value {
        let containers: Vec<_> = images.iter().map(|(n, i)| json!({"name": n, "image": i})).collect();
        json!({"spec": {"containers": containers}})
    }

    #[test]
    fn apply_drops_container_despite_foreign_image_change() {
        let mut managers = Managers::default();
        let (a, other) = (manager("a"), Manager::new("kubectl-set", Operation::Update, "apps/v1", None));
        let both = containers(&[("web", "web:1"), ("helper", "helper:1")]);
        let live = apply(None, &both, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        let changed = containers(&[("web", "web:1"), ("helper", "helper:2")]);
        managed::record(&mut managers, &other, Some(&live), &changed, PatchShape::builtin());
        let one = containers(&[("web", "web:1")]);
        let live = apply(Some(&changed), &one, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        assert_eq!(live, one);
        assert!(managers.fields_of(&other).is_empty(), "what is gone has no owner");
    }

    #[test]
    fn a_container_that_another_manager_owns_stays() {
        let mut managers = Managers::default();
        let (a, b) = (manager("a"), manager("b"));
        let both = containers(&[("web", "web:1"), ("helper", "helper:1")]);
        let live = apply(None, &both, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        let helper = containers(&[("helper", "helper:1")]);
        let live = apply(Some(&live), &helper, &mut managers, &b, false, PatchShape::builtin()).unwrap();
        let web = containers(&[("web", "web:1")]);
        let live = apply(Some(&live), &web, &mut managers, &a, false, PatchShape::builtin()).unwrap();
        assert_eq!(live, both);
    }

    /// Merges two lists of containers and returns their names.
    fn order(live: &str, config: &str) -> String {
        let list = |names: &str| containers(&names.split(' ').map(|name| (name, "i")).collect::<Vec<_>>());
        let merged = merge(&list(live), &list(config), PatchShape::builtin());
        let names = merged["spec"]["containers"].as_array().unwrap().iter();
        names.map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn merged_items_follow_order_of_configuration() {
        for (live, config, expected) in [
            ("b", "a b", "a b"),
            ("a b c", "c b a", "c b a"),
            ("a x b", "b a", "x b a"),
            ("x a y b z", "a b", "x a y b z"),
            ("x a y b z", "b a", "x y b z a"),
            ("a b", "n a b", "n a b"),
            ("a b", "a n b", "a n b"),
            ("a b", "a b n", "a b n"),
            ("x y", "a b", "x y a b"),
            ("a b c d", "d x b", "a c d x b"),
        ] {
            assert_eq!(order(live, config), expected, "{live} and {config}");
        }
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

//! Description of an update's changes in one short line: `status.phase: Pending → Running`.
use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use skopos_console::human::one_line;

/// Size limits of a described difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiffLimits {
    /// Changed fields that are named; the rest is counted
    pub(crate) fields: usize,
    /// Characters of one value
    pub(crate) value: usize,
    /// Characters of one path
    pub(crate) path: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { fields: 6, value: 40, path: 80 }
    }
}

/// One field that differs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// Path of the field, as `spec.containers[app].image`
    pub(crate) path: String,
    /// Old value; absent when the field is new
    pub(crate) old: Option<Value>,
    /// New value; absent when the field was removed
    pub(crate) new: Option<Value>,
}

/// Returns the fields in which two states of an object differ, in the order of the paths.
///
/// Bookkeeping that differs in every update (`metadata.resourceVersion`, `metadata.managedFields`) is left out, and
/// `metadata.generation` too unless nothing else changed. Array items that carry a name (or a `type`, as conditions do)
/// are compared by it, so that an item inserted at the front is one change.
pub(crate) fn diff(old: &Value, new: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    walk(&mut String::new(), Some(old), Some(new), &mut changes);
    let (noise, mut telling): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| change.path == "metadata.generation");
    if telling.is_empty() {
        telling = noise;
    }
    telling
}

/// Returns the changes in one line; empty when there are none.
pub(crate) fn describe(changes: &[Change], limits: DiffLimits) -> String {
    let mut line = String::new();
    for change in changes.iter().take(limits.fields) {
        if !line.is_empty() {
            line.push_str(", ");
        }
        let path = one_line(&change.path, limits.path);
        let show = |value: &Option<Value>| value.as_ref().map(|value| render(value, limits.value));
        let _ = match (show(&change.old), show(&change.new)) {
            (Some(old), Some(new)) => write!(line, "{path}: {old} → {new}"),
            (None, Some(new)) => write!(line, "+{path}: {new}"),
            (Some(old), None) => write!(line, "-{path}: {old}"),
            (None, None) => Ok(()),
        };
    }
    if changes.len() > limits.fields {
        let _ = write!(line, ", and {} more", changes.len() - limits.fields);
    }
    line
}

/// Depth at which values are compared whole; real objects end long before.
const MAX_DEPTH: usize = 64;

fn walk(path: &mut String, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<Change>) {
    let too_deep = path.bytes().filter(|b| matches!(b, b'.' | b'[')).count() >= MAX_DEPTH;
    match (old, new) {
        (Some(old), Some(new)) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) if !too_deep => {
            let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for key in keys {
                step(path, &field(key), |path| {
                    if !is_bookkeeping(path) {
                        walk(path, old.get(key), new.get(key), changes);
                    }
                });
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if !too_deep => {
            match (by_name(old), by_name(new)) {
                (Some(old), Some(new)) => {
                    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
                    for name in names {
                        step(path, &format!("[{name}]"), |path| {
                            walk(path, old.get(name).copied(), new.get(name).copied(), changes);
                        });
                    }
                }
                _ if old.len() == new.len() => {
                    for (index, (old, new)) in old.iter().zip(new).enumerate() {
                        step(path, &format!("[{index}]"), |path| {
                            walk(path, Some(old), Some(new), changes);
                        });
                    }
                }
                _ => {
                    record(path, Some(&Value::Array(old.clone())), Some(&Value::Array(new.clone())), changes)
                }
            }
        }
        (old, new) => record(path, old, new, changes),
    }
}

fn record(path: &str, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<Change>) {
    changes.push(Change { path: path.into(), old: old.cloned(), new: new.cloned() });
}

/// Runs `visit` with the path one step longer, and takes the step back.
fn step(path: &mut String, segment: &str, visit: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(if length == 0 { segment.trim_start_matches('.') } else { segment });
    visit(path);
    path.truncate(length);
}

/// Returns a key as a step of a path. Keys with dots or slashes, as labels have, are put in brackets.
fn field(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { format!(".{key}") } else { format!("[{key}]") }
}

fn is_bookkeeping(path: &str) -> bool {
    matches!(path, "metadata.resourceVersion" | "metadata.managedFields")
}

/// Returns the items by their identity (name, type or IP), if every item has one and no two share it.
fn by_name(items: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    const IDENTITIES: [&str; 3] = ["name", "type", "ip"];
    if items.is_empty() {
        return Some(BTreeMap::new());
    }
    IDENTITIES.iter().find_map(|identity| {
        let named: BTreeMap<_, _> =
            items.iter().filter_map(|item| Some((item.get(identity)?.as_str()?, item))).collect();
        (named.len() == items.len()).then_some(named)
    })
}

fn render(value: &Value, max: usize) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".into(),
        Value::String(text) => one_line(text, max),
        Value::Object(fields) if fields.is_empty() => "{}".into(),
        Value::Array(items) if items.is_empty() => "[]".into(),
        scalar_or_tree => one_line(&scalar_or_tree.to_string(), max),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(old: Value, new: Value) -> String {
        describe(&diff(&old, &new), DiffLimits::default())
    }

    #[test]
    fn a_changed_field_shows_old_and_new() {
        assert_eq!(
            line(
                json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Pending"}}),
                json!({"metadata": {"resourceVersion": "2"}, "status": {"phase": "Running"}})
            ),
            "status.phase: Pending → Running"
        );
    }

    #[test]
    fn fields_come_and_go() {
        assert_eq!(
            line(
                json!({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}),
                json!({"metadata": {"labels": {"tier": "web"}}, "spec": {}})
            ),
            "-metadata.labels[app.kubernetes.io/name]: x, +metadata.labels.tier: web, +spec: {}"
        );
    }

    #[test]
    fn named_items_are_compared_by_name() {
        let container = |name: &str, image: &str| json!({"name": name, "image": image});
        assert_eq!(
            line(
                json!({"spec": {"containers": [container("app", "a:1"), container("log", "l:1")]}}),
                json!({"spec": {"containers": [container("log", "l:1"), container("app", "a:2")]}})
            ),
            "spec.containers[app].image: a:1 → a:2"
        );
        assert_eq!(
            line(
                json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
                json!({"status": {"conditions": [{"type": "Init", "status": "True"}, {"type": "Ready", "status": "True"}]}})
            ),
            r#"+status.conditions[Init]: {"status":"True","type":"Init"}, status.conditions[Ready].status: False → True"#
        );
    }

    #[test]
    fn unnamed_items_are_compared_by_position_or_whole() {
        assert_eq!(line(json!({"a": [1, 2]}), json!({"a": [1, 3]})), "a[1]: 2 → 3");
        assert_eq!(line(json!({"a": [1, 2]}), json!({"a": [1]})), "a: [1,2] → [1]");
        let twins = json!([{"name": "x", "v": 1}, {"name": "x", "v": 2}]);
        assert_eq!(
            line(json!({"a": twins}), json!({"a": [{"name": "x", "v": 1}, {"name": "x", "v": 3}]})),
            "a[1].v: 2 → 3"
        );
    }

    #[test]
    fn diff_skips_bookkeeping_except_lone_generation() {
        let object = |rv: &str, generation: i64| json!({"metadata": {"resourceVersion": rv, "generation": generation, "managedFields": [rv]}});
        assert_eq!(line(object("1", 1), object("2", 1)), "");
        assert_eq!(line(object("1", 1), object("2", 2)), "metadata.generation: 1 → 2");
    }

    #[test]
    fn diff_line_is_bounded() {
        let wide = |value: &str| Value::Object((0..50).map(|i| (format!("f{i:02}"), json!(value))).collect());
        let text = line(wide("a"), wide(&"x".repeat(10_000)));
        assert!(text.ends_with(", and 44 more"), "{text}");
        assert!(text.chars().count() < 6 * 140, "{}", text.len());
    }

    #[test]
    fn deep_diff_does_not_overflow_stack() {
        let deep = |leaf: i64| (0..100).fold(json!(leaf), |inner, _| json!({ "a": inner }));
        let changes = diff(&deep(1), &deep(2));
        assert_eq!(changes.len(), 1);
    }

    #[test]
    fn values_cannot_steer_a_terminal() {
        assert_eq!(line(json!({"a": "x"}), json!({"a": "\u{1b}[2Jy\nz"})), "a: x →  [2Jy z");
    }
}

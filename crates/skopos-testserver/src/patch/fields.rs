//! Field sets, in the format of `managedFields` (`FieldsV1`).
//!
//! A set is a tree whose edges are written as in `FieldsV1`: `f:NAME` for a field, `k:{...}` for the item of a keyed list,
//! `v:...` for a member of a set. A node can be a member itself, have members below, or both.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::PatchShape;
use super::shape::ListShape;

/// Set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    member: bool,
    children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// Parses `fieldsV1`.
    pub(crate) fn from_json(json: &Value) -> Self {
        let mut set = Self::default();
        let Some(map) = json.as_object() else { return set };
        set.member = map.is_empty() || map.contains_key(".");
        for (edge, below) in map.iter().filter(|(edge, _)| *edge != ".") {
            set.children.insert(edge.clone(), Self::from_json(below));
        }
        set
    }

    /// Returns `fieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (edge, below) in &self.children {
            map.insert(edge.clone(), below.to_json());
        }
        Value::Object(map)
    }

    /// Returns all fields that `value` sets. With `inner`, nested objects are members too, as in updates. Without, only leaves
    /// and the items of keyed lists are, as in apply.
    pub(crate) fn from_value(value: &Value, shape: PatchShape<'_>, inner: bool) -> Self {
        let mut set = Self::below(value, shape, inner);
        set.member = false;
        set
    }

    fn below(value: &Value, shape: PatchShape<'_>, inner: bool) -> Self {
        let mut set = Self::default();
        match value {
            Value::Object(map) if !map.is_empty() && !shape.is_atomic_map() => {
                set.member = inner;
                for (name, value) in map {
                    set.children.insert(field_edge(name), Self::below(value, shape.field(name), inner));
                }
            }
            Value::Array(items) if !items.is_empty() && shape.list() != ListShape::Atomic => {
                set.member = inner;
                for item in items {
                    let mut below = Self::below(item, shape.item(), inner);
                    below.member = true;
                    set.children.insert(item_edge(item, shape), below);
                }
            }
            _ => set.member = true,
        }
        set
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    /// Returns the subtree at the end of an edge.
    pub(crate) fn child(&self, edge: &str) -> Option<&Self> {
        self.children.get(edge)
    }

    /// Returns whether the root itself is a member.
    pub(crate) fn is_member(&self) -> bool {
        self.member
    }

    /// Returns the fields in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let both = |(edge, below): (&String, &Self)| {
            let below = below.intersection(other.children.get(edge)?);
            (!below.is_empty()).then(|| (edge.clone(), below))
        };
        Self {
            member: self.member && other.member,
            children: self.children.iter().filter_map(both).collect(),
        }
    }

    /// Returns the fields in this set and not in `other`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let left = |(edge, below): (&String, &Self)| {
            let below = match other.children.get(edge) {
                Some(other) => below.difference(other),
                None => below.clone(),
            };
            (!below.is_empty()).then(|| (edge.clone(), below))
        };
        Self {
            member: self.member && !other.member,
            children: self.children.iter().filter_map(left).collect(),
        }
    }

    /// Adds all fields that have members below: an owner of `.spec.replicas` then owns `.spec` too. List items are owned only if
    /// the set has them.
    pub(crate) fn with_named_fields(&self) -> Self {
        let named = |(edge, below): (&String, &Self)| {
            let mut below = below.with_named_fields();
            below.member |= edge.starts_with("f:") && !below.children.is_empty();
            (edge.clone(), below)
        };
        Self { member: self.member, children: self.children.iter().map(named).collect() }
    }

    /// Removes the subtree at the end of an edge.
    pub(crate) fn without_child(mut self, edge: &str) -> Self {
        self.children.remove(edge);
        self
    }

    /// Applies `edit` to the subtree at the end of an edge, if there is one.
    pub(crate) fn edit_child(mut self, edge: &str, edit: impl FnOnce(Self) -> Self) -> Self {
        if let Some(below) = self.children.remove(edge) {
            insert_nonempty(&mut self, edge, edit(below));
        }
        self
    }

    /// Removes the root from the set if there are members below it.
    pub(crate) fn without_root(mut self) -> Self {
        self.member &= self.children.is_empty();
        self
    }

    /// Returns the fields in this set that are neither in `other` nor below a member of `other`: the rest after those values were
    /// removed or taken over.
    pub(crate) fn without_subtrees(&self, other: &Self) -> Self {
        let left = |(edge, below): (&String, &Self)| {
            let below = match other.children.get(edge) {
                Some(other) if other.member => return None,
                Some(other) => below.without_subtrees(other),
                None => below.clone(),
            };
            (!below.is_empty()).then(|| (edge.clone(), below))
        };
        Self {
            member: self.member && !other.member,
            children: self.children.iter().filter_map(left).collect(),
        }
    }

    /// Returns the fields in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.member |= other.member;
        for (edge, below) in &other.children {
            let merged = match result.children.get(edge) {
                Some(mine) => mine.union(below),
                None => below.clone(),
            };
            result.children.insert(edge.clone(), merged);
        }
        result
    }

    /// Returns the paths of all members, as in the API server's messages: `.spec.containers[name="a"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths(&mut String::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut String, paths: &mut Vec<String>) {
        // The members of a level come before their descendants.
        for edge in self.children.iter().filter(|(_, below)| below.member).map(|(edge, _)| edge) {
            paths.push(format!("{prefix}{}", readable(edge)));
        }
        for (edge, below) in &self.children {
            let length = prefix.len();
            prefix.push_str(&readable(edge));
            below.collect_paths(prefix, paths);
            prefix.truncate(length);
        }
    }
}

/// Returns the edge to a field.
pub(crate) fn field_edge(name: &str) -> String {
    format!("f:{name}")
}

/// Returns the edge to an item of a list that is not atomic.
pub(crate) fn item_edge(item: &Value, shape: PatchShape<'_>) -> String {
    match shape.list() {
        ListShape::Keyed(keys) => {
            let value = |key: &str| item.get(key).cloned().or_else(|| PatchShape::default_key(key));
            let keys: Map<String, Value> =
                keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect();
            format!("k:{}", Value::Object(keys))
        }
        _ => format!("v:{item}"),
    }
}

/// Fields whose values differ between two objects, and those that only one of them has.
#[derive(Debug, Default)]
pub(crate) struct FieldChanges {
    /// Fields set in `new` only, or with another value there.
    pub(crate) written: FieldSet,
    /// Fields set in `old` only.
    pub(crate) removed: FieldSet,
}

/// Compares two objects field by field.
pub(crate) fn changes(old: &Value, new: &Value, shape: PatchShape<'_>) -> FieldChanges {
    let mut found = FieldChanges::default();
    compare(old, new, shape, &mut found.written, &mut found.removed);
    found
}

fn compare(old: &Value, new: &Value, shape: PatchShape<'_>, written: &mut FieldSet, removed: &mut FieldSet) {
    let edges = |value: &Value| -> Option<Vec<(String, Value)>> {
        match value {
            Value::Object(map) if !shape.is_atomic_map() => {
                Some(map.iter().map(|(name, value)| (field_edge(name), value.clone())).collect())
            }
            Value::Array(items) if shape.list() != ListShape::Atomic => {
                Some(items.iter().map(|item| (item_edge(item, shape), item.clone())).collect())
            }
            _ => None,
        }
    };
    if old == new {
        return;
    }
    let (Some(old_edges), Some(new_edges)) = (edges(old), edges(new)) else {
        written.member = true;
        return;
    };
    let old_edges: BTreeMap<String, Value> = old_edges.into_iter().collect();
    let new_edges: BTreeMap<String, Value> = new_edges.into_iter().collect();
    for (edge, new) in &new_edges {
        let shape = step(shape, edge);
        match old_edges.get(edge) {
            Some(old) => {
                let (mut w, mut r) = (FieldSet::default(), FieldSet::default());
                compare(old, new, shape, &mut w, &mut r);
                insert_nonempty(written, edge, w);
                insert_nonempty(removed, edge, r);
            }
            None => insert_nonempty(written, edge, whole(new, shape, edge)),
        }
    }
    for (edge, old) in old_edges.iter().filter(|(edge, _)| !new_edges.contains_key(*edge)) {
        insert_nonempty(removed, edge, whole(old, step(shape, edge), edge));
    }
}

fn whole(value: &Value, shape: PatchShape<'_>, edge: &str) -> FieldSet {
    let mut set = FieldSet::below(value, shape, true);
    set.member |= !edge.starts_with("f:");
    set
}

fn step<'a>(shape: PatchShape<'a>, edge: &'a str) -> PatchShape<'a> {
    match edge.strip_prefix("f:") {
        Some(name) => shape.field(name),
        None => shape.item(),
    }
}

fn insert_nonempty(set: &mut FieldSet, edge: &str, below: FieldSet) {
    if !below.is_empty() {
        set.children.insert(edge.to_owned(), below);
    }
}

/// Converts `f:image` to `.image`, `k:{"name":"a"}` to `[name="a"]`, `v:"x"` to `[="x"]`.
fn readable(edge: &str) -> String {
    if let Some(name) = edge.strip_prefix("f:") {
        return format!(".{name}");
    }
    if let Some(value) = edge.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys = edge.strip_prefix("k:").and_then(|json| serde_json::from_str::<Map<String, Value>>(json).ok());
    let mut text = String::from("[");
    for (i, (key, value)) in keys.unwrap_or_default().iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{key}={value}");
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({
            "metadata": {"labels": {"app": "web"}, "finalizers": ["example.com/x"]},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                     "template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}},
        })
    }

    #[test]
    fn field_set_matches_kubernetes_record() {
        let set = FieldSet::from_value(&deployment(), PatchShape::builtin(), false).to_json();
        let expected = json!({
            "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {"v:\"example.com/x\"": {}}},
            "f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:ports": {
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                }},
            }}}},
        });
        assert_eq!(set, expected);
        assert_eq!(FieldSet::from_json(&set).to_json(), set);
    }

    #[test]
    fn paths_read_as_in_messages() {
        let set = FieldSet::from_value(&deployment(), PatchShape::builtin(), false);
        let paths = set.paths();
        assert!(paths.contains(&".spec.template.spec.containers[name=\"c\"].name".to_owned()), "{paths:?}");
        let name = paths.iter().position(|path| path.ends_with("[name=\"c\"].name"));
        let port = paths.iter().position(|path| path.ends_with(".containerPort"));
        assert!(name < port, "what is further down comes later: {paths:?}");
        assert!(paths.contains(&".metadata.finalizers[=\"example.com/x\"]".to_owned()), "{paths:?}");
    }

    #[test]
    fn changes_list_written_and_removed_fields() {
        let old = deployment();
        let mut new = deployment();
        new["spec"]["replicas"] = json!(3);
        new["metadata"]["labels"] = json!({"tier": "front"});
        let changes = changes(&old, &new, PatchShape::builtin());
        assert_eq!(changes.written.paths(), [".metadata.labels.tier", ".spec.replicas"]);
        assert_eq!(changes.removed.paths(), [".metadata.labels.app"]);
    }

    #[test]
    fn set_arithmetic() {
        let a = FieldSet::from_value(&json!({"x": 1, "y": {"z": 2}}), PatchShape::builtin(), false);
        let b = FieldSet::from_value(&json!({"y": {"z": 2, "w": 3}}), PatchShape::builtin(), false);
        assert_eq!(a.intersection(&b).paths(), [".y.z"]);
        assert_eq!(a.difference(&b).paths(), [".x"]);
        assert_eq!(b.union(&a).paths(), [".x", ".y.w", ".y.z"]);
        let y = FieldSet::from_value(&json!({"y": 1}), PatchShape::builtin(), false);
        assert_eq!(b.without_subtrees(&y).paths(), Vec::<String>::new());
    }
}

//! Field managers (`metadata.managedFields`): the last writer of each field.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::PatchShape;
use super::fields::{self, FieldSet};

/// Writer of an object, with everything that identifies a manager in `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    name: String,
    operation: Operation,
    api_version: String,
    subresource: Option<String>,
}

/// Operation of a manager: apply, or any other write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update and the other patches.
    Update,
}

/// Managers of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managers {
    entries: Vec<ManagerEntry>,
}

#[derive(Clone, Debug, PartialEq)]
struct ManagerEntry {
    manager: Manager,
    /// Time of the last write; `None` means now.
    time: Option<Value>,
    fields: FieldSet,
}

/// Records that `manager` changed `old` (`None`: nothing) to `new` with a write other than apply. Neither object has
/// `managedFields`.
pub(crate) fn record(
    managers: &mut Managers,
    manager: &Manager,
    old: Option<&Value>,
    new: &Value,
    shape: PatchShape<'_>,
) {
    let Some(old) = old else {
        managers.set(manager, without_unmanaged(&FieldSet::from_value(new, shape, true)));
        return;
    };
    let changes = fields::changes(old, new, shape);
    let written = without_unmanaged(&changes.written);
    if written.is_empty() && changes.removed.is_empty() {
        return;
    }
    managers.take_from_others(manager, &written);
    managers.forget(&changes.removed);
    if !written.is_empty() {
        managers.set(manager, managers.fields_of(manager).union(&written));
    }
}

/// Removes the unmanaged fields: identity, and the fields that the server itself writes.
pub(crate) fn without_unmanaged(set: &FieldSet) -> FieldSet {
    const SERVER_FIELDS: [&str; 10] = [
        "f:name",
        "f:namespace",
        "f:uid",
        "f:resourceVersion",
        "f:generation",
        "f:creationTimestamp",
        "f:deletionTimestamp",
        "f:deletionGracePeriodSeconds",
        "f:selfLink",
        "f:managedFields",
    ];
    set.clone()
        .without_child("f:apiVersion")
        .without_child("f:kind")
        .edit_child("f:metadata", |metadata| {
            SERVER_FIELDS.iter().fold(metadata.without_root(), |set, f| set.without_child(f))
        })
        .edit_child("f:spec", FieldSet::without_root)
        .edit_child("f:status", FieldSet::without_root)
}

impl Manager {
    pub(crate) fn new(
        name: &str,
        operation: Operation,
        api_version: &str,
        subresource: Option<&str>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.map(str::to_owned),
        }
    }

    /// Returns the manager as printed in conflict messages.
    pub(crate) fn printed(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if let Some(subresource) = &self.subresource {
            let _ = write!(text, " with subresource {subresource:?}");
        }
        if self.operation == Operation::Update {
            let _ = write!(text, " using {}", self.api_version);
        }
        text
    }
}

impl Managers {
    /// Parses `metadata.managedFields`. Invalid entries are dropped, as the API server does on writes.
    pub(crate) fn from_json(json: &Value) -> Self {
        Self { entries: json.as_array().into_iter().flatten().filter_map(ManagerEntry::from_json).collect() }
    }

    /// Returns `metadata.managedFields`; changed entries get `now` (RFC 3339) as their time.
    pub(crate) fn to_json(&self, now: &str) -> Value {
        self.entries.iter().map(|entry| entry.to_json(now)).collect()
    }

    /// Returns the fields that a manager owns.
    pub(crate) fn fields_of(&self, manager: &Manager) -> FieldSet {
        self.entries.iter().find(|e| e.manager == *manager).map(|e| e.fields.clone()).unwrap_or_default()
    }

    /// Sets the fields that a manager owns.
    pub(crate) fn set(&mut self, manager: &Manager, fields: FieldSet) {
        let index = self.entries.iter().position(|entry| entry.manager == *manager);
        match index {
            Some(at) if fields.is_empty() => {
                self.entries.remove(at);
            }
            Some(at) if self.entries[at].fields == fields => {}
            Some(at) => self.entries[at] = ManagerEntry { manager: manager.clone(), time: None, fields },
            None if fields.is_empty() => {}
            None => self.entries.push(ManagerEntry { manager: manager.clone(), time: None, fields }),
        }
    }

    /// Returns all managers but one, with their fields.
    pub(crate) fn others(&self, but: &Manager) -> impl Iterator<Item = (&Manager, &FieldSet)> {
        self.entries.iter().filter(move |e| e.manager != *but).map(|e| (&e.manager, &e.fields))
    }

    /// Returns the fields that any manager owns.
    pub(crate) fn union_of_all(&self) -> FieldSet {
        self.entries.iter().fold(FieldSet::default(), |all, entry| all.union(&entry.fields))
    }

    /// Returns whether there are no managed fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes fields from all managers but one.
    pub(crate) fn take_from_others(&mut self, but: &Manager, fields: &FieldSet) {
        for entry in self.entries.iter_mut().filter(|e| e.manager != *but) {
            entry.fields = entry.fields.difference(fields);
        }
        self.entries.retain(|entry| !entry.fields.is_empty());
    }

    /// Removes deleted fields from all managers.
    fn forget(&mut self, gone: &FieldSet) {
        for entry in &mut self.entries {
            entry.fields = entry.fields.without_subtrees(gone);
        }
        self.entries.retain(|entry| !entry.fields.is_empty());
    }
}

impl ManagerEntry {
    fn from_json(json: &Value) -> Option<Self> {
        let operation = match json["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let text = |key: &str| json[key].as_str();
        let manager = Manager::new(
            text("manager").unwrap_or_default(),
            operation,
            text("apiVersion")?,
            text("subresource").filter(|s| !s.is_empty()),
        );
        Some(Self {
            manager,
            time: json.get("time").cloned(),
            fields: FieldSet::from_json(json.get("fieldsV1")?),
        })
    }

    fn to_json(&self, now: &str) -> Value {
        let mut entry = Map::new();
        entry.insert("manager".into(), self.manager.name.clone().into());
        let operation = if self.manager.operation == Operation::Apply { "Apply" } else { "Update" };
        entry.insert("operation".into(), operation.into());
        entry.insert("apiVersion".into(), self.manager.api_version.clone().into());
        entry.insert("time".into(), self.time.clone().unwrap_or_else(|| json!(now)));
        entry.insert("fieldsType".into(), "FieldsV1".into());
        entry.insert("fieldsV1".into(), self.fields.to_json());
        if let Some(subresource) = &self.manager.subresource {
            entry.insert("subresource".into(), subresource.clone().into());
        }
        Value::Object(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn manager(name: &str) -> Manager {
        Manager::new(name, Operation::Update, "v1", None)
    }

    #[test]
    fn last_writer_owns_field() {
        let mut managers = Managers::default();
        let (a, b) = (manager("a"), manager("b"));
        let old = json!({"kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"x": "1", "y": "1"}});
        record(&mut managers, &a, None, &old, PatchShape::builtin());
        let mut new = old.clone();
        new["data"]["x"] = json!("2");
        record(&mut managers, &b, Some(&old), &new, PatchShape::builtin());
        let json = managers.to_json(NOW);
        assert_eq!(json[0]["fieldsV1"], json!({"f:data": {".": {}, "f:y": {}}}));
        assert_eq!(json[1]["manager"], "b");
        assert_eq!(json[1]["fieldsV1"], json!({"f:data": {"f:x": {}}}));
        assert_eq!(Managers::from_json(&json).to_json("later"), json);

        let mut gone = new.clone();
        gone["data"] = json!({"y": "1"});
        record(&mut managers, &a, Some(&new), &gone, PatchShape::builtin());
        assert_eq!(managers.to_json(NOW).as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_write_that_changes_nothing_leaves_no_trace() {
        let mut managers = Managers::default();
        let object = json!({"metadata": {"name": "n", "resourceVersion": "1"}, "data": {"x": "1"}});
        record(&mut managers, &manager("a"), None, &object, PatchShape::builtin());
        let before = managers.clone();
        let mut again = object.clone();
        again["metadata"]["resourceVersion"] = json!("2");
        record(&mut managers, &manager("b"), Some(&object), &again, PatchShape::builtin());
        assert_eq!(managers, before);
    }
}

//! Scope of a request: a namespace, a label selector and a field selector.

use std::borrow::Cow;

use skopos_wire::{FieldRequirement, FieldSelector, FieldSource, LabelSelector, Status};

use super::fields;
use crate::item::Item;
use crate::request::Query;
use crate::resources::ResourceType;

/// Scope of a request: a namespace, a label selector and a field selector.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Parses the selectors of a request; a name in the path counts as a field selector (W17).
    ///
    /// # Errors
    /// 400 if a selector is invalid, names a field that is not selectable, or names another object than the path.
    pub fn from_query(
        query: &Query,
        resource: &ResourceType,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let mut fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let known = fields::selectable(resource);
        for requirement in fields.requirements() {
            let field = requirement.field();
            if !matches!(field, "metadata.name" | "metadata.namespace") && !known.contains(&field) {
                return Err(Status::bad_request(fields::not_supported(resource, field)));
            }
        }
        if let Some(name) = name {
            if fields.is_empty() {
                let by_name = FieldRequirement::new("metadata.name", true, name);
                let by_name = by_name.map_err(|e| Status::bad_request(e.to_string()))?;
                fields = std::iter::once(by_name).collect();
            } else if fields.exact("metadata.name") != Some(name) {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        Ok(Self { namespace: namespace.map(str::to_owned), labels, fields })
    }

    /// Returns whether there is no selector, so every object of the namespace matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the namespace, if the request is limited to one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns whether the object matches the namespace and the selectors.
    pub fn matches(&self, object: &impl Item) -> bool {
        let here = self.namespace.is_none() || self.namespace.as_deref() == object.namespace();
        here && self.selects(object)
    }

    /// Returns whether the object matches the selectors.
    pub fn selects(&self, object: &impl Item) -> bool {
        (self.labels.is_empty() || self.labels.matches(object))
            && (self.fields.is_empty() || self.fields.matches(&ObjectFields(object)))
    }
}

/// Fields of an object by their names in selectors; an absent field has Go's zero value.
struct ObjectFields<'a, I>(&'a I);

impl<I: Item> FieldSource for ObjectFields<'_, I> {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        match path {
            "metadata.name" | "name" => Some(self.0.name().into()),
            "metadata.namespace" => self.0.namespace().map(Cow::from),
            _ => {
                let mut texts = fields::json_paths(path).filter_map(|path| self.0.field(path));
                let found = texts.find(|text| !text.is_empty());
                Some(found.unwrap_or(Cow::Borrowed(fields::absent(path))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skopos_wire::{Limits, RawObject};

    use super::*;
    use crate::resources::Registry;
    use crate::testing::Object;

    /// Returns whether the selector selects the event; an error if events of the group have no such field.
    fn selects(group: &str, selector: &str, event: &Value) -> Result<bool, Status> {
        let mut event = event.clone();
        event["metadata"] = json!({"name": "e", "namespace": "a", "uid": "u", "resourceVersion": "1"});
        let events = Registry::builtin().resolve(group, "v1", "events").unwrap();
        let query = Query::parse(&format!("fieldSelector={selector}"));
        let object = Object(RawObject::from_value(&event, &Limits::default()).unwrap());
        Ok(Selection::from_query(&query, &events, None, None)?.selects(&object))
    }

    #[test]
    fn event_fields_depend_on_api_group() {
        let old = json!({"involvedObject": {"name": "p", "uid": "1"},
            "reason": "Started", "type": "Normal", "reportingComponent": "kubelet"});
        let new = json!({"regarding": {"name": "p", "uid": "1"},
            "reason": "Started", "type": "Normal", "reportingController": "kubelet"});
        let of_all = ["metadata.name%3De", "metadata.namespace%3Da", "reason%3DStarted", "type%3DNormal"];
        for (group, event) in [("", &old), ("events.k8s.io", &new)] {
            for selector in of_all {
                assert_eq!(selects(group, selector, event), Ok(true), "{group} {selector}");
            }
        }
        for field in ["name%3Dp", "uid%3D1", "kind%3D", "namespace%3D", "apiVersion%3D", "fieldPath%3D"] {
            let [old_name, new_name] =
                ["involvedObject", "regarding"].map(|object| format!("{object}.{field}"));
            assert_eq!(selects("", &old_name, &old), Ok(true), "{field}");
            assert_eq!(selects("events.k8s.io", &new_name, &new), Ok(true), "{field}");
            assert_eq!(selects("", &new_name, &old).unwrap_err().code, 400, "{field}");
            assert_eq!(selects("events.k8s.io", &old_name, &new).unwrap_err().code, 400, "{field}");
        }
        assert_eq!(selects("", "reportingComponent%3Dkubelet", &old), Ok(true));
        assert_eq!(selects("events.k8s.io", "reportingController%3Dkubelet", &new), Ok(true));
        let refused = selects("events.k8s.io", "reportingComponent%3Dkubelet", &new).unwrap_err();
        assert_eq!(refused.message, "field label not supported: reportingComponent");
    }

    #[test]
    fn event_source_falls_back_to_reporter() {
        let sources = [
            ("", json!({"source": {"component": "kubelet"}, "reportingComponent": "another"})),
            ("", json!({"source": {}, "reportingComponent": "kubelet"})),
            ("", json!({"source": {"component": ""}, "reportingComponent": "kubelet"})),
            (
                "events.k8s.io",
                json!({"deprecatedSource": {"component": "kubelet"}, "reportingController": "another"}),
            ),
            ("events.k8s.io", json!({"reportingController": "kubelet"})),
        ];
        for (group, event) in sources {
            assert_eq!(selects(group, "source%3Dkubelet", &event), Ok(true), "{event}");
            assert_eq!(selects(group, "source%3Danother", &event), Ok(false), "{event}");
        }
        assert_eq!(selects("", "source%3D", &json!({})), Ok(true));
    }
}

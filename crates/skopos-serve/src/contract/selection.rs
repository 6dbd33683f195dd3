//! Which objects a request is about: a namespace, a label selector and a field selector.

use std::borrow::Cow;

use skopos_wire::{
    FieldRequirement, FieldSelector, FieldSource, LabelSelector, LabelSource, Limits, RawObject, Status,
};

use super::fields;
use crate::request::{Query, RequestTarget};
use crate::storage::Stored;

/// Which objects a request is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

// === impl Selection ===

impl Selection {
    /// Reads the selectors of a request; a name in the path counts as a field selector (W17).
    ///
    /// # Errors
    /// 400 if a selector cannot be read, names a field that may not be selected by, or another name than the path.
    pub(crate) fn of(query: &Query, target: &RequestTarget) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let mut fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let known = fields::selectable(&target.resource);
        for requirement in fields.requirements() {
            let field = requirement.field();
            if !matches!(field, "metadata.name" | "metadata.namespace") && !known.contains(&field) {
                return Err(Status::bad_request(fields::not_supported(&target.resource, field)));
            }
        }
        if let Some(name) = &target.name {
            if fields.is_empty() {
                let by_name = FieldRequirement::new("metadata.name", true, name.as_str());
                let by_name = by_name.map_err(|e| Status::bad_request(e.to_string()))?;
                fields = std::iter::once(by_name).collect();
            } else if fields.exact("metadata.name") != Some(name) {
                return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        Ok(Self { namespace: target.namespace.clone(), labels, fields })
    }

    /// Whether every object of the scope is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether the object is meant; its namespace counts too.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        let here = self.namespace.is_none() || self.namespace.as_deref() == object.namespace();
        here && self.selects(object)
    }

    /// Whether the selectors select the object.
    pub(crate) fn selects(&self, object: &Stored) -> bool {
        (self.labels.is_empty() || self.labels.matches(object))
            && (self.fields.is_empty() || self.fields.matches(&Fields::new(object)))
    }
}

/// The fields of a stored object; its JSON is scanned when something else than name or namespace is asked for.
struct Fields<'a> {
    object: &'a Stored,
    raw: std::cell::OnceCell<Option<RawObject>>,
}

impl<'a> Fields<'a> {
    fn new(object: &'a Stored) -> Self {
        Self { object, raw: std::cell::OnceCell::new() }
    }
}

impl FieldSource for Fields<'_> {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        match path {
            "metadata.name" | "name" => Some(self.object.name().into()),
            "metadata.namespace" => self.object.namespace().map(Cow::from),
            _ => {
                let raw =
                    self.raw.get_or_init(|| RawObject::scan(self.object.json(), &Limits::default()).ok());
                let found = raw.as_ref().and_then(|raw| raw.field(fields::json_path(path)));
                Some(found.map_or(Cow::Borrowed(fields::absent(path)), Cow::Owned))
            }
        }
    }
}

impl LabelSource for Stored {
    fn label(&self, key: &str) -> Option<&str> {
        Stored::label(self, key)
    }
}

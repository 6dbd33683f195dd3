//! Which objects a request is about: a namespace, a label selector and a field selector.

use std::borrow::Cow;

use skopos_wire::{FieldRequirement, FieldSelector, FieldSource, LabelSelector, Status};

use super::fields;
use crate::request::Query;
use crate::resources::ResourceType;
use crate::source::Item;

/// Which objects a request is about.
#[derive(Clone, Debug, Default)]
pub struct Selection {
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
    pub fn of(
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

    /// Whether every object of the scope is meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The namespace, if only one is meant.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether the object is meant; its namespace counts too.
    pub fn matches(&self, object: &impl Item) -> bool {
        let here = self.namespace.is_none() || self.namespace.as_deref() == object.namespace();
        here && self.selects(object)
    }

    /// Whether the selectors select the object.
    pub fn selects(&self, object: &impl Item) -> bool {
        (self.labels.is_empty() || self.labels.matches(object))
            && (self.fields.is_empty() || self.fields.matches(&Fields(object)))
    }
}

/// The fields of an object under the names that selectors have for them; what is absent counts as what Go makes of it.
struct Fields<'a, I>(&'a I);

impl<I: Item> FieldSource for Fields<'_, I> {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        match path {
            "metadata.name" | "name" => Some(self.0.name().into()),
            "metadata.namespace" => self.0.namespace().map(Cow::from),
            _ => {
                let found = self.0.field(fields::json_path(path));
                Some(found.unwrap_or(Cow::Borrowed(fields::absent(path))))
            }
        }
    }
}

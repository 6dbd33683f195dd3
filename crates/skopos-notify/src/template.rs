//! Texts with placeholders.

use std::collections::BTreeMap;

/// A text with placeholders such as `{service}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Text(String),
    Place(String),
}

/// Error of a template that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace is not closed.
    #[error("a `{{` in {0:?} is not closed")]
    Open(String),
    /// A placeholder is unknown.
    #[error("there is no {{{0}}}: use {1}")]
    Unknown(String, String),
}

impl Template {
    /// Parses a template that may have these placeholders.
    ///
    /// # Errors
    /// When a brace is not closed, or a placeholder is not among them.
    pub fn parse(text: &str, places: &[&str]) -> Result<Self, TemplateError> {
        let template = Self::parse_any(text)?;
        let unknown = template.places().find(|place| !places.contains(place)).map(str::to_owned);
        let known = || places.iter().map(|place| format!("{{{place}}}")).collect::<Vec<_>>().join(", ");
        unknown.map_or(Ok(template), |place| Err(TemplateError::Unknown(place, known())))
    }

    /// Parses a template with any placeholders.
    pub(crate) fn parse_any(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            parts.push(TemplatePart::Text(before.to_owned()));
            let place = after.split_once('}').filter(|(place, _)| !place.contains('{'));
            let (place, after) = place.ok_or_else(|| TemplateError::Open(text.to_owned()))?;
            parts.push(TemplatePart::Place(place.to_owned()));
            rest = after;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(Self { parts })
    }

    /// Returns the texts and placeholders, in their order. The first is a text.
    pub(crate) fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// Returns the placeholders, in their order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Place(place) => Some(place.as_str()),
        })
    }

    /// Fills the placeholders. The values are not parsed again.
    pub(crate) fn fill(&self, values: &BTreeMap<&str, &str>) -> String {
        let text = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Place(place) => values.get(place.as_str()).copied().unwrap_or_default().to_owned(),
        };
        self.parts.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once() {
        let template = Template::parse("k8s_{namespace}_{service}", &["namespace", "service"]).unwrap();
        let values = BTreeMap::from([("namespace", "{service}"), ("service", "web")]);
        assert_eq!(template.fill(&values), "k8s_{service}_web");
        assert_eq!(Template::parse("{x", &[]).unwrap_err().to_string(), "a `{` in \"{x\" is not closed");
        assert_eq!(
            Template::parse("{pod}", &["service"]).unwrap_err().to_string(),
            "there is no {pod}: use {service}"
        );
    }
}

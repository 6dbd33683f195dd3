use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::name;
use crate::template::{Template, TemplateError, TemplatePart};

/// A URL, or a path, with placeholders such as `{pod.ip}` in its path and its query.
///
/// A value always stays within the segment or the parameter of its placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Length of the scheme and the host in the first part.
    origin: usize,
    template: Template,
}

/// Error of a URL template: it cannot be used, or not with these values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlTemplateError {
    /// A brace is not closed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// There is a placeholder in the scheme or the host, or no path at all.
    #[error("{0:?} has to begin with https://host/ or '/', and places stand behind that only")]
    Origin(String),
    /// The text around the placeholders is not a URL.
    #[error("{text:?}: {problem}")]
    Text {
        /// The template.
        text: String,
        /// The reason.
        problem: String,
    },
    /// A placeholder has no value.
    #[error("there is no {{{0}}}")]
    Missing(String),
    /// The value of a placeholder is not allowed there.
    #[error("{{{place}}} cannot be {value:?}: {problem}")]
    Value {
        /// The placeholder.
        place: String,
        /// The value.
        value: String,
        /// The reason.
        problem: String,
    },
}

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl UrlTemplate {
    /// Parses a template. The caller must check the names of the placeholders.
    ///
    /// # Errors
    /// When a brace is not closed, there is a placeholder in the host, or the rest is not a URL.
    pub fn parse(text: &str) -> Result<Self, UrlTemplateError> {
        let template = Template::parse_any(text)?;
        let origin = match template.parts().first() {
            Some(TemplatePart::Text(head)) => origin_length(head),
            _ => None,
        };
        let origin = origin.ok_or_else(|| UrlTemplateError::Origin(text.to_owned()))?;
        let template = Self { origin, template };
        // With a harmless value in each placeholder only the text around them can be wrong.
        let filled = template.fill(|_| Some("x".to_owned()))?;
        name::normalise(&filled[origin..])
            .map_err(|problem| UrlTemplateError::Text { text: text.to_owned(), problem })?;
        Ok(template)
    }

    /// Returns the placeholders, in their order.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.template.places()
    }

    /// Fills the placeholders. Everything but unreserved characters is percent-encoded.
    ///
    /// # Errors
    /// When a placeholder has no value, an empty one or one with control characters, or a segment becomes `.` or `..`; with the
    /// placeholder.
    pub fn fill(&self, lookup: impl Fn(&str) -> Option<String>) -> Result<String, UrlTemplateError> {
        let mut filled = Filled { text: String::new(), segment: self.origin, last: None };
        for part in self.template.parts() {
            match part {
                TemplatePart::Text(text) => filled.push_text(text, self.origin)?,
                TemplatePart::Place(place) => {
                    let value = lookup(place).ok_or_else(|| UrlTemplateError::Missing(place.clone()))?;
                    filled.push_value(place, value)?;
                }
            }
        }
        filled.end_segment()?;
        Ok(filled.text)
    }
}

/// A template that is being filled.
struct Filled<'a> {
    text: String,
    /// Start of the segment that is not complete; the end of the text once the query has begun.
    segment: usize,
    /// The last placeholder of that segment, and its value.
    last: Option<(&'a str, String)>,
}

impl<'a> Filled<'a> {
    fn push_text(&mut self, text: &str, origin: usize) -> Result<(), UrlTemplateError> {
        let begin = if self.text.is_empty() { origin } else { 0 };
        self.text.push_str(&text[..begin]);
        for character in text[begin..].chars() {
            let is_path = self.segment != usize::MAX;
            if is_path && matches!(character, '/' | '?') {
                self.end_segment()?;
                self.segment = if character == '?' { usize::MAX } else { self.text.len() + 1 };
            }
            self.text.push(character);
        }
        Ok(())
    }

    fn push_value(&mut self, place: &'a str, value: String) -> Result<(), UrlTemplateError> {
        let problem = match value.is_empty() {
            true => Some("it is empty"),
            false => value.chars().any(char::is_control).then_some("it has a control character"),
        };
        if let Some(problem) = problem {
            return Err(UrlTemplateError::Value {
                place: place.to_owned(),
                value,
                problem: problem.to_owned(),
            });
        }
        self.text.extend(utf8_percent_encode(&value, ENCODED));
        self.last = Some((place, value));
        Ok(())
    }

    /// Refuses a segment that leads to another one because of a filled-in value.
    fn end_segment(&mut self) -> Result<(), UrlTemplateError> {
        let Some((place, value)) = self.last.take() else { return Ok(()) };
        let Some(segment) = self.text.get(self.segment..) else { return Ok(()) };
        name::check_segment(segment).map_err(|problem| UrlTemplateError::Value {
            place: place.to_owned(),
            value,
            problem,
        })
    }
}

/// Returns the length of the scheme and the host, zero for a path; `None` without a path.
fn origin_length(head: &str) -> Option<usize> {
    if head.starts_with('/') {
        return Some(0);
    }
    let host = head.find("://")? + 3;
    let end = host + head[host..].find(['/', '?', '#', '\\'])?;
    (end > host && head[end..].starts_with('/')).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, value: &str) -> Result<String, String> {
        let template = UrlTemplate::parse(template).map_err(|error| error.to_string())?;
        template.fill(|place| (place != "none").then(|| value.to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn filled_value_is_percent_encoded() {
        let at = "https://cmdb.test/nodes/{pod.label:tree}/hosts/x-{pod.ip}?by={pod}&all";
        let cases = [
            ("10.0.0.1", "10.0.0.1"),
            ("a-b_c.d~e", "a-b_c.d~e"),
            ("fe80::1", "fe80%3A%3A1"),
            ("a/b", "a%2Fb"),
            ("a?b#c&d=e+f", "a%3Fb%23c%26d%3De%2Bf"),
            ("%2e%2e", "%252e%252e"),
            ("{pod}", "%7Bpod%7D"),
            ("a b", "a%20b"),
            ("ü", "%C3%BC"),
            ("\\", "%5C"),
            ("...", "..."),
        ];
        for (value, encoded) in cases {
            let expected = format!("https://cmdb.test/nodes/{encoded}/hosts/x-{encoded}?by={encoded}&all");
            assert_eq!(fill(at, value).unwrap(), expected, "{value}");
        }
        let template = UrlTemplate::parse(at).unwrap();
        assert_eq!(template.places().collect::<Vec<_>>(), ["pod.label:tree", "pod.ip", "pod"]);
        assert_eq!(fill("/a/{x}/", "b").unwrap(), "/a/b/");
    }

    #[test]
    fn rejects_value_that_changes_path() {
        for value in ["", ".", "..", "../..", "a/../b", "a\\..", "a\r\nb", "a\0", "\u{85}"] {
            let problem = fill("/nodes/{tree}/hosts", value).unwrap_err();
            assert!(problem.starts_with("{tree} cannot be "), "{value:?}: {problem}");
        }
        assert!(fill("/a/.{x}", ".").unwrap_err().contains("another path"));
        assert!(fill("/a/%2e{x}", ".").unwrap_err().contains("another path"));
        assert!(fill("/a/{x}{x}?b", ".").unwrap_err().contains("another path"));
        // In a query dots have no meaning.
        assert_eq!(fill("/a?b={x}/", "..").unwrap(), "/a?b=../");
        assert!(fill("/a?b={x}", "").unwrap_err().contains("it is empty"));
        assert_eq!(fill("/a/{none}", "").unwrap_err(), "there is no {none}");
    }

    #[test]
    fn rejects_malformed_url_template() {
        let cases = [
            ("/a/{x", "is not closed"),
            ("{scheme}://cmdb.test/a", "https://host/"),
            ("https://{host}/a", "https://host/"),
            ("https://cmdb.test{x}/a", "https://host/"),
            ("https://cmdb.test", "https://host/"),
            ("https://cmdb.test?{x}", "https://host/"),
            ("https:///a", "https://host/"),
            ("a/{x}", "https://host/"),
            ("", "https://host/"),
            ("/a/../{x}", "another path"),
            ("/a//{x}", "empty segment"),
            ("/a b/{x}", "percent-encoded"),
            ("/a}/{x}", "percent-encoded"),
            ("/a/{x}#b", "fragment"),
            ("/a/%{x}", "hexadecimal"),
            ("/a/%a{x}", "hexadecimal"),
        ];
        for (text, part) in cases {
            let problem = UrlTemplate::parse(text).unwrap_err().to_string();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}

//! The part of JSONPath that `additionalPrinterColumns` use: fields, indexes, wildcards, and filters by equality.

use serde_json::Value;

/// A parsed path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// From the end if negative.
    Index(i64),
    Every,
    /// The items whose value at the path equals the literal.
    Where(JsonPath, Value),
}

impl JsonPath {
    /// Parses a path; the braces that kubectl wants around it may be there or not. `None` if it is not of the kind
    /// that is understood.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = if let Some(inside) = rest.strip_prefix('[') {
                bracket(inside)?
            } else {
                field(rest.strip_prefix('.').unwrap_or(rest))?
            };
            steps.push(step);
            rest = after;
        }
        Some(Self(steps))
    }

    /// The first value that the path finds.
    #[must_use]
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        first(&self.0, value)
    }
}

fn first<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => first(rest, value.get(name)?),
        Step::Index(index) => {
            let items = value.as_array()?;
            let at = if *index < 0 { items.len() as i64 + index } else { *index };
            first(rest, items.get(usize::try_from(at).ok()?)?)
        }
        Step::Every => match value {
            Value::Array(items) => items.iter().find_map(|item| first(rest, item)),
            Value::Object(map) => map.values().find_map(|item| first(rest, item)),
            _ => None,
        },
        Step::Where(path, literal) => {
            let mut matching = value.as_array()?.iter().filter(|item| path.first(item) == Some(literal));
            matching.find_map(|item| first(rest, item))
        }
    }
}

/// A field name up to the next `.` or `[`; a backslash keeps the next character.
fn field(text: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return (!name.is_empty()).then(|| (named(name), &text[at..])),
            c => name.push(c),
        }
    }
    (!name.is_empty()).then(|| (named(name), ""))
}

fn named(name: String) -> Step {
    if name == "*" { Step::Every } else { Step::Field(name) }
}

/// What stands between `[` and `]`.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(filter) = text.strip_prefix("?(") {
        let (inside, after) = filter.split_once(")]")?;
        let (path, literal) = inside.split_once("==")?;
        let path = JsonPath::parse(path.trim().strip_prefix('@')?)?;
        return Some((Step::Where(path, parse_literal(literal.trim())?), after));
    }
    let (inside, after) = text.split_once(']')?;
    let step = match inside {
        "*" => Step::Every,
        _ => match parse_literal(inside)? {
            Value::String(name) => Step::Field(name),
            number => Step::Index(number.as_i64()?),
        },
    };
    Some((step, after))
}

fn parse_literal(text: &str) -> Option<Value> {
    if let Some(quoted) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        return Some(Value::from(quoted));
    }
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_printer_columns() {
        let object = json!({
            "metadata": {"labels": {"example.com/x": "1"}},
            "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "yes"}]},
            "list": [{"n": 1}, {"n": 2}],
        });
        let cases = [
            (".metadata.labels.example\\.com/x", json!("1")),
            (".metadata.labels['example.com/x']", json!("1")),
            ("{.list[1].n}", json!(2)),
            (".list[-1].n", json!(2)),
            (".list[*].n", json!(1)),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("yes")),
            (".status.conditions[?(@.type=='A')].status", json!("no")),
        ];
        for (path, expected) in cases {
            let path = JsonPath::parse(path).unwrap();
            assert_eq!(path.first(&object), Some(&expected), "{path:?}");
        }
        assert_eq!(JsonPath::parse(".missing.x").unwrap().first(&object), None);
        assert_eq!(JsonPath::parse(".list[?(@.n<3)]"), None);
    }
}

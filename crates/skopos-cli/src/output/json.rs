//! `-o json`: one line per change, in the words of a watch: `{"type":"ADDED","object":{...}}`.
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::json;
use skopos_console::human;

use super::{Change, Notice, Printer, Verb};
use crate::resource::Resource;

/// Prints JSON lines for programs. Notices about the view are lines too, with a type and no object.
#[derive(Debug)]
pub(crate) struct JsonPrinter {
    api_version: String,
    kind: String,
}

impl JsonPrinter {
    /// Makes a printer for objects of this resource.
    pub(crate) fn new(resource: &Resource) -> Self {
        Self { api_version: resource.api_version(), kind: resource.kind.clone() }
    }

    /// Returns the object's JSON on one line, with `apiVersion` and `kind`, which objects of a typed list lack.
    fn object(&self, change: &Change) -> String {
        let parsed = change.object.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok());
        let mut object = match parsed {
            Some(serde_json::Value::Object(fields)) => fields,
            _ => {
                let mut metadata = json!({ "name": change.name });
                if let Some(namespace) = &change.namespace {
                    metadata["namespace"] = json!(namespace);
                }
                serde_json::Map::from_iter([("metadata".to_owned(), metadata)])
            }
        };
        object.entry("apiVersion").or_insert_with(|| json!(self.api_version));
        object.entry("kind").or_insert_with(|| json!(self.kind));
        escaped(&serde_json::Value::Object(object).to_string())
    }
}

/// Returns JSON in which characters that act on a terminal are written as escapes. JSON has them in its strings only.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match human::acts_on_terminals(c) {
            true => _ = write!(text, "\\u{:04x}", u32::from(c)),
            false => text.push(c),
        }
    }
    text
}

impl Printer for JsonPrinter {
    fn change(&mut self, out: &mut dyn Write, change: &Change) -> io::Result<()> {
        let word = match change.verb {
            Verb::Added => "ADDED",
            Verb::Updated => "MODIFIED",
            Verb::Deleted => "DELETED",
        };
        let gap = if change.gap { "\"gap\":true," } else { "" };
        writeln!(out, "{{\"type\":\"{word}\",{gap}\"object\":{}}}", self.object(change))
    }

    fn settle(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.flush()
    }

    fn notice(&mut self, out: &mut dyn Write, _: &mut dyn Write, notice: &Notice) -> io::Result<()> {
        let line = match notice {
            Notice::Synced { objects, after, .. } => {
                json!({"type": "SYNCED", "objects": objects, "seconds": after.as_secs_f64()})
            }
            Notice::Stale { reason } => json!({"type": "STALE", "reason": reason}),
            Notice::Live { after, how } => {
                json!({"type": "LIVE", "seconds": after.as_secs_f64(), "how": how})
            }
            Notice::Note(text) => json!({"type": "NOTE", "message": text}),
        };
        writeln!(out, "{}", escaped(&line.to_string()))?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn printer() -> JsonPrinter {
        JsonPrinter { api_version: "v1".into(), kind: "Pod".into() }
    }

    fn change(verb: Verb, object: Option<&'static str>) -> Change {
        Change {
            verb,
            namespace: Some("ns".into()),
            name: "web".into(),
            object: object.map(|text| text.as_bytes().into()),
            old: None,
            gap: false,
        }
    }

    fn line(change: &Change) -> serde_json::Value {
        let mut out = Vec::new();
        printer().change(&mut out, change).unwrap();
        assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn adds_type_meta_omitted_by_typed_list() {
        let printed = line(&change(Verb::Updated, Some("{\"metadata\":\n{\"name\":\"web\"}}")));
        assert_eq!(printed["type"], "MODIFIED");
        assert_eq!(
            printed["object"],
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}})
        );
        let own = line(&change(Verb::Added, Some(r#"{"kind":"Own","metadata":{}}"#)));
        assert_eq!(own["object"]["kind"], "Own");
    }

    #[test]
    fn escapes_terminal_control_characters() {
        let object = "{\"a\":\"x\u{9b}31m\u{202e}y\u{7f}\",\"metadata\":{}}";
        let mut out = Vec::new();
        printer().change(&mut out, &change(Verb::Added, Some(object))).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("x\\u009b31m\\u202ey\\u007f")
                && !text.trim_end().contains(human::acts_on_terminals),
            "{text}"
        );
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["object"]["a"], "x\u{9b}31m\u{202e}y\u{7f}");
    }

    #[test]
    fn deletion_without_last_state_names_object() {
        let printed = line(&change(Verb::Deleted, None));
        assert_eq!(printed["object"]["metadata"], json!({"name": "web", "namespace": "ns"}));
        assert_eq!(printed["object"]["kind"], "Pod");
    }

    #[test]
    fn notices_are_lines_for_programs_too() {
        let mut out = Vec::new();
        let notice = Notice::Live { after: Duration::from_millis(1500), how: "watch resumed".into() };
        printer().notice(&mut out, &mut io::sink(), &notice).unwrap();
        let printed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(printed, json!({"type": "LIVE", "seconds": 1.5, "how": "watch resumed"}));
    }
}

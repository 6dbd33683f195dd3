//! Makes what two servers answered comparable: versions become their place among the script's writes, uids and generated
//! names their order, times a mark.
//!
//! | written | means |
//! |---|---|
//! | `w2` | the version of the script's second write |
//! | `w2+` | a version after the second write and before the third (if there was one yet) |
//! | `now` | of a list or bookmark: the version of the latest write, or a later one |
//! | `page` | the version of the list whose next pages are read |
//! | `now+1000` | what the script asked for |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

/// What the names in a history stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    /// The versions of the script's writes, ascending.
    pub(crate) writes: Vec<u64>,
    /// Versions that the script asked for, and what it wrote for them.
    pub(crate) asked: Vec<(u64, String)>,
    /// The version of the list whose next pages are read, while one is read.
    page: Option<u64>,
    pub(crate) paging: bool,
    /// Uids and generated names, and what is written for them.
    texts: Vec<(String, String)>,
}

/// The fields of spec and status that histories keep: the others are full of defaults, which are not the contract's
/// matter (and not in the published libraries).
const KEPT: [&str; 5] = ["nodeName", "phase", "replicas", "type", "unschedulable"];

// === impl Names ===

impl Names {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Notes the version of an object that a write returned.
    pub(crate) fn wrote(&mut self, answer: &Value) {
        let version = answer["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        if let Some(version) = version
            && answer["items"].is_null()
            && self.writes.last().is_none_or(|last| version > *last)
        {
            self.writes.push(version);
        }
    }

    /// Notes the version of a list whose next page is asked for.
    pub(crate) fn paged(&mut self, list: &Value) {
        self.page = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    }

    /// The uid of an object by its name.
    pub(crate) fn uid(&self, name: &str) -> Option<&str> {
        let label = format!("uid({name})");
        self.texts
            .iter()
            .rfind(|(_, l)| *l == label || l.starts_with(&format!("{label}#")))
            .map(|(u, _)| &**u)
    }

    /// An answer's body.
    pub(crate) fn answer(&mut self, body: &Value) -> Value {
        self.learn(body);
        let normal = if is_status(body) {
            self.status(body)
        } else if body["kind"] == "Table" {
            self.table(body)
        } else if body["items"].is_array() {
            self.list(body)
        } else if body["metadata"].is_object() {
            self.object(body)
        } else {
            body.clone()
        };
        self.texts_in(normal)
    }

    /// An event of a watch.
    pub(crate) fn event(&mut self, event: &Value) -> Value {
        let object = &event["object"];
        let normal = match event["type"].as_str() {
            Some("BOOKMARK") => {
                let mut bookmark =
                    if object["kind"] == "Table" { self.table(object) } else { self.object(object) };
                bookmark["metadata"] = object["metadata"].clone();
                self.list_metadata(&mut bookmark["metadata"]);
                if let Some(row) = bookmark.pointer_mut("/rows/0/object/metadata") {
                    *row = object["rows"][0]["object"]["metadata"].clone();
                    self.list_metadata(row);
                }
                bookmark
            }
            Some("ERROR") => self.status(object),
            _ => self.answer(object),
        };
        let mut whole = event.clone();
        whole["object"] = self.texts_in(normal);
        whole
    }

    /// A text that is no JSON.
    pub(crate) fn text(&self, text: &str) -> Value {
        self.texts_in(self.message(text).into())
    }

    /// Takes notice of uids and generated names, wherever they are.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(map) => {
                if let Some(Value::Object(metadata)) = map.get("metadata") {
                    self.learn_metadata(metadata);
                }
                map.iter().filter(|(name, _)| *name != "metadata").for_each(|(_, value)| self.learn(value));
            }
            _ => {}
        }
    }

    fn learn_metadata(&mut self, metadata: &Map<String, Value>) {
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        let (name, prefix, uid) = (text("name"), text("generateName"), text("uid"));
        if name.is_empty() || uid.is_empty() || self.texts.iter().any(|(known, _)| known == uid) {
            return;
        }
        let count = |texts: &[(String, String)], start: &str| {
            texts
                .iter()
                .filter(|(_, label)| label == start || label.starts_with(&format!("{start}#")))
                .count()
        };
        let mut name = name.to_owned();
        // Five letters follow the prefix; it is cut where the name would be longer than 63.
        if name.len() > 5 && prefix.starts_with(&name[..name.len() - 5]) && !prefix.is_empty() {
            let start = format!("{}*", &name[..name.len() - 5]);
            let label = format!("{start}#{}", count(&self.texts, &start) + 1);
            self.texts.push((std::mem::replace(&mut name, label.clone()), label));
        }
        let start = format!("uid({name})");
        let label = match count(&self.texts, &start) {
            0 => start,
            earlier => format!("{start}#{}", earlier + 1),
        };
        self.texts.push((uid.to_owned(), label));
    }

    fn object(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let metadata = &mut object["metadata"];
        self.object_metadata(metadata);
        for part in ["spec", "status"] {
            let Some(Value::Object(fields)) = object.get_mut(part) else { continue };
            fields.retain(|name, _| KEPT.contains(&name.as_str()));
            if fields.is_empty() {
                object.as_object_mut().map(|map| map.remove(part));
            }
        }
        object
    }

    fn object_metadata(&self, metadata: &mut Value) {
        let Some(map) = metadata.as_object_mut() else { return };
        map.remove("managedFields");
        if let Some(version) = map.get_mut("resourceVersion") {
            *version = match version.as_str().and_then(|text| text.parse().ok()) {
                Some(number) => self.exact(number).into(),
                None => version.clone(),
            };
        }
        for time in ["creationTimestamp", "deletionTimestamp"] {
            if let Some(time) = map.get_mut(time).filter(|time| time.is_string()) {
                *time = "T".into();
            }
        }
    }

    fn list(&self, list: &Value) -> Value {
        let mut list = list.clone();
        self.list_metadata(&mut list["metadata"]);
        for item in list["items"].as_array_mut().into_iter().flatten() {
            *item = self.object(item);
        }
        list
    }

    fn list_metadata(&self, metadata: &mut Value) {
        if let Some(number) = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok()) {
            metadata["resourceVersion"] = self.about(number).into();
        }
        if let Some(token) = metadata.get_mut("continue").filter(|token| token.is_string()) {
            *token = self.token(token.as_str().unwrap_or_default());
        }
    }

    /// A table: what columns there are and what their cells say is each server's own matter.
    fn table(&self, table: &Value) -> Value {
        let mut table = table.clone();
        self.list_metadata(&mut table["metadata"]);
        if let Some(columns) = table["columnDefinitions"].as_array() {
            table["columnDefinitions"] = json!(if columns.is_empty() { "none" } else { "some" });
        }
        if table["rows"].is_null() {
            table["rows"] = json!([]);
        }
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            if let Some(cells) = row["cells"].as_array() {
                row["cells"] = json!(if cells.is_empty() { "none" } else { "some" });
            }
            if row["object"].is_object() {
                row["object"] = self.object(&row["object"]);
            }
        }
        table
    }

    fn status(&self, status: &Value) -> Value {
        let mut status = status.clone();
        if let Some(message) = status["message"].as_str() {
            status["message"] = self.message(message).into();
        }
        for cause in status.pointer_mut("/details/causes").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if let Some(message) = cause["message"].as_str() {
                cause["message"] = self.message(message).into();
            }
        }
        if let Some(token) = status.pointer_mut("/metadata/continue").filter(|token| token.is_string()) {
            *token = self.token(token.as_str().unwrap_or_default());
        }
        status
    }

    /// A message, with versions named where it speaks of versions, and without Go's names for types.
    fn message(&self, text: &str) -> String {
        let text = &without_go_types(&self.text_in(text));
        let speaks_of_versions = ["resource version", "resourceVersion", "ResourceVersion", "revision"];
        if !speaks_of_versions.iter().any(|words| text.contains(words)) {
            return text.to_owned();
        }
        let mut out = String::new();
        // Words made of digits alone: `v1` and uids are none.
        for word in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || "-/_".contains(c))) {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            match digits.parse() {
                Ok(number) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    out.push_str(&self.about(number));
                    out.push_str(&word[digits.len()..]);
                }
                _ => out.push_str(word),
            }
        }
        out
    }

    /// A continue token, opened.
    fn token(&self, token: &str) -> Value {
        let opened =
            URL_SAFE_NO_PAD.decode(token).ok().and_then(|json| serde_json::from_slice::<Value>(&json).ok());
        let Some(mut opened) = opened else { return token.into() };
        if let Some(version) = opened["rv"].as_u64() {
            opened["rv"] = self.about(version).into();
        }
        opened
    }

    /// The version of an object.
    fn exact(&self, version: u64) -> String {
        match self.writes.binary_search(&version) {
            Ok(at) => format!("w{}", at + 1),
            Err(before) => self.asked_for(version).unwrap_or_else(|| format!("w{before}+")),
        }
    }

    /// The version of a state, which others than the script move on.
    fn about(&self, version: u64) -> String {
        if let Some(asked) = self.asked_for(version) {
            return asked;
        }
        if self.paging && self.page == Some(version) {
            return "page".to_owned();
        }
        if self.writes.last().is_none_or(|last| version >= *last) {
            return "now".to_owned();
        }
        self.exact(version)
    }

    fn asked_for(&self, version: u64) -> Option<String> {
        self.asked.iter().find(|(asked, _)| *asked == version).map(|(_, text)| text.clone())
    }

    fn text_in(&self, text: &str) -> String {
        let known = self.texts.iter().filter(|(known, _)| text.contains(known.as_str()));
        let text = known.fold(text.to_owned(), |text, (known, label)| text.replace(known.as_str(), label));
        text.replace(&self.namespace, "NS")
    }

    fn texts_in(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text_in(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.texts_in(item)).collect(),
            Value::Object(map) => map.into_iter().map(|(name, value)| (name, self.texts_in(value))).collect(),
            other => other,
        }
    }
}

/// The same with a mark for what differs between Kubernetes' own API server, whose types have internal versions, and one
/// whose types have none.
fn without_go_types(text: &str) -> String {
    let text = text.replace("(*core.", "(*v1.").replace("(core.", "(v1.");
    match text.split_once("in scheme \"") {
        Some((before, _)) => format!("{before}in scheme ..."),
        None => text,
    }
}

fn is_status(value: &Value) -> bool {
    value["kind"] == "Status" && value["apiVersion"] == "v1"
}

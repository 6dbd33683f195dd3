//! Normalization of responses, so that those of two servers are comparable. Versions become their position among the script's
//! writes, UIDs and generated names their order, and times a placeholder.
//!
//! | written | means |
//! |---|---|
//! | `w2` | the version of the script's second write |
//! | `w2+` | a version after the second write and before the third (if there was one yet) |
//! | `now` | of a list or bookmark: the version of the latest write, or a later one |
//! | `page` | the version of the list whose next pages are read |
//! | `now+1000` | the version that the script requested |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

/// Meaning of the names in a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    /// Versions of the script's writes, ascending.
    pub(crate) writes: Vec<u64>,
    /// Versions that the script requested, and their spelling in the script.
    pub(crate) asked: Vec<(u64, String)>,
    /// Version of the list whose next pages are read, while one is read.
    page: Option<u64>,
    pub(crate) paging: bool,
    /// UIDs and generated names, and their replacements.
    texts: Vec<(String, String)>,
}

/// Fields of spec and status that histories keep. The others are full of defaults, which are not part of the contract (and not in
/// the published libraries).
const KEPT: [&str; 5] = ["nodeName", "phase", "replicas", "type", "unschedulable"];

impl Names {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Records the version of an object that a write returned.
    pub(crate) fn wrote(&mut self, answer: &Value) {
        let version = answer["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        if let Some(version) = version
            && answer["items"].is_null()
            && self.writes.last().is_none_or(|last| version > *last)
        {
            self.writes.push(version);
        }
    }

    /// Records the version of a list whose next page is requested.
    pub(crate) fn paged(&mut self, list: &Value) {
        self.page = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    }

    /// Returns the UID of an object by its name.
    pub(crate) fn uid(&self, name: &str) -> Option<&str> {
        let label = format!("uid({name})");
        self.texts
            .iter()
            .rfind(|(_, l)| *l == label || l.starts_with(&format!("{label}#")))
            .map(|(u, _)| &**u)
    }

    /// Normalizes a response body.
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

    /// Normalizes a watch event.
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

    /// Normalizes a text that is not JSON.
    pub(crate) fn text(&self, text: &str) -> Value {
        self.texts_in(self.message(text).into())
    }

    /// Records UIDs and generated names, wherever they are.
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
        // Five letters follow the prefix, which is truncated where the name would be longer than 63.
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

    /// Normalizes a table: each server may choose its columns and cells.
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

    /// Normalizes a message: names versions if it is about versions, and drops Go's names of types.
    fn message(&self, text: &str) -> String {
        let text = &without_go_types(&self.text_in(text));
        let speaks_of_versions = ["resource version", "resourceVersion", "ResourceVersion", "revision"];
        if !speaks_of_versions.iter().any(|words| text.contains(words)) {
            return text.to_owned();
        }
        let mut out = String::new();
        // Only words of digits alone: not `v1`, and not UIDs.
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

    /// Decodes a continue token.
    fn token(&self, token: &str) -> Value {
        let opened =
            URL_SAFE_NO_PAD.decode(token).ok().and_then(|json| serde_json::from_slice::<Value>(&json).ok());
        let Some(mut opened) = opened else { return token.into() };
        if let Some(version) = opened["rv"].as_u64() {
            opened["rv"] = self.about(version).into();
        }
        opened
    }

    /// Returns the name of an object's version.
    fn exact(&self, version: u64) -> String {
        match self.writes.binary_search(&version) {
            Ok(at) => format!("w{}", at + 1),
            Err(before) => self.asked_for(version).unwrap_or_else(|| format!("w{before}+")),
        }
    }

    /// Returns the name of a state's version, which other clients advance too.
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

/// Replaces what differs between Kubernetes' own API server, whose types have internal versions, and one whose types have none.
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

//! Pages about configuration files, written from their JSON schemas.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::markdown::{Table, anchor, code, split_default};

/// The text of a page that its schema does not have.
pub(super) struct Intro {
    title: &'static str,
    text: &'static str,
}

/// The page of `skopos serve`.
pub(super) const GATEWAY: Intro = Intro {
    title: "Configuration of the gateway",
    text: "\
This page lists every field of the file that `skopos serve --config FILE` reads: its type, default, allowed values and meaning.
A complete file with comments is [gateway.example.yaml](gateway.example.yaml). The program prints the JSON schema for editors:

```console
skopos serve --print-schema
```

| topic | rule |
|---|---|
| form | one YAML file of at most 4 MiB. All errors are reported at once, each with its line |
| unknown fields | an error, which names the field that is probably meant |
| duration | `500ms`, `30s`, `1m30s`, `2h` |
| size | `64Ki`, `512Mi`, `2Gi`, or a number of bytes in quotes |
| text | not empty, unless its meaning says that it may be |
| changes | the file is read again every two seconds. A change with errors is refused, and the gateway keeps the previous configuration |
| next start | changes of these take effect at the next start, and the log names them: `listen`, `clusters`, `checkpoints`, `authentication.clientCertificates`, whether callers authenticate at all, `cache.kinds`, `cache.idleStop`, `cache.bytesPerCluster`, `cache.compactAbove`, `cache.encoding`, `cache.compressedBytes` |
| objects in memory | `outbound.impersonate`, `outbound.readOnly`, `authorization.loopback` and `cache.managedFields` take effect at once, except for the parts of objects that are kept in memory: those at the next start |
",
};

/// The page of `skopos notify`.
pub(super) const NOTIFIER: Intro = Intro {
    title: "Configuration of the notifier",
    text: "\
This page lists every field of the file that `skopos notify --config FILE` reads: its type, default, allowed values and meaning.
A complete file with comments is [notify.example.yaml](notify.example.yaml). The program prints the JSON schema for editors:

```console
skopos notify --print-schema
```

| topic | rule |
|---|---|
| form | one YAML file of at most 4 MiB. All errors are reported at once, each with its line |
| unknown fields | an error, which names the field that is probably meant |
| duration | `500ms`, `30s`, `1m30s`, `2h` |
| text | not empty |
| changes | a changed file, or a changed file with a secret, takes effect within two seconds. A file with errors changes nothing |
",
};

/// Returns the page of a configuration file.
pub(super) fn page(intro: &Intro, schema: &Value) -> String {
    let sections = Sections::new(schema);
    let mut page = format!("# {}\n\n{}\n", intro.title, intro.text);
    for (path, object) in &sections.objects {
        page.push_str(&sections.section(path, object));
    }
    page.trim_end().to_owned() + "\n"
}

/// The objects of a schema in the order of the page. An object that several fields have is listed once, at the first field.
struct Sections<'a> {
    root: &'a Value,
    objects: Vec<(String, &'a Value)>,
    /// The path of the first field with an object, by the name of the object's schema.
    paths: BTreeMap<&'a str, String>,
}

impl<'a> Sections<'a> {
    fn new(root: &'a Value) -> Self {
        let mut sections = Self { root, objects: Vec::new(), paths: BTreeMap::new() };
        sections.collect(String::new(), root);
        sections
    }

    /// Collects an object and, behind it, the objects of its fields.
    fn collect(&mut self, path: String, object: &'a Value) {
        self.objects.push((path.clone(), object));
        for (field, schema) in properties(object) {
            let (suffix, schema) = self.innermost(schema);
            let Some((name, inner)) = self.object(schema) else { continue };
            if !self.paths.contains_key(name) {
                let inner_path = format!("{}{field}{suffix}", prefix(&path));
                self.paths.insert(name, inner_path.clone());
                self.collect(inner_path, inner);
            }
        }
    }

    /// Returns the section of an object: its description, its fields, and the values of its enumerations.
    fn section(&self, path: &str, object: &'a Value) -> String {
        let mut table = Table::new(&["field", "type", "default", "allowed values", "meaning"]);
        let mut values = String::new();
        let mut listed = BTreeSet::new();
        for (field, schema) in properties(object) {
            table.row(self.row(field, schema, is_required(object, field)));
            let (_, inner) = self.innermost(schema);
            if listed.insert(inner.to_string()) {
                values.push_str(&self.values(field, inner));
            }
        }
        let heading = if path.is_empty() { "Top level" } else { path };
        let description = if path.is_empty() { "The blocks of the file." } else { description(object) };
        format!("## {heading}\n\n{}\n\n{}{values}", description.replace('\n', " "), table.into_text())
    }

    fn row(&self, field: &str, schema: &'a Value, is_required: bool) -> [String; 5] {
        let (meaning, default) = split_default(description(schema));
        let default = match (is_required, default) {
            (true, _) => "required".to_owned(),
            (false, Some(text)) => value_as_code(text),
            (false, None) if self.is_block(schema) => "see there".to_owned(),
            (false, None) => default_value(&schema["default"]),
        };
        [code(field), self.type_of(schema), default, self.allowed(schema), meaning]
    }

    /// Returns the table of an enumeration's values, if they have descriptions.
    fn values(&self, field: &str, schema: &'a Value) -> String {
        let mut table = Table::new(&[&format!("value of `{field}`"), "meaning"]);
        let schema = self.without_null(schema);
        for one in schema["oneOf"].as_array().into_iter().flatten() {
            table.row([code(one["const"].as_str().unwrap_or_default()), description(one).to_owned()]);
        }
        table.into_text()
    }

    fn type_of(&self, schema: &'a Value) -> String {
        if let Some((name, _)) = self.object(schema) {
            let path = self.paths.get(name).map_or("", String::as_str);
            return format!("[map]({})", anchor(path));
        }
        let schema = self.without_null(schema);
        let format = schema["format"].as_str();
        match type_name(schema) {
            _ if !words(schema).is_empty() => "word".into(),
            Some("object") => format!("map of names to {}", self.type_of(&schema["additionalProperties"])),
            Some("array") => format!("list of {}", self.type_of(&schema["items"])),
            Some("string") if format == Some("span") => "duration".into(),
            Some("string") if format == Some("bytes") => "size".into(),
            Some("string") if format == Some("maybe-empty") => "text, may be empty".into(),
            Some("string") => "text".into(),
            Some("boolean") => "boolean".into(),
            Some("integer") => "number".into(),
            other => panic!("the reference has no word for the type {other:?}"),
        }
    }

    fn allowed(&self, schema: &'a Value) -> String {
        let (_, schema) = self.innermost(schema);
        let schema = self.without_null(schema);
        let words = words(schema);
        if !words.is_empty() {
            return words.into_iter().map(code).collect::<Vec<_>>().join(", ");
        }
        match (type_name(schema), schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            (Some("boolean"), ..) => "`true`, `false`".into(),
            // Bounds of the number's type are no rule of the file.
            (Some("integer"), Some(0), None | Some(255 | 65_535)) => String::new(),
            (Some("integer"), Some(low), Some(high)) => format!("{low} to {high}"),
            _ => String::new(),
        }
    }

    /// Returns whether the field is an object that is always there, with the defaults of its own fields.
    fn is_block(&self, schema: &'a Value) -> bool {
        schema["anyOf"].is_null() && self.object(schema).is_some()
    }

    /// Returns the name and the schema of an object with named fields.
    fn object(&self, schema: &'a Value) -> Option<(&'a str, &'a Value)> {
        let named = some_of(schema);
        let name = named["$ref"].as_str()?.rsplit('/').next()?;
        let object = self.resolve(named);
        object["properties"].is_object().then_some((name, object))
    }

    /// Returns the schema of the items of lists and maps, with the suffix for its path.
    fn innermost(&self, schema: &'a Value) -> (&'static str, &'a Value) {
        let plain = self.without_null(schema);
        if plain["items"].is_object() {
            ("[]", &plain["items"])
        } else if plain["additionalProperties"].is_object() {
            (".NAME", &plain["additionalProperties"])
        } else {
            ("", schema)
        }
    }

    fn without_null(&self, schema: &'a Value) -> &'a Value {
        self.resolve(some_of(schema))
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let pointer = schema["$ref"].as_str().and_then(|name| name.strip_prefix('#'));
        pointer.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }
}

/// Returns the schema X of `anyOf: [X, null]`.
fn some_of(schema: &Value) -> &Value {
    let some = schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
    some.unwrap_or(schema)
}

fn properties(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn is_required(object: &Value, field: &str) -> bool {
    object["required"].as_array().is_some_and(|all| all.iter().any(|name| name == field))
}

/// Returns the description, which every field and every object must have.
fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_else(|| panic!("no description: {schema}"))
}

/// Returns a default of one value, such as `30s` or `true`, as code.
fn value_as_code(text: String) -> String {
    let is_value = text.starts_with(|first: char| first.is_ascii_digit()) && !text.contains(' ');
    if is_value || ["true", "false"].contains(&&*text) { code(&text) } else { text }
}

fn default_value(default: &Value) -> String {
    match default {
        Value::Null => "none".into(),
        Value::Array(items) if items.is_empty() => "empty".into(),
        Value::Object(entries) if entries.is_empty() => "empty".into(),
        Value::String(text) => code(&text.replace(' ', "")),
        other => code(&other.to_string()),
    }
}

fn type_name(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(one) => Some(one),
        Value::Array(several) => several.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

fn words(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let described = schema["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["const"].as_str());
    listed.chain(described).collect()
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}.") }
}

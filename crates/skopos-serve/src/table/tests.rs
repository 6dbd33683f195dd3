//! Rows beside those that kube-apiserver's own code prints (`peers/tables`).

use super::row::list;
use super::*;
use crate::resources::Registry;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

#[test]
fn default_columns_show_name_and_creation_time() {
    let registry = Registry::builtin();
    let crd = registry.lookup("crd").unwrap();
    let writer = TableWriter::new(&crd, IncludeObject::None);
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(
        writer.row(&object, vec![], now()),
        json!({"cells": ["x", "2026-01-01T00:00:00Z"], "object": null})
    );
}

#[test]
fn empty_object_has_one_cell_per_builtin_column() {
    for resource in Registry::builtin().all().iter() {
        let writer = TableWriter::new(resource, IncludeObject::Object);
        let table = writer.table(json!({}), vec![writer.row(&json!({}), vec![], now())], true);
        let cells = table["rows"][0]["cells"].as_array().map(Vec::len);
        assert_eq!(cells, table["columnDefinitions"].as_array().map(Vec::len), "{resource}");
    }
}

#[test]
fn custom_columns_are_read_by_their_paths() {
    let mut resource = ResourceType::new("demo.example", "v1", "widgets", "Widget");
    resource.custom = true;
    let writer = TableWriter::new(&resource, IncludeObject::Metadata);
    let object = json!({"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:58:00Z"},
                        "spec": {"size": 3, "tags": ["a"]}});
    assert_eq!(writer.row(&object, vec![], now())["cells"], json!(["w", "2m"]));
    resource.columns = vec![
        column("Size", "integer", ".spec.size"),
        column("Tags", "string", ".spec.tags"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Missing", "string", ".spec.missing"),
    ];
    let writer = TableWriter::new(&resource, IncludeObject::Metadata);
    assert_eq!(writer.row(&object, vec![], now())["cells"], json!(["w", 3, "[\"a\"]", "2m", null]));
}

#[test]
fn leading_columns_come_first_even_when_empty() {
    let cluster = LeadingColumn { name: "Cluster", description: "Where it is" };
    let pods = Registry::builtin().lookup("pods").unwrap();
    let mut writer = TableWriter::new(&pods, IncludeObject::None);
    writer.set_leading_columns(&[cluster]);
    let pod = json!({"metadata": {"name": "a"}});
    let rows = vec![writer.row(&pod, vec![json!("east")], now()), writer.row(&pod, vec![], now())];
    let table = writer.table(json!({}), rows, true);
    let names: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(names[..2], [json!("Cluster"), json!("Name")]);
    assert_eq!(table["rows"][0]["cells"][0], "east");
    assert_eq!(table["rows"][1]["cells"][0], Value::Null);
    assert_eq!(table["rows"][1]["cells"].as_array().map(Vec::len), Some(names.len()));
}

#[test]
fn builtin_kinds_are_printed_as_by_kube_apiserver() {
    let mut differences = Vec::new();
    let lines = recorded("builtin.jsonl");
    for line in &lines {
        let resource = resource_of(line);
        let writer = TableWriter::new(&resource, IncludeObject::None);
        let row = writer.row(&line["object"], vec![], line["now"].as_str().unwrap().parse().unwrap());
        let columns: Vec<Value> = writer.definitions().as_array().unwrap().iter().map(shown).collect();
        let name = format!("{} {}", line["kind"], line["object"]["metadata"]["name"]);
        // The server returns one cell more than columns for IPAddresses.
        let expected: Vec<&Value> = list(&line["cells"]).take(columns.len()).collect();
        if Value::Array(columns.clone()) != line["columns"] {
            differences.push(format!("{name}: columns {columns:?}"));
        }
        if list(&row["cells"]).collect::<Vec<_>>() != expected {
            differences.push(format!("{name}: {} and not {}", row["cells"], line["cells"]));
        }
        if row["conditions"] != line["conditions"] {
            differences.push(format!("{name}: {}", row["conditions"]));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(lines.len() > 150, "{}", lines.len());
}

#[test]
fn every_served_kind_has_a_recorded_row() {
    let lines = recorded("builtin.jsonl");
    let has_row = |resource: &ResourceType| {
        lines.iter().any(|line| line["kind"] == resource.kind && line["apiVersion"] == resource.api_version())
    };
    let without: Vec<String> = Registry::builtin()
        .all()
        .iter()
        .filter(|resource| resource.allows(crate::Verb::List) && !has_row(resource))
        .map(|resource| resource.kind.clone())
        .collect();
    // Another server's code serves it, with the default columns.
    assert_eq!(without, ["CustomResourceDefinition"]);
}

#[test]
fn printer_columns_are_evaluated_as_by_kube_apiserver() {
    let lines = recorded("jsonpath.jsonl");
    let (head, paths) = lines.split_first().unwrap();
    let now: Timestamp = head["now"].as_str().unwrap().parse().unwrap();
    let types: Vec<&str> = list(&head["types"]).filter_map(Value::as_str).collect();
    let mut differences = Vec::new();
    for line in paths {
        let text = line["path"].as_str().unwrap();
        let path = JsonPath::parse(text);
        if path.is_err() != (line["invalid"] == true) {
            differences.push(format!("{text:?}: {path:?}"));
        }
        let Ok(path) = path else { continue };
        for (object, cells) in list(&head["objects"]).zip(list(&line["cells"])) {
            for (r#type, cell) in types.iter().zip(list(cells)) {
                let own = path.first(object).map_or(Value::Null, |found| found.cell(r#type, now));
                if !is_same(&own, cell) {
                    let object = &object["metadata"]["name"];
                    differences.push(format!("{text:?} of {object} as {type}: {own} and not {cell}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(paths.len() > 900, "{}", paths.len());
}

#[test]
fn invalid_path_ends_columns() {
    let mut resource = ResourceType::new("demo.example", "v1", "widgets", "Widget");
    resource.custom = true;
    let paths = [".spec.a", ".spec[", ".spec.b"];
    resource.columns = paths.iter().map(|path| column(path, "string", path)).collect();
    let writer = TableWriter::new(&resource, IncludeObject::None);
    let names: Vec<Value> = list(&writer.definitions()).map(|column| column["name"].clone()).collect();
    assert_eq!(names, ["Name", ".spec.a"]);
}

#[test]
fn columns_that_change_are_parsed_again() {
    let mut resource = ResourceType::new("demo.example", "v1", "widgets", "Widget");
    resource.custom = true;
    resource.columns = vec![column("A", "string", ".a")];
    let object = json!({"metadata": {"name": "w"}, "a": "1", "b": "2"});
    let cells = |resource: &ResourceType| {
        TableWriter::new(resource, IncludeObject::None).row(&object, vec![], now())["cells"].clone()
    };
    assert_eq!(cells(&resource), json!(["w", "1"]));
    resource.columns = vec![column("B", "string", ".b")];
    assert_eq!(cells(&resource), json!(["w", "2"]));
}

/// Returns the lines of a file that `peers/tables` wrote.
fn recorded(file: &str) -> Vec<Value> {
    let path = format!("{}/../../peers/tables/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("peers/tables is part of the repository");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn resource_of(line: &Value) -> ResourceType {
    let (group, version) = crate::resources::split_api_version(line["apiVersion"].as_str().unwrap());
    ResourceType::new(group, version, "things", line["kind"].as_str().unwrap())
}

/// Returns a column without its description, which kubectl does not show.
fn shown(column: &Value) -> Value {
    let mut column = column.clone();
    column.as_object_mut().unwrap().remove("description");
    column
}

fn is_same(own: &Value, recorded: &Value) -> bool {
    match (own, recorded) {
        (Value::Number(own), Value::Number(recorded)) => own == recorded || own.as_f64() == recorded.as_f64(),
        _ => own == recorded,
    }
}

fn column(name: &str, r#type: &str, path: &str) -> PrinterColumn {
    PrinterColumn {
        name: name.into(),
        r#type: r#type.into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        json_path: path.into(),
    }
}

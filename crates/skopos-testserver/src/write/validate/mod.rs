//! Validation (422): names, labels, immutable fields, and the schemas of custom resources.

use serde_json::Value;
use skopos_serve::ResourceType;
use skopos_wire::{FieldError, Status};

mod schema;

/// Validates an object before it is stored; `old` is the object that it replaces.
///
/// # Errors
/// 422 with all problems.
pub(super) fn object(resource: &ResourceType, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let mut errors = Vec::new();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match old {
        None => check_name(resource, name, &mut errors),
        Some(old) => check_changes(resource, old, object, &mut errors),
    }
    check_labels(object, &mut errors);
    check_annotations(object, &mut errors);
    check_numbers(resource, object, &mut errors);
    if let Some(schema) = &resource.schema {
        schema::check(schema, object, &mut errors);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&resource.group, &resource.kind, name, &errors))
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn check_name(resource: &ResourceType, name: &str, errors: &mut Vec<FieldError>) {
    let mut refuse = |problem: &str| errors.push(FieldError::invalid("metadata.name", name, problem));
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => {
            if !is_label(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
                refuse(LABEL_1035);
            }
            if name.len() > 63 {
                refuse("must be no more than 63 characters");
            }
        }
        ("", "namespaces") => {
            if !is_label(name) {
                refuse(LABEL);
            }
            if name.len() > 63 {
                refuse("must be no more than 63 characters");
            }
        }
        ("rbac.authorization.k8s.io", _) => match name {
            "." | ".." => refuse(&format!("may not be '{name}'")),
            _ if name.contains('/') => refuse("may not contain '/'"),
            _ if name.contains('%') => refuse("may not contain '%'"),
            _ => {}
        },
        _ => {
            if !is_subdomain(name) {
                refuse(SUBDOMAIN);
            }
            if name.len() > 253 {
                refuse("must be no more than 253 characters");
            }
        }
    }
}

fn check_labels(object: &Value, errors: &mut Vec<FieldError>) {
    let valid = |value: &str| {
        value.len() <= 63
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && value.bytes().next().is_none_or(|b| b.is_ascii_alphanumeric())
            && value.bytes().next_back().is_none_or(|b| b.is_ascii_alphanumeric())
    };
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        check_key("metadata.labels", key, errors);
        match value.as_str() {
            Some(value) if value.len() > 63 => {
                errors.push(FieldError::invalid("metadata.labels", value, "must be no more than 63 bytes"));
            }
            Some(value) if !valid(value) => {
                errors.push(FieldError::invalid("metadata.labels", value, LABEL_VALUE))
            }
            _ => {}
        }
    }
}

fn check_annotations(object: &Value, errors: &mut Vec<FieldError>) {
    for key in object["metadata"]["annotations"].as_object().into_iter().flat_map(|map| map.keys()) {
        // Their case is ignored.
        check_key("metadata.annotations", &key.to_lowercase(), errors);
    }
}

/// Checks a key of labels or annotations: `name` or `prefix/name`.
fn check_key(field: &str, key: &str, errors: &mut Vec<FieldError>) {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut refuse = |problem: &str| errors.push(FieldError::invalid(field, key, problem));
    if name.contains('/') {
        refuse(KEY);
        return;
    }
    if prefix == Some("") {
        refuse("prefix part must be non-empty");
    } else if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        refuse(&format!("prefix part {SUBDOMAIN}"));
    }
    let alphanumeric = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric());
    if name.is_empty() {
        refuse("name part must be non-empty");
    } else if name.len() > 63 {
        refuse("name part must be no more than 63 bytes");
    }
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !(letters && alphanumeric(name.bytes().next()) && alphanumeric(name.bytes().next_back())) {
        refuse(&format!("name part {KEY_NAME}"));
    }
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn check_numbers(resource: &ResourceType, object: &Value, errors: &mut Vec<FieldError>) {
    let replicas = &object["spec"]["replicas"];
    if !resource.custom && replicas.as_i64().is_some_and(|replicas| replicas < 0) {
        let problem = "must be greater than or equal to 0";
        errors.push(FieldError::invalid_literal("spec.replicas", replicas, problem));
    }
    let spec = &object["spec"];
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = spec["selector"]["matchLabels"].as_object();
    if resource.group == "apps"
        && wanted.is_some_and(|wanted| wanted.iter().any(|(k, v)| labels.get(k) != Some(v)))
    {
        let field = "spec.template.metadata.labels";
        errors.push(FieldError::invalid_literal(
            field,
            go_map(labels),
            "`selector` does not match template `labels`",
        ));
    }
}

fn check_changes(resource: &ResourceType, old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if resource.group == "apps"
        && matches!(resource.kind.as_str(), "Deployment" | "ReplicaSet" | "DaemonSet")
        && old["spec"]["selector"] != new["spec"]["selector"]
        && !old["spec"]["selector"].is_null()
    {
        let selector = &new["spec"]["selector"];
        errors.push(FieldError::invalid_literal("spec.selector", selector, "field is immutable"));
    }
    if matches!((resource.group.as_str(), resource.kind.as_str()), ("", "ConfigMap" | "Secret"))
        && old["immutable"] == true
    {
        for field in ["data", "binaryData", "immutable"] {
            if old[field] != new[field] {
                errors.push(FieldError::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    let finalizers = |object: &Value| -> Vec<String> {
        let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        list.filter_map(|f| f.as_str().map(str::to_owned)).collect()
    };
    if !old["metadata"]["deletionTimestamp"].is_null() {
        let before = finalizers(old);
        let added: Vec<String> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let problem = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
            );
            // Reported both by the checks of all objects and by those of the kind.
            let error = FieldError::forbidden("metadata.finalizers", problem);
            errors.extend([error.clone(), error]);
        }
    }
}

/// Returns a map as the API server's messages print it.
fn go_map(map: &Value) -> String {
    let entries = map.as_object().into_iter().flatten();
    let entries: Vec<String> = entries.map(|(k, v)| format!("{k:?}:{v}")).collect();
    format!("map[string]string{{{}}}", entries.join(", "))
}

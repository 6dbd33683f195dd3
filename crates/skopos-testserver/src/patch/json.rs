//! JSON patch (RFC 6902) as kube-apiserver applies it: with the limits and the leniency of its library (`evanphx/json-patch`). An
//! absent field reads as null, and indexes may count from the end.

use serde_json::Value;

use super::PatchError;

/// Maximum number of operations of a patch (`maxJSONPatchOperations` of kube-apiserver).
const MAX_OPERATIONS: usize = 10_000;

/// Maximum bytes that the copies of a patch add (`AccumulatedCopySizeLimit` of kube-apiserver).
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies the operations of `patch` to `document`, in order.
///
/// # Errors
/// [`PatchError::Malformed`] for an invalid patch, [`PatchError::TooLarge`] for too many operations, and
/// [`PatchError::Unprocessable`] for an operation that fails or copies too much.
pub(super) fn apply(document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations = patch.as_array().ok_or_else(|| malformed("expected a list of operations"))?;
    if !operations.iter().all(Value::is_object) {
        return Err(malformed("expected each operation to be an object"));
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut copied = 0;
    operations.iter().try_for_each(|operation| step(document, operation, &mut copied))
}

fn step(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), PatchError> {
    let path = || pointer(operation, "path");
    let value = || operation["value"].clone();
    match operation["op"].as_str().unwrap_or("unknown") {
        "add" => add(document, path()?, value()),
        "remove" => remove(document, path()?),
        "replace" => replace(document, path()?, value()),
        "test" => test(document, path()?, &operation["value"]),
        "move" => {
            let from = pointer(operation, "from")?;
            let moved = get(document, from)?;
            remove(document, from)?;
            add(document, path()?, moved)
        }
        "copy" => {
            let value = get(document, pointer(operation, "from")?)?;
            *copied += value.to_string().len();
            if *copied > MAX_COPIED_BYTES {
                return Err(failed(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED_BYTES}"
                )));
            }
            add(document, path()?, value)
        }
        other => Err(failed(format!("Unexpected kind: {other}"))),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1).ok_or_else(|| no_such_index(path))?;
            items.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<(), PatchError> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(map) => map.remove(&key).map(drop).ok_or_else(|| missing(path)),
        Value::Array(items) => {
            let at = index(&key, items.len()).ok_or_else(|| no_such_index(path))?;
            items.remove(at);
            Ok(())
        }
        _ => Err(missing(path)),
    }
}

/// Sets an item or a field, even an absent one.
fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err(failed("replace operation value must be object or array".to_owned()));
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) => {
            let at = index(&key, items.len()).ok_or_else(|| no_such_index(path))?;
            items[at] = value;
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), PatchError> {
    let found = if path.is_empty() { document.clone() } else { get(document, path)? };
    if found == *expected { Ok(()) } else { Err(failed(format!("testing value {path} failed: test failed"))) }
}

/// Returns the value at a path: null for an absent field.
fn get(document: &mut Value, path: &str) -> Result<Value, PatchError> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Object(map) => Ok(map.get(&key).cloned().unwrap_or_default()),
        Value::Array(items) => {
            let at = index(&key, items.len()).ok_or_else(|| no_such_index(path))?;
            Ok(items[at].clone())
        }
        _ => Err(missing(path)),
    }
}

/// Returns the object or list that contains the end of a path, and the last key.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), PatchError> {
    // Text before the first slash is ignored.
    let mut keys = path.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
    let mut last = keys.next().ok_or_else(|| missing(path))?;
    let mut parent = document;
    for key in keys {
        parent = child(parent, &last).ok_or_else(|| missing(path))?;
        last = key;
    }
    Ok((parent, last))
}

fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(map) => map.get_mut(key),
        Value::Array(items) => {
            let at = index(key, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    }
}

/// Returns the index in a list of `length`; negative numbers count from the end.
fn index(key: &str, length: usize) -> Option<usize> {
    let number: i64 = key.parse().ok()?;
    let at = if number < 0 { number.checked_add(i64::try_from(length).ok()?)? } else { number };
    usize::try_from(at).ok().filter(|at| *at < length)
}

fn pointer<'a>(operation: &'a Value, field: &str) -> Result<&'a str, PatchError> {
    operation[field].as_str().ok_or_else(|| failed(format!("operation without {field}")))
}

fn malformed(problem: &str) -> PatchError {
    PatchError::Malformed(format!("error decoding patch: {problem}"))
}

fn failed(problem: String) -> PatchError {
    PatchError::Unprocessable(problem)
}

fn missing(path: &str) -> PatchError {
    failed(format!("doc is missing path: {path:?}"))
}

fn no_such_index(path: &str) -> PatchError {
    failed(format!("unable to access invalid index: {path:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut document: Value, patch: Value) -> Result<Value, PatchError> {
        apply(&mut document, &patch).map(|()| document)
    }

    #[test]
    fn missing_path_reads_as_null() {
        let object = json!({"metadata": {"name": "n"}});
        let test = |path: &str, value: Value| {
            patched(object.clone(), json!([{"op": "test", "path": path, "value": value}]))
        };
        assert_eq!(test("/metadata/finalizers", Value::Null), Ok(object.clone()));
        assert_eq!(
            patched(object.clone(), json!([{"op": "test", "path": "/metadata/x"}])),
            Ok(object.clone())
        );
        assert!(test("/metadata/finalizers", json!([])).is_err());
        assert!(test("/metadata/name", Value::Null).is_err());
        assert!(test("/status/x", Value::Null).is_err(), "of an object that is not there nothing is read");
        let copied = json!([{"op": "copy", "from": "/metadata/x", "path": "/metadata/y"}]);
        assert_eq!(patched(object.clone(), copied), Ok(json!({"metadata": {"name": "n", "y": null}})));
        let replaced = json!([{"op": "replace", "path": "/metadata/x", "value": 1}]);
        assert_eq!(patched(object.clone(), replaced), Ok(json!({"metadata": {"name": "n", "x": 1}})));
        for operation in [
            json!({"op": "remove", "path": "/metadata/x"}),
            json!({"op": "move", "from": "/metadata/x", "path": "/metadata/y"}),
            json!({"op": "add", "path": "/a/b", "value": 1}),
            json!({"op": "add", "path": "", "value": 1}),
            json!({"op": "add", "value": 1}),
            json!({"op": "frob", "path": "/a"}),
        ] {
            let error = patched(object.clone(), json!([operation]));
            assert!(matches!(error, Err(PatchError::Unprocessable(_))), "{operation}: {error:?}");
        }
    }

    #[test]
    fn unescapes_keys_and_indexes_lists_from_both_ends() {
        let object = json!({"a/b": {"c~d": [1, 2, 3]}});
        let list =
            |operation: Value| patched(object.clone(), json!([operation])).map(|o| o["a/b"]["c~d"].clone());
        let at = "/a~1b/c~0d";
        assert_eq!(
            list(json!({"op": "add", "path": format!("{at}/-"), "value": 4})),
            Ok(json!([1, 2, 3, 4]))
        );
        assert_eq!(
            list(json!({"op": "add", "path": format!("{at}/0"), "value": 4})),
            Ok(json!([4, 1, 2, 3]))
        );
        assert_eq!(
            list(json!({"op": "add", "path": format!("{at}/3"), "value": 4})),
            Ok(json!([1, 2, 3, 4]))
        );
        assert_eq!(
            list(json!({"op": "add", "path": format!("{at}/-1"), "value": 4})),
            Ok(json!([1, 2, 3, 4]))
        );
        assert_eq!(
            list(json!({"op": "replace", "path": format!("{at}/-1"), "value": 4})),
            Ok(json!([1, 2, 4]))
        );
        assert_eq!(list(json!({"op": "remove", "path": format!("{at}/-3")})), Ok(json!([2, 3])));
        for out in ["3", "-4", "x", "-"] {
            let operation = json!({"op": "replace", "path": format!("{at}/{out}"), "value": 4});
            assert!(list(operation).is_err(), "{out}");
        }
        let both = json!([{"op": "move", "from": "/a~1b/c~0d/0", "path": "/x"}, {"op": "test", "path": "/x", "value": 1}]);
        assert_eq!(patched(object.clone(), both), Ok(json!({"a/b": {"c~d": [2, 3]}, "x": 1})));
        assert_eq!(patched(object.clone(), json!([{"op": "test", "path": "", "value": object}])), Ok(object));
    }

    #[test]
    fn copies_and_operations_are_bounded() {
        let document = json!({"data": {"a": "x".repeat(1024)}});
        let copies = |count: usize| -> Value {
            (0..count)
                .map(|i| json!({"op": "copy", "from": "/data", "path": format!("/data/c{i}")}))
                .collect()
        };
        assert!(patched(document.clone(), copies(11)).is_ok());
        let error = patched(document.clone(), copies(24)).unwrap_err();
        assert!(error.to_string().contains("exceeding the limit 3145728"), "{error}");
        let tests = |count: usize| Value::from(vec![json!({"op": "test", "path": "/data/b"}); count]);
        assert!(patched(document.clone(), tests(10_000)).is_ok());
        let error = patched(document, tests(10_001)).unwrap_err();
        assert_eq!(
            error,
            PatchError::TooLarge("The allowed maximum operations in a JSON patch is 10000, got 10001".into())
        );
    }
}

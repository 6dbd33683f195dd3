//! Labels and label selectors as kubectl prints them.

use serde_json::Value;

use super::row::{NONE, list, texts};

/// Returns a label selector as kubectl prints it, from a map of labels or a `LabelSelector`.
pub fn printed_selector(selector: &Value) -> String {
    if selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none() {
        return printed_labels(selector);
    }
    printed_selector_or(selector, NONE)
}

/// Returns labels as `a=1,b=2`, in order.
pub(super) fn printed_labels(labels: &Value) -> String {
    or_none(equalities(labels).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}

/// Returns a `LabelSelector`, or `invalid` if it is invalid.
pub(super) fn printed_selector_or(selector: &Value, invalid: &str) -> String {
    parse_selector(selector).map_or_else(|| invalid.to_owned(), or_none)
}

/// Returns the requirements of a `LabelSelector` in the order of their keys; `None` if it is not valid.
pub(super) fn parse_selector(selector: &Value) -> Option<String> {
    let labels = equalities(&selector["matchLabels"]).map(|(key, value)| (key, format!("{key}={value}")));
    let mut parts: Vec<(&str, String)> = labels.collect();
    for expression in list(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = texts(&expression["values"]).collect();
        values.sort_unstable();
        let operator = expression["operator"].as_str().unwrap_or_default();
        let is_set = matches!(operator, "In" | "NotIn");
        if is_set == values.is_empty() {
            return None;
        }
        let values = values.join(",");
        parts.push((
            key,
            match operator {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                _ => return None,
            },
        ));
    }
    parts.sort_by_key(|(key, _)| *key);
    Some(parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(","))
}

/// Returns a `LabelSelector` as Go prints the struct.
pub(super) fn go_selector(selector: &Value) -> String {
    let labels: String = equalities(&selector["matchLabels"]).map(|(k, v)| format!("{k}: {v},")).collect();
    let expression = |expression: &Value| {
        let text = |field: &str| expression[field].as_str().unwrap_or_default();
        let values = texts(&expression["values"]).collect::<Vec<_>>().join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            text("key"),
            text("operator")
        )
    };
    let expressions: String = list(&selector["matchExpressions"]).map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn equalities(labels: &Value) -> impl Iterator<Item = (&str, &str)> {
    let labels = labels.as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_print_as_kubectl_does() {
        assert_eq!(printed_selector(&json!({"app": "web", "x": "y"})), "app=web,x=y");
        let full = json!({"matchLabels": {"z": "b"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["2", "1"]}, {"key": "e", "operator": "DoesNotExist"}]});
        assert_eq!(printed_selector(&full), "!e,k in (1,2),z=b");
        assert_eq!(printed_selector(&Value::Null), "<none>");
    }
}

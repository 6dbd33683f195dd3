//! Validation of label keys and values, with the API server's messages.

/// Returns the API server's messages about an invalid label; empty if it is valid.
pub fn label_problems(key: &str, value: &str) -> Vec<String> {
    let of_key = label_key_problems(key).into_iter().map(|problem| format!("{key:?}: {problem}"));
    let of_value = label_value_problems(value).into_iter().map(|problem| format!("{value:?}: {problem}"));
    of_key.chain(of_value).collect()
}

/// Returns the problems of a label key (`[prefix/]name`); empty if it is valid.
pub(super) fn label_key_problems(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_problem(NAME_RULE, NAME_REGEX, &["MyName", "my.name", "123-abc"])
            )];
        }
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            problems.extend(
                subdomain_problems(prefix).into_iter().map(|problem| format!("prefix part {problem}")),
            );
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL_LENGTH {
        problems.push(format!("name part must be no more than {MAX_LABEL_LENGTH} bytes"));
    }
    if !is_name(name) {
        let problem = regex_problem(NAME_RULE, NAME_REGEX, &["MyName", "my.name", "123-abc"]);
        problems.push(format!("name part {problem}"));
    }
    problems
}

/// Returns the problems of a label value; empty if it is valid.
pub(super) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_LABEL_LENGTH {
        problems.push(format!("must be no more than {MAX_LABEL_LENGTH} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(regex_problem(VALUE_RULE, VALUE_REGEX, &["MyValue", "my_value", "12345"]));
    }
    problems
}

fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > MAX_SUBDOMAIN_LENGTH {
        problems.push(format!("must be no more than {MAX_SUBDOMAIN_LENGTH} bytes"));
    }
    let is_label =
        |label: &str| is_within(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), |b| b == b'-');
    if !text.split('.').all(is_label) {
        problems.push(regex_problem(SUBDOMAIN_RULE, SUBDOMAIN_REGEX, &["example.com"]));
    }
    problems
}

fn is_name(text: &str) -> bool {
    is_within(text, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// Returns whether the text starts and ends with `outer` bytes and has only `outer` and `inner` ones.
fn is_within(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => outer(*only),
        [first, middle @ .., last] => {
            outer(*first) && outer(*last) && middle.iter().all(|b| outer(*b) || inner(*b))
        }
    }
}

fn regex_problem(rule: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

const MAX_LABEL_LENGTH: usize = 63;
const MAX_SUBDOMAIN_LENGTH: usize = 253;

const NAME_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_REGEX: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character";
const SUBDOMAIN_REGEX: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
     '-' or '.', and must start and end with an alphanumeric character";

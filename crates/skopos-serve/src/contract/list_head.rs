//! Metadata of a list.

use crate::json::quoted;

/// Metadata of a list.
#[derive(Debug)]
pub(super) struct ListHead {
    pub(super) revision: u64,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<usize>,
    pub(super) annotations: Vec<(String, String)>,
}

impl ListHead {
    /// Returns the list's metadata as JSON, its fields in the order in which kube-apiserver writes them.
    pub(super) fn metadata_json(&self) -> String {
        let mut fields = vec![format!("\"resourceVersion\":\"{}\"", self.revision)];
        if let Some(token) = &self.continue_token {
            fields.push(format!("\"continue\":{}", quoted(token)));
        }
        if let Some(remaining) = self.remaining {
            fields.push(format!("\"remainingItemCount\":{remaining}"));
        }
        if !self.annotations.is_empty() {
            let annotations = self.annotations.iter();
            let annotations: Vec<String> =
                annotations.map(|(name, value)| format!("{}:{}", quoted(name), quoted(value))).collect();
            fields.push(format!("\"annotations\":{{{}}}", annotations.join(",")));
        }
        format!("{{{}}}", fields.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_fields_follow_kube_apiserver_order() {
        let mut head = ListHead {
            revision: 7,
            continue_token: Some("t".to_owned()),
            remaining: Some(3),
            annotations: Vec::new(),
        };
        let begin = r#"{"resourceVersion":"7","continue":"t","remainingItemCount":3"#;
        assert_eq!(head.metadata_json(), format!("{begin}}}"));
        head.annotations = vec![("a/b".to_owned(), "\"c\"".to_owned()), ("d".to_owned(), String::new())];
        assert_eq!(head.metadata_json(), format!(r#"{begin},"annotations":{{"a/b":"\"c\"","d":""}}}}"#));
        head = ListHead { revision: 8, continue_token: None, remaining: None, annotations: Vec::new() };
        assert_eq!(head.metadata_json(), r#"{"resourceVersion":"8"}"#);
    }
}

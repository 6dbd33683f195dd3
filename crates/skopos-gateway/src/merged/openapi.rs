//! OpenAPI of all clusters: for each group and version the document that most of them have.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use skopos_fleet::{Cluster, DocumentRequest};

/// Where the documents of one cluster are. The address of each names its content, too: two clusters that have the same
/// document have it at the same address.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Index {
    addresses: BTreeMap<String, String>,
}

/// The most bytes of an index.
const MOST_BYTES: usize = 1 << 20;

/// Where the index is, and everything below it.
const ROOT: &str = "/openapi/v3";

/// What is asked for as a member's index.
pub(crate) fn request() -> Option<DocumentRequest> {
    DocumentRequest::new(ROOT, "application/json")
}

/// Whether a path is that of the index, or of a document of it.
pub(crate) fn is_below(path: &str) -> bool {
    path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The name of the document at this path; `None` at the path of the index.
pub(crate) fn name_of(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.strip_prefix('/')
}

/// The index of all of them.
pub(crate) fn united(indexes: &[(Cluster, Index)]) -> String {
    // How many have which, and the first of them: in one go, for strangers say how many names there are.
    let mut votes: BTreeMap<&str, BTreeMap<&str, (usize, Reverse<usize>)>> = BTreeMap::new();
    for (place, (_, index)) in indexes.iter().enumerate() {
        for (name, address) in &index.addresses {
            votes.entry(name).or_default().entry(address).or_insert((0, Reverse(place))).0 += 1;
        }
    }
    let elected = votes.into_iter().filter_map(|(name, of_name)| {
        let (address, _) = of_name.into_iter().max_by_key(|(_, votes)| *votes)?;
        Some((name, json!({"serverRelativeURL": address})))
    });
    let paths: BTreeMap<&str, serde_json::Value> = elected.collect();
    json!({"paths": paths}).to_string()
}

/// The address of the document that most of them have by this name, and the first that has it.
pub(crate) fn elect<'a>(indexes: &'a [(Cluster, Index)], name: &str) -> Option<(&'a Cluster, &'a str)> {
    let mut votes: Vec<(&Cluster, &str, usize)> = Vec::new();
    for (cluster, index) in indexes {
        let Some(address) = index.addresses.get(name) else { continue };
        match votes.iter_mut().find(|(_, own, _)| own == address) {
            Some((_, _, count)) => *count += 1,
            None => votes.push((cluster, address, 1)),
        }
    }
    // The first of the greatest.
    let greatest = votes.into_iter().rev().max_by_key(|(_, _, count)| *count);
    greatest.map(|(cluster, address, _)| (cluster, address))
}

// === impl Index ===

impl Index {
    /// Reads a member's index. What leads elsewhere than to its documents is left out; what is no index is `None`.
    pub(crate) fn parse(document: &[u8]) -> Option<Self> {
        if document.len() > MOST_BYTES {
            return None;
        }
        let wire: Wire = serde_json::from_slice(document).ok()?;
        let addresses = wire.paths.into_iter().map(|(name, entry)| (name, entry.server_relative_url));
        Some(Self { addresses: addresses.filter(|(name, address)| is_address(name, address)).collect() })
    }
}

#[derive(Deserialize)]
struct Wire {
    paths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "serverRelativeURL")]
    server_relative_url: String,
}

/// `/openapi/v3/NAME`, with or without a hash, where the name is one of paths of the API.
fn is_address(name: &str, address: &str) -> bool {
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let segments = |text: &str| {
        text.split('/').all(|segment| plain(segment) && !segment.bytes().all(|byte| byte == b'.'))
    };
    let rest = address.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
    let rest = rest.and_then(|rest| rest.strip_prefix(name));
    let hash = match rest {
        Some("") => Some(""),
        Some(rest) => rest.strip_prefix("?hash="),
        None => None,
    };
    name.len() <= 300
        && segments(name)
        && hash.is_some_and(|hash| {
            hash.len() <= 200 && hash.trim_end_matches("%3D").bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(name: &str, address: &str) -> Option<Index> {
        Index::parse(json!({"paths": {name: {"serverRelativeURL": address}}}).to_string().as_bytes())
    }

    #[test]
    fn an_index_leads_to_documents_and_nowhere_else() {
        for (name, address) in [
            ("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=0AB%3D%3D"),
            ("api/v1", "/openapi/v3/api/v1"),
            ("version", "/openapi/v3/version?hash=1"),
        ] {
            assert_eq!(index(name, address).unwrap().addresses.len(), 1, "{name} {address}");
        }
        for (name, address) in [
            ("api/v1", "/api/v1/secrets"),
            ("api/v1", "https://elsewhere.example/openapi/v3/api/v1"),
            ("api/v1", "/openapi/v3/api/v1/../../../api/v1/secrets"),
            ("../../api/v1", "/openapi/v3/../../api/v1"),
            ("", "/openapi/v3/"),
            ("a//b", "/openapi/v3/a//b"),
            ("api/v1", "/openapi/v3/api/v1?hash=a&x=y"),
            ("api/v1", "/openapi/v3/api/v1?hash=a%0d"),
            ("api/v1", "/openapi/v3/apis/apps/v1"),
        ] {
            assert_eq!(index(name, address).unwrap(), Index::default(), "{name} {address}");
        }
        for other in ["", "{}", "[]", r#"{"paths":[]}"#, r#"{"paths":{"a":7}}"#] {
            assert_eq!(Index::parse(other.as_bytes()), None, "{other}");
        }
    }
}

//! OpenAPI of all clusters: for each group and version the document that most of them have.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use skopos_fleet::{Cluster, DocumentRequest};

/// The addresses of one cluster's documents. Each address also identifies the content: two clusters with the same
/// document have it at the same address.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Index {
    addresses: BTreeMap<String, String>,
}

/// The maximum size of an index in bytes.
const MAX_INDEX_BYTES: usize = 1 << 20;

/// The path of the index, and the prefix of its documents.
const ROOT: &str = "/openapi/v3";

/// Returns the request for a member's index.
pub(crate) fn request() -> Option<DocumentRequest> {
    DocumentRequest::new(ROOT, "application/json")
}

/// Returns whether a path is that of the index, or of one of its documents.
pub(crate) fn is_below(path: &str) -> bool {
    path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the name of the document at this path; `None` at the path of the index.
pub(crate) fn name_of(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.strip_prefix('/')
}

/// Returns the union of the indexes.
pub(crate) fn united(indexes: &[(Cluster, Index)]) -> String {
    // Votes per name, and the first cluster with each address. One pass, because untrusted servers decide on the number
    // of names.
    let mut votes: BTreeMap<&str, BTreeMap<&str, (usize, Reverse<usize>)>> = BTreeMap::new();
    for (position, (_, index)) in indexes.iter().enumerate() {
        for (name, address) in &index.addresses {
            votes.entry(name).or_default().entry(address).or_insert((0, Reverse(position))).0 += 1;
        }
    }
    let elected = votes.into_iter().filter_map(|(name, of_name)| {
        let (address, _) = of_name.into_iter().max_by_key(|(_, votes)| *votes)?;
        Some((name, json!({"serverRelativeURL": address})))
    });
    let paths: BTreeMap<&str, serde_json::Value> = elected.collect();
    json!({"paths": paths}).to_string()
}

/// Returns the address of the document that most clusters have by this name, with the first cluster that has it.
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

impl Index {
    /// Parses a member's index. Leaves out addresses that lead elsewhere than to its documents; returns `None` if it is
    /// no index.
    pub(crate) fn parse(document: &[u8]) -> Option<Self> {
        if document.len() > MAX_INDEX_BYTES {
            return None;
        }
        let wire: Wire = serde_json::from_slice(document).ok()?;
        let addresses = wire.paths.into_iter().map(|(name, entry)| (name, entry.server_relative_url));
        Some(Self { addresses: addresses.filter(|(name, address)| is_address(name, address)).collect() })
    }
}

#[derive(Deserialize)]
struct Wire {
    paths: BTreeMap<String, IndexEntry>,
}

#[derive(Deserialize)]
struct IndexEntry {
    #[serde(rename = "serverRelativeURL")]
    server_relative_url: String,
}

/// Returns whether the address is `/openapi/v3/NAME`, with or without a hash, where the name is that of an API path.
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

//! File names for clusters and resources of any name.

use sha2::{Digest as _, Sha256};
use skopos::ResourceId;

use super::store::FileName;
use crate::id::ClusterId;

/// The name of the index.
const INDEX: &str = "index";

/// The name of the file with the documents.
const DOCUMENTS: &str = "documents";

/// The suffix of a resource's file.
const KIND: &str = ".skopos";

/// The suffix of a refused file.
pub(super) const REFUSED: &str = ".refused";

/// Limit on the length of a folder's name. Every file system allows at least 255.
const MAX_NAME_LENGTH: usize = 180;

/// The suffix of a file that is being written.
const NEW: &str = ".new";

/// The first bytes of checkpoint files: a resource, the index, the documents.
const BEGINNINGS: [&[u8]; 3] = [b"skoposCP", b"skopos checkpoints ", b"skopos documents "];

/// The number of bytes that identify a checkpoint file.
pub(super) const BEGINNING: u64 = 19;

/// Returns whether a file with these first bytes is a checkpoint, perhaps an incomplete one.
pub(super) fn begins_as_own(beginning: &[u8]) -> bool {
    BEGINNINGS.iter().any(|own| beginning.starts_with(own) || own.starts_with(beginning))
}

/// Returns whether a file's name is one of a checkpoint.
pub(super) fn is_own(file: &str) -> bool {
    let file = file.strip_suffix(NEW).unwrap_or(file);
    let file = file.strip_suffix(REFUSED).unwrap_or(file);
    let is_kind = |name: &str| name.split('.').count() >= 3 && name.split('.').all(|part| !part.is_empty());
    file == INDEX || file == DOCUMENTS || file.strip_suffix(KIND).is_some_and(is_kind)
}

pub(super) fn index(folder: &str) -> FileName {
    FileName::new(folder, INDEX)
}

pub(super) fn documents(folder: &str) -> FileName {
    FileName::new(folder, DOCUMENTS)
}

/// Returns the file of a resource; `None` if no server could serve a resource of these names.
pub(super) fn kind(folder: &str, resource: &ResourceId) -> Option<FileName> {
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    let part = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !text.is_empty() && text.bytes().all(plain) && !text.starts_with('.')
    };
    let ResourceId { version, plural, .. } = resource;
    let fits =
        [group, version, plural].into_iter().all(part) && !version.contains('.') && !plural.contains('.');
    let name = format!("{group}.{version}.{plural}{KIND}");
    (fits && name.len() <= MAX_NAME_LENGTH).then(|| FileName::new(folder, name))
}

/// Returns the folder of a cluster: its name if that is in lower case, otherwise one that no file system confuses with
/// another.
pub(super) fn folder(cluster: &ClusterId) -> String {
    let mut name = String::new();
    for (at, byte) in cluster.as_str().bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            // A folder must not be hidden, and some systems cut off a dot at the end.
            b'.' if at > 0 && at + 1 < cluster.as_str().len() => name.push('.'),
            other => name.push_str(&format!("={other:02x}")),
        }
    }
    if name.len() <= MAX_NAME_LENGTH {
        return name;
    }
    let hash: String = Sha256::digest(cluster.as_str()).iter().map(|byte| format!("{byte:02x}")).collect();
    // No encoded byte begins with `h`.
    format!("=h{hash}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cluster_folder_names_are_unique_and_valid() {
        let long = ["x".repeat(253), "X".repeat(253), format!("{}y", "x".repeat(252))];
        let names =
            ["a", "A", "=41", "a.b", ".a", "a.", "...", "con", "arn:aws:eks:eu:1:x", "admin@prod", "a_b"];
        let ids = names.iter().copied().chain(long.iter().map(String::as_str));
        let ids: Vec<ClusterId> = ids.filter_map(|name| ClusterId::new(name).ok()).collect();
        let folders: BTreeSet<String> = ids.iter().map(|id| folder(id).to_lowercase()).collect();
        assert_eq!(folders.len(), ids.len());
        for name in folders {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
            assert!(name.bytes().all(plain) && !name.starts_with('.') && !name.ends_with('.'), "{name}");
            assert!(name.len() <= MAX_NAME_LENGTH, "{name}");
        }
        assert_eq!(folder(&ClusterId::new("shop.team-a").unwrap()), "shop.team-a");
    }

    #[test]
    fn own_files_are_known_by_name() {
        for own in [
            "index",
            "documents",
            "core.v1.pods.skopos",
            "a.example.com.v1.cats.skopos",
            "core.v1.pods.skopos.new",
            "core.v1.pods.skopos.refused",
            "index.refused",
            "documents.new",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "precious.txt",
            "id_rsa",
            "index.html",
            ".skopos",
            "pods.skopos",
            "notes.skopos.txt",
            "core..pods.skopos",
            "lock",
            "",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn own_files_are_known_by_their_beginning() {
        for own in
            [&b"skoposCP\x01\0\0\0"[..], b"skopos checkpoints 1\n", b"skopos documents 1\n", b"skopos", b""]
        {
            assert!(begins_as_own(own), "{own:?}");
        }
        for other in [&b"-----BEGIN OPENSSH PRIVATE KEY-----"[..], b"precious", b"skopos is fine", b"\0"] {
            assert!(!begins_as_own(other), "{other:?}");
        }
        assert!(BEGINNINGS.iter().all(|own| own.len() as u64 <= BEGINNING));
    }

    #[test]
    fn kinds_have_names_of_their_own() {
        let of = |group: &str, version: &str, plural: &str| ResourceId {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: "Kind".into(),
        };
        let name = |resource: &ResourceId| kind("c", resource).map(|name| name.to_string());
        assert_eq!(name(&of("", "v1", "pods")).as_deref(), Some("c/core.v1.pods.skopos"));
        assert_eq!(
            name(&of("a.example.com", "v1", "cats")).as_deref(),
            Some("c/a.example.com.v1.cats.skopos")
        );
        for bad in [
            of("../x", "v1", "pods"),
            of("", "v1", "a/b"),
            of("", "", "x"),
            of("A", "v1", "x"),
            of("", "v.1", "x"),
        ] {
            assert_eq!(name(&bad), None, "{bad}");
        }
    }
}

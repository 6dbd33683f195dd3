//! Object keys: namespace and name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The identity of an object within its resource: namespace (none for cluster-scoped objects) and name.
///
/// Cheap to clone, compare and hash. Ordered by namespace, then name; cluster-scoped keys come first. Displays as
/// client-go's keys do: `namespace/name`, or just `name`.
///
/// ```
/// # use skopos_wire::ObjectKey;
/// let key = ObjectKey::namespaced("kube-system", "coredns");
/// assert_eq!(key.to_string(), "kube-system/coredns");
/// assert_eq!("kube-system/coredns".parse(), Ok(key));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
// "namespace NUL name": NUL sorts before every other character, so that comparing the bytes compares the pair.
pub struct ObjectKey(Arc<str>);

const SEPARATOR: char = '\0';

impl ObjectKey {
    /// Creates the key of a namespaced object. An empty namespace is the same as none.
    ///
    /// Infallible on purpose: NULs are dropped from both parts, so that no text can shift the boundary between them. Use
    /// [`ObjectKey::checked`] for input from a server or a user.
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let mut joined = String::with_capacity(namespace.as_ref().len() + 1 + name.as_ref().len());
        joined.extend(namespace.as_ref().chars().filter(|c| *c != SEPARATOR));
        joined.push(SEPARATOR);
        joined.extend(name.as_ref().chars().filter(|c| *c != SEPARATOR));
        Self(joined.into())
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self::namespaced("", name)
    }

    /// Creates a key after checking that an object can have this namespace and name.
    ///
    /// # Errors
    /// If a part is not valid as one segment of a URL path, which the API server requires of every name.
    pub fn checked(namespace: Option<&str>, name: &str) -> Result<Self, InvalidKey> {
        let namespace = namespace.unwrap_or_default();
        if !namespace.is_empty() {
            check_segment(namespace, "namespace")?;
        }
        check_segment(name, "name")?;
        // Checked parts contain no NUL.
        let mut joined = String::with_capacity(namespace.len() + 1 + name.len());
        joined.push_str(namespace);
        joined.push(SEPARATOR);
        joined.push_str(name);
        Ok(Self(joined.into()))
    }

    /// Returns the namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        let (namespace, _) = self.parts();
        (!namespace.is_empty()).then_some(namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// Returns the key as bytes that sort and compare equal as keys do, for custom map implementations. Not for display.
    pub fn sort_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once(SEPARATOR).unwrap_or(("", &self.0))
    }
}

fn check_segment(text: &str, part: &'static str) -> Result<(), InvalidKey> {
    // The API server's rules for path segment names, and no control characters, which are invalid in the name of any
    // object.
    let problem = match text {
        "" => "must not be empty",
        "." => "may not be '.'",
        ".." => "may not be '..'",
        _ => match text.bytes().find(|b| matches!(b, b'/' | b'%') || b.is_ascii_control()) {
            None => return Ok(()),
            Some(b'/') => "may not contain '/'",
            Some(b'%') => "may not contain '%'",
            Some(_) => "may not contain control characters",
        },
    };
    Err(InvalidKey { part, text: text.chars().take(64).collect(), problem })
}

impl FromStr for ObjectKey {
    type Err = InvalidKey;

    /// Parses `name` or `namespace/name`.
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        match text.split_once('/') {
            None => Self::checked(None, text),
            Some(("", _)) => {
                Err(InvalidKey { part: "namespace", text: "".into(), problem: "must not be empty" })
            }
            Some((namespace, name)) => Self::checked(Some(namespace), name),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            ("", name) => f.pad(name),
            (namespace, name) => match f.width() {
                None => write!(f, "{namespace}/{name}"),
                Some(_) => f.pad(&format!("{namespace}/{name}")),
            },
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A namespace or name that no object can have. The server is at fault if it sent it, the caller if the caller passed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} {text:?} {problem}")]
pub struct InvalidKey {
    part: &'static str,
    text: Box<str>,
    problem: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_namespace_then_name() {
        // As plain text "a-b/x" would come before "a/x", because '-' sorts before '/'.
        let sorted = [
            ObjectKey::cluster("z"),
            ObjectKey::namespaced("a", "x"),
            ObjectKey::namespaced("a", "y"),
            ObjectKey::namespaced("a-b", "a"),
            ObjectKey::namespaced("b", "a"),
        ];
        assert!(sorted.is_sorted());
        assert_eq!(sorted[0].namespace(), None);
        assert_eq!((sorted[3].namespace(), sorted[3].name()), (Some("a-b"), "a"));
    }

    #[test]
    fn refuses_names_that_are_no_path_segment() {
        for (namespace, name) in [
            (None, ""),
            (None, "a/b"),
            (Some("a/b"), "c"),
            (Some("a"), ".."),
            (None, "."),
            (None, "a\0b"),
            (None, "a\nb"),
            (None, "a%2fb"),
        ] {
            assert!(ObjectKey::checked(namespace, name).is_err(), "{namespace:?} {name:?}");
        }
        assert!("/a".parse::<ObjectKey>().is_err());
        assert!("a/b/c".parse::<ObjectKey>().is_err());
        assert_eq!(
            ObjectKey::checked(Some(""), "system:node:a").unwrap(),
            ObjectKey::cluster("system:node:a")
        );
    }

    #[test]
    fn is_two_words_and_prints_like_client_go() {
        assert_eq!(size_of::<ObjectKey>(), 16);
        assert_eq!(format!("[{:<6}]", ObjectKey::namespaced("a", "b")), "[a/b   ]");
        assert_eq!(ObjectKey::namespaced("", "b").to_string(), "b");
    }
}

//! Resource versions: decimal integers of any length, compared as integers.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A `resourceVersion`: a decimal integer of any length in canonical form (digits only, no leading zero).
///
/// Kubernetes defines them to be comparable as integers since KEP-5504, and its own comparison accepts nothing else.
/// Versions of up to 64 bits, as etcd's always are, are held inline.
///
/// ```
/// # use skopos_wire::ResourceVersion;
/// let a: ResourceVersion = "9".parse()?;
/// let b: ResourceVersion = "10".parse()?;
/// assert!(a < b);
/// assert!("010".parse::<ResourceVersion>().is_err());
/// # Ok::<(), skopos_wire::InvalidResourceVersion>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

/// Each number has exactly one form (`Big` only beyond `u64::MAX`), so equality and hashing can be derived.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Small(u64),
    // Boxed twice, so that the whole is two words: big ones practically do not occur.
    Big(Arc<Box<str>>),
}

impl ResourceVersion {
    /// The version `0`, which means "any" in a request, and which no object ever has.
    pub const ZERO: Self = Self(Repr::Small(0));

    /// Returns the number, if it fits into 64 bits.
    pub fn as_u64(&self) -> Option<u64> {
        match self.0 {
            Repr::Small(n) => Some(n),
            Repr::Big(_) => None,
        }
    }

    /// Returns whether this is `0`.
    pub fn is_zero(&self) -> bool {
        matches!(self.0, Repr::Small(0))
    }
}

impl From<u64> for ResourceVersion {
    fn from(n: u64) -> Self {
        Self(Repr::Small(n))
    }
}

impl FromStr for ResourceVersion {
    type Err = InvalidResourceVersion;

    /// Accepts the canonical form only: two different texts never mean the same version.
    fn from_str(text: &str) -> Result<Self, InvalidResourceVersion> {
        let digits = text.as_bytes();
        let canonical = match digits {
            [] => false,
            [b'0', rest @ ..] => rest.is_empty(),
            _ => digits.iter().all(u8::is_ascii_digit),
        };
        if !canonical {
            return Err(InvalidResourceVersion::new(text));
        }
        Ok(Self(match text.parse() {
            Ok(n) => Repr::Small(n),
            Err(_) => Repr::Big(Arc::new(text.into())),
        }))
    }
}

impl Ord for ResourceVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Small(a), Repr::Small(b)) => a.cmp(b),
            (Repr::Small(_), Repr::Big(_)) => Ordering::Less,
            (Repr::Big(_), Repr::Small(_)) => Ordering::Greater,
            // Without leading zeros the longer number is larger, and numbers of equal length compare as text.
            (Repr::Big(a), Repr::Big(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        }
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(n) => fmt::Display::fmt(n, f),
            Repr::Big(text) => f.pad(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rv {self}")
    }
}

/// A text that is not a resource version. The server is at fault if it sent it, the caller if the caller passed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource version {text:?} is not a decimal integer in canonical form")]
pub struct InvalidResourceVersion {
    text: Box<str>,
}

impl InvalidResourceVersion {
    /// Creates the error with the start of a long text, enough to recognize it.
    fn new(text: &str) -> Self {
        Self { text: text.chars().take(64).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(text: &str) -> ResourceVersion {
        text.parse().unwrap()
    }

    #[test]
    fn compares_as_integers_of_any_length() {
        let sorted = [
            "0",
            "9",
            "10",
            "18446744073709551615",
            "18446744073709551616",
            "99999999999999999999",
            "100000000000000000000",
        ];
        for pair in sorted.windows(2) {
            assert!(rv(pair[0]) < rv(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn rejects_noncanonical_versions() {
        for text in ["", "-1", "+1", "01", "00", "1 ", " 1", "1e3", "0x1", "１", "abc", "1.0", "\u{0}"] {
            assert!(text.parse::<ResourceVersion>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn version_round_trips_and_fits_16_bytes() {
        for text in ["0", "7", "18446744073709551615", "18446744073709551616"] {
            assert_eq!(rv(text).to_string(), text);
        }
        assert_eq!(rv("12").as_u64(), Some(12));
        assert_eq!(rv("18446744073709551616").as_u64(), None);
        assert!(ResourceVersion::ZERO.is_zero());
        assert_eq!(size_of::<ResourceVersion>(), 16);
    }
}

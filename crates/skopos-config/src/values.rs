//! Values with a format: spans of time and sizes, as people write them.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A span of time: `500ms`, `30s`, `1m30s`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: `512Mi`, `2Gi`, or plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl Span {
    /// The name of the form in the schema.
    pub(crate) const FORMAT: &'static str = "span";

    /// Makes a span of seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
        let signed = text.parse::<jiff::SignedDuration>().ok();
        match signed.and_then(|signed| Duration::try_from(signed).ok()) {
            Some(span) if span <= LONGEST => Ok(Self(span)),
            _ => Err(format!("{text:?} is no span of time: write it as 500ms, 30s, 1m30s or 2h")),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::SignedDuration::try_from(self.0) {
            Ok(signed) => write!(f, "{signed:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

impl ByteSize {
    pub(crate) const FORMAT: &'static str = "bytes";

    /// Makes a size of `count` × 1024 × 1024 bytes.
    pub const fn mebibytes(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 4] = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("", 1)];
        let sized = UNITS.iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit)?;
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| number.parse::<u64>().ok()?.checked_mul(*factor)).flatten()
        });
        sized
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no size: write it as 512Mi, 2Gi or a number of bytes"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes != 0 && bytes % (1 << 30) == 0 => write!(f, "{}Gi", bytes >> 30),
            bytes if bytes != 0 && bytes % (1 << 20) == 0 => write!(f, "{}Mi", bytes >> 20),
            bytes if bytes != 0 && bytes % (1 << 10) == 0 => write!(f, "{}Ki", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

macro_rules! written_as_text {
    ($type:ident, $name:literal, $example:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": Self::FORMAT, "examples": [$example]})
            }
        }
    };
}

written_as_text!(Span, "Span", "30s");
written_as_text!(ByteSize, "ByteSize", "512Mi");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_read_as_people_write_them() {
        assert_eq!(Span::parse("1m30s"), Ok(Span::seconds(90)));
        assert_eq!(Span::parse("500ms"), Ok(Span(Duration::from_millis(500))));
        assert_eq!(ByteSize::parse("512Mi"), Ok(ByteSize::mebibytes(512)));
        assert_eq!(ByteSize::parse("10"), Ok(ByteSize(10)));
        for wrong in ["", "5", "-3s", "soon", "9000000h"] {
            assert!(Span::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "Mi", "-1", "1.5Gi", "1MB", "99999999999Gi"] {
            assert!(ByteSize::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn printed_values_parse_back() {
        for span in [Span::seconds(0), Span::seconds(90), Span(Duration::from_millis(1500))] {
            assert_eq!(Span::parse(&span.to_string()), Ok(span));
        }
        for size in
            [ByteSize(0), ByteSize(1000), ByteSize(64 << 10), ByteSize::mebibytes(3), ByteSize(2 << 30)]
        {
            assert_eq!(ByteSize::parse(&size.to_string()), Ok(size));
        }
    }
}

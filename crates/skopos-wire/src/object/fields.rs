//! Single fields of an object, read without decoding the whole.

use std::borrow::Cow;

use super::lookup::{enter, lookup_text, lookup_text_at, split_path};
use super::{Encoding, RawObject, protobuf};
use crate::json::{Cursor, DEPTH_CAP};

impl RawObject {
    /// Returns the value of one annotation. Scans the metadata on each call.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        let Some(_) = self.0.content.plain() else {
            let content = self.content();
            let found = match self.0.encoding() {
                Encoding::Json => lookup_text(&content, &["metadata", "annotations", key]),
                Encoding::Protobuf { .. } => protobuf::annotation(protobuf::metadata(&content)?, key),
            };
            return found.map(own);
        };
        let metadata = self.slice(self.0.metadata);
        match self.0.encoding() {
            Encoding::Json => lookup_text(metadata, &["annotations", key]),
            Encoding::Protobuf { .. } => protobuf::annotation(metadata, key),
        }
    }

    /// Returns `metadata.generation`. Scans the metadata on each call.
    pub fn generation(&self) -> Option<i64> {
        match self.0.encoding() {
            Encoding::Json => self.field_text("metadata.generation")?.parse().ok(),
            Encoding::Protobuf { .. } => protobuf::generation(self.slice(self.0.metadata)),
        }
    }

    /// Returns the text of the field at a path such as `status.phase`: a string, number or boolean. Returns `None` if the
    /// field is absent, null, an object or an array. Scans the object up to the field on each call.
    pub fn field(&self, path: &str) -> Option<String> {
        self.field_text(path).map(Cow::into_owned)
    }

    pub(crate) fn field_text(&self, path: &str) -> Option<Cow<'_, str>> {
        match path {
            "metadata.name" => return Some(self.name().into()),
            "metadata.namespace" => return self.namespace().map(Cow::from),
            _ => {}
        }
        match self.0.content.plain() {
            Some(content) if self.is_protobuf() => {
                protobuf::lookup(&self.message_in(content)?, &split_path(path))
            }
            Some(content) => match path.strip_prefix("metadata.") {
                Some(rest) => lookup_text(self.slice(self.0.metadata), &split_path(rest)),
                None => self.lookup_beside_metadata(content, &split_path(path)),
            },
            None => {
                let content = self.content();
                let found = match self.message_in(&content) {
                    Some(message) => protobuf::lookup(&message, &split_path(path)),
                    None => lookup_text(&content, &split_path(path)),
                };
                found.map(own)
            }
        }
    }

    /// Finds a field as [`lookup_text`] does, and skips the metadata, which is the larger part of many objects.
    fn lookup_beside_metadata<'a>(&self, content: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
        let (first, rest) = path.split_first()?;
        let metadata = self.0.metadata.range();
        let mut cursor = Cursor::new(content, DEPTH_CAP);
        if !enter(&mut cursor, first, Some(metadata)) {
            return None;
        }
        lookup_text_at(cursor, rest)
    }
}

/// Detaches a text from the content that was expanded for it.
fn own<'a>(text: Cow<'_, str>) -> Cow<'a, str> {
    Cow::Owned(text.into_owned())
}

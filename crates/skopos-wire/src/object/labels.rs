//! Labels, read in place from the content.

use std::fmt;

use super::Pair;
use crate::json::Cursor;
use crate::protobuf::Reader;

/// The labels of an object, in the order of its content.
#[derive(Clone)]
pub struct Labels<'a>(Source<'a>);

#[derive(Clone)]
enum Source<'a> {
    /// A JSON object of strings without escapes and without duplicate keys.
    Json(Cursor<'a>),
    /// The metadata in protobuf.
    Protobuf(Reader<'a>),
    Pairs(std::slice::Iter<'a, Pair>),
}

impl<'a> Labels<'a> {
    pub(super) fn from_json(json: &'a [u8]) -> Self {
        let mut cursor = Cursor::new(json, 2);
        cursor.eat(b'{');
        Self(Source::Json(cursor))
    }

    pub(super) fn from_protobuf(metadata: &'a [u8]) -> Self {
        Self(Source::Protobuf(Reader::new(metadata)))
    }

    pub(super) fn from_pairs(pairs: &'a [Pair]) -> Self {
        Self(Source::Pairs(pairs.iter()))
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Json(cursor) => {
                let key = cursor.string().ok()?.plain()?;
                cursor.eat(b':');
                let value = cursor.string().ok()?.plain()?;
                cursor.eat(b',');
                Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?))
            }
            Source::Protobuf(metadata) => {
                let (key, value) = super::protobuf::next_label(metadata)?;
                Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?))
            }
            Source::Pairs(pairs) => pairs.next().map(|(key, value)| (&**key, &**value)),
        }
    }
}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.clone()).finish()
    }
}

//! Lookup of single values in JSON, by path.

use std::borrow::Cow;
use std::ops::Range;

use crate::json::{Cursor, DEPTH_CAP};

pub(super) fn split_path(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

/// Returns the text of the scalar at `path` in the object `json`, which must be valid.
pub(crate) fn lookup_text<'a>(json: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    lookup_text_at(Cursor::new(json, DEPTH_CAP), path)
}

pub(super) fn lookup_text_at<'a>(mut cursor: Cursor<'a>, path: &[&str]) -> Option<Cow<'a, str>> {
    for segment in path {
        if !enter(&mut cursor, segment, None) {
            return None;
        }
    }
    match cursor.peek()? {
        b'"' => cursor.string().ok()?.text(),
        b'{' | b'[' | b'n' => None,
        _ => {
            let range = cursor.skip_value().ok()?;
            std::str::from_utf8(cursor.slice(range)).ok().map(Cow::from)
        }
    }
}

/// Moves to the value of member `key` of the next object. Skips the value at `known` without reading it.
pub(super) fn enter(cursor: &mut Cursor<'_>, key: &str, known: Option<Range<usize>>) -> bool {
    if !cursor.eat(b'{') {
        return false;
    }
    loop {
        let Ok(own) = cursor.string() else { return false };
        if !cursor.eat(b':') {
            return false;
        }
        if own.is(key) {
            return true;
        }
        cursor.peek();
        match &known {
            Some(known) if known.start == cursor.position() => cursor.jump(known.end),
            _ if cursor.skip_value().is_err() => return false,
            _ => {}
        }
        if !cursor.eat(b',') {
            return false;
        }
    }
}

//! Strict JSON scanner without a tree: it finds where values begin and end, and validates them.
//!
//! It accepts exactly what serde_json accepts (checked by a property test), with two exceptions. It has its own cap on
//! nesting, and in skipped strings it checks only escapes and control characters. It never recurses, so no input can
//! exhaust the stack.

mod skip;

use std::borrow::Cow;
use std::ops::Range;

/// The deepest nesting that [`Cursor::skip_value`] can keep track of.
pub(crate) const DEPTH_CAP: usize = 512;

/// A text that is not valid JSON. The server is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: expected {expected}")]
pub struct SyntaxError {
    /// The position, in bytes from the start of the object or frame.
    pub offset: usize,
    /// The token that would have been valid there.
    pub expected: &'static str,
}

/// A position in a text that is expected to be JSON.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    max_depth: usize,
    specials: skip::Specials,
}

/// The raw content of a string, between the quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawStr<'a> {
    bytes: &'a [u8],
    start: usize,
    escaped: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], max_depth: usize) -> Self {
        Self { bytes, pos: 0, max_depth: max_depth.min(DEPTH_CAP), specials: skip::Specials::UNKNOWN }
    }

    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    /// Moves to a position that is known to be the end of a value.
    pub(crate) fn jump(&mut self, pos: usize) {
        self.pos = pos;
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &'a [u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Returns the next byte that is not white space, without consuming it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        skip::peek(self.bytes, &mut self.pos)
    }

    /// Consumes `byte` (after white space), if it is next, and returns whether it was.
    #[inline]
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    /// Visits the members of the next object. `member` gets the key and must consume the value.
    pub(crate) fn members<E: From<SyntaxError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, RawStr<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object")?;
        if self.eat(b'}') {
            return Ok(());
        }
        // The values are one level deeper than the object.
        let Some(depth_left) = self.max_depth.checked_sub(1).filter(|left| *left > 0) else {
            return Err(self.error(TOO_DEEP).into());
        };
        self.max_depth = depth_left;
        loop {
            let key = self.string()?;
            self.expect(b':', "':'")?;
            member(self, key)?;
            if !self.eat(b',') {
                self.max_depth = depth_left + 1;
                return Ok(self.expect(b'}', "',' or '}'")?);
            }
        }
    }

    /// Reads the next string.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<RawStr<'a>, SyntaxError> {
        self.expect(b'"', "a string")?;
        let start = self.pos;
        let found = skip::string_end(self.bytes, start, &mut self.specials);
        let (end, escaped) = self.reach(found)?;
        self.pos = end;
        Ok(RawStr { bytes: self.slice(start..end - 1), start, escaped })
    }

    /// Skips one value of any type and returns its range.
    pub(crate) fn skip_value(&mut self) -> Result<Range<usize>, SyntaxError> {
        self.peek();
        let start = self.pos;
        let found = skip::value(self.bytes, start, self.max_depth, &mut self.specials);
        self.pos = self.reach(found)?;
        Ok(start..self.pos)
    }

    /// Fails unless only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("the end")),
        }
    }

    /// Returns whether everything read so far is ASCII; outside its strings JSON always is. May return false if only later
    /// text is not ASCII.
    pub(crate) fn is_ascii(&self) -> bool {
        self.specials.are_ascii()
    }

    pub(crate) fn error(&self, expected: &'static str) -> SyntaxError {
        SyntaxError { offset: self.pos, expected }
    }

    #[inline]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxError> {
        if self.eat(byte) { Ok(()) } else { Err(self.error(expected)) }
    }

    /// Moves to the position of the error, if `found` is one.
    #[inline]
    fn reach<T>(&mut self, found: Result<T, SyntaxError>) -> Result<T, SyntaxError> {
        found.inspect_err(|error| self.pos = error.offset)
    }
}

/// The value of [`SyntaxError::expected`] when the nesting is too deep.
pub(crate) const TOO_DEEP: &str = "less nesting";

impl<'a> RawStr<'a> {
    /// Returns the content, if it has no escapes.
    pub(crate) fn plain(&self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.bytes)
    }

    pub(crate) fn is_escaped(&self) -> bool {
        self.escaped
    }

    /// Returns the position of the content.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the unescaped content equals `text`.
    #[inline]
    pub(crate) fn is(&self, text: &str) -> bool {
        if self.escaped { self.text().is_some_and(|own| own == text) } else { self.bytes == text.as_bytes() }
    }

    /// Returns the unescaped text, or `None` if it is not valid (not UTF-8, or half a surrogate pair).
    pub(crate) fn text(&self) -> Option<Cow<'a, str>> {
        if !self.escaped {
            return std::str::from_utf8(self.bytes).ok().map(Cow::Borrowed);
        }
        let mut quoted = Vec::with_capacity(self.bytes.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(self.bytes);
        quoted.push(b'"');
        serde_json::from_slice(&quoted).ok().map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(text: &[u8]) -> Result<Range<usize>, SyntaxError> {
        let mut cursor = Cursor::new(text, 8);
        let range = cursor.skip_value()?;
        cursor.end()?;
        Ok(range)
    }

    #[test]
    fn agrees_with_serde_json() {
        let texts = [
            "{}",
            "[]",
            " [ 1 , 2 ] ",
            "{\"a\":{\"b\":[null,true,false,-0.5e+10,\"x\\u00e9\\n\"]}}",
            "0",
            "-1",
            "1.5E-3",
            "\"\"",
            "",
            "{",
            "}",
            "[1,]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "[1 2]",
            "01",
            "-",
            "1.",
            "1e",
            ".5",
            "+1",
            "tru",
            "nulll",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u123",
            "\"a\nb\"",
            "\"a",
            "[}",
            "{]",
            "{\"a\":1]",
            "[1}",
            "{\"a\":[1}]",
            "[{\"a\":1]}",
            "{1:2}",
            "1 1",
            "[\"a\":1]",
            "\"long enough to take the fast path, \\\" and \\\\ then on\"",
            "\"0123456\t\"",
            "\"01234567\\",
            "NaN",
            "'a'",
        ];
        for text in texts {
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            assert_eq!(skip(text.as_bytes()).is_ok(), theirs, "{text}");
        }
    }

    #[test]
    fn caps_nesting_depth() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(skip(&nested(8)).is_ok());
        assert_eq!(skip(&nested(10)).unwrap_err().expected, TOO_DEEP);
        assert_eq!(skip(&vec![b'['; 1 << 20]).unwrap_err().expected, TOO_DEEP);
    }

    #[test]
    fn walked_and_skipped_members_have_same_depth() {
        for text in [r#"{}"#, r#"{"a":1}"#, r#"{"a":{}}"#, r#"{"a":{"b":[1]},"c":[]}"#] {
            for max_depth in 0..6 {
                let mut walking = Cursor::new(text.as_bytes(), max_depth);
                let walked = walking.members(|cursor, _| cursor.skip_value().map(drop));
                let skipped = Cursor::new(text.as_bytes(), max_depth).skip_value();
                assert_eq!(walked, skipped.map(drop), "{text} within {max_depth}");
                assert!(walked.is_err() || walking.max_depth == max_depth, "{text} within {max_depth}");
            }
        }
    }

    #[test]
    fn reports_whether_input_is_ascii() {
        let is_ascii = |text: &str| {
            let mut cursor = Cursor::new(text.as_bytes(), 8);
            cursor.skip_value().unwrap();
            cursor.is_ascii()
        };
        assert!(is_ascii(r#"{"a":["b",1]}"#));
        assert!(!is_ascii(r#"{"ä":["b",1]}"#) && !is_ascii(r#"{"a":["ü",1]}"#));
    }

    #[test]
    fn undoes_escapes() {
        let mut cursor = Cursor::new(br#""met\u0061data" "plain" "\ud800""#, 8);
        let escaped = cursor.string().unwrap();
        assert!(escaped.is("metadata") && escaped.plain().is_none());
        assert!(cursor.string().unwrap().is("plain"));
        assert_eq!(cursor.string().unwrap().text(), None);
    }
}

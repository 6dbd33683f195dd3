//! A strict JSON scanner that builds nothing: it knows where values begin and end, and that they are valid JSON.
//!
//! It accepts exactly what serde_json accepts (a property test holds it to that), except that it has its own cap on
//! nesting and does not look into strings that nobody asks for beyond escapes and control characters. It never recurses,
//! so that no input can exhaust the stack.

use std::borrow::Cow;
use std::ops::Range;

/// The deepest nesting that [`Cursor::skip_value`] can keep track of.
pub(crate) const DEPTH_CAP: usize = 512;

/// JSON that is not JSON. The server is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: expected {expected}")]
pub struct SyntaxError {
    /// Where, in bytes from the start of the object or frame.
    pub offset: usize,
    /// What would have been valid there.
    pub expected: &'static str,
}

/// A position in a text that should be JSON.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    max_depth: usize,
}

/// A string's content between the quotes, as it stands in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawStr<'a> {
    bytes: &'a [u8],
    start: usize,
    escaped: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], max_depth: usize) -> Self {
        Self { bytes, pos: 0, max_depth: max_depth.min(DEPTH_CAP) }
    }

    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    /// Goes to a position that is known to be the end of a value.
    pub(crate) fn jump(&mut self, pos: usize) {
        self.pos = pos;
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &'a [u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// The next byte that is not white space, without consuming it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        // Servers write no white space, so one look is enough almost always.
        match self.bytes.get(self.pos) {
            Some(byte) if *byte > b' ' => Some(*byte),
            _ => self.peek_behind_white_space(),
        }
    }

    #[cold]
    fn peek_behind_white_space(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.pos)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.pos += 1;
        }
    }

    /// Consumes `byte` (after white space), if it is next.
    #[inline]
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    /// Walks the members of the object that is next. `member` gets the key and must consume the value.
    pub(crate) fn members<E: From<SyntaxError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, RawStr<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object")?;
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "':'")?;
            member(self, key)?;
            if !self.eat(b',') {
                return Ok(self.expect(b'}', "',' or '}'")?);
            }
        }
    }

    /// The string that is next.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<RawStr<'a>, SyntaxError> {
        self.expect(b'"', "a string")?;
        let start = self.pos;
        let escaped = self.string_end()?;
        Ok(RawStr { bytes: self.slice(start..self.pos - 1), start, escaped })
    }

    /// Skips one value of any kind and returns where it stands.
    pub(crate) fn skip_value(&mut self) -> Result<Range<usize>, SyntaxError> {
        self.peek();
        let start = self.pos;
        let mut open = Nesting::default();
        loop {
            // A value is due.
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    self.string_end()?;
                }
                Some(b'{') => {
                    self.pos += 1;
                    if !self.eat(b'}') {
                        self.open(&mut open, true)?;
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.pos += 1;
                    if !self.eat(b']') {
                        self.open(&mut open, false)?;
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(self.error("a value")),
            }
            // A value has ended: go on with the next one, or close what it was the last of.
            loop {
                if open.depth == 0 {
                    return Ok(start..self.pos);
                }
                let in_object = open.in_object();
                match self.peek() {
                    Some(b',') => {
                        self.pos += 1;
                        if in_object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if in_object => self.pos += 1,
                    Some(b']') if !in_object => self.pos += 1,
                    _ => return Err(self.error(if in_object { "',' or '}'" } else { "',' or ']'" })),
                }
                open.depth -= 1;
            }
        }
    }

    /// Fails unless only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("the end")),
        }
    }

    pub(crate) fn error(&self, expected: &'static str) -> SyntaxError {
        SyntaxError { offset: self.pos, expected }
    }

    #[inline]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxError> {
        if self.eat(byte) { Ok(()) } else { Err(self.error(expected)) }
    }

    fn open(&self, open: &mut Nesting, object: bool) -> Result<(), SyntaxError> {
        // The value that is being opened is one level deeper than those around it.
        if open.depth + 1 >= self.max_depth {
            return Err(self.error(TOO_DEEP));
        }
        open.push(object);
        Ok(())
    }

    #[inline]
    fn key(&mut self) -> Result<(), SyntaxError> {
        self.expect(b'"', "a key")?;
        self.string_end()?;
        self.expect(b':', "':'")
    }

    /// Goes behind the closing quote of the string whose opening quote was consumed; tells whether it has escapes.
    #[inline]
    fn string_end(&mut self) -> Result<bool, SyntaxError> {
        let mut escaped = false;
        loop {
            self.pos = plain_until(self.bytes, self.pos);
            match self.bytes.get(self.pos) {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.pos += 1;
                    self.escape()?;
                }
                _ => return Err(self.error("the rest of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        match self.bytes.get(self.pos) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.pos += 1,
            Some(b'u')
                if self
                    .slice(self.pos + 1..self.pos + 5)
                    .iter()
                    .filter(|b| b.is_ascii_hexdigit())
                    .count()
                    == 4 =>
            {
                self.pos += 5;
            }
            _ => return Err(self.error("an escape sequence")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        self.pos += usize::from(self.bytes.get(self.pos) == Some(&b'-'));
        match self.bytes.get(self.pos) {
            Some(b'0') => self.pos += 1,
            _ => self.digits()?,
        }
        if self.bytes.get(self.pos) == Some(&b'.') {
            self.pos += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.pos) {
            self.pos += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.pos) {
                self.pos += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.pos;
        while self.bytes.get(self.pos).is_some_and(u8::is_ascii_digit) {
            self.pos += 1;
        }
        if self.pos == start { Err(self.error("a digit")) } else { Ok(()) }
    }

    fn literal(&mut self, text: &'static [u8]) -> Result<(), SyntaxError> {
        if self.bytes[self.pos..].starts_with(text) {
            self.pos += text.len();
            Ok(())
        } else {
            Err(self.error("true, false or null"))
        }
    }
}

/// What [`SyntaxError::expected`] says when the nesting went too deep.
pub(crate) const TOO_DEEP: &str = "less nesting";

impl<'a> RawStr<'a> {
    /// The content, if no escape has to be undone to read it.
    pub(crate) fn plain(&self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.bytes)
    }

    pub(crate) fn is_escaped(&self) -> bool {
        self.escaped
    }

    /// Where the content starts.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether this is `text`, however it is escaped.
    #[inline]
    pub(crate) fn is(&self, text: &str) -> bool {
        if self.escaped { self.text().is_some_and(|own| own == text) } else { self.bytes == text.as_bytes() }
    }

    /// The text with its escapes undone, or `None` if it is no text (not UTF-8, or half a surrogate pair).
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

/// The containers around a value: one bit each, set for objects.
struct Nesting {
    depth: usize,
    objects: [u64; DEPTH_CAP / 64],
}

impl Default for Nesting {
    fn default() -> Self {
        Self { depth: 0, objects: [0; DEPTH_CAP / 64] }
    }
}

impl Nesting {
    #[inline]
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.objects[word] = self.objects[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
    }

    #[inline]
    fn in_object(&self) -> bool {
        let last = self.depth - 1;
        self.objects[last / 64] >> (last % 64) & 1 == 1
    }
}

/// The first position from `pos` on that holds a quote, a backslash or a control character (or the end).
///
/// Eight bytes at a time: most strings of an object are shorter than what pays for a call of memchr.
#[inline]
fn plain_until(bytes: &[u8], mut pos: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    const fn zero_bytes(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGHS
    }
    while let Some(chunk) = bytes.get(pos..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let quote = zero_bytes(word ^ (ONES * b'"' as u64));
        let backslash = zero_bytes(word ^ (ONES * b'\\' as u64));
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        // Borrows can raise false alarms only above the first true one, and the lowest is what counts.
        let found = quote | backslash | control;
        if found != 0 {
            return pos + (found.trailing_zeros() / 8) as usize;
        }
        pos += 8;
    }
    while let Some(&byte) = bytes.get(pos) {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            break;
        }
        pos += 1;
    }
    pos
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
    fn caps_the_nesting() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(skip(&nested(8)).is_ok());
        assert_eq!(skip(&nested(10)).unwrap_err().expected, TOO_DEEP);
        assert_eq!(skip(&vec![b'['; 1 << 20]).unwrap_err().expected, TOO_DEEP);
    }

    #[test]
    fn finds_the_first_special_byte_wherever_it_stands() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for around in [b'a', 0x20, 0x21, 0x7f, 0x80, 0xff, b'#', b'[', b']'] {
                for at in 0..20 {
                    let mut bytes = [around; 24];
                    bytes[at] = special;
                    assert_eq!(plain_until(&bytes, 0), at, "{special:#x} among {around:#x}");
                }
            }
        }
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

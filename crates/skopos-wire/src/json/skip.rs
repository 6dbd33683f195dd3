//! Where values end: the inner loop of every scan.
//!
//! Positions go in and come out, so that they stay in registers, and what is rare is out of line: this runs over every
//! byte that a cluster sends.

use super::{DEPTH_CAP, SyntaxError, TOO_DEEP};

type Position = Result<usize, SyntaxError>;

/// The end of the value at `pos`, or behind white space.
pub(super) fn value(bytes: &[u8], mut pos: usize, max_depth: usize) -> Position {
    let mut open = Nesting::default();
    loop {
        // A value is due.
        match peek(bytes, &mut pos) {
            Some(b'"') => pos = string_end(bytes, pos + 1)?.0,
            Some(b'{') => {
                pos += 1;
                if peek(bytes, &mut pos) != Some(b'}') {
                    open.enter(true, pos, max_depth)?;
                    pos = key(bytes, pos)?;
                    continue;
                }
                pos += 1;
            }
            Some(b'[') => {
                pos += 1;
                if peek(bytes, &mut pos) != Some(b']') {
                    open.enter(false, pos, max_depth)?;
                    continue;
                }
                pos += 1;
            }
            Some(b'-' | b'0'..=b'9') => pos = number(bytes, pos)?,
            Some(b't') => pos = literal(bytes, pos, b"true")?,
            Some(b'f') => pos = literal(bytes, pos, b"false")?,
            Some(b'n') => pos = literal(bytes, pos, b"null")?,
            _ => return fail(pos, "a value"),
        }
        // A value has ended: go on with the next one, or close what it was the last of.
        loop {
            if open.depth == 0 {
                return Ok(pos);
            }
            match peek(bytes, &mut pos) {
                Some(b',') => {
                    pos += 1;
                    if open.in_object {
                        pos = key(bytes, pos)?;
                    }
                    break;
                }
                Some(b'}') if open.in_object => pos += 1,
                Some(b']') if !open.in_object => pos += 1,
                _ => return fail(pos, if open.in_object { "',' or '}'" } else { "',' or ']'" }),
            }
            open.leave();
        }
    }
}

/// The byte at `pos`, which is moved behind white space first.
#[inline(always)]
pub(super) fn peek(bytes: &[u8], pos: &mut usize) -> Option<u8> {
    // Servers write no white space, so one look is enough almost always.
    match bytes.get(*pos) {
        Some(byte) if *byte > b' ' => Some(*byte),
        _ => {
            *pos = behind_white_space(bytes, *pos);
            bytes.get(*pos).copied()
        }
    }
}

#[cold]
#[inline(never)]
fn behind_white_space(bytes: &[u8], mut pos: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(pos) {
        pos += 1;
    }
    pos
}

/// The position behind the closing quote of the string whose content begins at `pos`, and whether it has escapes.
#[inline(always)]
pub(super) fn string_end(bytes: &[u8], pos: usize) -> Result<(usize, bool), SyntaxError> {
    let end = plain_until(bytes, pos);
    match bytes.get(end) {
        Some(b'"') => Ok((end + 1, false)),
        _ => Ok((escaped_string_end(bytes, end)?, true)),
    }
}

#[inline(never)]
fn escaped_string_end(bytes: &[u8], mut pos: usize) -> Position {
    loop {
        match bytes.get(pos) {
            Some(b'"') => return Ok(pos + 1),
            Some(b'\\') => pos = escape(bytes, pos + 1)?,
            _ => return fail(pos, "the rest of a string"),
        }
        pos = plain_until(bytes, pos);
    }
}

fn escape(bytes: &[u8], pos: usize) -> Position {
    match bytes.get(pos) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(pos + 1),
        Some(b'u')
            if bytes.get(pos + 1..pos + 5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
        {
            Ok(pos + 5)
        }
        _ => fail(pos, "an escape sequence"),
    }
}

/// The first position from `pos` on that holds a quote, a backslash or a control character (or the end).
///
/// Eight bytes at a time: most strings of an object are shorter than what pays for a call of memchr.
#[inline(always)]
fn plain_until(bytes: &[u8], mut pos: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    while let Some(chunk) = bytes.get(pos..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        // The high bit of a byte is set in a difference if the byte was too small for it, or was above 0x80 before. Borrows
        // can raise false alarms only above the first true one, and the lowest is what counts.
        let quote = (word ^ (ONES * b'"' as u64)).wrapping_sub(ONES);
        let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
        let control = word.wrapping_sub(ONES * 0x20);
        let found = (quote | backslash | control) & !word & HIGHS;
        if found != 0 {
            return pos + (found.trailing_zeros() / 8) as usize;
        }
        pos += 8;
    }
    plain_until_bytewise(bytes, pos)
}

#[cold]
#[inline(never)]
fn plain_until_bytewise(bytes: &[u8], mut pos: usize) -> usize {
    while bytes.get(pos).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        pos += 1;
    }
    pos
}

/// Behind the key at `pos` and its colon.
#[inline(always)]
fn key(bytes: &[u8], mut pos: usize) -> Position {
    if peek(bytes, &mut pos) != Some(b'"') {
        return fail(pos, "a key");
    }
    (pos, _) = string_end(bytes, pos + 1)?;
    if peek(bytes, &mut pos) != Some(b':') {
        return fail(pos, "':'");
    }
    Ok(pos + 1)
}

fn number(bytes: &[u8], mut pos: usize) -> Position {
    pos += usize::from(bytes.get(pos) == Some(&b'-'));
    pos = match bytes.get(pos) {
        Some(b'0') => pos + 1,
        _ => digits(bytes, pos)?,
    };
    if bytes.get(pos) == Some(&b'.') {
        pos = digits(bytes, pos + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(pos) {
        pos += 1;
        pos += usize::from(matches!(bytes.get(pos), Some(b'+' | b'-')));
        pos = digits(bytes, pos)?;
    }
    Ok(pos)
}

fn digits(bytes: &[u8], start: usize) -> Position {
    let mut pos = start;
    while bytes.get(pos).is_some_and(u8::is_ascii_digit) {
        pos += 1;
    }
    if pos == start { fail(pos, "a digit") } else { Ok(pos) }
}

fn literal(bytes: &[u8], pos: usize, text: &'static [u8]) -> Position {
    if bytes[pos..].starts_with(text) { Ok(pos + text.len()) } else { fail(pos, "true, false or null") }
}

#[cold]
fn fail<T>(offset: usize, expected: &'static str) -> Result<T, SyntaxError> {
    Err(SyntaxError { offset, expected })
}

/// The containers around a value: one bit each, set for objects.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_object: bool,
    objects: [u64; DEPTH_CAP / 64],
}

impl Nesting {
    #[inline(always)]
    fn enter(&mut self, object: bool, pos: usize, max_depth: usize) -> Result<(), SyntaxError> {
        // The value that is being opened is one level deeper than those around it.
        if self.depth + 1 >= max_depth {
            return fail(pos, TOO_DEEP);
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.objects[word] = self.objects[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
        self.in_object = object;
        Ok(())
    }

    #[inline(always)]
    fn leave(&mut self) {
        self.depth -= 1;
        if let Some(last) = self.depth.checked_sub(1) {
            self.in_object = self.objects[last / 64] >> (last % 64) & 1 == 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_special_byte_wherever_it_stands() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for around in [b'a', 0x20, 0x21, 0x7f, 0x80, 0xa2, 0xdc, 0xff, b'#', b'[', b']'] {
                for at in 0..20 {
                    let mut bytes = [around; 24];
                    bytes[at] = special;
                    assert_eq!(plain_until(&bytes, 0), at, "{special:#x} among {around:#x}");
                }
            }
        }
    }
}

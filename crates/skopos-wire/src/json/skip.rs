//! Search for the ends of values: the inner loop of every scan.
//!
//! Positions are passed and returned by value, so that they stay in registers, and rare cases are out of line: this code
//! runs over every byte that a cluster sends.

use wide::u8x16;

use super::{DEPTH_CAP, SyntaxError, TOO_DEEP};

type Position = Result<usize, SyntaxError>;

/// Returns the end of the value at `pos`, or after white space.
pub(super) fn value(bytes: &[u8], mut pos: usize, max_depth: usize, specials: &mut Specials) -> Position {
    let mut open = Nesting::default();
    loop {
        // A value is expected.
        match peek(bytes, &mut pos) {
            Some(b'"') => pos = string_end(bytes, pos + 1, specials)?.0,
            Some(b'{') => {
                pos += 1;
                if peek(bytes, &mut pos) != Some(b'}') {
                    open.enter(true, pos, max_depth)?;
                    pos = key(bytes, pos, specials)?;
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
            _ => pos = scalar(bytes, pos)?,
        }
        // A value has ended: continue with the next one, or close the container.
        loop {
            if open.depth == 0 {
                return Ok(pos);
            }
            match peek(bytes, &mut pos) {
                Some(b',') => {
                    pos += 1;
                    if open.in_object {
                        pos = key(bytes, pos, specials)?;
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

/// Skips a number or literal. Out of line, so that the frequent cases take a few comparisons and not a jump that is hard to
/// predict.
#[inline(never)]
fn scalar(bytes: &[u8], pos: usize) -> Position {
    match bytes.get(pos) {
        Some(b'-' | b'0'..=b'9') => number(bytes, pos),
        Some(b't') => literal(bytes, pos, b"true"),
        Some(b'f') => literal(bytes, pos, b"false"),
        Some(b'n') => literal(bytes, pos, b"null"),
        _ => fail(pos, "a value"),
    }
}

/// Moves `pos` past white space and returns the byte there.
#[inline(always)]
pub(super) fn peek(bytes: &[u8], pos: &mut usize) -> Option<u8> {
    // Servers write no white space, so a single comparison is nearly always enough.
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

/// Returns the position after the closing quote of the string whose content begins at `pos`, and whether it has escapes.
#[inline(always)]
pub(super) fn string_end(
    bytes: &[u8],
    pos: usize,
    specials: &mut Specials,
) -> Result<(usize, bool), SyntaxError> {
    let end = specials.next(bytes, pos);
    match bytes.get(end) {
        Some(b'"') => Ok((end + 1, false)),
        _ => Ok((escaped_string_end(bytes, end, specials)?, true)),
    }
}

#[inline(never)]
fn escaped_string_end(bytes: &[u8], mut pos: usize, specials: &mut Specials) -> Position {
    loop {
        match bytes.get(pos) {
            Some(b'"') => return Ok(pos + 1),
            Some(b'\\') => pos = escape(bytes, pos + 1)?,
            _ => return fail(pos, "the rest of a string"),
        }
        pos = specials.next(bytes, pos);
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

/// The positions of bytes that end a string or are not literal in it: quotes, backslashes and control characters. They are
/// computed per block, so a step to the next such byte takes a few cycles. Meanwhile the processor computes the next block,
/// which does not depend on where a string ends in this one.
#[derive(Clone, Copy)]
pub(super) struct Specials {
    start: usize,
    mask: u64,
    /// The bitwise or of all blocks so far.
    seen: u8x16,
}

const BLOCK: usize = 64;

impl Specials {
    /// The initial state: the block before the first.
    pub(super) const UNKNOWN: Self = Self { start: 0usize.wrapping_sub(BLOCK), mask: 0, seen: u8x16::ZERO };

    /// Returns whether all strings so far are ASCII.
    pub(super) fn are_ascii(&self) -> bool {
        self.seen.to_bitmask() == 0
    }

    /// Returns the first position from `pos` on that holds such a byte (or the end).
    #[inline(always)]
    fn next(&mut self, bytes: &[u8], mut pos: usize) -> usize {
        loop {
            let behind = pos.wrapping_sub(self.start);
            if behind < BLOCK {
                let rest = self.mask >> behind;
                if rest != 0 {
                    return pos + rest.trailing_zeros() as usize;
                }
                pos = self.start + BLOCK;
            }
            if pos >= bytes.len() {
                return bytes.len();
            }
            self.load_block(bytes, pos);
        }
    }

    /// Reads the block that contains `pos`. Not inlined at every search for the end of a string: together they would be too
    /// much code to stay cached between two events.
    #[inline(never)]
    fn load_block(&mut self, bytes: &[u8], pos: usize) {
        let next = self.start.wrapping_add(BLOCK);
        self.start = if pos.wrapping_sub(next) < BLOCK { next } else { pos };
        match bytes.get(self.start..).and_then(|rest| rest.first_chunk()) {
            Some(block) => self.read(block),
            None => self.read_last(&bytes[self.start..]),
        }
    }

    #[inline(always)]
    fn read(&mut self, block: &[u8; BLOCK]) {
        let (lanes, _) = block.as_chunks();
        self.mask = 0;
        for lane in lanes.iter().rev() {
            let lane = u8x16::new(*lane);
            let ends = lane.simd_eq(u8x16::splat(b'"')) | lane.simd_eq(u8x16::splat(b'\\'));
            let control = lane.min(u8x16::splat(0x1f)).simd_eq(lane);
            // One bit per byte, the lowest for the first.
            self.mask = self.mask << 16 | u64::from((ends | control).to_bitmask());
            self.seen |= lane;
        }
    }

    /// Reads the last and shorter block as [`read`](Specials::read) does. Bytes after the end count as special.
    #[cold]
    #[inline(never)]
    fn read_last(&mut self, bytes: &[u8]) {
        let mut block = [0; BLOCK];
        block[..bytes.len()].copy_from_slice(bytes);
        self.read(&block);
    }
}

/// Skips the key at `pos` and its colon, and returns the position after them.
#[inline(always)]
fn key(bytes: &[u8], mut pos: usize, specials: &mut Specials) -> Position {
    if peek(bytes, &mut pos) != Some(b'"') {
        return fail(pos, "a key");
    }
    (pos, _) = string_end(bytes, pos + 1, specials)?;
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

/// The containers around a value, one bit each: set for objects.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_object: bool,
    objects: [u64; DEPTH_CAP / 64],
}

impl Nesting {
    #[inline(always)]
    fn enter(&mut self, object: bool, pos: usize, max_depth: usize) -> Result<(), SyntaxError> {
        // The value in the new container is one level deeper than the container.
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
    fn finds_first_special_byte_at_any_position() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for around in [b'a', 0x20, 0x21, 0x7f, 0x80, 0xa2, 0xdc, 0xff, b'#', b'[', b']'] {
                for at in 0..2 * BLOCK + 10 {
                    let mut bytes = [around; 2 * BLOCK + 20];
                    bytes[at] = special;
                    for start in [0, 1, 30].into_iter().filter(|start| *start <= at) {
                        let mut specials = Specials::UNKNOWN;
                        let found = specials.next(&bytes, start);
                        assert_eq!(found, at, "{special:#x} among {around:#x} from {start}");
                    }
                }
            }
        }
    }

    #[test]
    fn search_continues_from_any_later_position() {
        // Quotes at distances of up to three blocks, searched from after the last one or from further on.
        let mut rng = 7u64;
        let mut random = |below: usize| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (rng >> 33) as usize % below
        };
        for _ in 0..2_000 {
            let mut bytes = vec![b'x'; random(6 * BLOCK)];
            for _ in 0..random(8) {
                let at = random(bytes.len().max(1));
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = b'"');
            }
            let (mut specials, mut pos) = (Specials::UNKNOWN, 0);
            while pos <= bytes.len() {
                let expected =
                    bytes[pos..].iter().position(|b| *b == b'"').map_or(bytes.len(), |at| pos + at);
                assert_eq!(specials.next(&bytes, pos), expected, "from {pos} of {bytes:?}");
                pos = expected + 1 + random(3) * random(2 * BLOCK);
            }
        }
    }

    #[test]
    fn adjacent_strings_keep_block_alignment() {
        let bytes = b"some \"text".repeat(10 * BLOCK);
        let (mut specials, mut pos) = (Specials::UNKNOWN, 0);
        while pos < bytes.len() {
            // Text between two strings is skipped unread.
            pos = specials.next(&bytes, pos) + 4;
            assert_eq!(specials.start % BLOCK, 0, "at {pos}");
        }
    }

    #[test]
    fn tracks_nesting_at_any_depth() {
        assert_eq!(size_of::<Nesting>(), 2 * 8 + DEPTH_CAP / 8, "made for each value");
        let nested = |open: &str, within: &str, close: &str, times: usize| {
            [open.repeat(times).as_str(), within, &close.repeat(times)].concat()
        };
        for times in [1, 2, 30, 33, DEPTH_CAP / 2 - 2] {
            for text in [
                nested(r#"[{"a":"#, r#"{"b":[]}"#, r#","c":[0]},[{}]]"#, times),
                nested(r#"{"a":["#, r#"[{"b":0}]"#, r#",{"c":0}],"d":{}}"#, times),
            ] {
                assert_eq!(
                    value(text.as_bytes(), 0, DEPTH_CAP, &mut Specials::UNKNOWN.clone()),
                    Ok(text.len())
                );
            }
        }
    }

    #[test]
    fn detects_non_ascii_at_any_position() {
        for at in 0..3 * BLOCK {
            let mut text = [vec![b'"'], vec![b'x'; 3 * BLOCK], vec![b'"']].concat();
            let skipped = |text: &[u8]| {
                let mut specials = Specials::UNKNOWN;
                assert_eq!(value(text, 0, 8, &mut specials), Ok(text.len()));
                specials.are_ascii()
            };
            assert!(skipped(&text));
            text[1 + at] = 0x80;
            assert!(!skipped(&text), "{at}");
        }
    }
}

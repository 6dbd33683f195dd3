//! Search for the ends of values that span chunks: only brackets and strings are tracked.

use bytes::Bytes;

/// The state of a search for a value's end: open brackets, and strings that hide brackets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nesting {
    pub(crate) depth: usize,
    pub(crate) in_string: bool,
    escape: bool,
}

impl Nesting {
    /// Creates the state after an opening quote.
    pub(crate) fn in_string() -> Self {
        Self { in_string: true, ..Self::default() }
    }

    /// Continues through a value that starts with a bracket or a quote. Returns how many bytes belong to it and whether it
    /// ends with them, or the position where it got too deep.
    ///
    /// Only looks for the end: the content need not be JSON.
    pub(crate) fn advance(&mut self, bytes: &[u8], max_depth: usize) -> Result<(usize, bool), usize> {
        let mut pos = 0;
        if self.escape && !bytes.is_empty() {
            self.escape = false;
            pos = 1;
        }
        while pos < bytes.len() {
            if self.in_string {
                match memchr::memchr2(b'"', b'\\', &bytes[pos..]) {
                    None => return Ok((bytes.len(), false)),
                    Some(at) if bytes[pos + at] == b'"' => {
                        self.in_string = false;
                        pos += at + 1;
                        if self.depth == 0 {
                            return Ok((pos, true));
                        }
                    }
                    Some(at) => {
                        // The escaped byte may come with the next chunk.
                        self.escape = pos + at + 1 == bytes.len();
                        pos += at + 2;
                    }
                }
                continue;
            }
            match bytes[pos] {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    if self.depth == max_depth {
                        return Err(pos);
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Ok((pos + 1, true));
                    }
                }
                _ => {}
            }
            pos += 1;
        }
        Ok((bytes.len(), false))
    }
}

/// Joins both parts in one buffer of exactly their size. Leaves `partial` empty and keeps its memory for the next item,
/// unless it is much larger than usual.
pub(crate) fn join(partial: &mut Vec<u8>, rest: &[u8]) -> Bytes {
    const MAX_KEPT_CAPACITY: usize = 1 << 20;
    if partial.is_empty() {
        return Bytes::copy_from_slice(rest);
    }
    let mut whole = Vec::with_capacity(partial.len() + rest.len());
    whole.extend_from_slice(partial);
    whole.extend_from_slice(rest);
    partial.clear();
    partial.shrink_to(MAX_KEPT_CAPACITY);
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_its_memory_unless_that_is_much() {
        for (len, kept) in [(100, 100..1 << 20), (3 << 20, 0..2 << 20)] {
            let mut partial = vec![b'x'; len];
            assert_eq!(join(&mut partial, b"yz").len(), len + 2);
            assert!(partial.is_empty() && kept.contains(&partial.capacity()), "{len}");
        }
    }
}

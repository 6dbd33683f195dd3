//! Gzip lists from cached blocks: the JSON of each object is compressed once, into a block that can follow any other. A list is a
//! sequence of such blocks.
//!
//! ```text
//!  gzip header │ stored: {"kind":"PodList",...,"items":[ │ block of pod 1 │ stored: , │ block of pod 2 │ ... │ stored: ]} │ end
//! ```
//!
//! The compressor of a block starts with an empty history, so the block refers to nothing outside of itself. The block ends with
//! a full flush, so it ends on a byte boundary. Text of one list alone is inserted between them in stored blocks. The checksum of
//! the whole is combined from those of its parts.

mod cache;
mod shift;

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};

pub use self::cache::{BlockCache, BlockStats, Blocks};
pub(crate) use self::cache::{BlockKey, BlockPart};
use self::shift::CrcShift;

/// Compressed text that can appear anywhere in a gzip member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    deflated: Box<[u8]>,
    crc: u32,
    /// Effect of the text's length on the checksum of the preceding text.
    shift: CrcShift,
    /// Length of the uncompressed text.
    len: usize,
}

/// Running checksum and length of a gzip member that is being written.
#[derive(Clone, Debug)]
pub struct GzipMember {
    crc: u32,
    /// Length modulo 2^32, as in the trailer.
    len: u32,
}

impl Block {
    /// Compresses a text.
    pub fn new(text: &[u8]) -> Self {
        let deflated = deflate(text).into();
        let (crc, len) = (crc32fast::hash(text), text.len());
        Self { deflated, crc, shift: CrcShift::new(len), len }
    }

    /// Returns the compressed size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.deflated.len()
    }
}

/// Compresses the text in one call. A compressor without enough room returns the rest of its output in the next call, and may
/// leave the rest of its input for a third. Nothing indicates that.
fn deflate(text: &[u8]) -> Vec<u8> {
    let mut room = max_deflated_len(text.len());
    loop {
        let mut compress = Compress::new(Compression::default(), false);
        let mut deflated = Vec::with_capacity(room);
        let status = compress.compress_vec(text, &mut deflated, FlushCompress::Full);
        let whole = compress.total_in() as usize == text.len() && deflated.len() < deflated.capacity();
        // With enough room, a compressor that is only flushed does not fail.
        if status.is_err() || whole {
            return deflated;
        }
        room *= 2;
    }
}

/// Returns an upper bound of the compressed size of incompressible text of `len` bytes.
const fn max_deflated_len(len: usize) -> usize {
    len + len / 10 + 256
}

impl GzipMember {
    /// Begins a member.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        // Deflate, no flags, no time, no level, no system.
        out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
        Self { crc: 0, len: 0 }
    }

    /// Appends uncompressed text.
    pub fn stored(&mut self, text: &[u8], out: &mut Vec<u8>) {
        for piece in text.chunks(MAX_STORED) {
            let len = piece.len() as u16;
            out.push(0);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&(!len).to_le_bytes());
            out.extend_from_slice(piece);
        }
        let mut crc = Hasher::new_with_initial(self.crc);
        crc.update(text);
        self.crc = crc.finalize();
        self.len = self.len.wrapping_add(text.len() as u32);
    }

    /// Appends a compressed block.
    pub fn block(&mut self, block: &Block, out: &mut Vec<u8>) {
        out.extend_from_slice(&block.deflated);
        self.crc = block.shift.apply(self.crc) ^ block.crc;
        self.len = self.len.wrapping_add(block.len as u32);
    }

    /// Ends the member.
    pub fn end(self, out: &mut Vec<u8>) {
        // An empty last block.
        out.extend_from_slice(&[3, 0]);
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
    }
}

/// Maximum length of a stored block.
const MAX_STORED: usize = 0xffff;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    /// Part of a text: stored, or as a block.
    #[derive(Clone, Debug)]
    enum Piece {
        Stored(Vec<u8>),
        Block(Vec<u8>),
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            (0..80_000usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
            // Hardly compressible and longer than any buffer that was reserved for it.
            (0..80_000usize, any::<u64>()).prop_map(|(len, seed)| {
                let mut rng = fastrand::Rng::with_seed(seed);
                std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
            }),
        ]
    }

    fn piece() -> impl Strategy<Value = Piece> {
        prop_oneof![text().prop_map(Piece::Stored), text().prop_map(Piece::Block)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn stored_and_compressed_parts_form_one_member(pieces in prop::collection::vec(piece(), 0..6)) {
            let mut out = Vec::new();
            let mut expected = Vec::new();
            let mut member = GzipMember::begin(&mut out);
            for piece in &pieces {
                match piece {
                    Piece::Stored(text) => {
                        member.stored(text, &mut out);
                        expected.extend_from_slice(text);
                    }
                    Piece::Block(text) => {
                        member.block(&Block::new(text), &mut out);
                        expected.extend_from_slice(text);
                    }
                }
            }
            member.end(&mut out);
            let mut decoder = GzDecoder::new(out.as_slice());
            let mut read = Vec::new();
            // The decoder checks length and checksum.
            decoder.read_to_end(&mut read).unwrap();
            prop_assert!(read == expected);
            prop_assert!(decoder.into_inner().is_empty(), "nothing is left behind the member");
        }
    }

    #[test]
    fn incompressible_block_is_complete() {
        let mut rng = fastrand::Rng::with_seed(1);
        // On both sides of what a compressor holds at a time, and of what its output may hold.
        for len in (31_700..31_800).chain(64_000..64_050).chain([0, 1, 65_535, 200_000]) {
            let text: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
            let block = Block::new(&text);
            let mut read = Vec::new();
            let stream = [&block.deflated[..], &[3, 0]].concat();
            flate2::read::DeflateDecoder::new(stream.as_slice()).read_to_end(&mut read).unwrap();
            assert!(read == text, "{len}: {} bytes came back", read.len());
            assert!(block.deflated.len() < max_deflated_len(len));
        }
    }

    #[test]
    fn a_block_is_smaller_than_its_text() {
        let text = br#"{"metadata":{"labels":{"app":"web"}},"spec":{"app":"web"}}"#.repeat(50);
        assert!(Block::new(&text).size() < text.len() / 20);
        assert_eq!(Block::new(&text), Block::new(&text));
    }
}

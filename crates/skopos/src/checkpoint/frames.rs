//! The file format: frames with a digest of themselves and of all frames before them.
//!
//! ```text
//!   "skoposCP" version:u32  ( kind:u8 stored:u32 plain:u32 payload digest:[u8; 32] )*      numbers: little endian
//!     H  the header, JSON
//!     B  objects, zstd; plain: ( length:u32 JSON )*
//!     E  the end: objects:u64 bytes:u64
//! ```

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use super::CheckpointLimits;
use super::error::CheckpointError;

const MAGIC: &[u8; 8] = b"skoposCP";
const VERSION: u32 = 1;
/// The size at which a block of objects ends, in bytes; a larger object has a block of its own.
const BLOCK_SIZE: usize = 1 << 20;
const MAX_HEADER_SIZE: usize = 1 << 20;
const COMPRESSION_LEVEL: i32 = 3;

const HEAD: u8 = b'H';
const BODY: u8 = b'B';
const END: u8 = b'E';

type Digest = [u8; 32];

pub(super) struct FrameWriter<W> {
    writer: W,
    compressor: zstd::bulk::Compressor<'static>,
    before: Digest,
    block: Vec<u8>,
    objects: u64,
    plain: u64,
    written: u64,
}

impl<W: Write> FrameWriter<W> {
    pub(super) fn begin(mut writer: W, header: &[u8]) -> io::Result<Self> {
        let preamble = preamble();
        writer.write_all(&preamble)?;
        let mut frames = Self {
            writer,
            compressor: zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?,
            before: Sha256::digest(&preamble).into(),
            block: Vec::with_capacity(BLOCK_SIZE),
            objects: 0,
            plain: 0,
            written: preamble.len() as u64,
        };
        if header.len() > MAX_HEADER_SIZE {
            return Err(io::Error::other("the header is too large: too many namespaces"));
        }
        frames.frame(HEAD, header, header.len())?;
        Ok(frames)
    }

    pub(super) fn object(&mut self, json: &[u8]) -> io::Result<()> {
        if !self.block.is_empty() && self.block.len() + LENGTH_SIZE + json.len() > BLOCK_SIZE {
            self.end_block()?;
        }
        self.block.extend_from_slice(&length(json.len())?.to_le_bytes());
        self.block.extend_from_slice(json);
        self.objects += 1;
        self.plain += json.len() as u64;
        Ok(())
    }

    /// Ends the file. Returns the number of bytes written.
    pub(super) fn end(mut self) -> io::Result<u64> {
        self.end_block()?;
        let totals = [self.objects.to_le_bytes(), self.plain.to_le_bytes()].concat();
        self.frame(END, &totals, totals.len())?;
        self.writer.flush()?;
        Ok(self.written)
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let stored = self.compressor.compress(&self.block)?;
        let plain = self.block.len();
        self.block.clear();
        self.frame(BODY, &stored, plain)
    }

    fn frame(&mut self, kind: u8, payload: &[u8], plain: usize) -> io::Result<()> {
        let mut head = vec![kind];
        head.extend_from_slice(&length(payload.len())?.to_le_bytes());
        head.extend_from_slice(&length(plain)?.to_le_bytes());
        self.before = digest(&self.before, &head, payload);
        for bytes in [&head, payload, &self.before] {
            self.writer.write_all(bytes)?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }
}

pub(super) struct FrameReader<R> {
    reader: R,
    limits: CheckpointLimits,
    before: Digest,
    block: Vec<u8>,
    /// The bytes of the block that were consumed.
    consumed: usize,
    objects: u64,
    plain: u64,
    ended: bool,
}

impl<R: Read> FrameReader<R> {
    /// Begins to read a file. Returns the header too.
    pub(super) fn begin(reader: R, limits: &CheckpointLimits) -> Result<(Self, Vec<u8>), CheckpointError> {
        let expected = preamble();
        let mut frames = Self {
            reader,
            limits: limits.clone(),
            before: Sha256::digest(&expected).into(),
            block: Vec::new(),
            consumed: 0,
            objects: 0,
            plain: 0,
            ended: false,
        };
        let found: [u8; MAGIC.len() + 4] = frames.array()?;
        let (magic, version) = found.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(CheckpointError::NotACheckpoint);
        }
        let version = number(version);
        if version != VERSION {
            return Err(CheckpointError::Version { found: version, known: VERSION });
        }
        let frame = frames.frame()?;
        if frame.kind != HEAD {
            return Err(malformed("it does not begin with a header"));
        }
        Ok((frames, frame.payload))
    }

    /// Returns the next object; `None` after the last one, if the file's end is correct.
    pub(super) fn object(&mut self) -> Result<Option<&[u8]>, CheckpointError> {
        while self.consumed == self.block.len() {
            if self.ended || !self.next_block()? {
                return Ok(None);
            }
        }
        let rest = self.block.get(self.consumed..).unwrap_or_default();
        let (prefix, rest) =
            rest.split_at_checked(LENGTH_SIZE).ok_or_else(|| malformed("a block ends in a length"))?;
        let length = number(prefix) as usize;
        let json = rest.get(..length).ok_or_else(|| malformed("a block ends in an object"))?;
        self.consumed += LENGTH_SIZE + length;
        self.objects += 1;
        self.plain += length as u64;
        check("objects", self.objects, self.limits.objects)?;
        check("bytes", self.plain, self.limits.bytes)?;
        Ok(Some(json))
    }

    fn next_block(&mut self) -> Result<bool, CheckpointError> {
        let frame = self.frame()?;
        match frame.kind {
            BODY => {
                let plain = zstd::bulk::decompress(&frame.payload, frame.plain);
                self.block = plain.map_err(|error| malformed(&error.to_string()))?;
                self.consumed = 0;
                match self.block.len() == frame.plain {
                    true => Ok(true),
                    false => Err(malformed("a block is shorter than it says")),
                }
            }
            END => {
                let totals = [self.objects.to_le_bytes(), self.plain.to_le_bytes()].concat();
                if frame.payload != totals {
                    return Err(malformed("there are not as many objects as it says"));
                }
                if self.reader.read(&mut [0])? > 0 {
                    return Err(malformed("there is something behind its end"));
                }
                self.ended = true;
                Ok(false)
            }
            _ => Err(malformed("a frame of an unknown kind")),
        }
    }

    fn frame(&mut self) -> Result<CheckpointFrame, CheckpointError> {
        let head: [u8; 9] = self.array()?;
        let (kind, stored, plain) = (head[0], number(&head[1..5]) as usize, number(&head[5..9]) as usize);
        // The head is not verified yet. What it claims is bounded, and memory grows only with the bytes that are there.
        let max_plain = match kind {
            BODY => BLOCK_SIZE.max(self.limits.object_bytes.saturating_add(LENGTH_SIZE)),
            _ => MAX_HEADER_SIZE,
        };
        let max_stored = if kind == BODY { zstd::zstd_safe::compress_bound(plain) } else { plain };
        if plain > max_plain || stored > max_stored {
            return Err(CheckpointError::TooLarge { what: "bytes in a block", limit: max_plain as u64 });
        }
        let mut payload = Vec::new();
        self.reader.by_ref().take(stored as u64).read_to_end(&mut payload)?;
        if payload.len() < stored {
            return Err(CheckpointError::Truncated);
        }
        let stored_digest: Digest = self.array()?;
        self.before = digest(&self.before, &head, &payload);
        if stored_digest != self.before {
            return Err(CheckpointError::Corrupt {
                what: if kind == HEAD { "the header" } else { "a block" },
            });
        }
        Ok(CheckpointFrame { kind, plain, payload })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CheckpointError> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => CheckpointError::Truncated,
            _ => error.into(),
        })?;
        Ok(bytes)
    }
}

/// A frame with a verified digest.
struct CheckpointFrame {
    kind: u8,
    plain: usize,
    payload: Vec<u8>,
}

/// The size of the length in front of each object.
const LENGTH_SIZE: usize = 4;

fn preamble() -> Vec<u8> {
    [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat()
}

fn digest(before: &Digest, head: &[u8], payload: &[u8]) -> Digest {
    Sha256::new().chain_update(before).chain_update(head).chain_update(payload).finalize().into()
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(|_| io::Error::other("an object of more than 4 GiB"))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

fn check(what: &'static str, found: u64, limit: u64) -> Result<(), CheckpointError> {
    match found <= limit {
        true => Ok(()),
        false => Err(CheckpointError::TooLarge { what, limit }),
    }
}

fn malformed(what: &str) -> CheckpointError {
    CheckpointError::Malformed { what: what.to_owned() }
}

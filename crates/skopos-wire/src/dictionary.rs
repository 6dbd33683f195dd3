//! Dictionaries: what objects of one kind have in common, so that each alone compresses well.

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict};

/// A dictionary of zstd, trained on objects of one kind, for [`RawObject::compact`](crate::RawObject::compact).
///
/// It contains text of the objects that it was trained on. So objects of another owner must have another dictionary, and
/// Secrets none: the size of a compressed object could tell what the dictionary contains.
pub struct Dictionary {
    for_compression: CDict<'static>,
    for_expansion: DDict<'static>,
}

/// An error of training a dictionary.
#[derive(Debug, thiserror::Error)]
#[error("no dictionary can be made from {samples} objects: {problem}")]
pub struct TrainingError {
    samples: usize,
    problem: String,
}

/// Compression level. Level 3 saves a fiftieth, and takes three times the memory for each dictionary.
const LEVEL: i32 = 1;

/// Largest dictionary, in bytes.
const MAX_BYTES: usize = 32 << 10;

thread_local! {
    // A context takes some 100 KB, and a few microseconds to prepare.
    static COMPRESSION: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static EXPANSION: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

impl Dictionary {
    /// Trains a dictionary on the [content](crate::RawObject::content) of objects. Some hundred objects are enough, and some
    /// dozens make a usable one.
    ///
    /// # Errors
    /// If there are too few samples, or they have nothing in common.
    pub fn train(samples: &[Bytes]) -> Result<Self, TrainingError> {
        let failed = |problem: String| TrainingError { samples: samples.len(), problem };
        let sizes: Vec<usize> = samples.iter().map(Bytes::len).collect();
        let trained = zstd::dict::from_continuous(&samples.concat(), &sizes, MAX_BYTES);
        let trained = trained.map_err(|error| failed(error.to_string()))?;
        let for_compression = CDict::try_create(&trained, LEVEL);
        Ok(Self {
            for_compression: for_compression.ok_or_else(|| failed("it is not usable".into()))?,
            for_expansion: DDict::try_create(&trained).ok_or_else(|| failed("it is not usable".into()))?,
        })
    }

    /// Returns its memory use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.for_compression.sizeof() + self.for_expansion.sizeof()
    }

    /// Appends the compressed content; returns whether it succeeded.
    pub(crate) fn compress(&self, content: &[u8], out: &mut Vec<u8>) -> bool {
        let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(content.len()));
        let compressed = COMPRESSION.with_borrow_mut(|context| {
            context.compress_using_cdict(&mut frame, content, &self.for_compression).is_ok()
        });
        out.extend_from_slice(&frame);
        compressed
    }

    /// Returns the content of a frame that this dictionary made; `None` if it is not such a frame of this length.
    pub(crate) fn expand(&self, frame: &[u8], length: usize) -> Option<Vec<u8>> {
        // No frame can expand to more than the buffer.
        let mut content = Vec::with_capacity(length);
        let expanded = EXPANSION.with_borrow_mut(|context| {
            context.decompress_using_ddict(&mut content, frame, &self.for_expansion).is_ok()
        });
        (expanded && content.len() == length).then_some(content)
    }
}

impl fmt::Debug for Dictionary {
    /// Shows nothing of what it contains.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("memory_bytes", &self.memory_bytes()).finish()
    }
}

//! The bytes of an object: as they came, or compressed.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::dictionary::Dictionary;

/// The bytes of an object.
#[derive(Clone)]
pub(super) enum Content {
    /// The JSON text, or the message without its envelope.
    Plain(Bytes),
    /// The same, compressed.
    Compact(Compact),
}

/// A compressed content, with the metadata that is read often in front of it.
#[derive(Clone)]
pub(super) struct Compact {
    /// The metadata, and the frame.
    buffer: Bytes,
    /// Position of the frame.
    frame_at: u32,
    /// The length of the content.
    length: u32,
    dictionary: Arc<Dictionary>,
}

impl Content {
    /// Returns the bytes that the positions of an object point into.
    pub(super) fn head(&self) -> &[u8] {
        match self {
            Self::Plain(content) => content,
            Self::Compact(compact) => compact.buffer.get(..compact.frame_at as usize).unwrap_or_default(),
        }
    }

    /// Returns the content.
    pub(super) fn bytes(&self) -> Bytes {
        match self {
            Self::Plain(content) => content.clone(),
            Self::Compact(compact) => compact.expanded().into(),
        }
    }

    /// Returns the content to read it at once. Sharing it instead would add a count to its buffer, which stays as long as the object.
    pub(super) fn read(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Plain(content) => Cow::Borrowed(content),
            Self::Compact(compact) => Cow::Owned(compact.expanded()),
        }
    }

    /// Returns the length of the content.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(content) => content.len(),
            Self::Compact(compact) => compact.length as usize,
        }
    }

    /// Returns the buffer that holds the content.
    pub(super) fn buffer(&self) -> &Bytes {
        match self {
            Self::Plain(content) => content,
            Self::Compact(compact) => &compact.buffer,
        }
    }

    /// Returns the plain content; `None` if it is compressed.
    pub(super) fn plain(&self) -> Option<&Bytes> {
        match self {
            Self::Plain(content) => Some(content),
            Self::Compact(_) => None,
        }
    }
}

/// Equal if the content is the same, byte for byte.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(own), Self::Plain(theirs)) => own == theirs,
            (Self::Compact(own), Self::Compact(theirs))
                if Arc::ptr_eq(&own.dictionary, &theirs.dictionary) && own.buffer == theirs.buffer =>
            {
                true
            }
            _ => self.len() == other.len() && self.read() == other.read(),
        }
    }
}

impl Compact {
    /// Compresses a content behind the metadata in `head`; `None` if that saves nothing.
    pub(super) fn new(content: &[u8], head: Vec<u8>, dictionary: &Arc<Dictionary>) -> Option<Self> {
        let (frame_at, length) = (u32::try_from(head.len()).ok()?, u32::try_from(content.len()).ok()?);
        let mut buffer = head;
        let is_smaller = dictionary.compress(content, &mut buffer) && buffer.len() < content.len();
        is_smaller.then(|| Self {
            // Of exactly its size.
            buffer: Bytes::from(buffer.into_boxed_slice()),
            frame_at,
            length,
            dictionary: dictionary.clone(),
        })
    }

    fn expanded(&self) -> Vec<u8> {
        let frame = self.buffer.get(self.frame_at as usize..).unwrap_or_default();
        // This process made the frame with this dictionary, so there is no error.
        self.dictionary.expand(frame, self.length as usize).unwrap_or_default()
    }
}

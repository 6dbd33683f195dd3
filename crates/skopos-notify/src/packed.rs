use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value in a compact form, for what is in memory for each name and seldom read. Equal values have equal forms.
///
/// A single allocation holds all of it; the strings and maps of an entry take several times as much. Only [`Packed::new`] makes the
/// bytes, so there is always a value in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed<T> {
    bytes: Arc<[u8]>,
    value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs a value.
    pub fn new(value: &T) -> Self {
        let bytes = postcard::to_allocvec(value).expect("a value whose maps and lists know their lengths");
        Self { bytes: bytes.into(), value: PhantomData }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the value.
    pub fn unpack(&self) -> T {
        postcard::from_bytes(&self.bytes).expect("bytes of `Packed::new`")
    }
}

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

/// Count of the inserts into a sorted map, or set, since it was last built as a whole. Nodes that are filled one by one stay half empty.
#[derive(Debug, Default)]
pub(crate) struct Inserts(usize);

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

impl Inserts {
    /// Counts an insert.
    pub(crate) fn add(&mut self) {
        self.0 += 1;
    }

    /// Forgets them: the map was built as a whole.
    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Builds a map of `len` items as a whole, with full nodes, if an eighth of it was inserted since the last time.
    pub(crate) fn pack<M>(&mut self, len: usize, map: &mut M)
    where
        M: Default + IntoIterator + FromIterator<M::Item>,
    {
        if self.0 > len / 8 {
            self.reset();
            *map = std::mem::take(map).into_iter().collect();
        }
    }
}

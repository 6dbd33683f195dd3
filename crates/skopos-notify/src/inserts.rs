/// Count of the inserts into a sorted map, or set, since it was last built as a whole. Nodes that are filled one by one stay half empty.
#[derive(Debug, Default)]
pub(crate) struct Inserts(usize);

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

//! The waiting keys, in two lines. Neither can starve the other.

use std::collections::BTreeMap;

/// The line in which a key waits for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Served after the other line, but one of every ten keys comes from this line. For work that is large and not urgent,
    /// such as the objects of a first list.
    Background,
    /// Served first.
    #[default]
    Normal,
}

/// The waiting keys, in the order in which each line is served.
#[derive(Debug)]
pub(super) struct Lines<K> {
    normal: BTreeMap<u64, K>,
    background: BTreeMap<u64, K>,
    pushed: u64,
    /// The number of keys of the normal line that were served while the other waited.
    in_a_row: u32,
}

/// The position of a waiting key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinePosition {
    pub(super) priority: Priority,
    number: u64,
}

/// The maximum number of keys of the normal line that are served in a row while the other line waits: the other gets a
/// tenth.
const MAX_NORMAL_IN_A_ROW: u32 = 9;

impl<K> Lines<K> {
    pub(super) fn new() -> Self {
        Self { normal: BTreeMap::new(), background: BTreeMap::new(), pushed: 0, in_a_row: 0 }
    }

    /// Puts a key at the end of a line.
    pub(super) fn push(&mut self, key: K, priority: Priority) -> LinePosition {
        self.pushed += 1;
        let number = self.pushed;
        self.line(priority).insert(number, key);
        LinePosition { priority, number }
    }

    /// Removes a key from its position.
    pub(super) fn remove(&mut self, position: LinePosition) -> Option<K> {
        self.line(position.priority).remove(&position.number)
    }

    /// Removes the key that is served next.
    pub(super) fn pop(&mut self) -> Option<K> {
        let next = match (self.normal.is_empty(), self.background.is_empty()) {
            (_, true) => Priority::Normal,
            (true, false) => Priority::Background,
            (false, false) if self.in_a_row >= MAX_NORMAL_IN_A_ROW => Priority::Background,
            (false, false) => Priority::Normal,
        };
        self.in_a_row = match next {
            Priority::Normal if !self.background.is_empty() => self.in_a_row + 1,
            _ => 0,
        };
        self.line(next).pop_first().map(|(_, key)| key)
    }

    pub(super) fn len(&self) -> usize {
        self.normal.len() + self.background.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.normal.is_empty() && self.background.is_empty()
    }

    /// Removes all keys.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = K> + use<K> {
        let normal = std::mem::take(&mut self.normal).into_values();
        normal.chain(std::mem::take(&mut self.background).into_values())
    }

    fn line(&mut self, priority: Priority) -> &mut BTreeMap<u64, K> {
        match priority {
            Priority::Normal => &mut self.normal,
            Priority::Background => &mut self.background,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_line_starves_other() {
        let mut lines = Lines::new();
        for at in 0..100 {
            lines.push(("background", at), Priority::Background);
        }
        let mut served = Vec::new();
        for at in 0..40 {
            // The normal line never runs dry.
            lines.push(("normal", at), Priority::Normal);
            served.extend(lines.pop());
        }
        let background: Vec<_> = served.iter().filter(|(line, _)| *line == "background").collect();
        assert_eq!(
            background,
            [&("background", 0), &("background", 1), &("background", 2), &("background", 3)]
        );
        let normal = served.iter().filter(|(line, _)| *line == "normal").map(|(_, at)| *at);
        assert!(normal.is_sorted(), "in their order");
    }

    #[test]
    fn a_key_that_moves_leaves_nothing_behind() {
        let mut lines = Lines::new();
        let position = lines.push("a", Priority::Background);
        lines.push("b", Priority::Background);
        let key = lines.remove(position).expect("it waits");
        lines.push(key, Priority::Normal);
        assert_eq!(lines.len(), 2);
        assert_eq!([lines.pop(), lines.pop(), lines.pop()], [Some("a"), Some("b"), None]);
    }
}

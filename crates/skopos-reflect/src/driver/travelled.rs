//! Which connections requests travelled on, for those that are to travel on another.

use std::collections::VecDeque;

use crate::RequestId;

/// The connections of the requests under way, and of the last that are over.
#[derive(Debug)]
pub(super) struct Travelled<C>(VecDeque<(RequestId, C)>);

/// So many are remembered; at most three are under way.
const MOST: usize = 8;

impl<C: Copy> Travelled<C> {
    pub(super) fn new() -> Self {
        Travelled(VecDeque::with_capacity(MOST))
    }

    /// The oldest that is over gives way: a watch stands for longer than many a look beside it.
    pub(super) fn remember(
        &mut self,
        id: RequestId,
        connection: C,
        is_under_way: impl Fn(RequestId) -> bool,
    ) {
        if self.0.len() >= MOST {
            let over = self.0.iter().position(|(id, _)| !is_under_way(*id));
            self.0.remove(over.unwrap_or(0));
        }
        self.0.push_back((id, connection));
    }

    pub(super) fn of(&self, id: RequestId) -> Option<C> {
        self.0.iter().rev().find(|(travelled, _)| *travelled == id).map(|(_, connection)| *connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_stands_is_remembered_however_many_come_and_go() {
        let mut travelled = Travelled::new();
        let watch = RequestId(1);
        travelled.remember(watch, 'w', |_| false);
        for id in 2..100 {
            travelled.remember(RequestId(id), 'x', |id| id == watch);
            assert_eq!((travelled.of(watch), travelled.of(RequestId(id))), (Some('w'), Some('x')));
        }
        assert_eq!((travelled.0.len(), travelled.of(RequestId(90))), (MOST, None));
    }
}

//! The connections that requests were sent on, so that later requests can avoid them.

use std::collections::VecDeque;

use crate::RequestId;

/// The connections of the requests in flight, and of the last finished ones.
#[derive(Debug)]
pub(super) struct Travelled<C>(VecDeque<(RequestId, C)>);

/// The number of requests remembered; at most three are in flight.
const MOST: usize = 8;

impl<C: Copy> Travelled<C> {
    pub(super) fn new() -> Self {
        Travelled(VecDeque::with_capacity(MOST))
    }

    /// Remembers a request's connection. The oldest finished request is dropped: a watch outlives many second looks beside it.
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

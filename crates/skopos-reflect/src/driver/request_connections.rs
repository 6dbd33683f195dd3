//! The connections that requests were sent on, so that later requests can avoid them.

use std::collections::VecDeque;

use crate::RequestId;

/// The connections of the requests in flight, and of the last finished ones.
#[derive(Debug)]
pub(super) struct RequestConnections<C>(VecDeque<(RequestId, C)>);

/// The number of requests remembered; at most three are in flight.
const MAX_REQUESTS: usize = 8;

impl<C: Copy> RequestConnections<C> {
    pub(super) fn new() -> Self {
        RequestConnections(VecDeque::with_capacity(MAX_REQUESTS))
    }

    /// Remembers a request's connection. The oldest finished request is dropped: a watch outlives many verification
    /// watches beside it.
    pub(super) fn insert(&mut self, id: RequestId, connection: C, is_in_flight: impl Fn(RequestId) -> bool) {
        if self.0.len() >= MAX_REQUESTS {
            let finished = self.0.iter().position(|(id, _)| !is_in_flight(*id));
            self.0.remove(finished.unwrap_or(0));
        }
        self.0.push_back((id, connection));
    }

    pub(super) fn get(&self, id: RequestId) -> Option<C> {
        self.0.iter().rev().find(|(request, _)| *request == id).map(|(_, connection)| *connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_watch_keeps_its_connection_entry() {
        let mut connections = RequestConnections::new();
        let watch = RequestId(1);
        connections.insert(watch, 'w', |_| false);
        for id in 2..100 {
            connections.insert(RequestId(id), 'x', |id| id == watch);
            assert_eq!((connections.get(watch), connections.get(RequestId(id))), (Some('w'), Some('x')));
        }
        assert_eq!((connections.0.len(), connections.get(RequestId(90))), (MAX_REQUESTS, None));
    }
}

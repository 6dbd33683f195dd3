//! The faults.

use skopos_testserver::{Connections, Direction, Fault, How, Match};

use super::bed::{Case, Harm};
use super::bounds::*;

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case::once("connection reset (RST)", CONNECTION_LOST, |bed| {
            bed.server.faults().kill_connections(How::Rst);
            Harm::over()
        }),
        Case::once("black hole: open connections, both directions", BLACK_HOLE, |bed| {
            Harm::of(bed.server.faults().black_hole(Connections::Existing, Direction::Both))
        }),
        Case::once("one watch stalled, PING alive", STALLED, |bed| {
            Harm::of(bed.server.faults().inject(Fault::Stall).on(Match::watch()).times(1))
        }),
    ]
}

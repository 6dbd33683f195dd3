//! What threads meet at: locks, the atomic pointer, tasks and time. All that more than one thread changes goes through here,
//! so that the tests in `threads` can put a model in its place, under which every order of steps can be tried.

#[cfg(shuttle)]
mod model;
#[cfg(not(shuttle))]
mod real;

#[cfg(shuttle)]
pub(crate) use model::*;
#[cfg(not(shuttle))]
pub(crate) use real::*;

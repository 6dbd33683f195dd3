//! Synchronization between threads: locks, the atomic pointer, tasks and time. All state that more than one thread changes
//! goes through here, so that the tests in `threads` can replace it by a model that tries every order of steps.

pub(crate) mod deadline;
#[cfg(shuttle)]
mod model;
#[cfg(not(shuttle))]
mod real;

#[cfg(shuttle)]
pub(crate) use model::*;
#[cfg(not(shuttle))]
pub(crate) use real::*;

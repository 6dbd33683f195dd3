//! `skopos watch`: the objects of a resource, then every change, whatever happens to the connection.
mod notices;

pub(crate) use notices::{ViewMonitor, ViewState, notice_line};

//! `skopos watch`: the objects of a resource, then every change, whatever happens to the connection.
mod notices;
mod run;

pub(crate) use notices::notice_line;
pub(crate) use run::run;

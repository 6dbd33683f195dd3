//! `-o name`: `pod/web-0`, one line per change.
use std::io::{self, Write};

use super::{Change, Notice, Printer};
use crate::resource::Resource;
use crate::watch::notice_line;

/// Prints what kubectl prints for `-o name`.
#[derive(Debug)]
pub(crate) struct NamePrinter {
    prefix: String,
    style: crate::style::Style,
}

impl NamePrinter {
    /// Makes a printer for objects of this resource; the style is that of standard error.
    pub(crate) fn new(resource: &Resource, style: crate::style::Style) -> Self {
        Self { prefix: resource.name_prefix(), style }
    }
}

impl Printer for NamePrinter {
    fn change(&mut self, out: &mut dyn Write, change: &Change) -> io::Result<()> {
        writeln!(out, "{}/{}", self.prefix, change.name)
    }

    fn settle(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.flush()
    }

    fn notice(&mut self, _: &mut dyn Write, err: &mut dyn Write, notice: &Notice) -> io::Result<()> {
        writeln!(err, "{}", notice_line(notice, self.style))
    }
}

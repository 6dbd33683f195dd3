//! `skopos man`: writes the man pages.
use std::path::Path;

use clap::CommandFactory;
use skopos_console::error::CliError;

use crate::args::Cli;

/// Writes `skopos.1` and a page for each command into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), CliError> {
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
        CliError::new(format!("the man pages could not be written into {}: {error}", folder.display()))
            .hint("name a folder that exists")
    })
}

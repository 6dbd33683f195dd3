//! `skopos man`: writes the man pages.
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use skopos_console::error::CliError;

use crate::args::Cli;

/// Writes `skopos.1` and a page for each command into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), CliError> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder).map_err(|error| {
        CliError::new(format!("the man pages could not be written into {}: {error}", folder.display()))
            .hint("name a folder that exists")
    })
}

/// Writes the pages of a command and of those below it.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.into_iter().try_for_each(|command| write_pages(command, folder))?;
    // `skopos-serve`, as its file is called.
    let title = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let source = concat!("skopos ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).title(title).source(source).manual("Skopos").generate_to(folder).map(drop)
}

//! The `skopos` command: live Kubernetes state that knows its own age.
mod args;
mod cluster;
mod columns;
mod demo;
mod diff;
mod discovery;
mod error;
mod human;
mod log;
mod output;
mod resource;
mod signals;
mod style;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};
use crate::error::CliError;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // The libraries take the process' provider of cryptography; a second installation is refused, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    log::init(&cli.log);
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(line) = error.line() {
                eprintln!("{line}");
            }
            error.exit_code()
        }
    }
}

fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "skopos", &mut std::io::stdout());
            Ok(())
        }
        _ => Ok(()),
    }
}

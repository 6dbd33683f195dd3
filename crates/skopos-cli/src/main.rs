//! The `skopos` command: live Kubernetes state that knows its own age.
mod args;
mod cluster;
mod connect;
mod diff;
mod discovery;
mod kubeconfig_file;
mod log;
mod man;
mod notify;
mod output;
#[cfg(test)]
mod reference;
mod resource;
mod serve;
mod service_manager;
mod signals;
mod status;
mod style;
mod testserver;
mod vc;
mod watch;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use skopos_console::aside;
use skopos_console::error::CliError;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::args::{Cli, Command, LogFormat};
use crate::signals::Hangup;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // The libraries take the process' provider of cryptography; a second installation is refused, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut cli = args::parse();
    // A daemon logs its decisions by default.
    cli.log.verbose = cli.log.verbose.max(u8::from(is_daemon(&cli.command)));
    log::init(&cli.log);
    #[cfg(feature = "demo")]
    if let Command::Demo(args) = &mut cli.command {
        // Logs and the screen would overwrite each other.
        args.lines |= cli.log.verbose > 0 && std::io::IsTerminal::is_terminal(&std::io::stderr());
    }
    match run(cli.command, cli.log.log_format) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(line) = error.line() {
                aside::say(line);
            }
            error.exit_code()
        }
    }
}

fn is_daemon(command: &Command) -> bool {
    match command {
        Command::Serve(_) => true,
        Command::Notify(args) => args.command.is_none() && !args.is_a_check(),
        _ => false,
    }
}

fn run(command: Command, log_format: LogFormat) -> Result<(), CliError> {
    match command {
        Command::Watch(args) => until_done(|stop| watch::run(args, stop)),
        Command::Vc(args) => {
            let waits = args.waits_for_interruption();
            let result = until_done(|stop| vc::run(args, stop));
            if waits { result.or_else(interruption_is_fine) } else { result }
        }
        Command::Serve(args) => {
            let served =
                until_done_within(serve::GRACE, Hangup::GoesOn, |stop| serve::run(args, log_format, stop));
            served.or_else(interruption_is_fine)
        }
        Command::Notify(args) => {
            let checks = args.is_a_check();
            let result = until_done_within(notify::GRACE, Hangup::GoesOn, |stop| notify::run(args, stop));
            // A check or command that was interrupted has not done its work.
            if checks { result } else { result.or_else(interruption_is_fine) }
        }
        Command::Status(args) => until_done(|stop| status::run(args, stop)),
        Command::Top(args) => until_done(|stop| status::top(args, stop)).or_else(interruption_is_fine),
        // Ctrl-C is how these are meant to end.
        Command::Testserver(args) => {
            until_done(|stop| testserver::run(args, stop)).or_else(interruption_is_fine)
        }
        #[cfg(feature = "demo")]
        Command::Demo(args) => {
            let checks = args.once;
            let result =
                until_done_within(skopos_demo::GRACE, Hangup::Ends, |stop| skopos_demo::run(args, stop));
            skopos_demo::leave_terminal();
            // A check that was interrupted has proven nothing.
            if checks { result.map_err(unread_is_a_failure) } else { result.or_else(interruption_is_fine) }
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "skopos", &mut script);
            Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
        }
        Command::Man { folder } => man::write(&folder),
    }
}

/// Runs a command in its own runtime, until it ends or a signal arrives.
fn until_done<F, Fut>(command: F) -> Result<(), CliError>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), CliError>> + Send + 'static,
{
    until_done_within(signals::GRACE, Hangup::Ends, command)
}

/// Does the same with a grace period for the orderly exit.
fn until_done_within<F, Fut>(grace: Duration, hangup: Hangup, command: F) -> Result<(), CliError>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), CliError>> + Send + 'static,
{
    let runtime = runtime()?;
    let result = runtime.block_on(signals::until_interrupted(grace, hangup, command));
    // A task that still blocks then (a write to a pipe without a reader) ends with the process.
    runtime.shutdown_background();
    result
}

fn runtime() -> Result<Runtime, CliError> {
    // One thread may be blocked in a write to a reader that has stopped reading; another must see the signal.
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    Ok(Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

#[cfg(feature = "demo")]
fn unread_is_a_failure(error: CliError) -> CliError {
    match error {
        CliError::BrokenPipe => {
            CliError::new("the output was closed before the end of the story: it has shown nothing")
        }
        other => other,
    }
}

fn interruption_is_fine(error: CliError) -> Result<(), CliError> {
    match error {
        // A terminal that went away is no request to end.
        CliError::Interrupted(signal) if signal != signals::SIGHUP => Ok(()),
        other => Err(other),
    }
}

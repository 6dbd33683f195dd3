//! `skopos serve`: the gateway, until told to stop.
use std::io::{self, Write};
use std::time::Duration;

use skopos_gateway::config::ConfigError;
use skopos_gateway::listen::ListenError;
use skopos_gateway::{Daemon, DaemonError};
use tokio_util::sync::CancellationToken;

use crate::args::ServeArgs;
use crate::aside;
use crate::error::CliError;

/// How long the end may take at most, whatever the configuration says: a second signal ends everything at once.
pub(crate) const GRACE: Duration = Duration::from_secs(120);

/// Serves until stopped.
pub(crate) async fn run(args: ServeArgs, stop: CancellationToken) -> Result<(), CliError> {
    if args.print_schema {
        return print_schema();
    }
    leave_no_core_dump();
    let daemon = match (args.config, args.kubeconfig) {
        (Some(path), _) => Daemon::of_file(path).await,
        (None, Some(path)) => Daemon::of_kubeconfig(path).await,
        // clap demands one of them.
        (None, None) => return Err(CliError::Usage("give --config FILE or --kubeconfig FILE".into())),
    };
    let daemon = daemon.map_err(start_error)?;
    introduce(&daemon);
    let drained = daemon.run(stop).await;
    if drained.cut > 0 {
        tracing::warn!(connections = drained.cut, "connections were cut: their answers did not end in time");
    }
    Ok(())
}

fn print_schema() -> Result<(), CliError> {
    let schema = format!("{:#}\n", skopos_gateway::config::json_schema());
    io::stdout().write_all(schema.as_bytes()).map_err(|error| CliError::new(format!("cannot print: {error}")))
}

/// The tokens of clusters and what clusters hold are in memory: a process that dies does not write them to a disk.
fn leave_no_core_dump() {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, setrlimit};
        if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
            tracing::warn!(%error, "core dumps cannot be switched off: they would have tokens in them");
        }
    }
}

/// What a failed start means to whoever typed the command. Every problem of a configuration gets a line.
fn start_error(error: DaemonError) -> CliError {
    match error {
        DaemonError::Config(ConfigError::Invalid(problems)) => {
            for problem in &problems {
                aside::say(problem);
            }
            let count = problems.len();
            let what =
                if count == 1 { "the configuration has a problem" } else { "the configuration has problems" };
            CliError::new(what).hint("see the lines above")
        }
        DaemonError::Listen(ListenError::Bind { address, error })
            if error.kind() == io::ErrorKind::AddrInUse =>
        {
            CliError::new(format!("{address} is in use")).hint(
                "another gateway may run there; listen.address of a configuration (--config) names another",
            )
        }
        error => CliError::new(error),
    }
}

/// Says where it listens, and what to do next. A script that has read what it needs may close its end.
fn introduce(daemon: &Daemon) {
    let url = daemon.url();
    let text = format!(
        "serving at {url}\n\
         try: kubectl --server {url}/clusters/NAME get pods -A\n     \
         skopos status --server {url}\n\
         Ctrl-C ends it.\n"
    );
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

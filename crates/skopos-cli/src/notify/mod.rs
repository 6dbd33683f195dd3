//! `skopos notify`: keeps the outside (DNS, load balancers, webhooks) equal to a cluster.
mod commands;
mod demo;
mod print;
mod release;
mod run;

use std::time::Duration;

use skopos_console::error::CliError;
use tokio_util::sync::CancellationToken;

use crate::args::{DeadCommand, NotifyArgs, NotifyCommand};

/// Time limit of the shutdown: a write ends with the time limit of its sink, and then the Lease is released.
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// Runs a notifier, or one of its commands.
pub(crate) async fn run(args: NotifyArgs, stop: CancellationToken) -> Result<(), CliError> {
    let NotifyArgs { command, config, plan, once, limit, print_schema } = args;
    match command {
        None if print_schema => run::print_schema(),
        None => {
            let Some(config) = config else {
                return Err(CliError::Usage(
                    "name a configuration with --config FILE, or see `skopos notify demo`".to_owned(),
                ));
            };
            match (plan, once) {
                (true, _) => run::plan(&config, limit, stop).await,
                (false, true) => run::once(&config, limit, stop).await,
                (false, false) => run::follow(&config, stop).await,
            }
        }
        Some(NotifyCommand::Demo(args)) => demo::run(args, stop).await,
        Some(NotifyCommand::Status(which)) => commands::status(&which).await,
        Some(NotifyCommand::Held(which)) => commands::held(&which).await,
        Some(NotifyCommand::Approve { id, which }) => commands::approve(&which, id).await,
        Some(NotifyCommand::Retry(which)) => commands::retry(&which).await,
        Some(NotifyCommand::Dead { command: None, which }) => commands::dead(&which).await,
        Some(NotifyCommand::Dead { command: Some(DeadCommand::Retry { id, which }), .. }) => {
            commands::retry_dead(&which, id).await
        }
        Some(NotifyCommand::Verify(which)) => commands::verify(&which).await,
        Some(NotifyCommand::Release { sink, config, yes }) => release::run(&config, &sink, yes, stop).await,
    }
}

//! Release of a sink that is given up.
use std::io::{self, Write as _};
use std::path::Path;

use skopos_console::error::CliError;
use skopos_notify::config::NotifyConfig;
use skopos_notify::service::control::{ControlRequest, ask};
use skopos_notify::service::{NotifierSink, SinkOptions, releasable, release};
use tokio_util::sync::CancellationToken;

/// Removes all that a sink has from the notifier, or lists it.
pub(crate) async fn run(path: &Path, name: &str, yes: bool, stop: CancellationToken) -> Result<(), CliError> {
    let config = NotifyConfig::read(path)?;
    let options = options(&config, path, name)?;
    let mut text = String::new();
    if !yes {
        // After a signal, the signal decides about the exit code.
        let Some(names) = stop.run_until_cancelled(releasable(&options)).await else { return Ok(()) };
        let names = names.map_err(|error| CliError::new(format!("{name}: {error}")))?;
        names.iter().for_each(|entry| text += &format!("{name}: {entry}\n"));
        text += &format!("{} to be removed; add --yes to do it\n", names.len());
        return Ok(io::stdout().write_all(text.as_bytes())?);
    }
    if is_kept(&config, name).await {
        return Err(CliError::new(format!("a notifier runs with the sink {name} and would write it again"))
            .hint("take the sink out of its configuration first, and give this command the old one"));
    }
    let Some(released) = stop.run_until_cancelled(release(&options)).await else { return Ok(()) };
    let released = released.map_err(|error| CliError::new(format!("{name}: {error}")))?;
    released.gone.iter().for_each(|entry| text += &format!("{name}: -{entry}\n"));
    let left = released.left.iter();
    left.for_each(|(entry, why)| text += &format!("{name}: {entry} is still there: {why}\n"));
    io::stdout().write_all(text.as_bytes())?;
    match released.left.len() {
        0 => Ok(()),
        left => {
            Err(CliError::new(format!("{left} names are still there"))
                .hint("see the lines above, and try again"))
        }
    }
}

fn options(config: &NotifyConfig, path: &Path, name: &str) -> Result<SinkOptions, CliError> {
    let sinks = config.sinks().map_err(CliError::new)?;
    match sinks.into_iter().find(|sink| sink.name() == name) {
        Some(NotifierSink::State(options)) => Ok(options),
        Some(NotifierSink::Events(_)) => {
            Err(CliError::new(format!("{name} is a webhook: nothing of it is outside"))
                .hint("remove its ledger from state.folder, if it is not to be used again"))
        }
        None => {
            let known: Vec<_> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
            Err(CliError::new(format!("{} has no sink {name}", path.display()))
                .hint(format!("it has {}", known.join(", "))))
        }
    }
}

/// Returns whether a notifier of this folder has the sink.
async fn is_kept(config: &NotifyConfig, name: &str) -> bool {
    let Some(socket) = config.socket() else { return false };
    let answer = ask(&socket, &ControlRequest::Status).await;
    answer.is_ok_and(|answer| answer.sinks.iter().any(|report| report.name == name))
}

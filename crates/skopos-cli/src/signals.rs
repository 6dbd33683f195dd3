//! Ctrl-C and termination: asked to end, a command ends at once.
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;

/// How long a command may take to leave in order (close connections, give the terminal back) before it just ends.
const GRACE: Duration = Duration::from_millis(700);

/// SIGINT's number, the same everywhere.
const SIGINT: u8 = 2;
/// SIGTERM's number, the same everywhere.
const SIGTERM: u8 = 15;

/// Runs a command until it ends or a signal asks it to.
///
/// The command sees the request through the token and leaves in its own order. One that does not within 700 ms (its
/// output may be blocked by a reader that stopped reading) or that gets a second signal is left behind. It runs in a task
/// of its own, so that a blocked write does not hold up the waiting for signals.
pub(crate) async fn until_interrupted<F, Fut>(command: F) -> Result<(), CliError>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), CliError>> + Send + 'static,
{
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(command(stop.clone()));
    let signal = tokio::select! {
        result = outcome(&mut tasks) => return result,
        signal = next_signal() => signal?,
    };
    stop.cancel();
    tokio::select! {
        result = tokio::time::timeout(GRACE, outcome(&mut tasks)) => match result {
            Ok(Ok(())) | Err(_) => Err(CliError::Interrupted(signal)),
            Ok(Err(error)) => Err(error),
        },
        second = next_signal() => Err(CliError::Interrupted(second?)),
    }
}

async fn outcome(tasks: &mut JoinSet<Result<(), CliError>>) -> Result<(), CliError> {
    match tasks.join_next().await {
        Some(Ok(result)) => result,
        // The panic has printed itself.
        Some(Err(error)) => Err(CliError::new(format!("a bug in skopos: {error}"))),
        None => Ok(()),
    }
}

#[cfg(unix)]
async fn next_signal() -> Result<u8, CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = interrupt.recv() => Ok(SIGINT),
        _ = terminate.recv() => Ok(SIGTERM),
        _ = hangup.recv() => Ok(SIGTERM),
    }
}

#[cfg(not(unix))]
async fn next_signal() -> Result<u8, CliError> {
    tokio::signal::ctrl_c().await?;
    let _ = SIGTERM;
    Ok(SIGINT)
}

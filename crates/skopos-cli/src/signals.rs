//! Ctrl-C, termination and hang-up signals: a command ends at once when one arrives.
//!
//! A signal that is ignored when the process starts, as SIGHUP is under `nohup`, stays ignored. SIGINT is the exception: shells
//! ignore it for every job in the background, and `kill -INT` still has to end it.
use std::sync::OnceLock;
use std::time::Duration;

use skopos_console::error::CliError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Time limit for an orderly exit (close connections, restore the terminal) before the process just ends.
pub(crate) const GRACE: Duration = Duration::from_millis(700);

/// SIGHUP's number, the same everywhere.
pub(crate) const SIGHUP: u8 = 1;
/// SIGINT's number, the same everywhere.
const SIGINT: u8 = 2;
/// SIGTERM's number, the same everywhere.
const SIGTERM: u8 = 15;

/// Effect of SIGHUP on a command, unless the signal was ignored from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// It ends the command, which exits with code 129.
    Ends,
    /// The command continues: it follows its files anyway.
    GoesOn,
}

/// Runs a command until it ends or a signal arrives.
///
/// The token tells the command about the signal, and the command leaves in its own order. It is abandoned if it does not end
/// within `grace` (its output may be blocked by a reader that stopped reading) or a second signal arrives. It runs in its own
/// task, so that a blocked write does not delay the handling of signals.
pub(crate) async fn until_interrupted<F, Fut>(
    grace: Duration,
    hangup: Hangup,
    command: F,
) -> Result<(), CliError>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), CliError>> + Send + 'static,
{
    // This must precede the first handler.
    let _ = ignored_at_start();
    until(grace, || next_signal(hangup), command).await
}

/// Does the same with any source of signals.
async fn until<S, F, Fut>(
    grace: Duration,
    mut next_signal: impl FnMut() -> S,
    command: F,
) -> Result<(), CliError>
where
    S: Future<Output = Result<u8, CliError>>,
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
        result = tokio::time::timeout(grace, outcome(&mut tasks)) => match result {
            Ok(Ok(())) | Err(_) => Err(CliError::Interrupted(signal)),
            Ok(Err(error)) => Err(error),
        },
        second = next_signal() => Err(CliError::Interrupted(second?)),
    }
}

async fn outcome(tasks: &mut JoinSet<Result<(), CliError>>) -> Result<(), CliError> {
    match tasks.join_next().await {
        Some(Ok(result)) => result,
        // The panic has been printed already.
        Some(Err(error)) => Err(CliError::new(format!("a bug in skopos: {error}"))),
        None => Ok(()),
    }
}

#[cfg(unix)]
async fn next_signal(hangup: Hangup) -> Result<u8, CliError> {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    async fn received(signal: Option<&mut Signal>) {
        match signal {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }

    let unless_ignored = |number: u8, kind: SignalKind| match is_ignored(ignored_at_start(), number) {
        true => Ok(None),
        false => signal(kind).map(Some),
    };
    let mut terminate = unless_ignored(SIGTERM, SignalKind::terminate())?;
    let mut hung_up = unless_ignored(SIGHUP, SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(SIGINT),
            () = received(terminate.as_mut()) => return Ok(SIGTERM),
            () = received(hung_up.as_mut()) => match hangup {
                Hangup::Ends => return Ok(SIGHUP),
                Hangup::GoesOn => tracing::info!("SIGHUP: files are followed anyway, so there is nothing to do"),
            },
        }
    }
}

#[cfg(not(unix))]
async fn next_signal(_: Hangup) -> Result<u8, CliError> {
    tokio::signal::ctrl_c().await?;
    let _ = (SIGTERM, SIGHUP, is_ignored(ignored_at_start(), SIGHUP));
    Ok(SIGINT)
}

/// Returns the signals that were ignored when this was first called, as a bit set. It is known on Linux only.
fn ignored_at_start() -> u64 {
    static IGNORED: OnceLock<u64> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        ignored(&status)
    })
}

fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

fn is_ignored(set: u64, signal: u8) -> bool {
    set >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use tokio::sync::mpsc::{Receiver, channel};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    /// Returns a source that gives one SIGINT once the command has begun, and no other.
    fn one_signal(mut begun: Receiver<()>) -> impl FnMut() -> BoxFuture<'static, Result<u8, CliError>> {
        let mut first = Some(async move {
            begun.recv().await;
            Ok(SIGINT)
        });
        move || match first.take() {
            Some(first) => first.boxed(),
            None => std::future::pending().boxed(),
        }
    }

    #[test]
    fn a_command_that_blocks_its_thread_is_left_behind() {
        let (begun, signal) = channel(1);
        let runtime = runtime();
        // This comes after the runtime, so that also a failing test releases the command first.
        let (release, released) = sync_channel::<()>(0);
        let blocked = until(GRACE, one_signal(signal), |_| async move {
            let _ = begun.send(()).await;
            // As a write to a pipe without a reader does.
            let _ = released.recv();
            Ok(())
        });
        let result = runtime.block_on(async { tokio::time::timeout(TIMEOUT, blocked).await });
        assert!(matches!(result, Ok(Err(CliError::Interrupted(SIGINT)))), "{result:?}");
        drop(release);
    }

    #[test]
    fn a_command_may_leave_in_its_own_order() {
        let (begun, signal) = channel(1);
        let (left, leaving) = sync_channel(1);
        let orderly = until(GRACE, one_signal(signal), |stop| async move {
            let _ = begun.send(()).await;
            stop.cancelled().await;
            let _ = left.send(());
            Ok(())
        });
        let result = runtime().block_on(async { tokio::time::timeout(TIMEOUT, orderly).await });
        assert!(matches!(result, Ok(Err(CliError::Interrupted(SIGINT)))), "{result:?}");
        assert!(leaving.try_recv().is_ok());
    }

    #[test]
    fn reads_ignored_signals_from_process_status() {
        let set = ignored("Name:\tskopos\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n");
        assert!(is_ignored(set, SIGHUP) && !is_ignored(set, SIGINT) && !is_ignored(set, SIGTERM));
        assert_eq!((ignored(""), ignored("SigIgn:\tnonsense")), (0, 0));
    }

    #[test]
    fn a_panic_is_an_error_in_one_line() {
        let result =
            runtime().block_on(until(GRACE, std::future::pending, |_| async { panic!("on purpose") }));
        assert!(result.unwrap_err().line().unwrap().starts_with("error: a bug in skopos: "));
    }
}

//! Messages to the service manager that started the process, by the protocol of `sd_notify(3)`: ready, alive, stopping.
//!
//! Nothing is sent where `NOTIFY_SOCKET` is not in the environment.
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Runs a service, and tells the service manager that it is ready, that it is alive, and once `stop` is cancelled that it is
/// stopping.
///
/// `is_alive` is called before each heartbeat. If it hangs or panics there are no more heartbeats, and the service manager
/// restarts the process. It has to take the locks that the service needs, and must not depend on anything outside.
pub(crate) async fn supervise<T>(
    service: impl Future<Output = T>,
    is_alive: impl Fn(),
    stop: &CancellationToken,
) -> T {
    tell(Message::Ready);
    let stopping = async {
        stop.cancelled().await;
        tell(Message::Stopping);
        pending::<Infallible>().await
    };
    tokio::select! {
        done = service => done,
        never = stopping => match never {},
        never = send_heartbeats(is_alive) => match never {},
    }
}

async fn send_heartbeats(is_alive: impl Fn()) -> Infallible {
    // Half of the unit's time limit, as sd_watchdog_enabled(3) recommends.
    let Some(interval) = watchdog_limit().map(|limit| limit / 2) else { return pending().await };
    loop {
        is_alive();
        tell(Message::Alive);
        tokio::time::sleep(interval).await;
    }
}

/// Message to the service manager.
#[derive(Debug, Clone, Copy)]
enum Message {
    Ready,
    Alive,
    Stopping,
}

#[cfg(unix)]
fn tell(message: Message) {
    use sd_notify::NotifyState;

    let state = match message {
        Message::Ready => NotifyState::Ready,
        Message::Alive => NotifyState::Watchdog,
        Message::Stopping => NotifyState::Stopping,
    };
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, ?message, "the service manager could not be told");
    }
}

#[cfg(not(unix))]
fn tell(_: Message) {}

#[cfg(unix)]
fn watchdog_limit() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

#[cfg(not(unix))]
fn watchdog_limit() -> Option<Duration> {
    None
}

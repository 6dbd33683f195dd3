//! hyper's PINGs, scheduled by bytes received from the socket.
//!
//! hyper treats each read of a body as a sign of life, even of bytes that arrived long ago. A slow reader of buffered data
//! would thus keep it from sending PINGs, for every request on the connection. But hyper takes the time of a read from its
//! timer, and this timer returns the time of the last received bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::conn_state::ConnectionState;
use crate::lag::{LagMonitor, LagTolerantSleep, READ_GRACE};

/// The timer of one connection's PINGs. Its deadlines tolerate the lag of a starved process.
pub(crate) struct PingTimer {
    lag_monitor: LagMonitor,
    conn_state: Arc<ConnectionState>,
    /// Silence after which a PING is sent.
    pub(crate) interval: Duration,
    /// Time for the answer.
    answer: Duration,
}

impl PingTimer {
    /// Creates a timer. Both deadlines are extended by a grace period, and the guarantee is for their sum.
    pub(crate) fn new(
        lag_monitor: &LagMonitor,
        conn_state: &Arc<ConnectionState>,
        interval: Duration,
        answer: Duration,
    ) -> Self {
        let interval = interval.saturating_sub(READ_GRACE * 4).max(interval / 2);
        Self { lag_monitor: lag_monitor.clone(), conn_state: conn_state.clone(), interval, answer }
    }

    /// Returns the timeout to configure in hyper, which counts it from the last bytes.
    pub(crate) fn timeout(&self) -> Duration {
        self.interval + self.answer
    }
}

impl hyper::rt::Timer for PingTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(self.lag_monitor.sleep(duration))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        // A PING is due one interval after some bytes. A later deadline is that of an answer, which starts with the PING.
        let until = match deadline > self.now() + self.interval {
            true => Instant::now() + self.answer,
            false => deadline.into(),
        };
        Box::pin(self.lag_monitor.sleep_until(until))
    }

    /// Returns the time of the last received bytes.
    fn now(&self) -> std::time::Instant {
        self.conn_state.last_read().into_std()
    }
}

impl hyper::rt::Sleep for LagTolerantSleep {}

#[cfg(test)]
mod tests {
    use hyper::rt::Timer;

    use super::*;
    use crate::class::ConnectionId;

    #[tokio::test(start_paused = true)]
    async fn ping_timeout_starts_when_ping_is_sent() {
        let (interval, answer) = (Duration::from_secs(10), Duration::from_secs(5));
        let begin = Instant::now();
        let conn_state = ConnectionState::new(ConnectionId(1));
        let timer = PingTimer::new(&LagMonitor::default(), &conn_state, interval, answer);
        timer.sleep_until(timer.now() + timer.interval).await;
        assert!(begin.elapsed() <= interval, "{:?}", begin.elapsed());
        // It is sent late because we were busy: the peer did not have that time.
        tokio::time::sleep(answer).await;
        let sent = Instant::now();
        timer.sleep_until(timer.now() + timer.timeout()).await;
        let took = sent.elapsed();
        assert!((answer..answer + READ_GRACE * 2).contains(&took), "{took:?}");
    }
}

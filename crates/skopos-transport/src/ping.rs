//! hyper's PINGs, made to go by what comes from the socket.
//!
//! To hyper each read of a body is a sign of life, also of bytes that came long ago: a reader that is slow with what is at hand
//! would keep it from ever asking the peer, for everybody on the connection. But hyper takes its timer's word for when that
//! was, and this timer says when the last bytes came.

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    patience::{MOMENT, Patience, PatientSleep},
    vitals::Vitals,
};

/// The timer of one connection's PINGs, with our patience, so that their limits bear with a starved process too.
pub(crate) struct PingTimer {
    patience: Patience,
    vitals: Arc<Vitals>,
    /// How long nothing may come before a PING is sent.
    pub(crate) interval: Duration,
    /// How long its answer may take.
    answer: Duration,
}

impl PingTimer {
    /// Both limits are prolonged by a moment each; what is promised is their sum.
    pub(crate) fn new(
        patience: &Patience,
        vitals: &Arc<Vitals>,
        interval: Duration,
        answer: Duration,
    ) -> Self {
        let interval = interval.saturating_sub(MOMENT * 4).max(interval / 2);
        Self { patience: patience.clone(), vitals: vitals.clone(), interval, answer }
    }

    /// The limit of an answer as hyper has to be told: counted from the last bytes, as all that it counts.
    pub(crate) fn timeout(&self) -> Duration {
        self.interval + self.answer
    }
}

impl hyper::rt::Timer for PingTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(self.patience.sleep(duration))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        // A PING is due an interval after some bytes. What is later is the limit of an answer, which begins with the PING.
        let until = match deadline > self.now() + self.interval {
            true => Instant::now() + self.answer,
            false => deadline.into(),
        };
        Box::pin(self.patience.sleep_until(until))
    }

    /// When the last bytes came.
    fn now(&self) -> std::time::Instant {
        self.vitals.heard().into_std()
    }
}

impl hyper::rt::Sleep for PatientSleep {}

#[cfg(test)]
mod tests {
    use hyper::rt::Timer;

    use super::*;
    use crate::class::ConnectionId;

    #[tokio::test(start_paused = true)]
    async fn a_ping_is_due_after_the_last_bytes_and_its_answer_after_the_ping() {
        let (interval, answer) = (Duration::from_secs(10), Duration::from_secs(5));
        let begin = Instant::now();
        let vitals = Vitals::new(ConnectionId(1));
        let timer = PingTimer::new(&Patience::default(), &vitals, interval, answer);
        timer.sleep_until(timer.now() + timer.interval).await;
        assert!(begin.elapsed() <= interval, "{:?}", begin.elapsed());
        // It is sent late, since we were busy: that is no time that the peer had.
        tokio::time::sleep(answer).await;
        let sent = Instant::now();
        timer.sleep_until(timer.now() + timer.timeout()).await;
        let took = sent.elapsed();
        assert!((answer..answer + MOMENT * 2).contains(&took), "{took:?}");
    }
}

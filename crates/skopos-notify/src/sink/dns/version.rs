//! The version of the zone that was read last, by its serial.

use std::time::Duration;

use domain::base::Serial;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The version of the zone at the last complete transfer.
///
/// Each dynamic update changes the serial, so content with the same serial on the same server is the same. Incremental transfers
/// (RFC 1995) are not used: they say which records have changed, and not what else a name has, and a transfer of 10,000 names
/// takes 0.2 s.
#[derive(Default)]
pub(super) struct ZoneVersion {
    seen: Mutex<Option<Seen>>,
}

#[derive(Clone, Copy)]
struct Seen {
    server: usize,
    serial: Serial,
    at: Instant,
}

/// Interval after which the whole zone is read although the serial is unchanged: a manual edit may have kept the serial.
const WHOLE_INTERVAL: Duration = Duration::from_secs(600);

impl ZoneVersion {
    /// Records a complete transfer that began at this time.
    pub(super) fn transferred(&self, server: usize, serial: Serial, at: Instant) {
        *self.seen.lock() = Some(Seen { server, serial, at });
    }

    /// Records a write: the content that was read before proves nothing about it.
    pub(super) fn written(&self) {
        *self.seen.lock() = None;
    }

    /// Returns whether a server with this serial has the content that was read last.
    pub(super) fn is(&self, server: usize, serial: Serial, now: Instant) -> bool {
        let is_recent = |seen: &Seen| now.duration_since(seen.at) < WHOLE_INTERVAL;
        let is_same = |seen: Seen| (seen.server, seen.serial) == (server, serial);
        self.seen.lock().filter(is_recent).is_some_and(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn serial_counts_only_after_full_transfer() {
        let (version, at) = (ZoneVersion::default(), Instant::now());
        assert!(!version.is(0, Serial(7), at), "nothing was read");
        version.transferred(0, Serial(7), at);
        assert!(version.is(0, Serial(7), at + WHOLE_INTERVAL - Duration::from_secs(1)));
        assert!(
            !version.is(0, Serial(8), at) && !version.is(0, Serial(6), at) && !version.is(1, Serial(7), at)
        );
        assert!(!version.is(0, Serial(7), at + WHOLE_INTERVAL), "it is read whole at times");
        version.written();
        assert!(!version.is(0, Serial(7), at), "a server may keep its serial");
    }
}

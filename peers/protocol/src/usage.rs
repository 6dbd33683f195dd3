use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// What a process has used, and how much it was told.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time, in microseconds.
    pub cpu_us: u64,
    /// Resident memory now, in KiB.
    pub rss_kib: u64,
    /// The most that was ever resident, in KiB.
    pub peak_kib: u64,
    /// Events of the first list.
    pub initial_events: u64,
    /// Events after it.
    pub live_events: u64,
}

impl Usage {
    /// CPU and memory of this process.
    pub(crate) fn now() -> Self {
        let used = getrusage(UsageWho::RUSAGE_SELF).ok();
        let micros = used.map_or(0, |used| {
            let parts = [used.user_time(), used.system_time()];
            parts.iter().map(|time| (time.tv_sec() * 1_000_000 + time.tv_usec()) as u64).sum()
        });
        // The peak of getrusage would be that of the parent, if that was larger.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |name: &str| {
            let row = status.lines().find_map(|row| row.strip_prefix(name)?.strip_prefix(':'));
            row.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Self { cpu_us: micros, rss_kib: kib("VmRSS"), peak_kib: kib("VmHWM"), ..Self::default() }
    }
}

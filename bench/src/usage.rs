//! What a process has used so far.

use std::fs;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// CPU time and memory of this process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// User and system time, in microseconds.
    pub(crate) cpu_us: u64,
    /// Resident memory now, in KiB.
    pub(crate) resident_kib: u64,
    /// The most that was ever resident, in KiB.
    pub(crate) peak_kib: u64,
}

impl Usage {
    /// Of this process, now.
    pub(crate) fn now() -> Result<Usage> {
        let used = getrusage(UsageWho::RUSAGE_SELF)?;
        let cpu = [used.user_time(), used.system_time()];
        Ok(Usage {
            cpu_us: cpu.iter().map(|time| (time.tv_sec() * 1_000_000 + time.tv_usec()) as u64).sum(),
            resident_kib: resident_kib("self")?,
            peak_kib: used.max_rss() as u64,
        })
    }
}

/// Resident memory of a process now, in KiB. `process` is its number, or `self`.
pub(crate) fn resident_kib(process: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    fs::read_to_string(&path)
        .with_context(|| format!("reading {path} (Linux only)"))?
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("no VmRSS in {path}"))
}

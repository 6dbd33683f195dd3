//! Numbers, as people read them.

use std::time::Duration;
use std::{fmt, fs};

use anyhow::Result;
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

/// How long many things took, in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    micros: Vec<u64>,
}

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        self.micros.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn extend(&mut self, others: &Times) {
        self.micros.extend(&others.micros);
    }

    pub(crate) fn len(&self) -> usize {
        self.micros.len()
    }

    /// The time within which this share of them was done; zero if there are none.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let index = ((last as f64) * share).round() as usize;
        Duration::from_micros(sorted.get(index).copied().unwrap_or_default())
    }
}

/// Milliseconds with three digits that matter.
pub(crate) struct Millis(pub(crate) Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_secs_f64() * 1000.0;
        let digits = match millis {
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        write!(f, "{millis:.digits$}")
    }
}

/// The value in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A table that can go into the documentation as it is.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}

/// What else the machine does: the load average of the last minute and the number of cores.
pub(crate) fn machine() -> Result<String> {
    let load = fs::read_to_string("/proc/loadavg")?;
    let minute = load.split_ascii_whitespace().next().unwrap_or("?");
    let cores = std::thread::available_parallelism()?;
    Ok(format!("{cores} cores, load average {minute} (the bench itself included)"))
}

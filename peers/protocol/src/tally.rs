use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::time::Instant;

use crate::{Line, Usage, What};

/// The flags that all controllers have.
#[derive(Args, Clone, Debug)]
pub struct ControllerArguments {
    /// The server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The most reconciliations at the same time.
    #[arg(long, default_value_t = 16)]
    pub workers: u16,
}

/// What a controller has done and used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Reconciled {
    /// Reconciliations that ended.
    pub reconciles: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Writes that the server has answered well.
    pub writes: u64,
    /// CPU and memory.
    #[serde(flatten)]
    pub usage: Usage,
}

/// The counts of a controller, and its lines. It obeys `usage`, which it answers by a `reconciled` line, and `quit`.
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    reconciles: AtomicU64,
    failed: AtomicU64,
    writes: AtomicU64,
}

impl Tally {
    /// Writes the `start` line.
    pub fn start(client: &str) -> Self {
        let tally = Self {
            began: Instant::now(),
            reconciles: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        };
        tally.write(What::Start { client: client.to_owned(), usage: Usage::now() });
        tally
    }

    /// Counts a reconciliation that ended: whether it wrote, or that it failed.
    pub fn ended<E>(&self, wrote: &Result<bool, E>) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        match wrote {
            Ok(wrote) => self.writes.fetch_add(u64::from(*wrote), Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Carries out commands until `quit` or the end of the input.
    pub async fn obey(&self) {
        let mut lines = BufReader::new(stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match line.trim() {
                "usage" => self.write(What::Reconciled(self.now())),
                "quit" => return,
                _ => {}
            }
        }
    }

    fn now(&self) -> Reconciled {
        Reconciled {
            reconciles: self.reconciles.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            usage: Usage::now(),
        }
    }

    fn write(&self, what: What) {
        let line = Line { at_ms: self.began.elapsed().as_micros() as f64 / 1000.0, what };
        if let Ok(text) = serde_json::to_string(&line) {
            println!("{text}");
        }
    }
}

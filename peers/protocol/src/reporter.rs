use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin, stdin};
use tokio::time::Instant;

use crate::{Arguments, Change, EventLine, Events, Line, Usage, What};

/// Writes what happens, and counts events.
#[derive(Debug)]
pub struct Reporter {
    began: Instant,
    events: Events,
    mark: Option<String>,
    out: Mutex<io::Stdout>,
    initial: AtomicU64,
    live: AtomicU64,
}

impl Reporter {
    /// Writes the `start` line.
    pub fn start(client: &str, arguments: &Arguments) -> Self {
        let reporter = Self {
            began: Instant::now(),
            events: arguments.events,
            mark: arguments.mark.clone(),
            out: Mutex::new(io::stdout()),
            initial: AtomicU64::new(0),
            live: AtomicU64::new(0),
        };
        reporter.write(What::Start { client: client.to_owned(), usage: reporter.usage() });
        reporter
    }

    /// The first list is complete.
    pub fn synced(&self, objects: usize) {
        self.write(What::Synced { objects: objects as u64, usage: self.usage() });
    }

    /// The handler was given a change. `line` is called only if the event is to be written.
    pub fn event(&self, name: &str, initial: bool, line: impl FnOnce() -> EventLine) {
        if initial { &self.initial } else { &self.live }.fetch_add(1, Ordering::Relaxed);
        let marked = self.mark.as_deref() == Some(name);
        let wanted = match self.events {
            Events::All => true,
            Events::Live => !initial,
            Events::None => false,
        };
        if wanted || marked {
            self.write(What::Event(line()));
        }
        if marked {
            self.write(What::Usage(self.usage()));
        }
    }

    /// Anything else happened.
    pub fn write(&self, what: What) {
        let line = Line { at_ms: self.began.elapsed().as_micros() as f64 / 1000.0, what };
        let Ok(mut text) = serde_json::to_string(&line) else { return };
        text.push('\n');
        // Nobody reads any more: then nobody misses the line.
        let _ = self.out.lock().write_all(text.as_bytes());
    }

    /// What the process has used, and the events so far.
    pub fn usage(&self) -> Usage {
        Usage {
            initial_events: self.initial.load(Ordering::Relaxed),
            live_events: self.live.load(Ordering::Relaxed),
            ..Usage::now()
        }
    }

    /// Carries out commands until `quit` or the end of the input. `digest` says what the store holds.
    pub async fn obey(&self, digest: impl Fn() -> (usize, String)) {
        let mut lines: Lines<BufReader<Stdin>> = BufReader::new(stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match line.trim() {
                "digest" => {
                    let (objects, hash) = digest();
                    self.write(What::Digest { objects: objects as u64, hash });
                }
                "usage" => self.write(What::Usage(self.usage())),
                "quit" => return,
                _ => {}
            }
        }
    }

    /// Writes a `usage` line every so often, for ever.
    pub async fn report(&self, arguments: &Arguments) {
        if arguments.report_every.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(arguments.report_every).await;
            self.write(What::Usage(self.usage()));
        }
    }
}

impl Change {
    /// Whether the object is there after it.
    pub fn leaves_object(self) -> bool {
        self != Change::Deleted
    }
}

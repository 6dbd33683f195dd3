//! Names that are asked for all the time, and for how long they led nowhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::query::Resolver;

/// A task that asks for names until this is dropped.
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

/// What was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Answers.
    pub(crate) answers: u64,
    /// The most names that led nowhere in one round.
    pub(crate) most_missing: usize,
    /// For how long at least one of them did, in seconds.
    pub(crate) missing_s: f64,
}

impl Watch {
    /// Asks for each name, pauses and begins again. A server that does not answer says nothing about its names.
    pub(crate) async fn start(server: SocketAddr, names: Vec<String>, pause: Duration) -> Result<Self> {
        let resolver = Resolver::of(server).await?;
        let (seen, mut tasks) = (Arc::<Mutex<Seen>>::default(), JoinSet::new());
        tasks.spawn(ask(resolver, names, pause, seen.clone()));
        Ok(Self { seen, _tasks: tasks })
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

impl Seen {
    /// Takes a round of answers.
    fn take(&mut self, answers: u64, missing: usize, missing_since: &mut Option<Instant>) {
        let now = Instant::now();
        self.answers += answers;
        self.most_missing = self.most_missing.max(missing);
        if let Some(since) = *missing_since {
            self.missing_s += (now - since).as_secs_f64();
        }
        *missing_since = (missing > 0).then_some(now);
    }
}

async fn ask(mut resolver: Resolver, names: Vec<String>, pause: Duration, seen: Arc<Mutex<Seen>>) {
    let mut missing_since: Option<Instant> = None;
    loop {
        let (mut answers, mut missing) = (0, 0);
        for name in &names {
            if let Ok(answer) = resolver.ask(name).await {
                answers += 1;
                missing += usize::from(answer.is_nothing());
            }
        }
        seen.lock().take(answers, missing, &mut missing_since);
        sleep(pause).await;
    }
}

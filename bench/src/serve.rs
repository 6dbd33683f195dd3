//! The server's process. It takes commands on standard input, one a line, and answers each with a line.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use memchr::memmem;
use serde_json::json;
use skopos_testserver::{Fault, FaultGuard, Match, PodGenerator, TestServer};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::time::{MissedTickBehavior, interval};

/// The name of the pod whose change ends a series of events.
pub(crate) const LAST: &str = "bench-last";
/// Its namespace, behind all others: who falls behind is told of several changes in the order of keys.
const LAST_NAMESPACE: &str = "zzz";

/// Serves until standard input ends:
///
/// * `hold N` changes N pods and then [`LAST`] while nothing of it reaches any watcher, and `release` lets all of it go, as
///   fast as the watchers take it.
/// * `trickle N RATE` changes so many of them a second, a few each millisecond.
/// * `churn N` changes them as fast as it can while the watchers read.
pub(crate) async fn serve(pods: usize, kubeconfig_out: &Path) -> Result<()> {
    // A watcher that is sent more than it can take is what is measured, and no reason to end its watch.
    let server = TestServer::builder()
        .tls(true)
        .slow_watchers(u64::MAX, Duration::MAX)
        .event_window(Duration::from_secs(75), 2 * MAX_HELD)
        .start()
        .await?;
    let mut pods = Pods::load(server.clone(), pods)?;
    std::fs::write(kubeconfig_out, server.kubeconfig()).context("writing the kubeconfig")?;
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    let mut held: Option<FaultGuard> = None;
    while let Some(line) = lines.next_line().await? {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["hold", events] => {
                held = Some(server.faults().inject(Fault::Stall).on(Match::watch()));
                pods.change(events.parse()?).await?;
            }
            ["release"] => drop(held.take()),
            ["trickle", events, rate] => pods.trickle(events.parse()?, rate.parse()?).await?,
            ["churn", events] => pods.change(events.parse()?).await?,
            _ => bail!("unknown command {line:?}"),
        }
        println!("done");
    }
    server.stop().await;
    Ok(())
}

/// The most changes that are held back at once: what they take is the server's memory.
pub(crate) const MAX_HELD: usize = 20_000;

/// The pods, which are changed one after the other, and over again.
struct Pods {
    server: TestServer,
    generator: PodGenerator,
    count: usize,
    /// How many changes there were. Each is told by it, so that each changes something.
    changes: usize,
}

/// Changes between which the server's own tasks get a turn.
const BATCH: usize = 16;

impl Pods {
    fn load(server: TestServer, count: usize) -> Result<Self> {
        let mut pods = Self { server, generator: PodGenerator::new(0), count, changes: 0 };
        (0..count).try_for_each(|_| pods.change_next())?;
        pods.change_last()?;
        Ok(pods)
    }

    async fn change(&mut self, events: usize) -> Result<()> {
        for round in 0..events {
            self.change_next()?;
            if round % BATCH == 0 {
                tokio::task::yield_now().await;
            }
        }
        self.change_last()
    }

    async fn trickle(&mut self, events: usize, rate: usize) -> Result<()> {
        let mut ticks = interval(Duration::from_millis(1));
        // Those that are late come together rather than fast: what they cost must not depend on the server's haste.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let each = rate.div_ceil(1_000);
        for round in 0..events {
            if round % each == 0 {
                ticks.tick().await;
            }
            self.change_next()?;
        }
        self.change_last()
    }

    fn change_next(&mut self) -> Result<()> {
        let pod = self.generator.pod(self.changes % self.count);
        self.changes += 1;
        let annotations = br#""annotations":{"#;
        let at = memmem::find(&pod, annotations).context("generated pods have annotations")?;
        let (head, tail) = pod.split_at(at + annotations.len());
        let mut changed = head.to_vec();
        changed.extend_from_slice(format!(r#""bench.skopos.dev/round":"{}","#, self.changes).as_bytes());
        changed.extend_from_slice(tail);
        self.server.store_json("pods", &changed)?;
        Ok(())
    }

    fn change_last(&mut self) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": LAST, "namespace": LAST_NAMESPACE, "uid": LAST,
                "annotations": {"bench.skopos.dev/round": self.changes.to_string()},
            },
            "spec": {"containers": [{"name": "c"}]},
        });
        self.server.store_json("pods", pod.to_string().as_bytes())?;
        Ok(())
    }
}

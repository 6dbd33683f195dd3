//! How do I let one of several replicas act, and never two at once?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_let_one_of_many_act
//! ```
//!
//! Two candidates stand for one Lease here. In a cluster each replica is one of them.
//!
//! | in client-go | here |
//! |---|---|
//! | `leaderelection.RunOrDie`, `OnStartedLeading(ctx)` | `candidate.term()`, then `term.run(work)` |
//! | `OnStoppedLeading`, which mostly ends the process | `term.run` returns an error, and the candidate stands by |
//! | `ReleaseOnCancel` | always, as soon as the work has ended |
//! | the work has to look at `ctx` | the work is dropped |
//! | `RenewDeadline`, `RetryPeriod` | follow from `LeaseOptions::duration` |
//!
//! kube-rs has no leader election of its own.

use std::time::Duration;

use skopos_examples::Cluster;
use skopos_lease::{Candidate, Election, LeaseOptions};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let stand = |name: &str| {
        let mut options = LeaseOptions::new("default", "the-one-that-acts");
        // A name for this example. By default it is the host's, and unique.
        options.identity = format!("{name}-{}", options.identity);
        // In production this stays off: then the very first candidate waits 15 s.
        options.acquire_on_create = true;
        Election::from_config(cluster.config.clone(), options)
    };
    let (first, second) = (stand("first")?, stand("second")?);
    let (leave, end) = (CancellationToken::new(), CancellationToken::new());
    let (one, two) = (first.candidate(), second.candidate());
    let script = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        println!("the first one leaves");
        leave.cancel();
        tokio::time::sleep(Duration::from_secs(2)).await;
        end.cancel();
    };
    tokio::join!(
        first.run(leave.clone()),
        act("first", one),
        async {
            // The second comes when the first leads already.
            tokio::time::sleep(Duration::from_secs(1)).await;
            tokio::join!(second.run(end.clone()), act("second", two));
        },
        script,
    );
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Acts in each term. Whatever it does is dropped when the term ends, before another candidate can lead.
async fn act(name: &str, mut candidate: Candidate) {
    while let Ok(term) = candidate.term().await {
        let work = async {
            loop {
                println!("{name} acts, in term {}", term.number());
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let Err(over): Result<(), _> = term.run(work).await else { continue };
        println!("{name} stops: {over}");
    }
}

//! Skopos against kube-rs in one run: CPU and memory of a full sync, watch events per second and core, and the speed of
//! reads while a writer works; and the gateway and its fleet at scale. Every figure is taken in a process of its own, the
//! server in another, so that nobody pays for somebody else's work; what is compared are ratios of one run.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

mod client;
mod figures;
mod gateway;
mod idle;
mod process;
mod run;
mod serve;
mod snapshot;
mod usage;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(about = "Measure Skopos and kube-rs side by side", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure everything and print the table.
    Run(run::Options),
    /// Serve generated pods over TLS until standard input ends (used by `run`).
    Serve {
        /// How many pods to generate.
        #[arg(long)]
        pods: usize,
        /// Where to write the kubeconfig.
        #[arg(long)]
        kubeconfig_out: PathBuf,
    },
    /// Sync with a server, then count watch events (used by `run`).
    Client {
        /// Whose client.
        #[arg(long, value_enum)]
        peer: client::Peer,
        /// The server.
        #[arg(long)]
        kubeconfig: PathBuf,
    },
    /// Snapshots and single gets while a writer applies events at full speed.
    Snapshot {
        /// How many objects the store has.
        #[arg(long, default_value_t = 50_000)]
        objects: usize,
        /// How many reads of each kind are timed.
        #[arg(long, default_value_t = 200_000)]
        reads: usize,
    },
    #[command(flatten)]
    Gateway(gateway::Command),
    /// Many idle informers on one cluster: memory, tasks and connections for each.
    Idle {
        /// How many informers.
        #[arg(long, default_value_t = 1_000)]
        informers: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match Arguments::parse().command {
        Command::Run(options) => runtime.block_on(run::run(&options)),
        Command::Serve { pods, kubeconfig_out } => runtime.block_on(serve::serve(pods, &kubeconfig_out)),
        Command::Client { peer, kubeconfig } => runtime.block_on(client::run(peer, &kubeconfig)),
        Command::Snapshot { objects, reads } => snapshot::run(objects, reads),
        Command::Gateway(command) => runtime.block_on(gateway::run(command)),
        Command::Idle { informers } => runtime.block_on(idle::run(informers)),
    }
}

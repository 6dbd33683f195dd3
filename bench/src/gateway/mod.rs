//! The gateway and its fleet at scale. Members, gateway and clients run in processes of their own.

mod daemon;
mod faults;
mod get;
mod http;
mod idle;
mod lists;
mod members;
mod memory;
mod reads;
mod setup;
mod watches;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

/// What is measured of the gateway, and the processes that take part.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// A long list from memory, plain, gzip and protobuf, beside the API server's own libraries (needs peers/apiserver).
    GatewayLists(lists::Options),
    /// Gets by name at an even rate, the gateway on one core (needs taskset).
    GatewayGet(get::Options),
    /// Consistent reads beside bounded ones and the API server's own, by one reader and by many (needs peers/apiserver).
    GatewayReads(reads::Options),
    /// Many watchers of one kind.
    GatewayWatches(watches::Options),
    /// Reads of healthy clusters beside many that are ill, against all well.
    FleetFaults(faults::Options),
    /// A million pods, compressed and not.
    GatewayMemory(memory::Options),
    /// A thousand small clusters with nothing to do.
    FleetIdle(idle::Options),
    /// The clusters' process.
    #[command(hide = true)]
    Members(members::Options),
    /// The gateway's process.
    #[command(hide = true)]
    Gateway {
        /// Its configuration.
        #[arg(long)]
        config: PathBuf,
    },
    /// The process of `gateway-watches`' watchers.
    #[command(hide = true)]
    Watchers(watches::WatcherOptions),
    /// What `gateway-get` compares with.
    #[command(hide = true)]
    Answers(get::AnswersOptions),
    /// The client of `gateway-get`.
    #[command(hide = true)]
    GetClient(get::ClientOptions),
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::GatewayLists(options) => lists::run(options).await,
        Command::GatewayGet(options) => get::run(options).await,
        Command::GatewayReads(options) => reads::run(options).await,
        Command::GatewayWatches(options) => watches::run(options).await,
        Command::FleetFaults(options) => faults::run(options).await,
        Command::GatewayMemory(options) => memory::run(options).await,
        Command::FleetIdle(options) => idle::run(options).await,
        Command::Members(options) => members::run(options).await,
        Command::Gateway { config } => daemon::run(config).await,
        Command::Watchers(options) => watches::watchers(options).await,
        Command::Answers(options) => get::answers(options).await,
        Command::GetClient(options) => get::client(&options),
    }
}

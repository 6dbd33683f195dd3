//! Command line of the demo.
use std::time::Duration;

use clap::{Args, Subcommand};
use skopos_console::args::{parse_churn, parse_duration};

use crate::faults::FaultName;

#[allow(missing_docs, reason = "clap would show it in place of the text of the command")]
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    #[command(subcommand)]
    pub command: Option<DemoCommand>,
    /// Go through the whole story, check it, and exit 0 if all of it is true
    #[arg(long)]
    pub once: bool,
    /// Print lines even on a terminal, as -v does
    #[arg(long, conflicts_with = "once")]
    pub lines: bool,
    /// Port of the gateway on 127.0.0.1; 0 takes a free one [default: 8001, or a free one if that is taken]
    #[arg(long)]
    pub port: Option<u16>,
    /// Virtual clusters
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub clusters: u32,
    /// Changes per second that keep happening in them
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 2, value_parser = |text: &str| parse_churn(text, 1_000))]
    pub churn: u32,
    /// Time limit of each step
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub patience: Duration,
}

#[allow(missing_docs, reason = "clap would show it in place of the text of the command")]
#[derive(Debug, Clone, Subcommand)]
pub enum DemoCommand {
    /// Pause a cluster of the demo that runs in another terminal, or break it
    Fault {
        /// The fault to inflict
        #[arg(value_enum)]
        name: FaultName,
        /// To which cluster [default: the first virtual one]
        cluster: Option<String>,
    },
}

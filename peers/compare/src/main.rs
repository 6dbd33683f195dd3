//! Runs client-go, kube-rs and Skopos side by side under the same faults and loads, their controllers at the same job, and writes
//! `docs/evidence/comparison.md`.
//!
//! ```text
//!             ┌─ proxy ─ client-go ─┐
//!  server ────┼─ proxy ─ kube-rs ───┼──▶ what each believes, and what it tells its user ──▶ results ──▶ page, plots
//!             └─ proxy ─ skopos ────┘
//! ```

mod belief;
mod catalogue;
mod client;
mod controllers;
mod dns;
mod external_dns;
mod faults;
mod gateway;
mod kubectl;
mod lease;
mod machine;
mod member;
mod notify;
mod page;
mod programs;
mod proxy;
mod quiet;
mod results;
mod scene;
mod server;
mod speed;
mod through;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "client-go, kube-rs and Skopos, measured side by side")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Inflict every fault on all three clients.
    Faults(faults::Options),
    /// Measure CPU and memory of syncing and of watching.
    Speed(speed::Options),
    /// Give the same job to three controllers: children of many objects, under a burst of changes and a restart of the server.
    Controllers(controllers::Options),
    /// Hold client-go's informers on a gateway against those on the gateway's member, with and without faults.
    Through(through::Options),
    /// Run kubectl commands on a cluster and through a gateway in front of it, and compare what they print.
    Kubectl(kubectl::Options),
    /// Hand a Lease over between client-go's candidate and ours, again and again.
    Lease(lease::Options),
    /// Keep every kind of a healthy cluster in a gateway while only one of them changes, and see that none is ever called stale.
    Quiet(quiet::Options),
    /// Put external-dns and `skopos notify` through the failure cases of a zone, and write docs/evidence/external-dns.md.
    ExternalDns(external_dns::Options),
    /// Restart k8s.io/apiserver under a notifier, and let two take turns.
    Notify(notify::Options),
    /// Write docs/evidence/comparison.md, its plots and docs/evidence/external-dns.md from the results.
    Page,
    /// List the faults.
    List,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Faults(options) => faults::run(&options).await,
        Command::Speed(options) => speed::run(&options).await,
        Command::Controllers(options) => controllers::run(&options).await,
        Command::Through(options) => through::run(&options).await,
        Command::Kubectl(options) => kubectl::run(&options).await,
        Command::Lease(options) => lease::run(&options).await,
        Command::Quiet(options) => quiet::run(&options).await,
        Command::ExternalDns(options) => external_dns::run(&options).await,
        Command::Notify(options) => notify::run(&options).await,
        Command::Page => page::write().and_then(|()| external_dns::write_page()),
        Command::List => {
            for fault in catalogue::all() {
                println!("{:28} row {:2}  {}", fault.id, fault.row, fault.title);
            }
            Ok(())
        }
    }
}

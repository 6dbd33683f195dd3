//! Runs the same kubectl commands on a cluster and through a gateway in front of it, and compares what they print.
//!
//! ```text
//!  kubectl (namespace compare-d...) ───────────────────────────┐
//!                                                               ├─ kube-apiserver, peers/apiserver or another cluster
//!  kubectl (namespace compare-g...) ─ skopos serve /clusters/... ┘
//! ```
//!
//! The commands are in `peers/compare/kubectl`: each runs once in each namespace, so both namespaces have the same history.
//! Exit code, standard output and standard error have to be equal, after [`normalize`] has replaced what cannot be (names of the
//! namespaces, uids, resource versions, times). A difference is an error unless `differences.yaml` has it, with a reason. An entry of that
//! file that does not occur is an error too.

mod commands;
mod differences;
mod normalize;
mod report;
mod side;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use self::commands::Step;
use self::differences::Differences;
use self::report::Report;
use self::side::Side;
use crate::gateway::Gateway;
use crate::member::Member;
use crate::programs;

#[derive(Args)]
pub(crate) struct Options {
    /// A kubeconfig whose current context is the cluster. Without it, peers/apiserver is started.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The program `skopos`; without it, the one that `cargo build` makes in the repository.
    #[arg(long)]
    skopos: Option<PathBuf>,
    /// Build peers/apiserver and `skopos` first.
    #[arg(long)]
    build: bool,
    /// Run both sides on the cluster itself, to see that the commands and the comparison are right.
    #[arg(long)]
    control: bool,
    /// Print the output of the commands that contain this text, also where it is the same.
    #[arg(long, value_name = "TEXT")]
    show: Option<String>,
    /// Read the commands and the differences from this folder.
    #[arg(long, value_name = "FOLDER")]
    commands: Option<PathBuf>,
}

/// Runs all commands. An error says how many differ; the report before it shows each.
pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        if options.kubeconfig.is_none() {
            programs::build_apiserver()?;
        }
        programs::build_skopos()?;
    }
    let data = options.commands.clone().unwrap_or_else(|| programs::peers().join("compare/kubectl"));
    let folder = tempfile::tempdir()?;
    let member = Member::start(options.kubeconfig.as_deref(), folder.path()).await?;
    let gateway = match options.control {
        true => None,
        false => {
            let skopos = options.skopos.clone().unwrap_or_else(programs::skopos);
            Some(Gateway::start(&skopos, folder.path(), member.kubeconfig()).await?)
        }
    };
    // A cluster may still have the namespaces of an earlier run.
    let run: String = std::iter::repeat_with(fastrand::lowercase).take(4).collect();
    let direct = Side::new("direct", &run, &data, folder.path(), member.kubeconfig(), member.kubeconfig())?;
    let through = match &gateway {
        Some(gateway) => gateway.kubeconfig(gateway.port()),
        None => member.kubeconfig().to_owned(),
    };
    let through = Side::new("gateway", &run, &data, folder.path(), &through, member.kubeconfig())?;
    let full = direct.is_kube_apiserver().await?;
    let steps = commands::read(&data, full)?;
    let mut differences = Differences::read(&data.join("differences.yaml"), full)?;
    let result = compare(&steps, &direct, &through, &mut differences, options).await;
    if let Some(gateway) = gateway {
        gateway.stop().await?;
    }
    member.stop().await?;
    result
}

async fn compare(
    steps: &[Step],
    direct: &Side,
    through: &Side,
    differences: &mut Differences,
    options: &Options,
) -> Result<()> {
    let mut report = Report::default();
    for step in steps {
        let (on_cluster, on_gateway) = tokio::join!(direct.run(step), through.run(step));
        let (on_cluster, on_gateway) = (on_cluster?, on_gateway?);
        let verdict = differences.judge(step, &on_cluster, &on_gateway);
        let show = options.show.as_ref().is_some_and(|text| step.command.contains(text.as_str()));
        report.add(step, verdict, &on_cluster, &on_gateway, show);
    }
    // Without a gateway no difference is expected, and none occurs.
    let unused = if options.control { Vec::new() } else { differences.unused(steps) };
    report.finish(&unused)
}

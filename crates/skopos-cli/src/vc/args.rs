//! The command line of `skopos vc`.
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use skopos_console::args::parse_duration;

use crate::args::{ClusterArgs, Form};

const EXAMPLES: &str = "\
Examples:
  skopos vc create shop                             with helm, in the namespace vcluster-shop
  skopos vc create shop --chart ./chart -f my.yaml  with a chart of one's own
  helm template shop vcluster --repo https://charts.loft.sh | skopos vc create shop --manifests -
  skopos vc list
  skopos vc pause shop && skopos vc resume shop --wait
  skopos vc connect shop -- kubectl get namespaces
  skopos vc kubeconfig shop --server https://localhost:8443 > shop.yaml
  skopos vc delete shop --keep-pvc";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VcArgs {
    #[command(subcommand)]
    pub(crate) command: VcCommand,
}

impl VcArgs {
    /// Returns whether the command runs until Ctrl-C.
    pub(crate) fn waits_for_interruption(&self) -> bool {
        matches!(&self.command, VcCommand::Connect(args) if args.command.is_empty())
    }
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum VcCommand {
    /// Create a virtual cluster with helm, or from rendered manifests
    Create(CreateArgs),
    /// List virtual clusters and their states
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Take a virtual cluster's pods away and keep its data
    Pause(PauseArgs),
    /// Bring a paused virtual cluster back
    Resume(ResumeArgs),
    /// Delete a virtual cluster with its data
    Delete(DeleteArgs),
    /// Make a virtual cluster reachable from here, through the API server of its host
    ///
    /// Forwards a local port to one of its pods, as `kubectl port-forward` does, and writes a kubeconfig for it. Each connection
    /// leads to a pod that is ready, so it survives the restart of a pod. With a command after --, runs that command with
    /// KUBECONFIG set, and ends with it. Otherwise runs until Ctrl-C.
    Connect(ConnectArgs),
    /// Print a kubeconfig of a virtual cluster
    Kubeconfig(KubeconfigArgs),
}

/// Name of a virtual cluster and its host.
#[derive(Debug, Clone, Args)]
pub(crate) struct NameArgs {
    /// Name of the virtual cluster
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Namespace and kubeconfig of the host.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostArgs {
    /// Namespace of the host that it is in [default: wherever it is]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// A local chart instead of the repository's: a folder or a packed file
    #[arg(long, value_name = "PATH", conflicts_with_all = ["chart_repo", "chart_version"])]
    pub(crate) chart: Option<PathBuf>,
    /// Repository of the chart [default: https://charts.loft.sh]
    #[arg(long, value_name = "URL")]
    pub(crate) chart_repo: Option<String>,
    /// Version of the chart [default: the newest]
    #[arg(long, value_name = "VERSION")]
    pub(crate) chart_version: Option<String>,
    /// File with values for the chart; may be given several times
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,
    /// Single values for the chart (key=value); may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Rendered manifests instead of a chart: no helm is needed; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["chart", "chart_repo", "chart_version", "values", "set"])]
    pub(crate) manifests: Option<PathBuf>,
    /// Change it if it is there already
    #[arg(long)]
    pub(crate) upgrade: bool,
    /// Do not wait until it is up
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Time limit of the whole command
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = Form::Table, value_name = "FORMAT")]
    pub(crate) output: Form,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Only those of this namespace of the host [default: all]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Time limit of the host's answer
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = Form::Table, value_name = "FORMAT")]
    pub(crate) output: Form,
    /// Leave out the table's header
    #[arg(long)]
    pub(crate) no_headers: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// Time limit of the whole command
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = Form::Table, value_name = "FORMAT")]
    pub(crate) output: Form,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// Wait until it is up
    #[arg(long)]
    pub(crate) wait: bool,
    /// Time limit of the whole command
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = Form::Table, value_name = "FORMAT")]
    pub(crate) output: Form,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// Keep the volume with its data, and so its namespace
    #[arg(long)]
    pub(crate) keep_pvc: bool,
    /// Delete its ConfigMap configmap-NAME too
    #[arg(long)]
    pub(crate) delete_configmap: bool,
    /// Delete its namespace also if it was not made for it; never one with other virtual clusters
    #[arg(long, conflicts_with_all = ["keep_pvc", "keep_namespace"])]
    pub(crate) delete_namespace: bool,
    /// Keep its namespace also if it was made for it
    #[arg(long)]
    pub(crate) keep_namespace: bool,
    /// Succeed if there is none
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Do not wait until its namespace is gone
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Time limit of the whole command
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// Local port, on loopback [default: any free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) local_port: u16,
    /// File to write the kubeconfig to [default: one in the temporary directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,
    /// Time limit until it is connected
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Command to run with KUBECONFIG set
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct KubeconfigArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// URL of its API server, such as the end of a port-forward [default: where it is exported to, or its Service]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<http::Uri>,
    /// Time limit of the host's answer
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

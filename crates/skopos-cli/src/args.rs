//! The command line. Names and meanings are those of kubectl wherever kubectl has the same option.
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use skopos_console::args::{GatewayArgs, parse_churn, parse_duration};
#[cfg(feature = "demo")]
use skopos_demo::DemoArgs;

use crate::vc::VcArgs;

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage, 130 ended by Ctrl-C.
Colours are used on terminals only; NO_COLOR=1 turns them off.";

/// Parses the command line of this process, and ends the process where it is wrong or asks for help.
///
/// kubectl runs its plugins by their file name: a `kubectl-skopos` in the path is `kubectl skopos`, and its usage says so.
pub(crate) fn parse() -> Cli {
    let program = std::env::args_os().next().unwrap_or_default();
    let matches = command_called(Path::new(&program)).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn command_called(program: &Path) -> clap::Command {
    let is_plugin =
        program.file_stem().is_some_and(|name| name == "kubectl-skopos" || name == "kubectl_skopos");
    match is_plugin {
        true => Cli::command().bin_name("kubectl skopos"),
        false => Cli::command(),
    }
}

/// Live Kubernetes state that knows its own age.
#[derive(Debug, Parser)]
#[command(name = "skopos", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of the log on standard error.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogArgs {
    /// Log to standard error what happens inside (-v decisions, -vv requests, -vvv everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options", display_order = 900)]
    pub(crate) verbose: u8,
    /// Form of the log lines
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT", help_heading = "Global options", display_order = 901)]
    pub(crate) log_format: LogFormat,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show many clusters behind one gateway, some of them paused or broken: no cluster needed
    ///
    /// Starts a host cluster with virtual clusters in it and the gateway in front, all in this process, and says which
    /// kubectl commands to try. Nothing outside is needed or touched. Keys, or `skopos demo fault NAME` in another terminal,
    /// pause a cluster or break it in the ways that clusters break.
    #[cfg(feature = "demo")]
    Demo(DemoArgs),
    /// Print the objects of a resource, then every change, whatever happens to the connection
    ///
    /// Like `kubectl get -w`, but it survives lost connections and restarted servers, shows what an update
    /// changed, and says on standard error when its view is stale and why.
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArgs),
    /// Create, list, pause, resume and delete virtual clusters
    ///
    /// The commands use the annotations of the vcluster CLI, so both programs can be used together. Each command can be
    /// interrupted and repeated.
    Vc(VcArgs),
    /// Serve the Kubernetes API of many clusters from memory, with the age of every answer
    ///
    /// kubectl and every other client of the Kubernetes API can use /clusters/NAME as their server. Reads come from memory
    /// and say how old they are; a cluster that is paused, slow or gone delays no request
    /// to the others.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show the state of a gateway and its clusters
    Status(StatusArgs),
    /// Like status, refreshed every 2 s
    Top(TopArgs),
    /// Keep the outside (DNS, load balancers) equal to a cluster
    ///
    /// Reads Services, pods and other objects, and writes a zone of a DNS server, the backends of a HAProxy, the virtual services
    /// of IPVS, an inventory, or messages to webhooks. Nothing is removed because of a view that is old, empty or of another
    /// cluster. `skopos notify demo` shows it and needs nothing.
    #[command(after_help = NOTIFY_EXAMPLES)]
    Notify(NotifyArgs),
    /// Run a Kubernetes API server in memory, for trying things out and for tests
    Testserver(TestserverArgs),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// The shell to complete in
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder: one for each command
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The folder, which must exist
        folder: PathBuf,
    },
}

const WATCH_EXAMPLES: &str = "\
Examples:
  skopos watch pods -A                       all pods, and what changes in them
  skopos watch deploy -n shop -l app=cart    short names and selectors as kubectl has them
  skopos watch certificates.cert-manager.io  any resource that the cluster serves
  skopos watch pods -o json | jq -r 'select(.type == \"DELETED\") | .object.metadata.name'

With -o json each line has a type. ADDED, MODIFIED and DELETED have an object. SYNCED (the first view is complete),
STALE, LIVE (current again) and NOTE are about the view, and have none.";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  source <(skopos completion bash)
  skopos completion zsh > \"${fpath[1]}/_skopos\"
  skopos completion fish > ~/.config/fish/completions/skopos.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  mkdir -p ~/.local/share/man/man1 && skopos man ~/.local/share/man/man1
  man skopos-serve";

const NOTIFY_EXAMPLES: &str = "\
Examples:
  skopos notify demo                              a cluster, a zone and a balancer in this process
  skopos notify --config notify.yaml --plan       what would change; changes nothing
  skopos notify --config notify.yaml              until Ctrl-C; docs/reference/notify-config.md has all fields
  skopos notify status --config notify.yaml       the state of the running notifier
  skopos notify approve ID --config notify.yaml   approves held removals";

const SERVE_EXAMPLES: &str = "\
Examples:
  skopos serve                                 the contexts of $KUBECONFIG or ~/.kube/config, read-only
  skopos serve --kubeconfig a --kubeconfig b   those of two files; --kubeconfig a:b merges them as kubectl does
  skopos serve --allow-writes --listen :8002   on another port, writes too
  skopos serve --config gateway.yaml           docs/reference/gateway-config.md has all fields
  kubectl --server http://127.0.0.1:8001/clusters/NAME get pods -A";

/// Options of `skopos serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// The configuration, in YAML; it is followed while it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Quick start: all contexts of this kubeconfig, or of a list (a:b), which is merged as kubectl does. May be repeated
    ///
    /// They are served on loopback, to everyone on this machine, with the credentials of the kubeconfig, as `kubectl proxy`
    /// does. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) kubeconfig: Vec<OsString>,
    /// Quick start: where to listen [default: 127.0.0.1:8001]; loopback only
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Quick start: let writes through too, for everyone on this machine
    #[arg(long, conflicts_with = "config")]
    pub(crate) allow_writes: bool,
    /// Print the JSON schema of the configuration, for editors, and end
    #[arg(long, conflicts_with_all = ["config", "kubeconfig", "listen", "allow_writes"])]
    pub(crate) print_schema: bool,
}

/// A notifier, or a command to one.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NotifyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<NotifyCommand>,
    /// The configuration, in YAML; it is followed while it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what would change, and end
    #[arg(long, requires = "config")]
    pub(crate) plan: bool,
    /// End when everything is equal, or --limit has passed
    #[arg(long, requires = "config", conflicts_with = "plan")]
    pub(crate) once: bool,
    /// Time limit of --plan and --once
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    pub(crate) limit: Duration,
    /// Print the JSON schema of the configuration, for editors, and end
    #[arg(long, conflicts_with = "config")]
    pub(crate) print_schema: bool,
}

impl NotifyArgs {
    /// Returns whether the command ends without a signal, unlike a daemon and the demo for people.
    pub(crate) fn is_a_check(&self) -> bool {
        match &self.command {
            None => self.plan || self.once || self.print_schema,
            Some(NotifyCommand::Demo(args)) => args.once,
            Some(_) => true,
        }
    }
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NotifyCommand {
    /// Show a zone and a balancer that follow a cluster and survive its faults: nothing is needed
    Demo(NotifyDemoArgs),
    /// Show the state of a notifier's sinks
    Status(WhichNotifier),
    /// List the held removals, and why they are held
    Held(WhichNotifier),
    /// Approve held removals: exactly those of this ID
    Approve {
        /// The ID that `held` prints
        id: String,
        #[command(flatten)]
        which: WhichNotifier,
    },
    /// Retry at once everything that waits after a failure
    Retry(WhichNotifier),
    /// List the messages that a receiver rejected for good, or send them again
    Dead {
        /// A command for them. Default: list them
        #[command(subcommand)]
        command: Option<DeadCommand>,
        #[command(flatten)]
        which: WhichNotifier,
    },
    /// Read everything back now, and exit 1 if it is not equal to the cluster
    Verify(WhichNotifier),
    /// Remove everything that the notifier wrote to a sink; no notifier may run with it
    Release {
        /// The name of the sink
        sink: String,
        /// A configuration with the sink, also an earlier one
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Remove it; without this option it is only listed
        #[arg(long)]
        yes: bool,
    },
}

/// Commands for dead letters.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DeadCommand {
    /// Send one again, or all
    Retry {
        /// The ID that `dead` prints [default: all]
        id: Option<String>,
        #[command(flatten)]
        which: WhichNotifier,
    },
}

/// The notifier that a command goes to.
#[derive(Debug, Clone, Args)]
pub(crate) struct WhichNotifier {
    /// Its configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Its socket [default: notify.sock in the configuration's state.folder]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) socket: Option<PathBuf>,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = Form::Table, value_name = "FORMAT")]
    pub(crate) output: Form,
}

/// Options of the demo of the notifier.
#[derive(Debug, Clone, Args)]
pub(crate) struct NotifyDemoArgs {
    /// Go through the story once, check it, and exit 0 if all of it is true
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// Also the kinds in memory of each cluster
    #[arg(long)]
    pub(crate) kinds: bool,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = Form::Table, value_name = "FORMAT")]
    pub(crate) output: Form,
}

/// Output form of a command's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Lines for people
    Table,
    /// JSON
    Json,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// Refresh interval
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) every: Duration,
}

/// Kubeconfig and context of the cluster.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArgs {
    /// Plural, singular, short name or kind, with its group where that is not clear (pods, po, deployments.apps)
    pub(crate) resource: String,
    /// Only the object of this name
    pub(crate) name: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    pub(crate) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Label selector (app=cart,tier!=web,env in (a,b),!legacy)
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Field selector (status.phase=Running); servers support few fields
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,
    /// Output form
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table, value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    /// Leave out the objects that exist already and print changes only
    #[arg(long)]
    pub(crate) watch_only: bool,
    /// Leave out the table's header
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Time limit of the first complete view; then this fails with the reason
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) sync_timeout: Duration,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl WatchArgs {
    /// Reads `pods/web-0` as `pods web-0`, as kubectl does.
    pub(crate) fn split_name(mut self) -> Self {
        if self.name.is_none()
            && let Some((resource, name)) = self.resource.split_once('/')
            && !name.is_empty()
            && !name.contains('/')
        {
            (self.name, self.resource) = (Some(name.to_owned()), resource.to_owned());
        }
        self
    }
}

/// Output form of objects and their changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Columns; an update shows the fields that changed
    Table,
    /// One line per change: {"type": "ADDED", "object": {...}}
    Json,
    /// Kind and name, as pod/web-0
    Name,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TestserverArgs {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Serve HTTPS with a certificate made for this run
    #[arg(long)]
    pub(crate) tls: bool,
    /// Pods to start with
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) objects: u32,
    /// Changes per second that keep happening to those objects
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 0, value_parser = |text: &str| parse_churn(text, 100_000))]
    pub(crate) churn: u32,
    /// Give Deployments and StatefulSets pods that turn ready, as a cluster does
    #[arg(long)]
    pub(crate) workloads: bool,
    /// File to write the kubeconfig for kubectl to [default: one in the temporary directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,
}

/// Parses `127.0.0.1:8002`, `[::1]:8002`, `localhost:8002`, `:8002` or `8002`. Other addresses than loopback need a configuration.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or(text.strip_prefix(':')).unwrap_or(text);
    let address = match port.parse::<u16>() {
        Ok(port) => SocketAddr::from(([127, 0, 0, 1], port)),
        Err(_) => text.parse().map_err(|_| "write it as 127.0.0.1:8002, or as a port: 8002".to_owned())?,
    };
    match address.ip().is_loopback() {
        true => Ok(address),
        false => {
            Err("other machines need a configuration with TLS and authentication: use --config FILE".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn watch(line: &str) -> WatchArgs {
        match parse(line).unwrap().command {
            Command::Watch(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_definitions_are_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn watch_takes_kubectls_words() {
        let args =
            watch("skopos watch pods -n shop -l app=cart --field-selector status.phase=Running -o json");
        assert_eq!(args.namespace.as_deref(), Some("shop"));
        assert_eq!(args.selector.as_deref(), Some("app=cart"));
        assert_eq!(args.field_selector.as_deref(), Some("status.phase=Running"));
        assert_eq!(args.output, OutputFormat::Json);
        assert_eq!(args.sync_timeout, Duration::from_secs(30));
        let long =
            watch("skopos watch pods --all-namespaces --selector=a --kubeconfig=f --context=c -o name");
        assert!(long.all_namespaces);
        assert_eq!(long.cluster.context.as_deref(), Some("c"));
    }

    #[test]
    fn namespace_and_all_namespaces_exclude_each_other() {
        assert_eq!(parse("skopos watch pods -A -n x").unwrap_err().kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn daemon_and_demo_are_not_notify_checks() {
        let is_a_check = |line: &str| match parse(line).unwrap().command {
            Command::Notify(args) => args.is_a_check(),
            other => panic!("{other:?}"),
        };
        for line in ["--config f --plan", "verify --config f", "release a --config f --yes", "demo --once"] {
            assert!(is_a_check(&format!("skopos notify {line}")), "{line}");
        }
        for line in ["--config f", "demo"] {
            assert!(!is_a_check(&format!("skopos notify {line}")), "{line}");
        }
    }

    #[cfg(feature = "demo")]
    #[test]
    fn demo_fault_parses_name_and_cluster() {
        use skopos_demo::{DemoCommand, FaultName};

        let Command::Demo(args) = parse("skopos demo fault reset lima").unwrap().command else { panic!() };
        let Some(DemoCommand::Fault { name: FaultName::Reset, cluster }) = args.command else { panic!() };
        assert_eq!(cluster.as_deref(), Some("lima"));
        assert!(parse("skopos demo fault nonsense").is_err());
        assert!(parse("skopos demo --once fault reset").is_err());
    }

    #[test]
    fn serve_takes_a_configuration_or_kubeconfigs() {
        let serve = |line: &str| match parse(line).unwrap().command {
            Command::Serve(args) => args,
            other => panic!("{other:?}"),
        };
        assert!(serve("skopos serve").kubeconfig.is_empty());
        assert!(serve("skopos serve --config f").config.is_some());
        let args = serve("skopos serve --kubeconfig a --kubeconfig b:c --listen :8002 --allow-writes");
        assert_eq!((args.kubeconfig.len(), args.allow_writes), (2, true));
        for wrong in ["--kubeconfig b", "--listen :1", "--allow-writes", "--print-schema"] {
            let error = parse(&format!("skopos serve --config a {wrong}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{wrong}");
        }
    }

    #[test]
    fn addresses_to_listen_on() {
        for (text, address) in [
            ("8002", "127.0.0.1:8002"),
            (":8002", "127.0.0.1:8002"),
            ("localhost:8002", "127.0.0.1:8002"),
            ("127.0.0.2:0", "127.0.0.2:0"),
            ("[::1]:8002", "[::1]:8002"),
        ] {
            assert_eq!(parse_listen(text), Ok(address.parse().unwrap()), "{text}");
        }
        for wrong in ["", "8002x", "70000", "host:1", "0.0.0.0:8001", "127.0.0.1"] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_kubectl_plugin_names_itself_as_kubectl_does() {
        let usage = |program: &str| {
            let error =
                command_called(Path::new(program)).try_get_matches_from([program, "status", "--nonsense"]);
            error.unwrap_err().to_string()
        };
        assert!(
            usage("/usr/bin/kubectl-skopos").contains("Usage: kubectl skopos status"),
            "{}",
            usage("kubectl-skopos")
        );
        assert!(usage("/usr/bin/skopos").contains("Usage: skopos status"), "{}", usage("skopos"));
    }

    #[test]
    fn v_counts() {
        assert_eq!(parse("skopos -vv demo").unwrap().log.verbose, 2);
        assert_eq!(parse("skopos demo -v").unwrap().log.verbose, 1);
    }
}

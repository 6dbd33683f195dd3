//! `skopos serve`: runs the gateway until it is stopped.
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use skopos::transport::KubeconfigPaths;
use skopos_console::error::CliError;
use skopos_console::{aside, human};
use skopos_fleet::{Cluster, Condition, Fleet};
use skopos_gateway::config::{Config, LoopbackTrust, QuickStart};
use skopos_gateway::{Daemon, DaemonError, ListenError};
use tokio_util::sync::CancellationToken;

use crate::args::{LogFormat, ServeArgs};
use crate::cluster::no_kubeconfig;
use crate::service_manager;

/// Maximum duration of the shutdown, whatever the configuration says. A second signal ends everything at once.
pub(crate) const GRACE: Duration = Duration::from_secs(120);

/// Time limit for the sources of clusters before the start is reported without their clusters.
const SOURCES_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of clusters and problems named at the start.
const MAX_NAMED: usize = 20;

/// Serves until stopped. The start is told in the form of the log lines.
pub(crate) async fn run(
    args: ServeArgs,
    log_format: LogFormat,
    stop: CancellationToken,
) -> Result<(), CliError> {
    if args.print_schema {
        return print_schema();
    }
    leave_no_core_dump();
    let (daemon, config) = match args.config {
        Some(path) => {
            let config = Config::read(&path).map_err(|error| start_error(error.into()))?;
            check_sources(&config, &path)?;
            (Daemon::from_file(path).await, config)
        }
        None => {
            let config = quick_start(args).await?;
            (Daemon::from_config(config.clone()).await, config)
        }
    };
    let daemon = daemon.map_err(start_error)?;
    introduce(&daemon, &config, log_format);
    let fleet = daemon.fleet().clone();
    let told = async {
        if stop.run_until_cancelled(fleet.unread_sources(SOURCES_TIMEOUT)).await.is_some() {
            tell_clusters(&fleet, &config, log_format);
        }
    };
    let is_alive = || _ = fleet.stats();
    let served = service_manager::supervise(daemon.run(stop.clone()), is_alive, &stop);
    let (drained, ()) = tokio::join!(served, told);
    if drained.cut > 0 {
        tracing::warn!(connections = drained.cut, "connections were cut: their answers did not end in time");
    }
    Ok(())
}

/// Returns the configuration of a quick start, if its kubeconfigs have anything to serve.
async fn quick_start(args: ServeArgs) -> Result<Config, CliError> {
    let given: Vec<KubeconfigPaths> = args.kubeconfig.iter().map(KubeconfigPaths::list).collect();
    let all = match given.is_empty() {
        true => vec![KubeconfigPaths::from_environment()],
        false => given,
    };
    let checked = all.clone();
    tokio::task::spawn_blocking(move || checked.iter().try_for_each(check_kubeconfig))
        .await
        .map_err(CliError::new)??;
    let joined = all.iter().map(|paths| match std::env::join_paths(paths.files()) {
        Ok(list) => list,
        // A path with the list separator in its name.
        Err(_) => paths.files().first().map_or(OsString::new(), |path| path.as_os_str().to_owned()),
    });
    let kubeconfigs = joined.map(PathBuf::from).collect();
    Ok(QuickStart { kubeconfigs, listen: args.listen, writes: args.allow_writes }.into())
}

fn check_kubeconfig(paths: &KubeconfigPaths) -> Result<(), CliError> {
    if paths.skips_missing() && !paths.exist() {
        return Err(no_kubeconfig(paths));
    }
    let kubeconfig = paths.read().map_err(CliError::new)?;
    match kubeconfig.contexts().next() {
        Some(_) => Ok(()),
        None => Err(CliError::new(format!("kubeconfig {paths} defines no contexts"))
            .hint("there is nothing to serve: name another with --kubeconfig FILE")),
    }
}

fn check_sources(config: &Config, path: &std::path::Path) -> Result<(), CliError> {
    let clusters = &config.clusters;
    let none = clusters.kubeconfigs.is_empty()
        && clusters.folders.is_empty()
        && clusters.secrets.is_empty()
        && clusters.vclusters.is_empty()
        && clusters.cluster_profiles.is_empty();
    match none {
        true => Err(CliError::new(format!("the configuration {} names no clusters", path.display())).hint(
            "add clusters.kubeconfigs, folders, secrets, vclusters or clusterProfiles (docs/reference/gateway.example.yaml)",
        )),
        false => Ok(()),
    }
}

fn print_schema() -> Result<(), CliError> {
    let schema = format!("{:#}\n", skopos_gateway::config::json_schema());
    io::stdout().write_all(schema.as_bytes()).map_err(|error| CliError::new(format!("cannot print: {error}")))
}

/// Disables core dumps. The memory holds tokens and contents of clusters, and a crash must not write them to a disk.
fn leave_no_core_dump() {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, setrlimit};
        if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
            tracing::warn!(%error, "core dumps cannot be switched off: they would have tokens in them");
        }
    }
}

/// Returns the error for a failed start, for the user.
fn start_error(error: DaemonError) -> CliError {
    match error {
        DaemonError::Config(error) => error.into(),
        DaemonError::Listen(ListenError::Bind { address, error })
            if error.kind() == io::ErrorKind::AddrInUse =>
        {
            let port = address.port();
            let next = port.checked_add(1).unwrap_or(1024);
            CliError::new(format!("port {port} is in use")).hint(format!(
                "choose another with --listen {}:{next}, or listen.address in a configuration",
                address.ip()
            ))
        }
        error => CliError::new(error),
    }
}

/// Prints the URL, the callers' rights and the next steps. A script may close its end once it has read what it needs.
fn introduce(daemon: &Daemon, config: &Config, log_format: LogFormat) {
    let url = daemon.url();
    if log_format == LogFormat::Json {
        return tracing::info!(url, callers = rights(config), "serving");
    }
    let text = format!(
        "serving at {url}\n\
         {}\n\
         try: kubectl --server {url}/clusters/NAME get pods -A\n     \
         skopos status --server {url}\n\
         Ctrl-C ends it.\n",
        rights(config)
    );
    print(&text);
}

/// Returns the text about what callers may do.
fn rights(config: &Config) -> &'static str {
    let trusted = config.authorization.loopback == LoopbackTrust::Trusted;
    match (config.authentication.is_configured(), trusted, config.outbound.read_only) {
        (false, true, true) => {
            "anyone on this machine can read these clusters with your credentials; writes are refused \
             (--allow-writes lets them through)"
        }
        (false, true, false) => {
            "anyone on this machine can read and WRITE these clusters with your credentials"
        }
        (false, false, _) => {
            "callers are anonymous: each cluster decides what skopos:loopback-anonymous may read; writes are refused"
        }
        (true, _, read_only) if read_only || !config.outbound.impersonate => {
            "callers prove who they are, and each cluster decides what they may read; writes are refused"
        }
        (true, ..) => "callers prove who they are, and each cluster decides what they may read and write",
    }
}

/// Prints the clusters that there are, and the problems of their sources.
fn tell_clusters(fleet: &Fleet, config: &Config, log_format: LogFormat) {
    let members = fleet.members();
    let there = members.values().filter(|cluster| cluster.state().condition != Condition::Removed);
    let names: Vec<String> = there.map(name).collect();
    if log_format == LogFormat::Json {
        let (count, clusters) = (names.len(), some(&names));
        tracing::info!(count, clusters, "clusters are known");
        return tell_problems(fleet, |problem| tracing::warn!(problem, "a source of clusters has a problem"));
    }
    let mut text = match names.as_slice() {
        [] => "clusters: none yet\n".to_owned(),
        names => format!("clusters: {}\n", some(names)),
    };
    if config.authorization.loopback == LoopbackTrust::Trusted && names.len() > 1 {
        let _ = writeln!(text, "all of them: /fleet in place of /clusters/NAME");
    }
    print(&text);
    tell_problems(fleet, |problem| aside::say(format_args!("problem: {problem}")));
}

/// Passes the problems of sources to `tell`, each in one line.
fn tell_problems(fleet: &Fleet, tell: impl Fn(&str)) {
    let problems = fleet.problems();
    for problem in problems.iter().take(MAX_NAMED) {
        tell(&human::one_line(&problem.to_string(), 500));
    }
    if problems.len() > MAX_NAMED {
        let more = problems.len() - MAX_NAMED;
        tell(&format!("and {more} more: `skopos status` shows all of them"));
    }
}

/// Returns the name of a cluster, with its context's name where that differs.
fn name(cluster: &Cluster) -> String {
    match cluster.original_name() {
        Some(original) => format!("{} (context {:?})", cluster.id(), human::one_line(&original, 100)),
        None => cluster.id().to_string(),
    }
}

fn some(names: &[String]) -> String {
    let mut text = names.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED {
        let _ = write!(text, ", and {} more", names.len() - MAX_NAMED);
    }
    text
}

/// Prints for people. A closed reader does not end the daemon.
fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

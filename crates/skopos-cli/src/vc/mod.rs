//! `skopos vc`: virtual clusters made, listed, paused, resumed and deleted.
mod args;
mod connect;
mod output;

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use skopos::transport::KubeconfigPaths;
use skopos_console::aside;
use skopos_console::error::CliError;
use skopos_vcluster::{
    Chart, CreateOptions, DeleteOptions, Error, ExportedKubeconfig, Helm, Host, HostOptions,
    KubeconfigOptions, Manifests, PauseOptions, RemovalOptions, ResumeOptions, Source, Step,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::args::VcArgs;
use self::args::{
    CreateArgs, DeleteArgs, KubeconfigArgs, ListArgs, NameArgs, PauseArgs, ResumeArgs, VcCommand,
};
use self::output::Output;
use crate::args::ClusterArgs;
use crate::cluster;
use crate::connect::Cluster;

/// Runs the command until it is done or stopped. If it is stopped, it says how to continue.
pub(crate) async fn run(args: VcArgs, stop: CancellationToken) -> Result<(), CliError> {
    let again = args.command.again();
    match stop.run_until_cancelled(dispatch(args.command)).await {
        Some(result) => result,
        None => {
            if let Some(again) = again {
                aside::say(format_args!("# stopped; what is done so far stays. {again}"));
            }
            // The caller that stopped it knows which signal it was.
            Ok(())
        }
    }
}

async fn dispatch(command: VcCommand) -> Result<(), CliError> {
    match command {
        VcCommand::Create(args) => create(args).await,
        VcCommand::List(args) => list(args).await,
        VcCommand::Pause(args) => pause(args).await,
        VcCommand::Resume(args) => resume(args).await,
        VcCommand::Delete(args) => delete(args).await,
        VcCommand::Connect(args) => connect::run(args).await,
        VcCommand::Kubeconfig(args) => kubeconfig(args).await,
    }
}

impl VcCommand {
    /// Returns how to continue after an interruption; `None`: there is nothing to continue. The text repeats no flags, because
    /// each may matter and some hold secrets.
    fn again(&self) -> Option<&'static str> {
        match self {
            Self::Create(CreateArgs { upgrade: false, .. }) => Some(
                "Run the same command again to continue from here, with --upgrade if it says that it is there already",
            ),
            Self::Create(_) | Self::Pause(_) | Self::Resume(_) | Self::Delete(_) => {
                Some("Run the same command again to continue from here")
            }
            Self::List(_) | Self::Connect(_) | Self::Kubeconfig(_) => None,
        }
    }
}

async fn create(args: CreateArgs) -> Result<(), CliError> {
    let CreateArgs { name: NameArgs { name, host: on }, manifests, .. } = args;
    let source = match manifests {
        Some(path) => Source::Manifests(Manifests::parse(&read(&path)?).map_err(explain)?),
        None => Source::Chart(Chart {
            path: args.chart,
            repository: args.chart_repo,
            version: args.chart_version,
            values: args.values,
            set: args.set,
            ..Chart::default()
        }),
    };
    let (host, context_namespace) = connect_host(&on.cluster).await?;
    // As in the vcluster CLI: the context's namespace, unless that is `default`, which many things share.
    let namespace = on.namespace.or(Some(context_namespace).filter(|namespace| namespace != "default"));
    let options =
        CreateOptions { namespace, source, upgrade: args.upgrade, wait: !args.no_wait, within: args.timeout };
    let made = host.create(&name, &options, &progress).await.map_err(explain)?;
    Output::new(args.output).done(&made, if args.upgrade { "upgraded" } else { "created" })
}

async fn list(args: ListArgs) -> Result<(), CliError> {
    let (host, _) = connect_host(&args.cluster).await?;
    let found = host.list(args.namespace.as_deref(), args.timeout).await.map_err(explain)?;
    Output::new(args.output).list(&found, !args.no_headers)
}

async fn pause(args: PauseArgs) -> Result<(), CliError> {
    let (host, NameArgs { name, host: on }) = host_of(args.name).await?;
    let options = PauseOptions { within: args.timeout, ..PauseOptions::default() };
    let paused = host.pause(&name, on.namespace.as_deref(), options, &progress).await.map_err(explain)?;
    Output::new(args.output).done(&paused, "paused")
}

async fn resume(args: ResumeArgs) -> Result<(), CliError> {
    let (host, NameArgs { name, host: on }) = host_of(args.name).await?;
    let options = ResumeOptions { within: args.timeout, wait: args.wait };
    let resumed = host.resume(&name, on.namespace.as_deref(), options, &progress).await.map_err(explain)?;
    Output::new(args.output).done(&resumed, "resumed")
}

async fn delete(args: DeleteArgs) -> Result<(), CliError> {
    let (host, NameArgs { name, host: on }) = host_of(args.name).await?;
    let removal = RemovalOptions {
        keep_claims: args.keep_pvc,
        config_map: args.delete_configmap,
        own_namespace: !args.keep_namespace,
        any_namespace: args.delete_namespace,
    };
    let options = DeleteOptions { removal, wait: !args.no_wait, within: args.timeout };
    match host.delete(&name, on.namespace.as_deref(), options, &progress).await {
        Err(Error::NotFound { .. }) if args.ignore_not_found => return Ok(()),
        other => other.map_err(explain)?,
    }
    Ok(writeln!(std::io::stdout(), "virtual cluster {name} deleted")?)
}

async fn kubeconfig(args: KubeconfigArgs) -> Result<(), CliError> {
    let name = args.name.name.clone();
    let exported = export(args.name, args.server, args.timeout).await?;
    if exported.inside_only {
        aside::say(format_args!(
            "# {} is known to the host's own pods only: `skopos vc connect {name}` makes it reachable from here",
            exported.server
        ));
    }
    Ok(std::io::stdout().write_all(exported.text().as_bytes())?)
}

/// Returns the kubeconfig of a virtual cluster.
async fn export(
    name: NameArgs,
    server: Option<http::Uri>,
    within: Duration,
) -> Result<ExportedKubeconfig, CliError> {
    let context = cluster::context(&name.host.cluster).await?;
    let (host, NameArgs { name, host: on }) = host_of(name).await?;
    let host_context = context.unwrap_or_else(|| KubeconfigOptions::default().host_context);
    let options = KubeconfigOptions { server, host_context, within };
    host.kubeconfig(&name, on.namespace.as_deref(), &options).await.map_err(explain)
}

async fn host_of(name: NameArgs) -> Result<(Host, NameArgs), CliError> {
    let (host, _) = connect_host(&name.host.cluster).await?;
    Ok((host, name))
}

/// Connects to the host that the flags select, and returns the namespace of its context too.
async fn connect_host(args: &ClusterArgs) -> Result<(Host, String), CliError> {
    // The context is named, because helm resolves it separately and must not find another one.
    let args = ClusterArgs { context: cluster::context(args).await?, ..args.clone() };
    let config = cluster::load(&args).await?;
    let Cluster { transport, namespace, .. } = Cluster::new(config)?;
    let kubeconfig = args.kubeconfig.map(KubeconfigPaths::file);
    let helm = Helm { kubeconfig, context: args.context, ..Helm::default() };
    let client = transport.client(namespace.as_str());
    Ok((Host::new(client, HostOptions { helm, ..HostOptions::default() }), namespace))
}

fn progress(step: Step) {
    aside::say(format_args!("# {step}"));
}

fn read(path: &Path) -> Result<String, CliError> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
        .map_err(|error| CliError::new(format!("{} cannot be read: {error}", path.display())))
}

/// Returns the error with a hint about what to do.
fn explain(error: Error) -> CliError {
    let hint = match &error {
        Error::InvalidName { .. } => return CliError::Usage(error.to_string()),
        Error::NotFound { .. } => Some("`skopos vc list` shows those that there are"),
        Error::Ambiguous { .. } | Error::Occupied { .. } | Error::Platform { .. } => Some("use -n NAMESPACE"),
        Error::Exists { .. } => Some("change it with --upgrade"),
        Error::ScaledDown { .. } => Some("then `skopos vc resume` brings back what is configured"),
        Error::NoHelm { .. } => Some("--manifests FILE takes what `helm template` prints elsewhere"),
        Error::HostUnreachable { .. } => {
            Some("check that it runs and that the kubeconfig's address is right")
        }
        Error::Refused { status, .. } if status.code == 403 => Some("-n NAMESPACE asks for less"),
        Error::Deadline { .. } => {
            Some("check the address, or allow more time with --timeout; the same command continues from here")
        }
        _ => None,
    };
    match hint {
        Some(hint) => CliError::new(error).hint(hint),
        None => CliError::new(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: VcCommand,
    }

    #[test]
    fn interruption_hint_repeats_same_flags() {
        let again = |line: &str| Line::parse_from(line.split(' ')).command.again();
        for same in
            ["pause shop", "resume shop", "delete shop --keep-pvc --context prod", "create shop --upgrade"]
        {
            assert_eq!(
                again(&format!("vc {same}")),
                Some("Run the same command again to continue from here"),
                "{same}"
            );
        }
        let create = again("vc create shop --set password=secret").unwrap();
        assert!(create.contains("Run the same command again") && create.contains("--upgrade"), "{create}");
        assert_eq!(again("vc list"), None);
    }
}

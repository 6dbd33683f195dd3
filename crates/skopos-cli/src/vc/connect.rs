//! `skopos vc connect`: a local port that leads to the API server of a virtual cluster, through that of its host.
use std::ffi::OsString;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use skopos_console::aside;
use skopos_console::error::CliError;
use skopos_fleet::{
    Cluster, ClusterId, ClusterOptions, ClusterSpec, Connector, PortForward, PortForwardError,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::args::ConnectArgs;
use crate::args::ClusterArgs;
use crate::cluster;
use crate::kubeconfig_file::KubeconfigFile;

/// Maximum number of connections at a time. kubectl needs one or two.
const MAX_CONNECTIONS: usize = 256;

/// Interval between two looks for a pod that is ready.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval after a failure to accept a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Forwards until the command ends, or the caller drops this.
pub(super) async fn run(args: ConnectArgs) -> Result<(), CliError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.local_port)).await.map_err(|error| {
        CliError::new(format!("port {} cannot be listened on: {error}", args.local_port))
            .hint("choose another with --local-port, or leave it out to get a free one")
    })?;
    let server = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
    let uri = server.parse().map_err(CliError::new)?;
    let exported = super::export(args.name.clone(), Some(uri), args.timeout).await?;
    let host = host(&args.name.host.cluster).await?;
    let forward = PortForward::to_vcluster(host, &exported.namespace, &args.name.name);
    check(&forward, args.timeout).await?;
    let file = KubeconfigFile::write(args.kubeconfig_out, "skopos-vc-", exported.text())?;
    let forwarding = serve(listener, forward);
    match args.command.split_first() {
        None => {
            introduce(&args.name.name, &server, file.path());
            forwarding.await
        }
        Some((program, arguments)) => tokio::select! {
            ended = command(program, arguments, file.path()) => ended,
            ended = forwarding => ended,
        },
    }
}

/// Returns the host that the flags select.
async fn host(args: &ClusterArgs) -> Result<Cluster, CliError> {
    let config = cluster::load(args).await?;
    let spec = ClusterSpec::from_config(config);
    Ok(Cluster::standalone(
        ClusterId::from_name("the-host"),
        spec,
        ClusterOptions::default(),
        Connector::tcp(),
    ))
}

/// Opens one stream, so that a problem is told at once. Waits for a pod that is not ready yet.
async fn check(forward: &PortForward, limit: Duration) -> Result<(), CliError> {
    let deadline = Instant::now() + limit;
    loop {
        match timeout_at(deadline, forward.open()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(PortForwardError::NotReady { .. })) if Instant::now() + RETRY_INTERVAL < deadline => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Ok(Err(error)) => return Err(CliError::new(error).hint("`skopos vc list` shows its state")),
            Err(_) => {
                let late = format!("not connected within {limit:?}");
                return Err(CliError::new(late).hint("allow more time with --timeout"));
            }
        }
    }
}

async fn serve(listener: TcpListener, forward: PortForward) -> Result<(), CliError> {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = permits.clone().acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => _ = connections.spawn(carry(stream, forward.clone(), permit)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(mut local: TcpStream, forward: PortForward, _permit: OwnedSemaphorePermit) {
    let _ = local.set_nodelay(true);
    match forward.open().await {
        Ok(mut remote) => {
            match tokio::io::copy_bidirectional(&mut local, &mut remote).await {
                // The host says why the pod is not reached only after the stream is open.
                Err(reason) if reason.raw_os_error().is_none() => closed(&reason),
                Err(error) => tracing::info!(%error, "a connection ended"),
                Ok(_) => {}
            }
        }
        Err(reason) => closed(&reason),
    }
}

fn closed(reason: &dyn std::fmt::Display) {
    aside::say(format_args!("# a connection was closed: {reason}"));
}

async fn command(program: &OsString, arguments: &[OsString], kubeconfig: &Path) -> Result<(), CliError> {
    let name = program.to_string_lossy();
    let status = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|error| CliError::new(format!("{name} cannot be run: {error}")))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Ok(()),
        Some(code) => Err(CliError::CommandFailed(code)),
        None => Err(CliError::new(format!("{name} ended with {status}"))),
    }
}

/// Prints the next steps. A script may close its end once it has read what it needs: the port stays open.
fn introduce(name: &str, server: &str, kubeconfig: &Path) {
    let kubeconfig = kubeconfig.display();
    let text = format!(
        "virtual cluster {name} is at {server}\n\
         kubeconfig: {kubeconfig}\n\
         try: kubectl --kubeconfig {kubeconfig} get namespaces\n\
         Ctrl-C ends it.\n"
    );
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

//! `skopos testserver`: a Kubernetes API server in memory, for trying things out.
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_testserver::{StartError, TestServer};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::args::TestserverArgs;
use crate::error::CliError;
use crate::human;
use crate::world::{Pace, World};

/// How often changes are made.
const TICK: Duration = Duration::from_millis(20);

/// Serves until stopped.
pub(crate) async fn run(args: TestserverArgs, stop: CancellationToken) -> Result<(), CliError> {
    let builder = TestServer::builder().tls(args.tls).port(args.port).workloads(args.workloads);
    let server = builder.start().await.map_err(start_error)?;
    let world = World::of_pods(&server, args.objects)?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig_out, &server)?;
    introduce(&server, kubeconfig.path(), args.objects);
    stop.run_until_cancelled(churn(&server, world, args.churn)).await;
    server.stop().await;
    Ok(())
}

/// What a failed start means to whoever typed the command.
pub(crate) fn start_error(error: StartError) -> CliError {
    match &error {
        StartError::Listen { port, error } if error.kind() == io::ErrorKind::AddrInUse => {
            CliError::new(format!("port {port} is in use"))
                .hint("choose another with --port, or leave --port out to get a free one")
        }
        StartError::Listen { port, error } if error.kind() == io::ErrorKind::PermissionDenied => {
            CliError::new(format!("port {port} may not be used by this user ({error})"))
                .hint("choose one above 1023, or leave --port out to get a free one")
        }
        _ => CliError::new(error),
    }
}

/// The file for kubectl. One that nobody asked for by name goes with the server.
#[derive(Debug)]
enum Kubeconfig {
    Asked(PathBuf),
    Temporary(PathBuf),
}

impl Kubeconfig {
    fn write(asked: Option<PathBuf>, server: &TestServer) -> Result<Self, CliError> {
        let temporary = || std::env::temp_dir().join(format!("skopos-testserver-{}.yaml", server.port()));
        let file = asked.map_or_else(|| Self::Temporary(temporary()), Self::Asked);
        let path = file.path();
        std::fs::write(path, server.kubeconfig()).map_err(|error| {
            CliError::new(format!("the kubeconfig cannot be written to {}: {error}", path.display()))
                .hint("name another file with --kubeconfig-out")
        })?;
        Ok(file)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Asked(path) | Self::Temporary(path) => path,
        }
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if let Self::Temporary(path) = self {
            // Nothing is lost if it stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Says what runs, and what to do next. A script that has read what it needs may close its end: the server runs on.
fn introduce(server: &TestServer, kubeconfig: &Path, objects: u32) {
    let kubeconfig = kubeconfig.display();
    let text = format!(
        "serving {} at {}\n\
         kubeconfig: {kubeconfig}\n\
         try: kubectl --kubeconfig {kubeconfig} get pods -A\n     \
         skopos watch pods -A --kubeconfig {kubeconfig}\n\
         Ctrl-C ends it; nothing is kept.\n",
        human::count(objects.into(), "pod"),
        server.url()
    );
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Makes changes at the asked rate, for ever.
async fn churn(server: &TestServer, mut world: World, per_second: u32) {
    let mut pace = Pace::new(per_second);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        let passed = last.elapsed();
        last = Instant::now();
        for _ in 0..pace.due(passed) {
            world.change(server);
        }
    }
}

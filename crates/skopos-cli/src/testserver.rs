//! `skopos testserver`: a Kubernetes API server in memory, for trying things out.
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use skopos_console::error::{CliError, start_error};
use skopos_console::human;
use skopos_console::pace::Pace;
use skopos_testserver::TestServer;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::args::TestserverArgs;
use crate::kubeconfig_file::KubeconfigFile;
use crate::world::World;

/// Interval between batches of changes.
const TICK: Duration = Duration::from_millis(20);

/// Serves until stopped.
pub(crate) async fn run(args: TestserverArgs, stop: CancellationToken) -> Result<(), CliError> {
    let builder = TestServer::builder().tls(args.tls).port(args.port).workloads(args.workloads);
    // Over TLS a page cannot reach this server under a host name of its own, for which it would need a certificate.
    let builder = builder.only_local_hosts(!args.tls);
    let server = builder.start().await.map_err(start_error)?;
    let world = World::with_pods(&server, args.objects)?;
    let prefix = format!("skopos-testserver-{}-", server.port());
    let kubeconfig = KubeconfigFile::write(args.kubeconfig_out, &prefix, &server.kubeconfig())?;
    introduce(&server, kubeconfig.path(), args.objects);
    stop.run_until_cancelled(churn(&server, world, args.churn)).await;
    server.stop().await;
    Ok(())
}

/// Prints what runs and the next steps. A script may close its end once it has read what it needs: the server runs on.
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

/// Makes changes at the given rate. Never returns.
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

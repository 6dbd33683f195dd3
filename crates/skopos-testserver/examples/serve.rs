//! Runs a Kubernetes API server to experiment with, until it is stopped.
//!
//! ```text
//! cargo run -p skopos-testserver --example serve -- --kubeconfig-out /tmp/kubeconfig --workloads
//! kubectl --kubeconfig /tmp/kubeconfig create deployment web --image nginx
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use skopos_testserver::TestServer;

const USAGE: &str = "usage: serve [--port PORT] [--tls] [--objects N] [--workloads] [--kubeconfig-out FILE]";

#[derive(Default)]
struct Options {
    port: u16,
    tls: bool,
    objects: usize,
    workloads: bool,
    kubeconfig_out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let server = TestServer::builder()
        .port(options.port)
        .tls(options.tls)
        .workloads(options.workloads)
        .start()
        .await?;
    if options.objects > 0 {
        server.load_pods(options.objects);
    }
    if let Some(file) = &options.kubeconfig_out {
        std::fs::write(file, server.kubeconfig())?;
    }
    println!("serving on {}", server.url());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse::<usize>().map_err(|e| format!("{flag} {text}: {e}"));
        match flag.as_str() {
            "--port" => options.port = value()?.parse().map_err(|e| format!("{flag}: {e}"))?,
            "--tls" => options.tls = true,
            "--objects" => options.objects = number(value()?)?,
            "--workloads" => options.workloads = true,
            "--kubeconfig-out" => options.kubeconfig_out = Some(value()?.into()),
            other => return Err(format!("unknown flag {other}")),
        }
    }
    Ok(options)
}

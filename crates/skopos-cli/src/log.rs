//! Structured logs on standard error: off by default, more with every `-v`.
use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, fmt};

use crate::args::{LogArgs, LogFormat};

/// Sets up the logs of this process. `SKOPOS_LOG` (`debug`, `skopos_transport=trace`, ...) overrides `-v`.
pub(crate) fn init(args: &LogArgs) {
    let directives = std::env::var("SKOPOS_LOG").unwrap_or_else(|_| directives(args.verbose).into());
    let builder = fmt()
        .with_env_filter(EnvFilter::new(directives))
        .with_writer(stderr)
        // These errors would go to standard error as well, and panic where it is closed.
        .log_internal_errors(false)
        .with_ansi(stderr().is_terminal());
    // A second call, as in tests of commands, leaves the first one's logs in place.
    let _ = match args.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Returns the log directives: first the libraries' own decisions, then their details and HTTP, then everything.
fn directives(verbose: u8) -> &'static str {
    match verbose {
        0 => "off",
        1 => {
            "warn,skopos=info,skopos_reflect=info,skopos_transport=info,skopos_testserver=info,skopos_fleet=info,skopos_gateway=info"
        }
        2 => {
            "info,skopos=debug,skopos_reflect=debug,skopos_transport=debug,skopos_testserver=debug,skopos_fleet=debug,skopos_gateway=debug"
        }
        3 => {
            "debug,h2=info,hyper=info,skopos=trace,skopos_reflect=trace,skopos_transport=trace,skopos_testserver=trace"
        }
        _ => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verbosity_level_parses() {
        for verbose in 0..5 {
            EnvFilter::try_new(directives(verbose)).unwrap();
        }
    }
}

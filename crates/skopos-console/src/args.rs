//! Options that several commands have, and the forms of their values.
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Address and credentials of the gateway.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Gateway")]
pub struct GatewayArgs {
    /// URL of the gateway
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001", env = "SKOPOS_SERVER")]
    pub server: String,
    /// File with a bearer token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with the CA of its certificate [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// File with a client certificate
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// File with its key
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
}

/// Parses `30s`, `1m30s`, `500ms` or a plain number of seconds. The value must be more than 0 and at most 24 h.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    let duration = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|signed| Duration::try_from(signed).ok())
            .ok_or("write it as 30s, 1m30s or 500ms")?,
    };
    if duration.is_zero() || duration > LONGEST {
        return Err("must be more than 0 and at most 24h".into());
    }
    Ok(duration)
}

/// Parses a number of changes per second, at most `most`.
pub fn parse_churn(text: &str, most: u32) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("write a number of changes per second, such as 5; at most {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-3s", "soon", "25h", "99999999999999999999"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}

//! `skopos status` and `skopos top`: how a gateway and its clusters stand.
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use skopos_gateway::state::status::{ClusterReport, Report};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::args::{Form, StatusArgs, TopArgs};
use crate::error::CliError;
use crate::gateway::Gateway;

/// Prints once.
pub(crate) async fn run(args: StatusArgs, stop: CancellationToken) -> Result<(), CliError> {
    let gateway = Gateway::new(&args.gateway)?;
    let Some(report) = stop.run_until_cancelled(gateway.report()).await else { return Ok(()) };
    let report = report?;
    let text = match args.output {
        Form::Json => serde_json::to_string_pretty(&report).map_err(CliError::new)? + "\n",
        Form::Table => table(&report, args.kinds),
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Prints again and again.
pub(crate) async fn top(args: TopArgs, stop: CancellationToken) -> Result<(), CliError> {
    let gateway = Gateway::new(&args.gateway)?;
    let mut ticks = interval(args.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let screen = io::stdout().is_terminal();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let Some(report) = stop.run_until_cancelled(gateway.report()).await else { break };
        let text = match report {
            Ok(report) => table(&report, true),
            // A gateway that is restarted comes back.
            Err(error) => error.line().unwrap_or_default() + "\n",
        };
        // Home, the text with each line's rest cleared, and what was below it.
        let text = match screen {
            true => format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")),
            false => text + "\n",
        };
        let mut out = io::stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    }
    Ok(())
}

/// As kubectl shows things.
fn table(report: &Report, kinds: bool) -> String {
    let mut rows = vec![["CLUSTER", "STATE", "FOR", "SILENT", "OBJECTS", "MEMORY", "WHY"].map(str::to_owned)];
    for cluster in &report.clusters {
        rows.push(row(cluster));
        for kind in cluster.kinds.iter().filter(|_| kinds) {
            let name = match kind.group.as_str() {
                "" => kind.resource.clone(),
                group => format!("{}.{group}", kind.resource),
            };
            rows.push([
                format!("  {name}"),
                kind.freshness.clone(),
                kind.age_seconds.map_or("-".into(), span),
                String::new(),
                kind.objects.to_string(),
                bytes(kind.bytes),
                kind.reason.clone().unwrap_or_default(),
            ]);
        }
    }
    let mut text = String::new();
    let widths: [usize; 6] =
        std::array::from_fn(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0));
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:<width$}   ");
        }
        // The reason of an error is somebody else's text.
        let why = crate::human::one_line(&row[6], 120);
        let _ = writeln!(text, "{}", format!("{line}{why}").trim_end());
    }
    if report.clusters.is_empty() {
        text.push_str("no clusters\n");
    }
    if let Some(refused) = &report.config_refused {
        let _ = writeln!(
            text,
            "the changed configuration is not in force: {}",
            crate::human::one_line(refused, 500)
        );
    }
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {}", crate::human::one_line(problem, 500));
    }
    text
}

fn row(cluster: &ClusterReport) -> [String; 7] {
    let objects: usize = cluster.kinds.iter().map(|kind| kind.objects).sum();
    [
        cluster.name.clone(),
        cluster.state.clone(),
        span(cluster.since_seconds),
        cluster.silent_seconds.map_or("-".into(), span),
        objects.to_string(),
        bytes(cluster.bytes),
        cluster.reason.clone().unwrap_or_default(),
    ]
}

/// `5s`, `3m`, `2h`, `4d`.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// `512Ki`, `3Mi`.
fn bytes(bytes: u64) -> String {
    match bytes {
        b if b < 1 << 10 => b.to_string(),
        b if b < 1 << 20 => format!("{}Ki", b >> 10),
        b if b < 1 << 30 => format!("{}Mi", b >> 20),
        b => format!("{:.1}Gi", b as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_table() {
        let json = r#"{"version":"0","connections":1,"watches":2,"clusters":[
            {"name":"shop","state":"paused","sinceSeconds":300.5,"reason":"paused by annotation","silentSeconds":301.0,
             "bytes":2048,"requests":3,"kinds":[{"group":"apps","version":"v1","resource":"deployments","freshness":"stale",
             "ageSeconds":310.2,"objects":4,"bytes":2048,"events":5,"relists":0,"auditMismatches":0}]}]}"#;
        let report: Report = serde_json::from_str(json).unwrap();
        let text = table(&report, true);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["shop", "paused", "5m", "5m", "4", "2Ki", "paused", "by", "annotation"]);
        assert_eq!(lines[2], ["deployments.apps", "stale", "5m", "4", "2Ki"]);
        assert_eq!(table(&report, false).lines().count(), 2);
    }
}

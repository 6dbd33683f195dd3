//! `skopos status` and `skopos top`: the state of a gateway and its clusters.
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use skopos_console::error::CliError;
use skopos_console::gateway::Gateway;
use skopos_console::{columns, human};
use skopos_gateway::{ClusterReport, KindReport, Report};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::args::{Form, StatusArgs, TopArgs};
use crate::style::{Style, Tone};

/// Prints the state once. Ends with an error if the gateway has a problem.
pub(crate) async fn run(args: StatusArgs, stop: CancellationToken) -> Result<(), CliError> {
    let gateway = Gateway::new(&args.gateway)?;
    let Some(report) = stop.run_until_cancelled(gateway.report()).await else { return Ok(()) };
    let report = report?;
    let text = match args.output {
        Form::Json => serde_json::to_string_pretty(&report).map_err(CliError::new)? + "\n",
        Form::Table => table(&report, args.kinds),
    };
    io::stdout().write_all(text.as_bytes())?;
    match report.problems.len() as u64 + u64::from(report.config_refused.is_some()) {
        0 => Ok(()),
        problems => Err(CliError::new(format!("the gateway has {}", human::count(problems, "problem")))),
    }
}

/// Prints the state at intervals. While the gateway does not answer, the last state stays, with its age.
pub(crate) async fn top(args: TopArgs, stop: CancellationToken) -> Result<(), CliError> {
    let gateway = Gateway::new(&args.gateway)?;
    let screen = io::stdout().is_terminal();
    let mut picture =
        Picture::new(args.gateway.server.clone(), args.every + LATE, Style::for_stream(&io::stdout()));
    let mut due = Instant::now();
    while !stop.is_cancelled() {
        let asking = gateway.report();
        tokio::pin!(asking);
        let mut redraw = interval(REDRAW);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        redraw.tick().await;
        let answer = loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                answer = &mut asking => break answer,
                // Its age grows while the gateway is silent.
                _ = redraw.tick(), if screen => picture.draw(screen)?,
            }
        };
        picture.take(answer);
        picture.draw(screen)?;
        due = (due + args.every).max(Instant::now());
        loop {
            let next = due.min(Instant::now() + REDRAW);
            if stop.run_until_cancelled(sleep_until(next)).await.is_none() {
                return Ok(());
            }
            if Instant::now() >= due {
                break;
            }
            if screen {
                picture.draw(screen)?;
            }
        }
    }
    Ok(())
}

/// Interval at which the age of the picture is redrawn.
const REDRAW: Duration = Duration::from_secs(1);

/// Screen content of `top`: the last report, when it was received, and why there is no newer one.
struct Picture {
    server: String,
    /// Age from which the picture is marked as old, even without a failure.
    old: Duration,
    style: Style,
    last: Option<(Report, Instant, jiff::Timestamp)>,
    failure: Option<String>,
}

impl Picture {
    fn new(server: String, old: Duration, style: Style) -> Self {
        Self { server, old, style, last: None, failure: None }
    }

    fn take(&mut self, answer: Result<Report, CliError>) {
        match answer {
            Ok(report) => {
                self.last = Some((report, Instant::now(), jiff::Timestamp::now()));
                self.failure = None;
            }
            Err(error) => self.failure = error.line(),
        }
    }

    fn draw(&self, screen: bool) -> io::Result<()> {
        // Cursor home, then the text with the rest of each line cleared, then everything below.
        let text = match screen {
            true => format!("\x1b[H{}\x1b[J", self.text().replace('\n', "\x1b[K\n")),
            false => self.text() + "\n",
        };
        let mut out = io::stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    }

    fn text(&self) -> String {
        let Some((report, seen, at)) = &self.last else {
            let why = self.failure.as_deref().unwrap_or("waiting for the first answer");
            return format!("skopos top   {}   nothing seen yet\n{why}\n", self.server);
        };
        let age = human::seconds(seen.elapsed());
        let time = at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S");
        let header = format!("skopos top   {}   as of {time} ({age} ago)\n", self.server);
        let table = table(report, true);
        match &self.failure {
            None if seen.elapsed() < self.old => header + &table,
            failure => {
                let why = failure.as_deref().unwrap_or("the gateway does not answer");
                let table: String =
                    table.lines().map(|line| self.style.paint(Tone::Faint, line) + "\n").collect();
                format!("{header}{}\n{table}", self.style.paint(Tone::Bad, format!("old: {why}")))
            }
        }
    }
}

/// Time for an answer before the picture is marked as old.
const LATE: Duration = Duration::from_secs(3);

/// Formats the report as kubectl does. Contexts get a column if the name of one differs from its cluster's.
fn table(report: &Report, kinds: bool) -> String {
    let contexts = report.clusters.iter().any(|cluster| cluster.context.is_some());
    let titles = ["CLUSTER", "CONTEXT", "STATE", "FOR", "AGE ≤", "OBJECTS", "MEMORY", "WHY"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for cluster in &report.clusters {
        rows.push(row(cluster).to_vec());
        rows.extend(cluster.kinds.iter().filter(|_| kinds).map(|kind| kind_row(kind).to_vec()));
    }
    for row in &mut rows {
        if !contexts {
            row.remove(1);
        }
        // Reasons and names come from others.
        let last = row.len() - 1;
        for (n, cell) in row.iter_mut().enumerate() {
            *cell = human::one_line(cell, if n == last { 120 } else { 60 });
        }
    }
    let mut text = columns::align_rows(&rows).join("\n") + "\n";
    if report.clusters.is_empty() {
        text.push_str("no clusters\n");
    }
    if let Some(refused) = &report.config_refused {
        let _ =
            writeln!(text, "the changed configuration is not in force: {}", human::one_line(refused, 500));
    }
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {}", human::one_line(problem, 500));
    }
    text
}

fn row(cluster: &ClusterReport) -> [String; 8] {
    let objects: usize = cluster.kinds.iter().map(|kind| kind.objects).sum();
    [
        cluster.name.clone(),
        cluster.context.clone().unwrap_or_else(|| cluster.name.clone()),
        cluster.state.clone(),
        span(cluster.since_seconds),
        cluster.age_seconds.map_or("-".into(), span),
        objects.to_string(),
        bytes(cluster.bytes),
        cluster.reason.clone().unwrap_or_default(),
    ]
}

fn kind_row(kind: &KindReport) -> [String; 8] {
    let name = match kind.group.as_str() {
        "" => kind.resource.clone(),
        group => format!("{}.{group}", kind.resource),
    };
    [
        format!("  {name}"),
        String::new(),
        kind.freshness.clone(),
        String::new(),
        kind.age_seconds.map_or("-".into(), span),
        kind.objects.to_string(),
        bytes(kind.bytes),
        kind.reason.clone().unwrap_or_default(),
    ]
}

/// Formats a duration: `5s`, `3m`, `2h`, `4d`.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// Formats a size: `512Ki`, `3Mi`.
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
            {"name":"shop","state":"paused","sinceSeconds":300.5,"reason":"paused by annotation","ageSeconds":310.2,"silentSeconds":301.0,
             "bytes":2048,"requests":3,"kinds":[{"group":"apps","version":"v1","resource":"deployments","freshness":"stale",
             "ageSeconds":310.2,"objects":4,"bytes":2048,"events":5,"relists":0,"auditMismatches":0}]}]}"#;
        let report: Report = serde_json::from_str(json).unwrap();
        let text = table(&report, true);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["shop", "paused", "5m", "5m", "4", "2Ki", "paused", "by", "annotation"]);
        assert_eq!(lines[2], ["deployments.apps", "stale", "5m", "4", "2Ki"]);
        assert_eq!(table(&report, false).lines().count(), 2);
        assert!(!text.contains("CONTEXT"));
    }

    fn report(name: &str, context: Option<&str>) -> Report {
        let mut cluster = serde_json::json!({"name": name, "state": "live", "sinceSeconds": 1.0, "bytes": 0,
            "requests": 0, "kinds": []});
        if let Some(context) = context {
            cluster["context"] = context.into();
        }
        let report =
            serde_json::json!({"version": "0", "connections": 0, "watches": 0, "clusters": [cluster]});
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn context_column_appears_when_name_differs() {
        let text = table(&report("team-prod-71879f88", Some("team/prod\u{202e}")), false);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][1], "CONTEXT");
        assert_eq!(lines[1], ["team-prod-71879f88", "team/prod", "live", "1s", "-", "0", "0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn top_keeps_last_report_while_gateway_is_silent() {
        let mut picture = Picture::new("http://here".into(), Duration::from_secs(5), Style::plain());
        assert!(picture.text().contains("nothing seen yet"));
        picture.take(Err(CliError::new("refused")));
        assert!(picture.text().contains("error: refused"));
        picture.take(Ok(report("shop", None)));
        let text = picture.text();
        assert!(text.contains("(0ms ago)") && text.contains("shop") && !text.contains("old:"), "{text}");
        // The gateway hangs: nothing has failed yet.
        tokio::time::advance(Duration::from_secs(7)).await;
        let text = picture.text();
        assert!(text.contains("(7.0s ago)") && text.contains("old: the gateway does not answer"), "{text}");
        picture.take(Err(CliError::new("no answer within 10s")));
        tokio::time::advance(Duration::from_secs(60)).await;
        let text = picture.text();
        assert!(text.contains("(67s ago)") && text.contains("no answer within 10s"), "{text}");
        assert!(text.contains("shop"), "it never blanks");
        picture.take(Ok(report("shop", None)));
        assert!(!picture.text().contains("old:"));
    }
}

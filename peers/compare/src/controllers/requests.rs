//! The requests that the server has logged.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

/// A request: when it came, and what it asked for.
pub(super) struct Request {
    at: Duration,
    verb: String,
}

/// Reads the requests of one program.
pub(super) fn of(file: &Path, user_agent: &str) -> Result<Vec<Request>> {
    let text = std::fs::read_to_string(file)?;
    let theirs = |line: &&str| line.split(' ').nth(1).is_some_and(|agent| agent.contains(user_agent));
    text.lines().filter(theirs).map(parse).collect()
}

fn parse(line: &str) -> Result<Request> {
    let mut parts = line.split(' ');
    let at = parts.next().context("no time")?.parse().map(Duration::from_micros)?;
    let verb = parts.nth(1).context("no verb")?.to_owned();
    Ok(Request { at, verb })
}

/// Counts them by verb.
pub(super) fn by_verb(requests: &[Request]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.verb.clone()).or_default() += 1;
    }
    counts
}

/// Returns how long after a moment the first write came.
pub(super) fn first_write_after(requests: &[Request], moment: SystemTime) -> Option<Duration> {
    let moment = moment.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let later = |request: &&Request| request.verb == "apply" && request.at >= moment;
    requests.iter().find(later).map(|request| request.at - moment)
}

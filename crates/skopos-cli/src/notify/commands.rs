//! Commands to a running notifier.
use std::io::{self, Write as _};
use std::path::PathBuf;

use skopos_console::error::CliError;
use skopos_notify::config::NotifyConfig;
use skopos_notify::service::control::{ControlAnswer, ControlRequest, ask};
use skopos_notify::service::orphans;

use super::print;
use crate::args::{Form, WhichNotifier};

pub(crate) async fn status(which: &WhichNotifier) -> Result<(), CliError> {
    tell(which, &answer(which, &ControlRequest::Status).await?)?;
    match (&which.config, which.output) {
        (Some(path), Form::Table) => print(&orphaned(&NotifyConfig::read(path)?)),
        _ => Ok(()),
    }
}

/// Returns lines about sinks that are no longer configured and still have what was written.
fn orphaned(config: &NotifyConfig) -> String {
    let Some(state) = &config.state else { return String::new() };
    let orphans = orphans(&state.folder, config.sinks.iter().map(|sink| sink.name.as_str()));
    let line = |name: String| {
        format!(
            "{name}: is in no configuration any more, and what was written there stays: `skopos notify release {name} --config OLD` removes it\n"
        )
    };
    orphans.into_iter().map(line).collect()
}

pub(crate) async fn verify(which: &WhichNotifier) -> Result<(), CliError> {
    let answer = answer(which, &ControlRequest::Verify).await?;
    tell(which, &answer)?;
    match answer.sinks.iter().all(|report| report.is_equal()) {
        true => Ok(()),
        false => Err(CliError::new("the outside is not equal to the cluster").hint("see the lines above")),
    }
}

pub(crate) async fn held(which: &WhichNotifier) -> Result<(), CliError> {
    let answer = answer(which, &ControlRequest::Status).await?;
    match which.output {
        Form::Table => print(&print::held(&answer.sinks)),
        Form::Json => json(&answer.sinks.iter().flat_map(|report| &report.held).collect::<Vec<_>>()),
    }
}

pub(crate) async fn approve(which: &WhichNotifier, id: String) -> Result<(), CliError> {
    let answer = answer(which, &ControlRequest::Approve { id: id.clone() }).await?;
    match (answer.approved, answer.phase.as_str()) {
        (Some(true), _) => print(&format!("approved {id}\n")),
        (_, "standby") => Err(CliError::new("this notifier is on standby").hint("ask the one that works")),
        _ => Err(CliError::new(format!("nothing is held as {id}"))
            .hint("what is held has changed, or has gone on: see `skopos notify held`")),
    }
}

pub(crate) async fn retry(which: &WhichNotifier) -> Result<(), CliError> {
    tell(which, &answer(which, &ControlRequest::Retry).await?)
}

pub(crate) async fn dead(which: &WhichNotifier) -> Result<(), CliError> {
    let answer = answer(which, &ControlRequest::Status).await?;
    match which.output {
        Form::Table => print(&print::dead(&answer.sinks)),
        Form::Json => json(&answer.sinks.iter().flat_map(|report| &report.dead).collect::<Vec<_>>()),
    }
}

pub(crate) async fn retry_dead(which: &WhichNotifier, id: Option<String>) -> Result<(), CliError> {
    let answer = answer(which, &ControlRequest::RetryDead { id: id.clone() }).await?;
    match (answer.retried, id) {
        (None, _) => Err(CliError::new("this notifier does not work now").hint("ask the one that does")),
        (Some(0), Some(id)) => Err(CliError::new(format!("there is no dead letter {id}"))
            .hint("its object has changed, or it was tried again: see `skopos notify dead`")),
        (Some(count), _) => print(&format!("{count} tried again\n")),
    }
}

async fn answer(which: &WhichNotifier, request: &ControlRequest) -> Result<ControlAnswer, CliError> {
    let socket = socket(which)?;
    ask(&socket, request).await.map_err(|error| {
        CliError::new(format!("no notifier answers at {}: {error}", socket.display()))
            .hint("it runs as `skopos notify --config FILE` with state.folder, and its user is yours")
    })
}

fn socket(which: &WhichNotifier) -> Result<PathBuf, CliError> {
    if let Some(socket) = &which.socket {
        return Ok(socket.clone());
    }
    let Some(path) = &which.config else {
        return Err(CliError::Usage("name the notifier with --config FILE or --socket FILE".to_owned()));
    };
    let config = NotifyConfig::read(path)?;
    config.socket().ok_or_else(|| {
        CliError::new(format!("{} has no state.folder", path.display()))
            .hint("a notifier takes commands by a socket in that folder")
    })
}

fn tell(which: &WhichNotifier, answer: &ControlAnswer) -> Result<(), CliError> {
    match which.output {
        Form::Json => json(answer),
        Form::Table if answer.sinks.is_empty() => print(&format!("{}\n", answer.phase)),
        Form::Table => print(&print::sinks(&answer.sinks)),
    }
}

fn json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(CliError::new)?;
    print(&format!("{text}\n"))
}

fn print(text: &str) -> Result<(), CliError> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

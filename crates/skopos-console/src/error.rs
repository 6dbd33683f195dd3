//! Error type of all commands: one line that says what is wrong and what to do.
use std::process::ExitCode;
use std::{fmt, io};

use skopos_config::ConfigError;
use skopos_testserver::StartError;

use crate::aside;

/// Reason for which a command ended without having done its work.
#[derive(Debug)]
pub enum CliError {
    /// A failure, with an optional hint for the user
    Failed {
        /// The failure, in one line
        what: String,
        /// Advice, if there is any
        hint: Option<String>,
    },
    /// The command line asks for something impossible (clap found nothing wrong with its form)
    Usage(String),
    /// The reader of standard output closed it, as `head` does: no failure, except of a check
    BrokenPipe,
    /// A command that was run for the user failed, and has told so: its exit code
    CommandFailed(u8),
    /// Ctrl-C or a termination signal: the number of the signal
    Interrupted(u8),
}

impl CliError {
    /// Makes a failure without a hint.
    pub fn new(what: impl fmt::Display) -> Self {
        Self::Failed { what: what.to_string(), hint: None }
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        match self {
            Self::Failed { what, .. } => Self::Failed { what, hint: Some(hint.into()) },
            other => other,
        }
    }

    /// Returns the process' exit code: 1 for failures, 2 for wrong usage, 128 + n after signal n, as in shells.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed { .. } => 1,
            Self::Usage(_) => 2,
            Self::BrokenPipe => 0,
            Self::CommandFailed(code) => *code,
            Self::Interrupted(signal) => 128 + signal,
        })
    }

    /// Returns the line for standard error, if there is anything to say.
    pub fn line(&self) -> Option<String> {
        const LONGEST: usize = 1000;
        let text = match self {
            Self::Failed { what, hint: None } | Self::Usage(what) => what.clone(),
            Self::Failed { what, hint: Some(hint) } => format!("{}: {hint}", what.trim_end()),
            Self::BrokenPipe | Self::CommandFailed(_) | Self::Interrupted(_) => return None,
        };
        Some(format!("error: {}", crate::human::one_line(text.trim(), LONGEST)))
    }
}

impl From<ConfigError> for CliError {
    /// Prints each problem of a configuration in its own line.
    fn from(error: ConfigError) -> Self {
        let ConfigError::Invalid(problems) = error else { return Self::new(error) };
        problems.iter().for_each(aside::say);
        let count = problems.len();
        let what =
            if count == 1 { "the configuration has a problem" } else { "the configuration has problems" };
        Self::new(what).hint("see the lines above")
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::new(error),
        }
    }
}

/// Returns the error for a failed start, for the user.
pub fn start_error(error: StartError) -> CliError {
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

/// Returns an error and its causes in one line, without causes that the text contains already.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_advice() {
        let error = CliError::new("no file\nat all\n").hint("name another");
        assert_eq!(error.line().unwrap(), "error: no file at all: name another");
        assert_eq!(CliError::Usage("nonsense".into()).line().unwrap(), "error: nonsense");
    }

    #[test]
    fn nothing_is_said_about_a_reader_that_left() {
        let error = CliError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(error.line().is_none());
    }

    #[test]
    fn causes_are_not_repeated() {
        #[derive(Debug)]
        struct Layer(&'static str, Option<Box<Layer>>);
        impl fmt::Display for Layer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl std::error::Error for Layer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.1.as_deref().map(|layer| layer as _)
            }
        }
        let inner = Layer("refused", None);
        let middle = Layer("connect: refused", Some(Box::new(inner)));
        assert_eq!(chain(&Layer("list pods", Some(Box::new(middle)))), "list pods: connect: refused");
    }
}

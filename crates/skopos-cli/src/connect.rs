//! Connection to a cluster. Finds the resource of a name, or returns an error line with the cause.
use std::time::Duration;

use kube::Config;
use skopos::transport::{Fault, TransportErrorKind};
use skopos::{Transport, TransportError, TransportOptions};
use skopos_console::error::{CliError, chain};
use skopos_console::gateway::closed_without_answer;
use skopos_console::reason::plain;
use tokio::time::{Instant, sleep, timeout_at};

use crate::discovery;
use crate::resource::{Resource, resolve};

/// A cluster with its connections.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// Its connections
    pub(crate) transport: Transport,
    /// The server's URL, for messages
    pub(crate) url: String,
    /// The namespace of its context
    pub(crate) namespace: String,
}

impl Cluster {
    /// Makes the cluster of a configuration. Nothing is sent yet.
    pub(crate) fn new(config: Config) -> Result<Self, CliError> {
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config.default_namespace.clone();
        let transport = Transport::from_config(config, TransportOptions::default()).map_err(CliError::new)?;
        Ok(Self { transport, url, namespace })
    }

    /// Returns the resource of this name.
    ///
    /// If the server does not answer yet, the request is retried until the deadline and `waiting` gets the reason. Errors that a
    /// retry cannot fix (certificates, credentials, an unknown name) fail at once.
    pub(crate) async fn find(
        &self,
        name: &str,
        deadline: Instant,
        waiting: impl FnMut(&str) + Send,
    ) -> Result<Resource, CliError> {
        let known = self.discover(deadline, waiting).await?;
        resolve(name, &known).cloned().map_err(CliError::new)
    }

    fn explained(&self, error: &kube::Error, why: String) -> String {
        let error_kind = transport_error(error).map(|error| error.kind().root());
        error_kind
            .and_then(|error_kind| closed_without_answer(&self.url, error_kind))
            .map_or(why, str::to_owned)
    }

    async fn discover(
        &self,
        deadline: Instant,
        mut waiting: impl FnMut(&str) + Send,
    ) -> Result<Vec<Resource>, CliError> {
        const PAUSE: Duration = Duration::from_millis(500);
        const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
        let client = self.transport.client(self.namespace.as_str());
        let started = Instant::now();
        let mut last = "no answer".to_owned();
        loop {
            match timeout_at(deadline, discovery::resources(&client)).await {
                Ok(Ok(known)) => return Ok(known),
                Ok(Err(error)) => match judge(&error) {
                    Verdict::Hopeless(what) => return Err(CliError::new(format!("{}: {what}", self.url))),
                    Verdict::TryAgain(why) => last = self.explained(&error, why),
                },
                Err(_) => {}
            }
            // The deadline has passed.
            let left = deadline.saturating_duration_since(Instant::now());
            if left < SHORTEST_PAUSE {
                let waited = skopos_console::human::seconds(started.elapsed());
                return Err(CliError::new(format!("{} does not answer after {waited}: {last}", self.url))
                    .hint("check that it runs and that the kubeconfig's address is right"));
            }
            waiting(&last);
            sleep(PAUSE.min(left / 2)).await;
        }
    }
}

/// Classification of a failed request: permanent or retryable.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It will fail the same way
    Hopeless(String),
    /// It may succeed
    TryAgain(String),
}

fn judge(error: &kube::Error) -> Verdict {
    if let kube::Error::Api(status) = error {
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        return match status.code {
            401 => Verdict::Hopeless(format!(
                "the credentials are not accepted (401 {message}): check the user of the kubeconfig's context"
            )),
            403 => Verdict::Hopeless(format!("not allowed (403): {message}")),
            404 => Verdict::Hopeless("this is not a Kubernetes API server (404 for /api)".into()),
            code @ (429 | 500..) => Verdict::TryAgain(format!("the server answers {code}: {message}")),
            code => Verdict::Hopeless(format!("the server answers {code}: {message}")),
        };
    }
    match transport_error(error) {
        Some(error) => {
            let root = error.kind().root();
            match root {
                TransportErrorKind::Tls(_)
                | TransportErrorKind::Auth(_)
                | TransportErrorKind::Redirected { .. }
                | TransportErrorKind::Request(_) => Verdict::Hopeless(root.to_string()),
                TransportErrorKind::Proxy { fault, .. } if fault.fault() == Fault::Caller => {
                    Verdict::Hopeless(root.to_string())
                }
                TransportErrorKind::Protocol(_) => {
                    Verdict::Hopeless(format!("this is not a Kubernetes API server ({root})"))
                }
                _ => Verdict::TryAgain(plain(&root.to_string())),
            }
        }
        None if matches!(error, kube::Error::SerdeError(_)) => {
            Verdict::Hopeless("this is not a Kubernetes API server: its answer is no JSON of one".into())
        }
        None => Verdict::TryAgain(chain(error)),
    }
}

/// Returns the transport's own error, at any depth in kube's error.
fn transport_error(error: &kube::Error) -> Option<&TransportError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(kube::core::Status::failure(message, "").with_code(code)))
    }

    #[test]
    fn permanent_status_fails_immediately() {
        for code in [400, 401, 403, 404] {
            assert!(matches!(judge(&status(code, "no")), Verdict::Hopeless(_)), "{code}");
        }
        for code in [429, 500, 503] {
            assert!(matches!(judge(&status(code, "later")), Verdict::TryAgain(_)), "{code}");
        }
    }

    #[test]
    fn finds_transport_error_in_kube_error() {
        let error = TransportError::from(TransportErrorKind::PingTimeout);
        let error = kube::Error::Service(Box::new(error));
        assert_eq!(judge(&error), Verdict::TryAgain(TransportErrorKind::PingTimeout.to_string()));
    }
}

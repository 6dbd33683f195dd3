//! Reloading of the configuration file. A valid change is applied. An invalid one is reported, and the old configuration stays
//! in force.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Config, ConfigError};
use crate::limits::log_limit::LogLimit;
use crate::listen::descriptors;
use crate::reread::reread;

/// The configuration in force, and the change refused since, if any.
#[derive(Clone, Debug)]
pub(crate) struct ConfigState {
    /// The configuration in force.
    pub(crate) config: Arc<Config>,
    /// The number of configurations that came into force, from 1.
    pub(crate) generation: u64,
    /// The reason why the present content of the file is not in force.
    pub(crate) refused: Option<Refused>,
}

/// A change that was not applied.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// All errors in it.
    pub(crate) reason: Arc<str>,
}

/// A reader of a configuration file and its changes.
///
/// Reads the file every two seconds. ConfigMap volumes swap their files by symbolic links, which file notifications report
/// poorly.
#[derive(Debug)]
pub(crate) struct ConfigFollower {
    path: PathBuf,
    state: watch::Sender<ConfigState>,
    /// The text that was handled last; the inner `None` is a missing file.
    last: Option<Option<String>>,
}

const POLL_INTERVAL: Duration = Duration::from_secs(2);

static EXHAUSTED: LogLimit = LogLimit::new(Duration::from_secs(60));

impl ConfigFollower {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// If the file is invalid: there is no old configuration to keep.
    pub(crate) fn open(path: PathBuf) -> Result<Self, ConfigError> {
        let config = Arc::new(Config::read(&path)?);
        let last = Some(std::fs::read_to_string(&path).ok());
        let (state, _) = watch::channel(ConfigState { config, generation: 1, refused: None });
        Ok(Self { path, state, last })
    }

    /// Returns a receiver of the configuration in force and its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<ConfigState> {
        self.state.subscribe()
    }

    /// Follows the file until cancelled. `take` applies a configuration completely or returns why it cannot. Such a change
    /// counts as refused and is retried, because the cause may be another file.
    pub(crate) async fn run(
        mut self,
        stop: CancellationToken,
        mut take: impl FnMut(&Arc<Config>) -> Result<(), Arc<str>> + Send,
    ) {
        let path = self.path.clone();
        let read = move || (std::fs::read_to_string(&path).ok(), Config::read(&path));
        reread(POLL_INTERVAL, &stop, read, |(text, parsed)| {
            if self.last.as_ref() != Some(&text) {
                self.last = match self.look(parsed, &mut take) {
                    Handled::Yes => Some(text),
                    Handled::Retry => None,
                };
            }
        })
        .await;
    }

    fn look(
        &self,
        parsed: Result<Config, ConfigError>,
        take: &mut impl FnMut(&Arc<Config>) -> Result<(), Arc<str>>,
    ) -> Handled {
        let config = match parsed {
            Ok(config) => Arc::new(config),
            // This error says nothing about the file.
            Err(ConfigError::Unreadable { error, .. }) if descriptors::is_exhausted(&error) => {
                if EXHAUSTED.permits() {
                    tracing::warn!(%error, "the configuration cannot be read now, the one in force stays: it is tried again");
                }
                return Handled::Retry;
            }
            Err(error) => {
                self.refuse(error.to_string().into());
                return Handled::Yes;
            }
        };
        let news = *self.state.borrow().config != *config;
        if news && let Err(reason) = take(&config) {
            self.refuse(reason);
            return Handled::Retry;
        }
        let path = self.path.display();
        tracing::info!(%path, "configuration changed");
        self.state.send_modify(|state| {
            state.refused = None;
            if news {
                state.config = config;
                state.generation += 1;
            }
        });
        Handled::Yes
    }

    fn refuse(&self, reason: Arc<str>) {
        if self.state.borrow().refused.as_ref().is_some_and(|known| known.reason == reason) {
            return;
        }
        let path = self.path.display();
        tracing::error!(%path, %reason, "changed configuration refused, the old one stays");
        self.state.send_modify(|state| state.refused = Some(Refused { reason }));
    }
}

/// State of a text: handled, or to be read again.
enum Handled {
    Yes,
    Retry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_descriptors_refuse_no_configuration() {
        let path = tempfile::tempdir().unwrap().path().join("gateway.yaml");
        let (state, _) = watch::channel(ConfigState { config: Arc::default(), generation: 1, refused: None });
        let follower = ConfigFollower { path: path.clone(), state, last: None };
        let mut take = |_: &Arc<Config>| Ok(());
        let unreadable = |error| Err(ConfigError::Unreadable { path: path.clone(), error });
        let exhausted = std::io::Error::from_raw_os_error(24);
        assert!(matches!(follower.look(unreadable(exhausted), &mut take), Handled::Retry));
        assert!(follower.state.borrow().refused.is_none());
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert!(matches!(follower.look(unreadable(missing), &mut take), Handled::Yes));
        assert!(follower.state.borrow().refused.is_some());
    }
}

//! The servers of a zone: one of them is read and written, and the others are compared with it.

use std::time::Duration;

use domain::base::Serial;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::DnsOptions;
use super::client::{DnsClient, ExchangeError};
use crate::sink::SinkError;

/// The servers of a zone.
///
/// The primary is the server that accepts updates. Only it is read: a secondary that lags would present old content as the
/// zone's. With several servers it is checked again at each observation, by an update that changes nothing.
pub(super) struct Servers {
    clients: Vec<DnsClient>,
    lag_limit: Duration,
    state: Mutex<ServersState>,
}

#[derive(Default)]
struct ServersState {
    primary: Option<usize>,
    /// The problem, while several servers accept updates.
    several: Option<String>,
    /// The serial that each server lacks.
    behind: Vec<Option<Behind>>,
}

/// A server that has not yet been seen with a serial that the primary had.
#[derive(Clone, Debug)]
struct Behind {
    serial: Serial,
    since: Instant,
    problem: String,
}

/// Time limit of the request for the serial of a server that is not the primary.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(1);

impl Servers {
    pub(super) fn new(options: &DnsOptions) -> Self {
        let clients: Vec<_> = options.servers.iter().map(|server| DnsClient::new(options, *server)).collect();
        let state = ServersState { behind: vec![None; clients.len()], ..ServersState::default() };
        Self { clients, lag_limit: options.lag_limit, state: Mutex::new(state) }
    }

    /// Returns the primary, with its index.
    ///
    /// # Errors
    /// When no server accepts updates.
    pub(super) async fn primary(&self) -> Result<(usize, &DnsClient), ExchangeError> {
        if let [only] = &self.clients[..] {
            return Ok((0, only));
        }
        let known = self.state.lock().primary;
        match known {
            Some(number) => Ok((number, &self.clients[number])),
            None => self.choose().await,
        }
    }

    /// Returns the primary after checking that it still is.
    ///
    /// # Errors
    /// When no server accepts updates.
    pub(super) async fn confirmed_primary(&self) -> Result<(usize, &DnsClient), ExchangeError> {
        let known = self.state.lock().primary;
        if let Some(number) = known
            && self.clients[number].takes_updates().await.is_err()
        {
            self.doubt(number);
        }
        self.primary().await
    }

    /// Records that the primary did not act as one, so that it is chosen again.
    pub(super) fn doubt(&self, number: usize) {
        let mut state = self.state.lock();
        state.primary.take_if(|primary| *primary == number);
    }

    /// Chooses the primary: among the servers that accept updates the one with the newest serial, then the first.
    async fn choose(&self) -> Result<(usize, &DnsClient), ExchangeError> {
        let asked = join_all(self.clients.iter().map(|client| async {
            client.takes_updates().await?;
            client.serial().await
        }));
        let (mut candidates, mut problems, mut is_down) = (Vec::new(), Vec::new(), false);
        for (number, answer) in asked.await.into_iter().enumerate() {
            match answer {
                Ok(serial) => candidates.push((number, serial)),
                Err(error) => {
                    is_down |= matches!(error, ExchangeError::Before(_) | ExchangeError::After(_));
                    problems.push(error.into_error().to_string());
                }
            }
        }
        let newest =
            candidates.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best });
        let Some((number, _)) = newest else {
            let problem = format!("no server takes updates: {}", problems.join("; "));
            return Err(if is_down {
                ExchangeError::Before(problem)
            } else {
                ExchangeError::Refused(problem)
            });
        };
        let client = &self.clients[number];
        tracing::info!(server = %client.server, "the server takes updates, and is read and written from now on");
        let several = (candidates.len() > 1).then(|| {
            let all: Vec<_> = candidates.iter().map(|(number, _)| self.clients[*number].server.to_string()).collect();
            format!(
                "several servers take updates ({}), and {} is written: name only the primary and its secondaries in `servers`, and do not let secondaries forward updates",
                all.join(", "),
                client.server
            )
        });
        let mut state = self.state.lock();
        (state.primary, state.several) = (Some(number), several);
        state.behind[number] = None;
        drop(state);
        Ok((number, client))
    }

    /// Reads the serial of the primary, and compares the other servers with it.
    pub(super) async fn serial(&self) -> Result<(usize, Serial), ExchangeError> {
        let (primary, client) = self.confirmed_primary().await?;
        let others = self.clients.iter().enumerate().filter(|(number, _)| *number != primary);
        let others = join_all(others.map(|(number, other)| async move {
            let answer = timeout(OTHERS_TIMEOUT, other.serial()).await;
            let answer = answer
                .unwrap_or_else(|_| Err(ExchangeError::After(format!("no answer in {OTHERS_TIMEOUT:?}"))));
            (number, answer.map_err(|error| error.into_error()))
        }));
        let (serial, others) = tokio::join!(client.serial(), others);
        let serial = serial.inspect_err(|_| self.doubt(primary))?;
        for (number, answer) in others {
            self.compare(number, primary, serial, answer, Instant::now());
        }
        Ok((primary, serial))
    }

    fn compare(
        &self,
        number: usize,
        primary: usize,
        serial: Serial,
        answer: Result<Serial, SinkError>,
        now: Instant,
    ) {
        let (server, written) = (self.clients[number].server, self.clients[primary].server);
        let mut state = self.state.lock();
        let known = state.behind[number].take();
        let problem = match &answer {
            Ok(theirs) if *theirs == serial => return,
            Ok(theirs) => format!(
                "DNS server {server} has serial {theirs} and not that of {written}, which is written ({serial}): see how it gets the zone (also-notify, allow-transfer)"
            ),
            Err(error) => format!("DNS server {server} does not serve the zone: {error}"),
        };
        // A server follows if it has what the primary had at an earlier observation, and nothing that the primary does not have.
        let follows =
            |known: &Behind| answer.as_ref().is_ok_and(|theirs| *theirs >= known.serial && *theirs <= serial);
        let since = known.filter(|known| !follows(known)).map(|known| (known.serial, known.since));
        let (serial, since) = since.unwrap_or((serial, now));
        state.behind[number] = Some(Behind { serial, since, problem });
    }

    /// Returns the problem of the servers, although the primary works.
    pub(super) fn problem(&self) -> Option<String> {
        let (state, now) = (self.state.lock(), Instant::now());
        let behind = state.behind.iter().flatten();
        let behind = behind.filter(|behind| now.duration_since(behind.since) >= self.lag_limit);
        let problems: Vec<_> =
            state.several.iter().chain(behind.map(|behind| &behind.problem)).map(String::as_str).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn servers() -> Servers {
        let mut options = DnsOptions::new("z.test", "192.0.2.1:53".parse().unwrap(), "us");
        options.servers.push("192.0.2.2:53".parse().unwrap());
        Servers::new(&options)
    }

    #[tokio::test(start_paused = true)]
    async fn only_lagging_secondary_is_problem() {
        let servers = servers();
        let look = |primary: u32, answer: Result<u32, SinkError>| {
            servers.compare(1, 0, Serial(primary), answer.map(Serial), Instant::now());
        };
        // A zone that changes all the time: the secondary is always slightly behind.
        for round in 0..20 {
            look(100 + 10 * round, Ok(95 + 10 * round));
            assert_eq!(servers.problem(), None, "round {round}");
            tokio::time::advance(LIMIT / 3).await;
        }
        // The secondary stops, though nothing changes any more.
        for _ in 0..4 {
            look(300, Ok(290));
            tokio::time::advance(LIMIT / 3).await;
        }
        assert!(servers.problem().unwrap().contains("192.0.2.2:53 has serial 290"));
        look(300, Ok(300));
        assert_eq!(servers.problem(), None);
        // The secondary has something that the primary does not have.
        for _ in 0..4 {
            look(300, Ok(7_000));
            tokio::time::advance(LIMIT / 3).await;
        }
        assert!(servers.problem().is_some());
        look(300, Ok(300));
        for _ in 0..4 {
            look(300, Err(SinkError::Unreachable("down".into())));
            tokio::time::advance(LIMIT / 3).await;
        }
        assert!(servers.problem().unwrap().contains("does not serve the zone: down"));
    }
}

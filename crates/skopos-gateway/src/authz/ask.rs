//! Small requests to a cluster, as a trait: all that reviews need of a fleet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

/// A client of clusters by name, with the gateway's own credentials.
pub trait Ask: Send + Sync + 'static {
    /// Sends one request and reads the whole answer, of at most [`MAX_ANSWER_BYTES`]. Ends after `within` in any case.
    fn ask(
        &self,
        cluster: &str,
        request: Request<Bytes>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, AskError>>;

    /// Returns a number for the server that this name leads to now and its connection; `None` if there is none. An answer with
    /// another number says nothing about the server that has the name now.
    fn generation(&self, cluster: &str) -> Option<u64>;
}

/// The maximum size of an answer. Reviews and key sets are far smaller.
pub(crate) const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// The reason why a cluster did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no cluster of this name.
    #[error("there is no cluster {0:?}")]
    Unknown(Arc<str>),
    /// The cluster comes from a source that others may write to, so it must not be asked this.
    #[error(
        "cluster {0:?} is listed by a source that is not trusted: name it in a kubeconfig of clusters.kubeconfigs"
    )]
    Untrusted(Arc<str>),
    /// The cluster cannot be reached now, or did not answer in time.
    #[error("the cluster does not answer: {0}")]
    Down(Arc<str>),
    /// The cluster is too busy (429), and may be asked again after this time.
    #[error("the cluster is too busy: it answered 429")]
    Busy {
        /// The time to wait before the next request.
        retry_after: Duration,
    },
    /// The response cannot be used.
    #[error("the cluster's answer cannot be used: {0}")]
    Unusable(Arc<str>),
}

impl AskError {
    /// Returns whether no server is there to decide. A cluster that is busy, fails or refuses is there.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down(_))
    }
}

/// The longest pause that a busy cluster may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Spreads the requests that a busy cluster refused at the same moment, in milliseconds.
const RETRY_JITTER: u64 = 250;

/// Posts a review and reads it back with its status. Retries as a busy cluster asks for in its 429 answers, within `within`.
pub(crate) async fn review<Q: Serialize, A: DeserializeOwned>(
    ask: &dyn Ask,
    cluster: &str,
    path: &'static str,
    question: &Q,
    within: Duration,
) -> Result<A, AskError> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let answer = review_once(ask, cluster, path, question, left).await;
        let Err(AskError::Busy { retry_after }) = answer else { return answer };
        let pause = retry_after + Duration::from_millis(fastrand::u64(..RETRY_JITTER));
        if Instant::now() + pause >= until {
            return Err(AskError::Busy { retry_after });
        }
        sleep(pause).await;
    }
}

async fn review_once<Q: Serialize, A: DeserializeOwned>(
    ask: &dyn Ask,
    cluster: &str,
    path: &'static str,
    question: &Q,
    within: Duration,
) -> Result<A, AskError> {
    let unusable = |error: &dyn std::fmt::Display| AskError::Unusable(error.to_string().into());
    let body = serde_json::to_vec(question).map_err(|error| unusable(&error))?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Bytes::from(body))
        .map_err(|error| unusable(&error))?;
    let asking = tokio::time::timeout(within, ask.ask(cluster, request, within));
    let answer =
        asking.await.unwrap_or_else(|_| Err(AskError::Down(format!("not within {within:?}").into())))?;
    match answer.status() {
        StatusCode::OK | StatusCode::CREATED => {
            serde_json::from_slice(answer.body()).map_err(|error| unusable(&error))
        }
        // A proxy in front of the server sends this when the server is not there. Its text may concern others, so only the
        // code is passed on.
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Err(AskError::Down(format!("it answered {}", answer.status()).into()))
        }
        StatusCode::TOO_MANY_REQUESTS => Err(AskError::Busy { retry_after: retry_after(answer.headers()) }),
        refused => Err(AskError::Unusable(format!("it answered {refused} to a review").into())),
    }
}

/// Returns the pause that a 429 asks for, one second by default.
fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1)).min(MAX_RETRY_AFTER)
}

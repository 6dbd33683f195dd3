//! Asking a cluster something small, as a trait: what reviews need of a fleet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

/// Asks clusters by name, in the gateway's own name.
pub trait Ask: Send + Sync + 'static {
    /// Sends one request and reads the whole answer, of at most [`MOST_BYTES`]; ends after `within` whatever happens.
    fn ask(
        &self,
        cluster: &str,
        request: Request<Bytes>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, AskError>>;

    /// A number for whom a question reaches now, and by which way; `None` if nobody. What was answered by another says nothing
    /// of who has the name now.
    fn way(&self, cluster: &str) -> Option<u64>;
}

/// Most bytes of an answer: reviews and key sets are far smaller.
pub const MOST_BYTES: usize = 1024 * 1024;

/// Why a cluster did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no cluster of this name.
    #[error("there is no cluster {0:?}")]
    Unknown(Arc<str>),
    /// It is listed by a source that others may write to, and is not to be asked this.
    #[error(
        "cluster {0:?} is listed by a source that is not trusted: name it in a kubeconfig of clusters.kubeconfigs"
    )]
    Untrusted(Arc<str>),
    /// It cannot be reached now, or did not answer in time.
    #[error("the cluster does not answer: {0}")]
    Down(Arc<str>),
    /// It is too busy (429), and may be asked again after this time.
    #[error("the cluster is too busy: it answered 429")]
    Busy {
        /// How long it wants to be left alone.
        retry_after: Duration,
    },
    /// It answers something that is no answer.
    #[error("the cluster's answer cannot be used: {0}")]
    Unusable(Arc<str>),
}

// === impl AskError ===

impl AskError {
    /// Whether nobody is there who could decide. A cluster that is busy, or fails, or refuses is there.
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down(_))
    }
}

/// The longest pause that a busy cluster may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Spreads the requests that a busy cluster refused at the same moment, in milliseconds.
const RETRY_JITTER: u64 = 250;

/// Posts a review and reads it back with its status. A cluster that is too busy is asked again as it wishes, within `within`.
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
        // Said by what stands before a server that is not there. What it says may be about somebody else: only the code is
        // told on.
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Err(AskError::Down(format!("it answered {}", answer.status()).into()))
        }
        StatusCode::TOO_MANY_REQUESTS => Err(AskError::Busy { retry_after: retry_after(answer.headers()) }),
        refused => Err(AskError::Unusable(format!("it answered {refused} to a review").into())),
    }
}

/// Returns how long a 429 asks to wait: a second if it does not say.
fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1)).min(MAX_RETRY_AFTER)
}

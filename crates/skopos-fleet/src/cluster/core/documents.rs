//! Documents of a cluster (discovery, OpenAPI): from memory, or fetched once for all waiting callers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use skopos::TransportError;
use skopos::transport::{RequestClass, RequestOptions};
use tokio::time::{Instant, timeout};

use super::ClusterInner;
use crate::cluster::documents::{Document, DocumentRequest, Fetching};
use crate::cluster::session::Session;
use crate::error::FleetError;
use crate::id::ClusterId;

/// Timeout of one fetch of a document, however short its first caller's limit is.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

impl ClusterInner {
    pub(crate) async fn document(
        self: &Arc<Self>,
        request: &DocumentRequest,
        limit: Duration,
    ) -> Result<Document, FleetError> {
        self.document_within(request, self.options.document_age, limit).await
    }

    /// Returns the document as it is now.
    pub(crate) async fn current_document(
        self: &Arc<Self>,
        request: &DocumentRequest,
        limit: Duration,
    ) -> Result<Document, FleetError> {
        let age = if request.is_immutable() { Duration::MAX } else { Duration::ZERO };
        self.document_within(request, age, limit).await
    }

    async fn document_within(
        self: &Arc<Self>,
        request: &DocumentRequest,
        max_age: Duration,
        limit: Duration,
    ) -> Result<Document, FleetError> {
        let begun = Instant::now();
        if !max_age.is_zero()
            && let Some(document) = self.documents.fresh(request, max_age)
        {
            return Ok(document);
        }
        // A document of an earlier run is better than none.
        let left = || limit.saturating_sub(begun.elapsed());
        let _ = timeout(left(), self.restored.cancelled()).await;
        let old = self.documents.get(request);
        let refusal = self.closed_error().map_or_else(|| self.check_reachable(old.is_some()), Err);
        if let Err(refusal) = refusal {
            return old.ok_or(refusal);
        }
        let fetching = async {
            // A fetch that began before this call may return a state from before this call, too.
            if let Some(earlier) = self.documents.under_way(request).filter(|_| max_age.is_zero()) {
                drop(earlier.await);
            }
            self.fetch_ahead(request).await
        };
        let fetched = match timeout(left(), self.stop.run_until_cancelled(fetching)).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(FleetError::Closed),
            Err(_) => Err(self.deadline_error(begun, None)),
        };
        match (fetched, old) {
            // An old document says more than a server error.
            (Ok(document), Some(old)) if document.status.is_server_error() => Ok(old),
            (Ok(document), _) => Ok(document),
            (Err(_), Some(old)) => Ok(old),
            (Err(error), None) => Err(error),
        }
    }

    /// Fetches a document. The fetch continues after its callers have given up.
    pub(crate) fn fetch_ahead(self: &Arc<Self>, request: &DocumentRequest) -> Fetching {
        self.documents.fetch(request, |old| {
            let fetching = self.fetching(request.clone(), old);
            let (inner, driven, request) = (self.clone(), fetching.clone(), request.clone());
            self.tasks.spawn(async move {
                let fetched = inner.stop.run_until_cancelled(driven.clone()).await;
                let document = fetched.as_ref().and_then(|result| result.as_ref().ok());
                inner.documents.fetched(&request, &driven, document, &inner.options);
            });
            fetching
        })
    }

    /// Fetches a document. The future holds no reference to the cluster, because the cluster holds the future.
    fn fetching(&self, request: DocumentRequest, old: Option<Document>) -> Fetching {
        let (id, connection, limit) = (self.id.clone(), self.connection(), self.options.max_document_bytes);
        let fetching = async move {
            let session = connection.session().await?;
            let asked_at = Instant::now();
            let fetch = fetch(&session, &request, old.as_ref(), limit);
            let (status, headers, body) = fetch.await.map_err(|failure| failure.into_fleet_error(&id))?;
            match old {
                Some(old) if status == StatusCode::NOT_MODIFIED => Ok(old.confirmed(asked_at)),
                _ => {
                    let content_type = text(&headers, header::CONTENT_TYPE).unwrap_or_default();
                    let etag = text(&headers, header::ETAG);
                    Ok(Document::fetched(status, content_type, etag, body, asked_at))
                }
            }
        };
        fetching.boxed().shared()
    }
}

enum FetchFailure {
    Transport(TransportError),
    Malformed(String),
}

impl FetchFailure {
    fn into_fleet_error(self, id: &ClusterId) -> FleetError {
        let cluster = id.clone();
        match self {
            Self::Transport(error) => FleetError::Transport { cluster, error },
            Self::Malformed(reason) => FleetError::Malformed { cluster, reason: reason.into() },
        }
    }
}

async fn fetch(
    session: &Session,
    request: &DocumentRequest,
    old: Option<&Document>,
    limit: usize,
) -> Result<(StatusCode, HeaderMap, Bytes), FetchFailure> {
    let mut builder = Request::get(request.path()).header(header::ACCEPT, request.accept());
    if let Some(etag) = old.and_then(|old| old.etag.as_deref()) {
        builder = builder.header(header::IF_NONE_MATCH, etag);
    }
    let options = RequestOptions {
        class: Some(RequestClass::Read),
        deadline: Some(FETCH_TIMEOUT),
        ..RequestOptions::default()
    };
    let malformed = |error: &dyn std::fmt::Display| FetchFailure::Malformed(error.to_string());
    let request = builder.extension(options).body(Body::empty()).map_err(|error| malformed(&error))?;
    let response = session.transport.send(request).await.map_err(FetchFailure::Transport)?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await.map_err(|error| {
        match error.downcast::<TransportError>() {
            Ok(error) => FetchFailure::Transport(*error),
            Err(_) => FetchFailure::Malformed(format!("more than {limit} bytes")),
        }
    })?;
    Ok((parts.status, parts.headers, body.to_bytes()))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

//! Identity check of a cluster, before content of an earlier run is resumed.
//!
//! A cluster's name may lead to another cluster than before: recreated, restored elsewhere, replaced. Resource versions
//! of one cluster mean nothing in another, which might accept them all the same. So while content of an earlier run is
//! cached, lists and watches wait ([`ClusterConnection::admitted`]) until the server's identity is known: the uid of
//! its namespace kube-system. If that namespace is not readable, CA and address identify the cluster. Meanwhile the
//! content can be read, with its age.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use skopos::transport::{RequestClass, RequestOptions};
use skopos::{Status, Transport};
use tokio::time::timeout;

use super::core::ClusterInner;
use super::persistence::{PERSISTENCE_TIMEOUT, Persistence};
use super::session::ClusterConnection;
use crate::spec::ClusterSpec;

/// The namespace whose uid identifies a cluster.
const NAMESPACE: &str = "kube-system";

/// Delay before the server is asked again after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// The same delay without a connection: connecting has its own backoff.
const CONNECT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The same delay after the server refused the request.
const REFUSAL_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Consecutive refusals after which the content is discarded: rights come and go.
const MAX_REFUSALS: u32 = 2;

/// Limit on the response: a namespace is smaller.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Checks the server's identity until it is known. Then admits lists and watches, or discards the content and starts
/// again.
pub(super) async fn verify_identity(
    inner: Arc<ClusterInner>,
    connection: Arc<ClusterConnection>,
    persistence: Arc<dyn Persistence>,
) {
    connection.requested().await;
    // If there is no session, another connection will be tried.
    let Ok(session) = connection.session().await else { return };
    let presumed = session.factory.cluster();
    let reported = fetch_identity(&inner, &connection, &session.transport, presumed.is_some()).await;
    match (presumed, reported) {
        (None, Some(reported)) => {
            // This comes first: deleting checkpoints may take long, and content read meanwhile belongs to
            // this cluster already. A shutdown during that time then still saves it.
            session.factory.set_cluster(reported.as_str());
            record_identity(&inner, &*persistence, Some(&reported)).await;
        }
        (None, None) => record_identity(&inner, &*persistence, None).await,
        (Some(presumed), Some(reported)) if *presumed == *reported => {
            connection.admitted.cancel();
            session.factory.retry_now();
        }
        (Some(presumed), reported) => {
            tracing::warn!(cluster = %inner.id, was = %presumed, is = reported.as_deref().unwrap_or("not told"),
                "it is another cluster than before: its cached data is dropped");
            // This comes first: another connection may arrive while that takes long, and ends this task.
            if connection.mark_foreign() {
                record_identity(&inner, &*persistence, reported.as_deref()).await;
                inner.reset(&connection);
            }
        }
    }
}

/// Passes the identity to the persistence. The timeout keeps a hanging disk from holding up the cluster.
async fn record_identity(inner: &ClusterInner, persistence: &dyn Persistence, reported: Option<&str>) {
    if timeout(PERSISTENCE_TIMEOUT, persistence.set_identity(&inner.id, reported)).await.is_err() {
        tracing::warn!(cluster = %inner.id, "the cached data of another cluster could not be dropped in time");
    }
}

/// Returns the identity of the server; `None`: it does not reveal one.
async fn fetch_identity(
    inner: &ClusterInner,
    connection: &ClusterConnection,
    transport: &Transport,
    kept: bool,
) -> Option<String> {
    let mut refusals = 0;
    loop {
        // The future is created first, so that a wake during the request counts, too.
        let woken = connection.woken();
        let pause = match request_identity(transport).await {
            Ok(uid) => return Some(uid),
            // A server that rejects the credentials answers no other request either.
            Err(IdentityError::Refused(StatusCode::UNAUTHORIZED)) => REFUSAL_RETRY_DELAY,
            Err(IdentityError::Refused(status)) => {
                refusals += 1;
                if !kept || refusals >= MAX_REFUSALS {
                    tracing::debug!(cluster = %inner.id, %status, "its namespace kube-system cannot be read");
                    return connection.spec.as_ref().ok().and_then(authority_identity);
                }
                REFUSAL_RETRY_DELAY
            }
            Err(IdentityError::Failed(reason)) => {
                tracing::debug!(cluster = %inner.id, reason, "it does not say yet who it is");
                if transport.stats().down.is_some() { CONNECT_RETRY_DELAY } else { RETRY_DELAY }
            }
        };
        // A wake ends the delay: the server is probably up.
        let _ = timeout(pause, woken).await;
    }
}

enum IdentityError {
    Refused(StatusCode),
    Failed(String),
}

async fn request_identity(transport: &Transport) -> Result<String, IdentityError> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let failed = |error: &dyn std::fmt::Display| IdentityError::Failed(error.to_string());
    let options = RequestOptions {
        class: Some(RequestClass::Read),
        // As for a watch: requests before there is a connection gain nothing.
        wait_for_connection: Some(true),
        ..RequestOptions::default()
    };
    let request = Request::get(format!("/api/v1/namespaces/{NAMESPACE}"))
        .header(header::ACCEPT, "application/json")
        .extension(options)
        .body(Body::empty())
        .map_err(|error| failed(&error))?;
    let response = transport.send(request).await.map_err(|error| failed(&error))?;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        return Err(IdentityError::Refused(status));
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    if is_refusal(status, &body) {
        return Err(IdentityError::Refused(status));
    }
    if status != StatusCode::OK {
        return Err(IdentityError::Failed(status.to_string()));
    }
    let named: Named = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
    match named.metadata.uid.as_str() {
        "" => Err(IdentityError::Refused(status)),
        uid => Ok(format!("uid {uid}")),
    }
}

/// Returns whether a Kubernetes server says that this namespace may not be read, or does not exist. A proxy whose
/// server is gone answers 403 and 404, too; one that does not know the path names no namespace.
fn is_refusal(status: StatusCode, body: &[u8]) -> bool {
    let details = || Status::from_slice(body).map(|said| said.details.unwrap_or_default());
    match status {
        StatusCode::FORBIDDEN => details().is_some(),
        StatusCode::NOT_FOUND => details().is_some_and(|details| details.name == NAMESPACE),
        _ => false,
    }
}

/// Returns an identity made of address and CA: a recreated cluster has another CA. `None`: without its
/// own CA a cluster cannot be distinguished from another.
fn authority_identity(spec: &ClusterSpec) -> Option<String> {
    let config = spec.config();
    let authority = config.root_cert.filter(|authority| !authority.is_empty())?;
    let mut hash = Sha256::new();
    for part in std::iter::once(spec.server().to_string().into_bytes()).chain(authority) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("authority {hex}"))
}

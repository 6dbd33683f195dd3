//! Finds out which cluster it is that answers, before anything of an earlier run is gone on with.
//!
//! A cluster's name may lead to another one than before: made anew, restored elsewhere, replaced. Resource versions of the one
//! mean nothing to the other, and might be believed all the same. So while content of an earlier run is there, lists and
//! watches wait ([`Link::admitted`]) until the server has said who it is: the uid of its namespace kube-system. Where that may
//! not be read, its CA and address stand for it. Meanwhile the content can be read, with its age.

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

use super::session::Link;
use super::unit::{KEEPER_PATIENCE, Unit};
use crate::keeper::Keeper;
use crate::spec::ClusterSpec;

/// The namespace by whose uid a cluster is known.
const NAMESPACE: &str = "kube-system";

/// How long after a failure the server is asked again.
const AGAIN: Duration = Duration::from_secs(15);

/// The same where there is no connection: those have a backoff of their own.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// The same for one that refuses to tell.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// So often in a row it may refuse to tell before what is kept of it is let go of: rights come and go.
const REFUSALS: u32 = 2;

/// A namespace is smaller.
const MOST_BYTES: usize = 1 << 20;

/// Asks the server who it is, until it is known; then admits lists and watches, or begins anew.
pub(super) async fn introduce(unit: Arc<Unit>, link: Arc<Link>, keeper: Arc<dyn Keeper>) {
    link.begins().await;
    // Where there is none, another link will be tried.
    let Ok(session) = link.session().await else { return };
    let presumed = session.factory.cluster();
    let told = find_out(&unit, &link, &session.transport, presumed.is_some()).await;
    match (presumed, told) {
        (None, Some(told)) => {
            // First: what the keeper has to remove may take its time, and what is read meanwhile is this cluster's already. Who
            // shuts down then still keeps it.
            session.factory.identify(told.as_str());
            tell(&unit, &*keeper, Some(&told)).await;
        }
        (None, None) => tell(&unit, &*keeper, None).await,
        (Some(presumed), Some(told)) if *presumed == *told => {
            link.admitted.cancel();
            session.factory.retry_now();
        }
        (Some(presumed), told) => {
            tracing::warn!(cluster = %unit.id, was = %presumed, is = told.as_deref().unwrap_or("not told"),
                "it is another cluster than before: what was kept of it is let go of");
            // First: another way may come while the keeper takes its time, and ends this.
            if link.disown() {
                tell(&unit, &*keeper, told.as_deref()).await;
                unit.begin_anew(&link);
            }
        }
    }
}

/// Tells the keeper who it is. A disk that hangs holds up nothing of the cluster.
async fn tell(unit: &Unit, keeper: &dyn Keeper, told: Option<&str>) {
    if timeout(KEEPER_PATIENCE, keeper.identified(&unit.id, told)).await.is_err() {
        tracing::warn!(cluster = %unit.id, "what was kept of another cluster could not be let go of in time");
    }
}

/// Who the server is; `None`: it does not tell.
async fn find_out(unit: &Unit, link: &Link, transport: &Transport, kept: bool) -> Option<String> {
    let mut refusals = 0;
    loop {
        // Also by what wakes while it is asked.
        let woken = link.woken();
        let pause = match ask(transport).await {
            Ok(uid) => return Some(uid),
            // Nothing else will be answered either.
            Err(Untold::Refused(StatusCode::UNAUTHORIZED)) => AFTER_REFUSAL,
            Err(Untold::Refused(status)) => {
                refusals += 1;
                if !kept || refusals >= REFUSALS {
                    tracing::debug!(cluster = %unit.id, %status, "its namespace kube-system cannot be read");
                    return link.spec.as_ref().ok().and_then(by_authority);
                }
                AFTER_REFUSAL
            }
            Err(Untold::Failed(reason)) => {
                tracing::debug!(cluster = %unit.id, reason, "it does not say yet who it is");
                if transport.stats().down.is_some() { CONNECT_AGAIN } else { AGAIN }
            }
        };
        // Sooner when there is reason to think that it is there.
        let _ = timeout(pause, woken).await;
    }
}

enum Untold {
    Refused(StatusCode),
    Failed(String),
}

async fn ask(transport: &Transport) -> Result<String, Untold> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let failed = |error: &dyn std::fmt::Display| Untold::Failed(error.to_string());
    let options = RequestOptions {
        class: Some(RequestClass::Read),
        // As a watch would: nothing is gained by asking in between.
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
        return Err(Untold::Refused(status));
    }
    let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    if is_refusal(status, &body) {
        return Err(Untold::Refused(status));
    }
    if status != StatusCode::OK {
        return Err(Untold::Failed(status.to_string()));
    }
    let named: Named = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
    match named.metadata.uid.as_str() {
        "" => Err(Untold::Refused(status)),
        uid => Ok(format!("uid {uid}")),
    }
}

/// Whether a server of Kubernetes says that this namespace may not be read, or is not there. A proxy whose server is gone answers
/// 403 and 404, too, and one that does not know the path names no namespace.
fn is_refusal(status: StatusCode, body: &[u8]) -> bool {
    let details = || Status::from_slice(body).map(|said| said.details.unwrap_or_default());
    match status {
        StatusCode::FORBIDDEN => details().is_some(),
        StatusCode::NOT_FOUND => details().is_some_and(|details| details.name == NAMESPACE),
        _ => false,
    }
}

/// A cluster that is made anew has another CA. Without one of its own nothing tells it from another.
fn by_authority(spec: &ClusterSpec) -> Option<String> {
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

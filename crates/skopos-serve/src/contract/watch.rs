//! WATCH: where a stream begins, and the failures that come before its first event.

use http::StatusCode;
use http::request::Parts;
use http_body_util::BodyExt as _;
use skopos_wire::Status;
use tokio::time::Instant;

use super::form::Purpose;
use super::options::{Version, WatchOptions};
use super::watch_body::{WatchBody, WatchStart};
use super::{Form, Selection, View};
use crate::faults::RequestFacts;
use crate::request::{RequestInfo, RequestTarget};
use crate::serve::respond::{self, Response};
use crate::state::ServerState;

/// Answers a WATCH.
pub(crate) async fn watch(
    state: &ServerState,
    info: &RequestInfo,
    target: &RequestTarget,
    parts: &Parts,
) -> Result<Response, Status> {
    let form = Form::negotiate(&parts.headers, &info.query, target, Purpose::Watch, state.clock.now())?;
    let options = WatchOptions::parse(&info.query, state.contract.watch_list)?;
    let selection = Selection::of(&info.query, target)?;
    let deadline = Instant::now() + options.timeout.unwrap_or_else(|| random_timeout(state));
    let view = View::new(&state.storage, &state.faults, &RequestFacts::of(parts));
    // Joined before the state is read, so that nothing in between is missed.
    let subscription = state.storage.subscribe(&target.storage);
    let start = start(state, target, &options, &view).await;
    let body = WatchBody::new(
        &state.storage,
        &state.contract,
        target,
        WatchStart { subscription, start, deadline, bookmarks: options.bookmarks },
        selection,
        form,
        view,
    );
    let mut response = respond::bytes(StatusCode::OK, "application/json", bytes::Bytes::new());
    *response.body_mut() = body.boxed_unsync();
    Ok(response)
}

/// What a stream begins with.
#[derive(Debug)]
pub(super) enum Start {
    /// The state at a revision, and then what follows.
    State { revision: u64, end_bookmark: bool },
    /// What follows a revision.
    After(u64),
    /// An ERROR event, and the end.
    Error(Box<Status>),
}

async fn start(state: &ServerState, target: &RequestTarget, options: &WatchOptions, view: &View) -> Start {
    let storage = &state.storage;
    let patience = state.contract.freshness_wait;
    let fresh = |seen: Result<u64, Status>| match seen {
        Ok(revision) => Start::State { revision, end_bookmark: options.bookmarks },
        Err(status) => Start::Error(Box::new(status)),
    };
    match options.version {
        // W3
        Version::Unset if options.initial_events => fresh(view.wait_for(storage.revision(), patience).await),
        Version::Any if options.initial_events => fresh(Ok(view.revision())),
        Version::At(version) if options.initial_events => fresh(view.wait_for(version, patience).await),
        // W4
        Version::Unset => Start::After(storage.revision()),
        Version::Any => Start::After(view.revision()),
        Version::At(version) => {
            let oldest = storage.oldest_start(&target.storage);
            match version < oldest {
                // W5
                true => Start::Error(Box::new(Status::too_old_resource_version(version, oldest))),
                false => Start::After(version),
            }
        }
    }
}

/// W8: between once and twice the minimum.
fn random_timeout(state: &ServerState) -> std::time::Duration {
    state.contract.min_watch_timeout.mul_f64(1.0 + state.rng.lock().f64())
}

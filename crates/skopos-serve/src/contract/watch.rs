//! WATCH: the start of a stream, and the errors before its first event.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use skopos_wire::Status;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::form::Purpose;
use super::list::{BATCH_SIZE, MAX_RETRIES, key_after};
use super::options::{RequestedVersion, WatchOptions};
use super::watch_body::{WatchBody, WatchScope};
use super::{Form, Request, Selection, ServeOptions};
use crate::deadline::LONGEST;
use crate::respond::{self, Response};
use crate::source::{Compacted, Contents, ReadError, Source, VersionRequirement};
use crate::window::Cursor;

/// Answers a WATCH.
///
/// # Errors
/// The API server's errors: 400, 406, 422, 500. Later errors are events of the stream.
pub async fn watch<S: Source>(
    source: &S,
    options: &ServeOptions,
    request: &Request<'_, S::Item>,
) -> Result<Response, Status> {
    let form = Form::for_request(source, request, Purpose::Watch)?;
    let params = WatchOptions::parse(request.query, options.watch_list)?;
    let selection = Selection::from_query(request.query, request.resource, request.namespace, request.name)?;
    // Subscribed before the state is read, so that nothing in between is missed.
    let subscription = source.window().subscribe();
    let deadline = Instant::now() + lifetime(source, options, params.timeout);
    let start = start(source, options, &params, &selection).await;
    let content_type = form.watch_type();
    let scope = WatchScope { selection, permit: request.permit.clone(), form };
    let pause = options.pause_within_revision;
    let mut body = WatchBody::new(source.clone(), subscription, scope, start, pause, deadline);
    if params.bookmarks {
        body.send_bookmarks(options);
    }
    let mut response = respond::bytes(StatusCode::OK, content_type, bytes::Bytes::new());
    *response.body_mut() = body.boxed_unsync();
    Ok(response)
}

/// Start of a stream.
#[derive(Debug)]
pub(super) enum Start<I> {
    /// The state, a bookmark if requested, and then the following events.
    State { objects: Vec<I>, end_bookmark: bool, cursor: Cursor },
    /// The following events only.
    After(Cursor),
    /// An ERROR event, then the end.
    Error(Box<Status>),
}

async fn start<S: Source>(
    source: &S,
    options: &ServeOptions,
    params: &WatchOptions,
    selection: &Selection,
) -> Start<S::Item> {
    let begun = match (params.version, params.initial_events) {
        // W3
        (_, true) => start_with_state(source, options, params, selection).await,
        // W4
        (RequestedVersion::Unset, false) => start_from_now(source, options, VersionRequirement::Newest).await,
        (RequestedVersion::Any, false) => start_from_now(source, options, VersionRequirement::Any).await,
        (RequestedVersion::At(version), false) => match source.window().start(version) {
            Ok(cursor) => Ok(Start::After(cursor)),
            Err(oldest) => Err(Compacted { requested: version, oldest }.into()),
        },
    };
    begun.unwrap_or_else(|error| {
        // W5
        Start::Error(Box::new(
            error.into_status(|gone| Status::too_old_resource_version(gone.requested, gone.oldest)),
        ))
    })
}

async fn start_with_state<S: Source>(
    source: &S,
    options: &ServeOptions,
    params: &WatchOptions,
    selection: &Selection,
) -> Result<Start<S::Item>, ReadError> {
    let timeout = options.freshness_wait;
    let wanted = match params.version {
        RequestedVersion::Any => VersionRequirement::Any,
        RequestedVersion::At(version) => VersionRequirement::NotOlderThan(version),
        // The newest state now, once it is visible.
        RequestedVersion::Unset if source.horizon().is_some() => VersionRequirement::NotOlderThan(
            source.read(VersionRequirement::Newest, timeout).await?.revision(),
        ),
        RequestedVersion::Unset => VersionRequirement::Newest,
    };
    let mut retries = 0;
    loop {
        let contents = source.read(wanted, timeout).await?;
        let cursor = Cursor::after(contents.revision());
        match read_all(&contents, selection.namespace()).await {
            Ok(objects) => return Ok(Start::State { objects, end_bookmark: params.bookmarks, cursor }),
            // A newer state serves as well as one that is compacted during the read.
            Err(_) if retries < MAX_RETRIES => retries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads all objects in batches, so that neither a lock of the source nor the thread is held for long.
async fn read_all<C: Contents>(contents: &C, namespace: Option<&str>) -> Result<Vec<C::Item>, Compacted> {
    let mut objects: Vec<C::Item> = Vec::new();
    loop {
        let from = objects.last().map(|last| key_after(last, namespace));
        let found = contents.page(namespace, from.as_deref(), BATCH_SIZE)?;
        let ended = found.len() < BATCH_SIZE;
        objects.extend(found);
        if ended {
            return Ok(objects);
        }
        yield_now().await;
    }
}

async fn start_from_now<S: Source>(
    source: &S,
    options: &ServeOptions,
    wanted: VersionRequirement,
) -> Result<Start<S::Item>, ReadError> {
    let contents = source.read(wanted, options.freshness_wait).await?;
    Ok(Start::After(Cursor::after(contents.revision())))
}

/// Returns the lifetime of a watch. W8: the requested one, or between once and twice the minimum.
fn lifetime<S: Source>(source: &S, options: &ServeOptions, wanted: Option<Duration>) -> Duration {
    let lifetime = wanted.unwrap_or_else(|| options.min_watch_timeout.mul_f64(1.0 + source.jitter()));
    lifetime.min(options.max_watch_timeout.unwrap_or(LONGEST))
}

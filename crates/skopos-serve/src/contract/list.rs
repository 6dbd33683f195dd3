//! LIST: which state, which page of it, and what the answer says about the rest.

use std::sync::Arc;

use http::request::Parts;
use skopos_wire::{ContinueToken, Status};

use super::form::Purpose;
use super::list_body::{ListHead, respond_with_list};
use super::options::{ListOptions, Match, Version, bad_token};
use super::{Form, Selection, View};
use crate::faults::RequestFacts;
use crate::request::{RequestInfo, RequestTarget};
use crate::serve::respond::Response;
use crate::state::ServerState;
use crate::storage::{Compacted, ResourceKey, Scope, Storage, Stored};

/// Answers a LIST.
pub(crate) async fn list(
    state: &ServerState,
    info: &RequestInfo,
    target: &RequestTarget,
    parts: &Parts,
) -> Result<Response, Status> {
    let form = Form::negotiate(&parts.headers, &info.query, target, Purpose::List, state.clock.now())?;
    let options = ListOptions::parse(&info.query)?;
    let selection = Selection::of(&info.query, target)?;
    let view = View::new(&state.storage, &state.faults, &RequestFacts::of(parts));
    let place = Place::of(state, &options, &view).await?;
    let page = place.read(&state.storage, &target.storage, &selection)?;
    let head = ListHead {
        revision: place.revision,
        continue_token: page.next.map(|start| next_token(place.revision, &start)),
        remaining: page.remaining,
    };
    Ok(respond_with_list(&target.resource, form, &head, page.items, &parts.headers))
}

/// Where a list reads: a revision, from a key on, so many objects.
struct Place {
    revision: u64,
    start: Option<String>,
    /// 0 is no limit.
    limit: usize,
    /// The start key of a continue token whose revision may be compacted.
    continued: bool,
}

/// A page of a list.
struct Page {
    items: Vec<Arc<Stored>>,
    /// Where the next page starts.
    next: Option<String>,
    remaining: Option<usize>,
}

// === impl Place ===

impl Place {
    async fn of(state: &ServerState, options: &ListOptions, view: &View) -> Result<Self, Status> {
        let storage = &state.storage;
        if let Some(token) = &options.continue_token {
            let token = ContinueToken::decode(token).map_err(|e| bad_token(&e))?;
            // L8: a negative version goes on at the newest state.
            let revision = u64::try_from(token.resource_version).unwrap_or_else(|_| storage.revision());
            view.wait_for(revision, state.contract.freshness_wait).await?;
            return Ok(Self {
                revision,
                start: Some(token.start_key),
                limit: options.limit,
                continued: true,
            });
        }
        let at = |revision, limit| Self { revision, start: None, limit, continued: false };
        match (options.version, options.version_match) {
            (Version::Unset, _) => Ok(at(storage.revision(), options.limit)),
            // L2: served from the cache, which does not page.
            (Version::Any, _) => Ok(at(view.revision(), 0)),
            (Version::At(version), matching) => {
                // L6, exact or not.
                let seen = view.wait_for(version, state.contract.freshness_wait).await?;
                // L3: a limit without a match is the old way to ask for the very version.
                let exact = matching == Some(Match::Exact) || matching.is_none() && options.limit > 0;
                Ok(at(if exact { version } else { seen }, options.limit))
            }
        }
    }

    fn read(&self, storage: &Storage, resource: &ResourceKey, selection: &Selection) -> Result<Page, Status> {
        let scope = Scope::of(selection.namespace());
        let compacted = |_: Compacted| match &self.start {
            Some(start) if self.continued => Status::continue_expired(Some(start)),
            _ => Status::list_expired(),
        };
        let wanted = if self.limit == 0 { usize::MAX } else { self.limit };
        let everything = selection.is_everything();
        let mut items = Vec::new();
        let mut start = self.start.clone();
        loop {
            // One more than wanted shows whether there is a next page.
            let batch = if everything { wanted.saturating_add(1) } else { BATCH };
            let found =
                storage.scan(resource, scope, start.as_deref(), self.revision, batch).map_err(compacted)?;
            let exhausted = found.len() < batch;
            for object in found {
                if items.len() == wanted {
                    let next = start.clone().unwrap_or_default();
                    let remaining =
                        everything.then(|| storage.count_from(resource, scope, Some(&next), self.revision));
                    return Ok(Page { items, next: Some(next), remaining });
                }
                start = Some(after(&object, scope));
                if everything || selection.selects(&object) {
                    items.push(object);
                }
            }
            if exhausted {
                return Ok(Page { items, next: None, remaining: None });
            }
        }
    }
}

/// How many objects are looked at in one go when a selector picks among them.
const BATCH: usize = 2000;

/// The key that follows the object's, in the scope.
fn after(object: &Stored, scope: Scope<'_>) -> String {
    let key = if scope.namespace.is_some() { object.name() } else { object.key() };
    format!("{key}\0")
}

/// L7: the watch cache writes the key with a slash before it (etcd without; both read both).
fn next_token(revision: u64, start: &str) -> String {
    ContinueToken::new(revision as i64, format!("/{start}")).encode()
}

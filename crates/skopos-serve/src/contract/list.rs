//! LIST: the state to read, the page of it, and the response's statement about the rest.

use skopos_wire::{ContinueToken, Status};
use tokio::task::yield_now;

use super::form::Purpose;
use super::list_body::{ListBody, accepts_gzip};
use super::list_head::ListHead;
use super::options::{ListOptions, RequestedVersion, VersionMatch};
use super::{Form, ItemFilter, Request, Selection, ServeOptions};
use crate::item::Item;
use crate::pretty;
use crate::respond::Response;
use crate::source::{Compacted, Contents, ReadError, Source, VersionRequirement};

/// Answers a LIST.
///
/// # Errors
/// The API server's errors: 400, 406, 410, 422, 504.
pub async fn list<S: Source>(
    source: &S,
    options: &ServeOptions,
    request: &Request<'_, S::Item>,
) -> Result<Response, Status> {
    let mut form = Form::for_request(source, request, Purpose::List)?;
    let params = ListOptions::parse(request.query, |token| source.open(token))?;
    let selection = Selection::from_query(request.query, request.resource, request.namespace, request.name)?;
    let page_request = PageRequest::from_options(&params, source)?;
    let page = page_request.read(source, options, &selection, &request.permit).await;
    let page = page.map_err(|error| {
        error.into_status(|_| match &page_request.start {
            Some(start) => continue_expired(source, start),
            None => Status::list_expired(),
        })
    })?;
    let head = ListHead {
        revision: page.revision,
        continue_token: page.next.map(|start| source.seal(next_token(page.revision, &start))),
        remaining: page.remaining.filter(|_| source.counts()),
        annotations: source.list_annotations(),
    };
    if let Some(protobuf) = form.protobuf() {
        if let Ok(response) = protobuf.list(&head, &page.items).await {
            return Ok(response);
        }
        source.window().refuse_protobuf();
        form = Form::for_request(source, request, Purpose::List)?;
    }
    let list = ListBody::new(form, &head, page.items, source.now());
    if pretty::is_wanted(request.query) {
        return Ok(pretty::indent(list.respond(source.blocks(), None)));
    }
    let gzip_from = accepts_gzip(request.headers).then_some(options.gzip_from);
    Ok(list.respond(source.blocks(), gzip_from))
}

/// Start and size of a list: a state, the first key and a limit.
struct PageRequest {
    wanted: VersionRequirement,
    /// First key, from a continue token.
    start: Option<String>,
    /// 0 is no limit.
    limit: usize,
}

/// A page of a list.
struct ListPage<I> {
    revision: u64,
    items: Vec<I>,
    /// Start key of the next page.
    next: Option<String>,
    remaining: Option<usize>,
}

impl PageRequest {
    fn from_options(options: &ListOptions, source: &impl Source) -> Result<Self, Status> {
        if let Some(token) = &options.continue_token {
            let token = source.open(token)?;
            // L8: a negative version continues at the newest state.
            let wanted = u64::try_from(token.resource_version)
                .map_or(VersionRequirement::Newest, VersionRequirement::Exactly);
            return Ok(Self { wanted, start: Some(token.start_key), limit: options.limit });
        }
        let at = |wanted, limit| Self { wanted, start: None, limit };
        Ok(match (options.version, options.version_match) {
            (RequestedVersion::Unset, _) => at(VersionRequirement::Newest, options.limit),
            // L2: served from the cache, which does not page.
            (RequestedVersion::Any, _) => at(VersionRequirement::Any, 0),
            // L3: a limit without a match is the legacy way to request exactly this version.
            (RequestedVersion::At(version), Some(VersionMatch::Exact)) => {
                at(VersionRequirement::Exactly(version), options.limit)
            }
            (RequestedVersion::At(version), None) if options.limit > 0 => {
                at(VersionRequirement::Exactly(version), options.limit)
            }
            (RequestedVersion::At(version), _) => {
                at(VersionRequirement::NotOlderThan(version), options.limit)
            }
        })
    }

    async fn read<S: Source>(
        &self,
        source: &S,
        options: &ServeOptions,
        selection: &Selection,
        permit: &ItemFilter<S::Item>,
    ) -> Result<ListPage<S::Item>, ReadError> {
        let timeout = options.freshness_wait;
        if let VersionRequirement::Exactly(version) = self.wanted {
            // L6, exact or not.
            let mut contents = source.read(VersionRequirement::NotOlderThan(version), timeout).await?;
            // The newest state may be exactly this version, and be compacted a moment later.
            if contents.revision() != version {
                contents = source.read(self.wanted, timeout).await?;
            }
            return Ok(self.page_of(source, &contents, selection, permit).await?);
        }
        // A newer state serves as well as one that is compacted during the read.
        for _ in 0..MAX_RETRIES {
            let contents = source.read(self.wanted, timeout).await?;
            if let Ok(page) = self.page_of(source, &contents, selection, permit).await {
                return Ok(page);
            }
        }
        let contents = source.read(self.wanted, timeout).await?;
        Ok(self.page_of(source, &contents, selection, permit).await?)
    }

    /// Reads a page. If more pages follow, the source retains the state.
    async fn page_of<S: Source>(
        &self,
        source: &S,
        contents: &S::Contents,
        selection: &Selection,
        permit: &ItemFilter<S::Item>,
    ) -> Result<ListPage<S::Item>, Compacted> {
        let page = self.read_page(contents, selection, permit).await?;
        if page.next.is_some() {
            source.remember(contents);
        }
        Ok(page)
    }

    async fn read_page<C: Contents>(
        &self,
        contents: &C,
        selection: &Selection,
        permit: &ItemFilter<C::Item>,
    ) -> Result<ListPage<C::Item>, Compacted> {
        let (namespace, revision) = (selection.namespace(), contents.revision());
        let wanted = if self.limit == 0 { usize::MAX } else { self.limit };
        let unfiltered = selection.is_everything() && permit.is_all();
        let mut items: Vec<C::Item> = Vec::new();
        let mut start = self.start.clone();
        // Start of the next page: a token must not name an object that the caller may not see.
        let mut next = self.start.clone();
        loop {
            // One more than wanted shows whether there is a next page.
            let missing = wanted.saturating_sub(items.len()).saturating_add(1);
            let batch = if unfiltered { missing.min(BATCH_SIZE) } else { BATCH_SIZE };
            let found = contents.page(namespace, start.as_deref(), batch)?;
            let exhausted = found.len() < batch;
            start = found.last().map(|item| key_after(item, namespace)).or(start);
            for item in found.into_iter().filter(|item| permit.allows(item)) {
                if items.len() == wanted {
                    let next = next.unwrap_or_default();
                    let remaining = unfiltered.then(|| contents.count(namespace, Some(&next))).transpose()?;
                    return Ok(ListPage { revision, items, next: Some(next), remaining });
                }
                if wanted != usize::MAX {
                    next = Some(key_after(&item, namespace));
                }
                if unfiltered || selection.selects(&item) {
                    items.push(item);
                }
            }
            if exhausted {
                return Ok(ListPage { revision, items, next: None, remaining: None });
            }
            // A long list must not block other tasks of this thread.
            yield_now().await;
        }
    }
}

/// Number of objects read in one batch.
pub(super) const BATCH_SIZE: usize = 1000;
/// Maximum number of retries of a list that accepts any newer state.
pub(super) const MAX_RETRIES: usize = 3;

/// Returns the first key after the object's, within the scope.
pub(super) fn key_after(item: &impl Item, namespace: Option<&str>) -> String {
    item.key(namespace) + "\0"
}

/// Returns the token of the next page. L7: the watch cache writes the key with a leading slash (etcd without; both read both).
fn next_token(revision: u64, start: &str) -> ContinueToken {
    ContinueToken::new(revision as i64, format!("/{start}"))
}

/// Returns the 410 of an expired token. L8: its own token continues at the newest state.
fn continue_expired(source: &impl Source, start: &str) -> Status {
    let mut status = Status::continue_expired(Some(start));
    let token = ContinueToken::new(ContinueToken::LATEST, start);
    status.metadata.continue_token = Some(source.seal(token));
    status
}

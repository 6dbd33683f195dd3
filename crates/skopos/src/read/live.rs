//! Requests to the server itself: probes, lists and single reads outside of the list/watch.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use skopos_reflect::{MachineOptions, Target};
use skopos_transport::{RequestClass, RequestOptions, Transport, TransportBody};
use skopos_wire::{Limits, ListBody, ListMeta, ListSplitter, ObjectKey, RawObject, ResourceVersion, Status};
use tokio::time::{Instant, timeout_at};

use crate::error::{LiveError, RefusalError};
use crate::informer::encodings::Encodings;

/// A client for reads from the server, each with a deadline. All are consistent reads: the server may not answer from the
/// past. Lists ignore objects outside of the requested namespaces, like the list/watch.
#[derive(Clone, Debug)]
pub(crate) struct LiveClient {
    transport: Transport,
    limits: Limits,
    max_list: ListBudget,
    encodings: Arc<Encodings>,
}

/// The remaining size of one list.
#[derive(Clone, Copy, Debug)]
struct ListBudget {
    objects: usize,
    bytes: u64,
}

impl LiveClient {
    /// Creates the client. Lists have the same limits as those of the list/watch.
    pub(crate) fn new(
        transport: Transport,
        limits: Limits,
        machine: &MachineOptions,
        encodings: Arc<Encodings>,
    ) -> Self {
        let max_list = ListBudget { objects: machine.max_list_objects, bytes: machine.max_list_bytes };
        Self { transport, limits, max_list, encodings }
    }

    /// Returns the server's newest revision, of the storage that the target is in.
    pub(crate) async fn probe(&self, target: &Target, limit: Duration) -> Result<ResourceVersion, LiveError> {
        Ok(skopos_reflect::probe(&self.transport, target, limit).await?)
    }

    /// Lists everything that the target covers, in pages. Returns the revision that the list belongs to.
    ///
    /// If the pages cannot be completed because the server forgot their revision, or have different revisions, or do not
    /// end, `restart` is called and the list is made in one piece.
    pub(crate) async fn list(
        &self,
        target: &Target,
        deadline: Instant,
        list: &mut impl Collect,
    ) -> Result<ResourceVersion, LiveError> {
        let begun = Instant::now();
        let pages = self.pages(target, deadline, list);
        timeout_at(deadline, pages)
            .await
            .unwrap_or_else(|_| Err(LiveError::Deadline { waited: begun.elapsed() }))
    }

    async fn pages(
        &self,
        target: &Target,
        deadline: Instant,
        list: &mut impl Collect,
    ) -> Result<ResourceVersion, LiveError> {
        let (mut token, mut first, mut sparse, mut budget) = (None, None, 0, self.max_list);
        loop {
            let request = target.page(Some(PAGE_SIZE), token.as_deref());
            let before = budget.objects;
            let page =
                self.page(target, request, deadline, &mut budget, &mut |object| list.add(object)).await;
            sparse += u32::from(before - budget.objects < MIN_PAGE_OBJECTS);
            match page {
                // Not one snapshot: the server reads each page at a new revision. Only a single response can be consistent.
                Ok((revision, _)) if *first.get_or_insert_with(|| revision.clone()) != revision => break,
                Ok((revision, None)) => return Ok(revision),
                Ok((_, next)) if next == token || sparse > MAX_SPARSE_PAGES => break,
                Ok((_, next)) => token = next,
                Err(error) if error.is_gone() && token.is_some() => break,
                Err(error) => return Err(error),
            }
        }
        list.restart();
        let (whole, mut budget) = (target.page(None, None), self.max_list);
        match self.page(target, whole, deadline, &mut budget, &mut |object| list.add(object)).await? {
            (revision, None) => Ok(revision),
            (_, Some(_)) => Err(malformed("the list does not end, in pages or without")),
        }
    }

    /// Returns the current version of one object; `None` if the server does not have it.
    pub(crate) async fn get(
        &self,
        target: &Target,
        key: &ObjectKey,
        deadline: Instant,
    ) -> Result<Option<RawObject>, LiveError> {
        let begun = Instant::now();
        let read = async {
            let response = self.send(target, target.object(key), RequestClass::Read, deadline).await?;
            let body = match response {
                Ok(response) => response.into_body().collect().await?.to_bytes(),
                Err(refusal) if refusal.is_missing_object() => return Ok(None),
                Err(refusal) => return Err(refusal.into()),
            };
            let object = RawObject::scan(body, &self.limits).map_err(malformed)?;
            target.check_object(&object).map_err(malformed)?;
            if object.key() != key {
                return Err(LiveError::Malformed(format!("asked for {key}, got {}", object.key())));
            }
            Ok(Some(object))
        };
        timeout_at(deadline, read)
            .await
            .unwrap_or_else(|_| Err(LiveError::Deadline { waited: begun.elapsed() }))
    }

    async fn page(
        &self,
        target: &Target,
        request: Request<Body>,
        deadline: Instant,
        budget: &mut ListBudget,
        add: &mut (dyn FnMut(RawObject) + Send),
    ) -> Result<(ResourceVersion, Option<String>), LiveError> {
        let mut body = self.send(target, request, RequestClass::List, deadline).await??.into_body();
        let mut splitter = ListSplitter::new(self.limits.clone());
        let mut broken = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let mut item = |item: Result<RawObject, _>| match item.map_err(malformed) {
                Ok(object) => {
                    match target.check_object(&object).map_err(malformed).and_then(|()| budget.take(&object))
                    {
                        Ok(()) if is_in(target, object.key()) => add(object),
                        Ok(()) => {}
                        Err(wrong) => broken = Some(wrong),
                    }
                }
                Err(error) => broken = Some(error),
            };
            splitter.push_and_scan(&data, &mut item).map_err(malformed)?;
            if let Some(error) = broken {
                return Err(error);
            }
        }
        let meta = match splitter.finish().map_err(malformed)? {
            ListBody::List(meta) => meta,
            ListBody::Status(status) => return Err(RefusalError::new(status.code, Some(&status)).into()),
            _ => return Err(LiveError::Malformed("it is no list".to_owned())),
        };
        target.check_list(&meta).map_err(malformed)?;
        revision_of(meta)
    }

    /// Sends a request. The outer error is one of the connection, the inner one the server's refusal.
    async fn send(
        &self,
        target: &Target,
        mut request: Request<Body>,
        class: RequestClass,
        deadline: Instant,
    ) -> Result<Result<Response<TransportBody>, RefusalError>, LiveError> {
        let deadline = deadline.saturating_duration_since(Instant::now());
        let options =
            RequestOptions { class: Some(class), deadline: Some(deadline), ..RequestOptions::default() };
        request.extensions_mut().insert(options);
        let negotiation = self.encodings.negotiation(target);
        negotiation.ask(target, &mut request);
        let response = negotiation.send(&self.transport, request).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(Ok(response));
        }
        // Reads only as much of a refusal as a Status needs.
        let body = http_body_util::Limited::new(response.into_body(), MAX_REFUSAL_BYTES).collect();
        let body = tokio::time::timeout(REFUSAL_TIMEOUT, body).await;
        let status = body.ok().and_then(Result::ok).and_then(|body| Status::from_slice(&body.to_bytes()));
        Ok(Err(RefusalError::new(code.as_u16(), status.as_ref())))
    }
}

impl ListBudget {
    fn take(&mut self, object: &RawObject) -> Result<(), LiveError> {
        let objects = self.objects.checked_sub(1);
        let bytes = self.bytes.checked_sub(object.content_len() as u64);
        let (Some(objects), Some(bytes)) = (objects, bytes) else {
            return Err(malformed(
                "the list is larger than MachineOptions::max_list_objects or max_list_bytes",
            ));
        };
        (self.objects, self.bytes) = (objects, bytes);
        Ok(())
    }
}

/// A collector of a list's objects.
pub(crate) trait Collect: Send {
    /// Adds one object, in the order of the list.
    fn add(&mut self, object: RawObject);

    /// Drops the added objects: the list begins again.
    fn restart(&mut self);
}

impl Collect for Vec<RawObject> {
    fn add(&mut self, object: RawObject) {
        self.push(object);
    }

    fn restart(&mut self) {
        self.clear();
    }
}

fn is_in(target: &Target, key: &ObjectKey) -> bool {
    target.namespace.is_none() || key.namespace() == target.namespace.as_deref()
}

const PAGE_SIZE: u32 = 500;
/// The number of pages of a list that may bring fewer objects than `MIN_PAGE_OBJECTS`, as with the list/watch.
const MAX_SPARSE_PAGES: u32 = 20;
const MIN_PAGE_OBJECTS: usize = 5;
const MAX_REFUSAL_BYTES: usize = 64 << 10;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

fn malformed(error: impl std::fmt::Display) -> LiveError {
    LiveError::Malformed(error.to_string())
}

fn revision_of(meta: ListMeta) -> Result<(ResourceVersion, Option<String>), LiveError> {
    if meta.resource_version.is_zero() {
        return Err(LiveError::Malformed("the list has no resourceVersion".to_owned()));
    }
    Ok((meta.resource_version, meta.continue_token))
}

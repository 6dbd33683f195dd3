//! One request and its response, as a stream of inputs for the machine.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::FutureExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::response::Parts;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use skopos_transport::{ConnectionId, Transport, TransportBody, TransportError, TransportErrorKind};
use skopos_wire::protobuf::MEDIA_TYPE;
use skopos_wire::{
    BrokenFrame, BrokenReason, FrameError, FrameSplitter, Limits, ListBody, ListError, ListSplitter,
    RawObject, ScanError, WatchEvent,
};

use super::failure;
use crate::{BrokenItem, Cause, Clock, Failure, Input, Negotiation, Reason, RequestId, Target};

/// A request that was not sent yet. Dropping the stream that it becomes ends the request in any state.
pub(super) struct Exchange {
    pub(super) transport: Transport,
    pub(super) target: Arc<Target>,
    pub(super) request: http::Request<Body>,
    pub(super) limits: Arc<Limits>,
    pub(super) clock: Clock,
    pub(super) negotiation: Negotiation,
}

/// An input from a request.
pub(super) struct Arrival {
    pub(super) input: Input,
    /// The connection of the response, with the first input only.
    pub(super) connection: Option<ConnectionId>,
}

/// The maximum size of a batch. Chunks that are already available are combined up to it: one batch is one step of the store.
const MAX_BATCH_BYTES: usize = 256 << 10;

impl Exchange {
    /// Sends a list request. Yields `Opened`, `Items`..., and then `ListEnd` or `Failed`.
    pub(super) fn list(mut self, id: RequestId) -> BoxStream<'static, Arrival> {
        self.negotiation.ask(&self.target, &mut self.request);
        let (target, negotiation) = (self.target.clone(), self.negotiation.clone());
        self.begin(id, move |_, body, limits, clock| ResponseReader {
            id,
            body: Some(body),
            clock,
            decoder: ListDecoder {
                target,
                negotiation,
                splitter: Some(ListSplitter::new((*limits).clone())),
                items: Vec::new(),
            },
            ended: None,
        })
    }

    /// Sends a watch request. Yields `Opened`, `Events`..., and then `Closed` or `Failed`.
    pub(super) fn watch(mut self, id: RequestId) -> BoxStream<'static, Arrival> {
        self.negotiation.ask(&self.target, &mut self.request);
        let (target, negotiation) = (self.target.clone(), self.negotiation.clone());
        self.begin(id, move |headers, body, limits, clock| ResponseReader {
            id,
            body: Some(body),
            clock,
            decoder: WatchDecoder {
                target,
                negotiation,
                splitter: if is_protobuf(headers) {
                    FrameSplitter::protobuf((*limits).clone())
                } else {
                    FrameSplitter::new((*limits).clone())
                },
                events: Vec::new(),
            },
            ended: None,
        })
    }

    /// Sends a GET. Yields `Got` or `Failed`. The object was undecodable in a list or a watch, so it is read as JSON, in which
    /// a defect of the other encoding does not matter.
    pub(super) fn get(self, id: RequestId) -> BoxStream<'static, Arrival> {
        Box::pin(stream::once(async move {
            let input = match self.object().await {
                Ok(object) => Input::Got { id, object },
                Err(failure) => Input::Failed { id, failure },
            };
            Arrival { input, connection: None }
        }))
    }

    fn begin<D: Decoder>(
        self,
        id: RequestId,
        reader: impl FnOnce(&HeaderMap, TransportBody, Arc<Limits>, Clock) -> ResponseReader<D> + Send + 'static,
    ) -> BoxStream<'static, Arrival> {
        let (limits, clock) = (self.limits.clone(), self.clock);
        let answer = async move {
            match self.send().await {
                Ok((parts, body)) => {
                    let connection = parts.extensions.get::<ConnectionId>().copied();
                    let opened = Arrival { input: Input::Opened { id }, connection };
                    let reader = reader(&parts.headers, body, limits, clock);
                    let rest = stream::unfold(reader, ResponseReader::step);
                    stream::iter([opened]).chain(rest).boxed()
                }
                Err(failure) => {
                    let failed = Arrival { input: Input::Failed { id, failure }, connection: None };
                    stream::iter([failed]).boxed()
                }
            }
        };
        Box::pin(stream::once(answer).flatten())
    }

    async fn send(self) -> Result<(Parts, TransportBody), Failure> {
        let response = self.negotiation.send(&self.transport, self.request).await;
        let (parts, body) =
            response.map_err(|error| failure::from_transport(&error, &self.clock))?.into_parts();
        if !parts.status.is_success() {
            return Err(failure::from_response(parts, body).await);
        }
        Ok((parts, body))
    }

    async fn object(self) -> Result<Result<Option<RawObject>, BrokenItem>, Failure> {
        let (target, limits, clock) = (self.target.clone(), self.limits.clone(), self.clock);
        let body = match self.send().await {
            Ok((_, body)) => body,
            Err(Failure::Answer { code, .. }) if code == StatusCode::NOT_FOUND.as_u16() => {
                return Ok(Ok(None));
            }
            Err(failure) => return Err(failure),
        };
        match Limited::new(body, limits.max_object_bytes).collect().await {
            Ok(body) => {
                let object = scan(body.to_bytes(), &limits);
                object.iter().try_for_each(|object| target.check_object(object)).map_err(malformed)?;
                Ok(object.map(Some))
            }
            Err(error) => match error.downcast::<TransportError>() {
                Ok(error) => Err(failure::from_transport(&error, &clock)),
                Err(limit) => Ok(Err(BrokenItem { key: None, reason: limit.to_string().into() })),
            },
        }
    }
}

/// A response that is being read.
struct ResponseReader<D> {
    id: RequestId,
    /// `None` once the end was reported.
    body: Option<TransportBody>,
    clock: Clock,
    decoder: D,
    /// The end of the response, to be reported after the batch that was decoded before it.
    ended: Option<Result<(), Failure>>,
}

impl<D: Decoder> ResponseReader<D> {
    /// Returns the next batch, or the end.
    async fn step(mut self) -> Option<(Arrival, Self)> {
        loop {
            if let Some(ended) = self.ended.take() {
                self.body = None;
                let id = self.id;
                let input = match ended.and_then(|()| self.decoder.end(id)) {
                    Ok(input) => input,
                    Err(failure) => Input::Failed { id, failure },
                };
                return Some((Arrival { input, connection: None }, self));
            }
            self.fill().await?;
            if let Some(input) = self.decoder.batch(self.id) {
                return Some((Arrival { input, connection: None }, self));
            }
        }
    }

    /// Waits for a chunk, and also takes the chunks that are already available.
    async fn fill(&mut self) -> Option<()> {
        let body = self.body.as_mut()?;
        let mut taken = 0;
        let mut frame = body.frame().await;
        loop {
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        taken += chunk.len();
                        if let Err(failure) = self.decoder.push(chunk) {
                            self.ended = Some(Err(failure));
                            break;
                        }
                    }
                }
                Some(Err(error)) => {
                    self.ended = Some(Err(failure::from_transport(&error, &self.clock)));
                    break;
                }
                None => {
                    self.ended = Some(Ok(()));
                    break;
                }
            }
            if taken >= MAX_BATCH_BYTES {
                break;
            }
            match body.frame().now_or_never() {
                Some(next) => frame = next,
                None => break,
            }
        }
        Some(())
    }
}

/// A decoder from body bytes to inputs.
trait Decoder: Send + 'static {
    /// Decodes a chunk. An error ends the exchange, after the inputs that were decoded before it.
    fn push(&mut self, chunk: Bytes) -> Result<(), Failure>;
    /// Returns all that was completed since the last call.
    fn batch(&mut self, id: RequestId) -> Option<Input>;
    /// Handles the end of a body that ended without a transport error.
    fn end(&mut self, id: RequestId) -> Result<Input, Failure>;
}

struct ListDecoder {
    target: Arc<Target>,
    negotiation: Negotiation,
    splitter: Option<ListSplitter>,
    items: Vec<Result<RawObject, BrokenItem>>,
}

struct WatchDecoder {
    target: Arc<Target>,
    negotiation: Negotiation,
    splitter: FrameSplitter,
    events: Vec<Result<WatchEvent, BrokenFrame>>,
}

impl Decoder for ListDecoder {
    fn push(&mut self, chunk: Bytes) -> Result<(), Failure> {
        let Some(splitter) = &mut self.splitter else { return Ok(()) };
        let begun = self.items.len();
        let items = &mut self.items;
        let pushed = splitter.push_and_scan(&chunk, &mut |item| items.push(item.map_err(broken)));
        pushed.map_err(|error| {
            if matches!(error, ListError::UnknownKind { .. }) {
                self.negotiation.refuse();
            }
            malformed(error)
        })?;
        let mut new = self.items[begun..].iter().flatten();
        new.try_for_each(|object| self.target.check_object(object)).map_err(malformed)
    }

    fn batch(&mut self, id: RequestId) -> Option<Input> {
        let items = std::mem::take(&mut self.items);
        (!items.is_empty()).then_some(Input::Items { id, items })
    }

    fn end(&mut self, id: RequestId) -> Result<Input, Failure> {
        let Some(splitter) = self.splitter.take() else { return Err(malformed("the list has ended before")) };
        match splitter.finish().map_err(malformed)? {
            ListBody::List(meta) => {
                self.target.check_list(&meta).map_err(malformed)?;
                Ok(Input::ListEnd {
                    id,
                    resource_version: Some(meta.resource_version),
                    continue_token: meta.continue_token.map(Into::into),
                })
            }
            ListBody::Status(status) => {
                Err(Failure::Answer { code: status.code, status: Some(status), retry_after: None })
            }
            _ => Err(malformed("the answer is no list")),
        }
    }
}

impl Decoder for WatchDecoder {
    fn push(&mut self, chunk: Bytes) -> Result<(), Failure> {
        self.splitter.push(chunk);
        loop {
            match self.splitter.next_event() {
                Ok(Some(Err(frame))) if is_of_unknown_kind(&frame) => {
                    self.negotiation.refuse();
                    return Err(malformed(frame));
                }
                Ok(Some(event)) => {
                    let mut object = event.iter().filter_map(WatchEvent::object);
                    object.try_for_each(|object| self.target.check_object(object)).map_err(malformed)?;
                    self.events.push(event);
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(malformed(error)),
            }
        }
    }

    fn batch(&mut self, id: RequestId) -> Option<Input> {
        let events = std::mem::take(&mut self.events);
        (!events.is_empty()).then_some(Input::Events { id, events })
    }

    fn end(&mut self, id: RequestId) -> Result<Input, Failure> {
        let splitter = std::mem::replace(&mut self.splitter, FrameSplitter::new(Limits::default()));
        match splitter.finish() {
            Ok(()) => Ok(Input::Closed { id }),
            // The stream ended inside a frame: the connection was cut, and a proxy made it look clean.
            Err(error @ FrameError::Truncated { .. }) => Err(Failure::Connection {
                trouble: crate::Trouble::Lost,
                reason: Reason::new(Cause::Connection(TransportErrorKind::Eof), error.to_string()),
                retry_at: None,
            }),
            Err(error) => Err(malformed(error)),
        }
    }
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| content_type.starts_with(MEDIA_TYPE))
}

/// Returns whether a frame cannot be read because the table of built-in kinds does not have its kind.
fn is_of_unknown_kind(frame: &BrokenFrame) -> bool {
    matches!(frame.reason, BrokenReason::Scan(ScanError::UnknownKind { .. }))
}

fn scan(json: Bytes, limits: &Limits) -> Result<RawObject, BrokenItem> {
    RawObject::scan(json.clone(), limits)
        .map_err(|reason| broken(skopos_wire::BrokenItem { key: RawObject::identify(&json).key, reason }))
}

fn broken(item: skopos_wire::BrokenItem) -> BrokenItem {
    BrokenItem { key: item.key, reason: item.reason.to_string().into() }
}

fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::Malformed { reason: error.to_string().into() }
}

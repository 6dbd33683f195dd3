//! Responses in protobuf: one object, a list, and the frames of a watch.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use skopos_wire::Status;
use skopos_wire::protobuf::{self, EncodeError, Kind, MEDIA_TYPE};
use tokio::task::yield_now;

use super::list_head::ListHead;
use super::media_range::{self, media_ranges};
use crate::event_type::EventType;
use crate::item::Item;
use crate::json::partial_object_metadata;
use crate::resources::ResourceType;
use crate::respond::{self, Response};

/// Form of objects in protobuf.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtobufForm {
    object: &'static Kind,
    list: &'static Kind,
    part: ObjectPart,
}

/// The part of an object that is sent.
#[derive(Clone, Copy, Debug)]
enum ObjectPart {
    Whole,
    Metadata,
}

/// Number of objects that are encoded before other tasks of the thread may run.
const BATCH_SIZE: usize = 256;
/// Approximate size of a chunk, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

impl ProtobufForm {
    /// Returns the form of full objects; `None` for custom resources, which have no protobuf.
    pub(super) fn full(resource: &ResourceType) -> Option<Self> {
        let api_version = resource.api_version();
        Some(Self {
            object: Kind::find(&api_version, &resource.kind)?,
            list: Kind::find(&api_version, &resource.list_kind)?,
            part: ObjectPart::Whole,
        })
    }

    /// Returns the form of `PartialObjectMetadata`, which every resource has.
    pub(super) fn partial() -> Option<Self> {
        Some(Self {
            object: Kind::find("meta.k8s.io/v1", "PartialObjectMetadata")?,
            list: Kind::find("meta.k8s.io/v1", "PartialObjectMetadataList")?,
            part: ObjectPart::Metadata,
        })
    }

    /// Returns an object in its envelope.
    ///
    /// # Errors
    /// If the object's JSON does not fit its kind.
    pub(super) fn object(&self, item: &impl Item, revision: u64) -> Result<Bytes, EncodeError> {
        Ok(protobuf::object(self.object, &self.message(item, revision)?).into())
    }

    /// Returns the frame of an event.
    ///
    /// # Errors
    /// As [`object`](Self::object).
    pub(super) fn frame(
        &self,
        event: EventType,
        item: &impl Item,
        revision: u64,
    ) -> Result<Bytes, EncodeError> {
        Ok(protobuf::watch_frame(event.name(), &self.object(item, revision)?).into())
    }

    /// Returns the response to a list.
    ///
    /// # Errors
    /// As [`object`](Self::object).
    pub(super) async fn list<I: Item>(&self, head: &ListHead, items: &[I]) -> Result<Response, EncodeError> {
        let mut messages = Vec::with_capacity(items.len());
        // The length of a list precedes it, so all items are encoded first.
        for (at, item) in items.iter().enumerate() {
            messages.push(self.message(item, item.revision())?);
            if at % BATCH_SIZE == BATCH_SIZE - 1 {
                yield_now().await;
            }
        }
        let head = protobuf::list_head(
            self.list,
            &head.revision.to_string(),
            head.continue_token.as_deref(),
            head.remaining.map(|count| count as u64),
            messages.iter().map(Bytes::len),
        );
        let mut response = respond::bytes(StatusCode::OK, protobuf::MEDIA_TYPE, Bytes::new());
        let mut list = MessageList { head: Some(head), messages: messages.into_iter(), has_ended: false };
        *response.body_mut() = respond::chunks(std::iter::from_fn(move || list.next_chunk()));
        Ok(response)
    }

    fn message(&self, item: &impl Item, revision: u64) -> Result<Bytes, EncodeError> {
        match self.part {
            ObjectPart::Whole => item.message(self.object, revision),
            ObjectPart::Metadata => {
                let metadata = match item.message_at(revision) {
                    Some(message) => protobuf::metadata_only(&message),
                    None => {
                        protobuf::message(self.object, &partial_object_metadata(&item.json_at(revision)))?
                    }
                };
                Ok(metadata.into())
            }
        }
    }
}

/// The unsent rest of a list.
struct MessageList {
    head: Option<Vec<u8>>,
    messages: std::vec::IntoIter<Bytes>,
    has_ended: bool,
}

impl MessageList {
    fn next_chunk(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let mut chunk = self.head.take().unwrap_or_default();
        while chunk.len() < CHUNK_BYTES {
            let Some(message) = self.messages.next() else {
                chunk.extend_from_slice(protobuf::LIST_TAIL);
                self.has_ended = true;
                break;
            };
            protobuf::list_item(&message, &mut chunk);
        }
        Some(chunk.into())
    }
}

/// Returns an error status in protobuf if the client prefers it, as kube-apiserver does; otherwise in JSON.
pub fn error(headers: &HeaderMap, status: &Status) -> Response {
    let mut response = respond::status(status);
    let accept = media_range::accept(headers);
    let prefers_protobuf = media_ranges(&accept).first().is_some_and(|first| first.media == MEDIA_TYPE);
    if prefers_protobuf && let Ok(body) = protobuf::from_json(&status.to_vec()) {
        *response.body_mut() = respond::whole(body.into());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    }
    response
}

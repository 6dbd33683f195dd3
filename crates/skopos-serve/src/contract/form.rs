//! Response forms of objects: full, metadata only, or a table (W13).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use skopos_wire::protobuf::{self, MEDIA_TYPE};
use skopos_wire::{Status, StatusReason};

use super::list_body::ListSink;
use super::media_range::{self, media_ranges};
use super::protobuf::ProtobufForm;
use super::request::Request;
use crate::event_type::{EventType, FRAME_TAIL};
use crate::gzip::BlockPart;
use crate::item::Item;
use crate::json::{has_type_meta, partial_object_metadata, quoted, with_type_meta, without_type_meta};
use crate::request::Query;
use crate::resources::ResourceType;
use crate::respond::{self, Response};
use crate::source::Source;
use crate::table::{IncludeObject, LeadingColumn, TableWriter};
use crate::window::{FrameShape, Layout};

/// Media type of a watch in protobuf.
const WATCH_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// Response form of objects: full, metadata only, or a table; in JSON or in protobuf.
#[derive(Debug)]
pub struct Form {
    kind: FormKind,
    /// `None` for JSON.
    protobuf: Option<ProtobufForm>,
    resource: Arc<ResourceType>,
}

#[derive(Debug)]
enum FormKind {
    /// Full objects, with kind and apiVersion of the resource, whatever they are stored with.
    Full,
    /// `PartialObjectMetadata`.
    Partial,
    /// `Table`.
    Table(Box<TableWriter>),
}

/// Kind of request that a form is negotiated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One object.
    One,
    /// A list.
    List,
    /// The events of a watch.
    Watch,
}

impl Form {
    /// Returns the form of the response to a request to this source.
    ///
    /// # Errors
    /// As [`negotiate`](Self::negotiate).
    pub(super) fn for_request<S: Source>(
        source: &S,
        request: &Request<'_, S::Item>,
        purpose: Purpose,
    ) -> Result<Self, Status> {
        let Request { headers, query, resource, .. } = request;
        let form = Self::negotiate(headers, query, resource, purpose, source.window().has_protobuf())?;
        Ok(form.with_leading_columns(source.columns()))
    }

    /// Returns the first form in `Accept` that is supported; protobuf only if the source has it.
    ///
    /// # Errors
    /// 406 if none is supported.
    pub fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        resource: &Arc<ResourceType>,
        purpose: Purpose,
        protobuf: bool,
    ) -> Result<Self, Status> {
        let (kind, protobuf) =
            FormKind::negotiate(&media_range::accept(headers), query, resource, purpose, protobuf)?;
        Ok(Self { kind, protobuf, resource: resource.clone() })
    }

    /// Puts these columns before all others of a table.
    fn with_leading_columns(mut self, columns: &[LeadingColumn]) -> Self {
        if let FormKind::Table(writer) = &mut self.kind {
            writer.set_leading_columns(columns);
        }
        self
    }

    /// Returns the response with one object, as to a GET. A table has this `revision`, and its ages are those at `now`.
    pub fn respond(&self, code: StatusCode, item: &impl Item, revision: u64, now: Timestamp) -> Response {
        if let Some(form) = &self.protobuf
            && let Ok(object) = form.object(item, item.revision())
        {
            return respond::bytes(code, MEDIA_TYPE, object);
        }
        // An object that does not fit the protobuf of its kind is complete only in JSON.
        respond::json_bytes(code, &self.render(item, item.json(), revision, now, true))
    }

    /// Returns the form of responses in protobuf.
    pub(super) fn protobuf(&self) -> Option<&ProtobufForm> {
        self.protobuf.as_ref()
    }

    /// Returns the content type of a watch.
    pub(super) fn watch_type(&self) -> &'static str {
        if self.protobuf.is_some() { WATCH_MEDIA_TYPE } else { "application/json" }
    }

    /// Returns the frame of an ERROR event.
    pub(super) fn error_frame(&self, status: &Status) -> Bytes {
        self.frame_without_item("ERROR", &json!(status))
    }

    /// Returns the frame of an event whose object the server makes.
    fn frame_without_item(&self, event_type: &str, object: &Value) -> Bytes {
        if self.protobuf.is_some()
            && let Ok(object) = protobuf::from_json(object.to_string().as_bytes())
        {
            return protobuf::watch_frame(event_type, &object).into();
        }
        Bytes::from(json!({"type": event_type, "object": object}).to_string() + "\n")
    }

    /// Returns the frame of an event, which shows the object with the event's revision. With `definitions`, a table includes its
    /// column definitions, as in the first event of a stream. Returns `None` if the object does not fit its protobuf.
    pub(super) fn frame(
        &self,
        kind: EventType,
        item: &impl Item,
        revision: u64,
        now: Timestamp,
        definitions: bool,
    ) -> Option<Bytes> {
        if let Some(form) = &self.protobuf {
            return form.frame(kind, item, revision).ok();
        }
        let object = self.render(item, item.json_at(revision), revision, now, definitions);
        Some(Bytes::from([kind.frame_head(), &object, FRAME_TAIL].concat()))
    }

    /// Returns the frame of an event if the item has one ready.
    pub(super) fn ready_frame(&self, kind: EventType, item: &impl Item, revision: u64) -> Option<Bytes> {
        let is_json = self.protobuf.is_none();
        if !is_json || !matches!(self.kind, FormKind::Full) || item.revision() != revision {
            return None;
        }
        let frame = item.frame(kind)?;
        let object = frame.strip_prefix(kind.frame_head())?;
        has_type_meta(object, &self.resource).then_some(frame)
    }

    /// Returns the frame of a bookmark. `definitions` as in [`frame`](Self::frame).
    pub(super) fn bookmark_frame(&self, metadata: Value, now: Timestamp, definitions: bool) -> Bytes {
        let (kind, api_version) = match &self.kind {
            FormKind::Partial => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            _ => (self.resource.kind.as_str(), self.resource.api_version()),
        };
        let revision = json!({"resourceVersion": metadata["resourceVersion"]});
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        // In a table, a bookmark is an ordinary row.
        if let FormKind::Table(writer) = &self.kind {
            object = writer.table(revision, vec![writer.row(&object, Vec::new(), now)], definitions);
        }
        self.frame_without_item("BOOKMARK", &object)
    }

    /// Returns the properties that tell the frames of one event apart.
    pub(super) fn shape(&self) -> FrameShape<'_> {
        let layout = match &self.kind {
            FormKind::Full => Layout::Full,
            FormKind::Partial => Layout::Partial,
            FormKind::Table(writer) => {
                Layout::Table { include: writer.include(), columns: writer.identity() }
            }
        };
        FrameShape { layout, is_protobuf: self.protobuf.is_some(), version: &self.resource.version }
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.kind, FormKind::Table(_))
    }

    /// Returns the text before the items of a list; `]}` and a newline follow them.
    pub(super) fn list_prefix(&self, metadata: &str) -> String {
        let (kind, api_version) = match &self.kind {
            FormKind::Partial => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
            FormKind::Table(_) => ("Table", "meta.k8s.io/v1".to_owned()),
            FormKind::Full => (self.resource.list_kind.as_str(), self.resource.api_version()),
        };
        let (kind, api_version) = (quoted(kind), quoted(&api_version));
        let items = match &self.kind {
            FormKind::Table(writer) => format!("\"columnDefinitions\":{},\"rows\"", writer.definitions()),
            _ => "\"items\"".to_owned(),
        };
        format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata},{items}:[")
    }

    /// Writes one object as an item of a list.
    pub(super) fn write_item(&self, item: &impl Item, now: Timestamp, out: &mut impl ListSink) {
        match &self.kind {
            FormKind::Full if self.resource.custom => self.write_whole(item, out),
            // Items of typed lists carry no kind and apiVersion of their own.
            FormKind::Full => out.part(item, BlockPart::Tail, |text| {
                text.push(b'{');
                text.extend_from_slice(&without_type_meta(&item.json()));
            }),
            FormKind::Partial => write_metadata(item, out),
            FormKind::Table(writer) => {
                let object = serde_json::from_slice(&item.json()).unwrap_or_default();
                let cells = writer.cells(&object, item.cells(), now);
                out.text(format!("{{\"cells\":{cells},").as_bytes());
                if let Some(conditions) = writer.conditions(&object) {
                    out.text(format!("\"conditions\":{conditions},").as_bytes());
                }
                out.text(b"\"object\":");
                match writer.include() {
                    IncludeObject::None => out.text(b"null"),
                    IncludeObject::Metadata => write_metadata(item, out),
                    IncludeObject::Object => self.write_whole(item, out),
                }
                out.text(b"}");
            }
        }
    }

    fn write_whole(&self, item: &impl Item, out: &mut impl ListSink) {
        let json = item.json();
        match has_type_meta(&json, &self.resource) {
            true => out.part(item, BlockPart::Whole, |text| text.extend_from_slice(&json)),
            // Not cached: the text differs for each version of the API.
            false => out.text(&with_type_meta(json, &self.resource)),
        }
    }

    fn render(
        &self,
        item: &impl Item,
        json: Bytes,
        revision: u64,
        now: Timestamp,
        definitions: bool,
    ) -> Bytes {
        match &self.kind {
            FormKind::Full => with_type_meta(json, &self.resource),
            FormKind::Partial => partial_object_metadata(&json),
            FormKind::Table(writer) => {
                let metadata = json!({"resourceVersion": revision.to_string()});
                writer.table(metadata, vec![row(writer, item, &json, now)], definitions).to_string().into()
            }
        }
    }
}

fn write_metadata(item: &impl Item, out: &mut impl ListSink) {
    out.part(item, BlockPart::Metadata, |text| {
        text.extend_from_slice(&partial_object_metadata(&item.json()))
    });
}

fn row(writer: &TableWriter, item: &impl Item, json: &[u8], now: Timestamp) -> Value {
    let object = serde_json::from_slice(json).unwrap_or_default();
    writer.row(&object, item.cells(), now)
}

impl FormKind {
    fn negotiate(
        accept: &str,
        query: &Query,
        resource: &ResourceType,
        purpose: Purpose,
        protobuf: bool,
    ) -> Result<(Self, Option<ProtobufForm>), Status> {
        if accept.trim().is_empty() {
            return Ok((Self::Full, None));
        }
        for media_range in media_ranges(accept) {
            let json = matches!(media_range.media, "application/json" | "application/*" | "*/*");
            let is_protobuf = protobuf && media_range.media == MEDIA_TYPE;
            if !(json || is_protobuf) || media_range.stream.is_some_and(|stream| stream != "watch") {
                continue;
            }
            match media_range.kind {
                // Custom resources and tables have no protobuf.
                None if is_protobuf => match ProtobufForm::full(resource) {
                    None => continue,
                    form => return Ok((Self::Full, form)),
                },
                Some("Table") if is_protobuf => {}
                None => return Ok((Self::Full, None)),
                Some(_) if media_range.group != Some("meta.k8s.io") => {}
                Some("Table") if matches!(media_range.version, Some("v1" | "v1beta1")) => {
                    let include = query.get("includeObject").unwrap_or_default();
                    let include = IncludeObject::parse(include).ok_or_else(|| {
                        Status::bad_request(format!(
                            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', 'Object', 'None', or empty"
                        ))
                    })?;
                    return Ok((Self::Table(Box::new(TableWriter::new(resource, include))), None));
                }
                Some(kind @ ("PartialObjectMetadata" | "PartialObjectMetadataList"))
                    if kind.ends_with("List") == (purpose == Purpose::List) =>
                {
                    return Ok((Self::Partial, ProtobufForm::partial().filter(|_| is_protobuf)));
                }
                Some("PartialObjectMetadata") => {
                    return Err(plurality_mismatch(
                        resource,
                        "PartialObjectMetadata",
                        "a list",
                        &resource.list_kind,
                    ));
                }
                Some("PartialObjectMetadataList") if purpose == Purpose::One => {
                    return Err(plurality_mismatch(
                        resource,
                        "PartialObjectMetadataList",
                        "not a list",
                        &resource.kind,
                    ));
                }
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable(&["application/json"]))
    }
}

/// Returns the 406 for a request for one object's metadata where there is a list, or the reverse.
fn plurality_mismatch(resource: &ResourceType, requested: &str, is: &str, kind: &str) -> Status {
    // The Go package of the type.
    let package = match resource.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    let message = format!("you requested {requested}, but the requested object is {is} (*{package}.{kind})");
    Status::failure(406, StatusReason::NotAcceptable, message)
}

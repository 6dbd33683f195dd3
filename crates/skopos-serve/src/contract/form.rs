//! Response forms of objects: full, metadata only, or a table (W13).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use skopos_wire::{Status, StatusReason};

use super::list_body::Sink;
use crate::event_type::{EventType, FRAME_TAIL};
use crate::gzip::Part;
use crate::item::Item;
use crate::json::{bare_tail, is_whole, partial, quoted, whole};
use crate::request::Query;
use crate::resources::ResourceType;
use crate::table::{IncludeObject, LeadingColumn, TableWriter};
use crate::window::{Layout, Shape};

/// Response form of objects: full, metadata only, or a table.
#[derive(Debug)]
pub struct Form {
    kind: Kind,
    resource: Arc<ResourceType>,
}

#[derive(Debug)]
enum Kind {
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

// === impl Form ===

impl Form {
    /// Returns the first form in `Accept` that is supported.
    ///
    /// # Errors
    /// 406 if none is supported.
    pub fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        resource: &Arc<ResourceType>,
        purpose: Purpose,
    ) -> Result<Self, Status> {
        let accept: Vec<&str> =
            headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
        let kind = Kind::negotiate(&accept.join(","), query, resource, purpose)?;
        Ok(Self { kind, resource: resource.clone() })
    }

    /// Puts these columns before all others of a table.
    #[must_use]
    pub fn led_by(mut self, columns: &[LeadingColumn]) -> Self {
        if let Kind::Table(writer) = &mut self.kind {
            writer.lead(columns);
        }
        self
    }

    /// Returns one object as in the response to a GET. A table has this `revision`, and its ages are those at `now`.
    pub fn object(&self, item: &impl Item, revision: u64, now: Timestamp) -> Bytes {
        self.shown(item, item.json(), revision, now, true)
    }

    /// Returns the frame of an event, which shows the object with the event's revision. With `definitions`, a table includes its
    /// column definitions, as in the first event of a stream.
    pub(super) fn frame(
        &self,
        kind: EventType,
        item: &impl Item,
        revision: u64,
        now: Timestamp,
        definitions: bool,
    ) -> Bytes {
        let object = self.shown(item, item.json_at(revision), revision, now, definitions);
        Bytes::from([kind.frame_head(), &object, FRAME_TAIL].concat())
    }

    /// Returns the frame of an event if the item has one ready.
    pub(super) fn ready_frame(&self, kind: EventType, item: &impl Item, revision: u64) -> Option<Bytes> {
        if !matches!(self.kind, Kind::Full) || item.revision() != revision {
            return None;
        }
        let frame = item.frame(kind)?;
        let object = frame.strip_prefix(kind.frame_head())?;
        is_whole(object, &self.resource).then_some(frame)
    }

    /// Returns the frame of a bookmark. `definitions` as in [`frame`](Self::frame).
    pub(super) fn bookmark_frame(&self, metadata: Value, now: Timestamp, definitions: bool) -> Bytes {
        let (kind, api_version) = match &self.kind {
            Kind::Partial => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            _ => (self.resource.kind.as_str(), self.resource.api_version()),
        };
        let revision = json!({"resourceVersion": metadata["resourceVersion"]});
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        // In a table, a bookmark is an ordinary row.
        if let Kind::Table(writer) = &self.kind {
            object = writer.table(revision, vec![writer.row(&object, Vec::new(), now)], definitions);
        }
        Bytes::from(json!({"type": "BOOKMARK", "object": object}).to_string() + "\n")
    }

    /// Returns the properties that tell the frames of one event apart.
    pub(super) fn shape(&self) -> Shape<'_> {
        let layout = match &self.kind {
            Kind::Full => Layout::Full,
            Kind::Partial => Layout::Partial,
            Kind::Table(writer) => Layout::Table { include: writer.include(), columns: writer.identity() },
        };
        Shape { layout, version: &self.resource.version }
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.kind, Kind::Table(_))
    }

    /// Returns the text before the items of a list; `]}` and a newline follow them.
    pub(super) fn list_opening(&self, metadata: &str) -> String {
        let (kind, api_version) = match &self.kind {
            Kind::Partial => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
            Kind::Table(_) => ("Table", "meta.k8s.io/v1".to_owned()),
            Kind::Full => (self.resource.list_kind.as_str(), self.resource.api_version()),
        };
        let (kind, api_version) = (quoted(kind), quoted(&api_version));
        let items = match &self.kind {
            Kind::Table(writer) => format!("\"columnDefinitions\":{},\"rows\"", writer.definitions()),
            _ => "\"items\"".to_owned(),
        };
        format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata},{items}:[")
    }

    /// Writes one object as an item of a list.
    pub(super) fn write_item(&self, item: &impl Item, now: Timestamp, out: &mut impl Sink) {
        match &self.kind {
            Kind::Full if self.resource.custom => self.write_whole(item, out),
            // Items of typed lists carry no kind and apiVersion of their own.
            Kind::Full => out.part(item, Part::Tail, |text| {
                text.push(b'{');
                text.extend_from_slice(&bare_tail(&item.json()));
            }),
            Kind::Partial => write_metadata(item, out),
            Kind::Table(writer) => {
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

    fn write_whole(&self, item: &impl Item, out: &mut impl Sink) {
        let json = item.json();
        match is_whole(&json, &self.resource) {
            true => out.part(item, Part::Whole, |text| text.extend_from_slice(&json)),
            // Not cached: the text differs for each version of the API.
            false => out.text(&whole(json, &self.resource)),
        }
    }

    fn shown(
        &self,
        item: &impl Item,
        json: Bytes,
        revision: u64,
        now: Timestamp,
        definitions: bool,
    ) -> Bytes {
        match &self.kind {
            Kind::Full => whole(json, &self.resource),
            Kind::Partial => partial(&json),
            Kind::Table(writer) => {
                let metadata = json!({"resourceVersion": revision.to_string()});
                writer.table(metadata, vec![row(writer, item, &json, now)], definitions).to_string().into()
            }
        }
    }
}

fn write_metadata(item: &impl Item, out: &mut impl Sink) {
    out.part(item, Part::Metadata, |text| text.extend_from_slice(&partial(&item.json())));
}

fn row(writer: &TableWriter, item: &impl Item, json: &[u8], now: Timestamp) -> Value {
    let object = serde_json::from_slice(json).unwrap_or_default();
    writer.row(&object, item.cells(), now)
}

// === impl Kind ===

impl Kind {
    fn negotiate(
        accept: &str,
        query: &Query,
        resource: &ResourceType,
        purpose: Purpose,
    ) -> Result<Self, Status> {
        if accept.trim().is_empty() {
            return Ok(Self::Full);
        }
        for clause in clauses(accept) {
            let json = matches!(clause.media, "application/json" | "application/*" | "*/*");
            if !json || clause.stream.is_some_and(|stream| stream != "watch") {
                continue;
            }
            match clause.kind {
                None => return Ok(Self::Full),
                Some(_) if clause.group != Some("meta.k8s.io") => {}
                Some("Table") if matches!(clause.version, Some("v1" | "v1beta1")) => {
                    let include = query.get("includeObject").unwrap_or_default();
                    let include = IncludeObject::parse(include).ok_or_else(|| {
                        Status::bad_request(format!(
                            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', 'Object', 'None', or empty"
                        ))
                    })?;
                    return Ok(Self::Table(Box::new(TableWriter::new(resource, include))));
                }
                Some("PartialObjectMetadata") if purpose != Purpose::List => return Ok(Self::Partial),
                Some("PartialObjectMetadataList") if purpose == Purpose::List => return Ok(Self::Partial),
                Some("PartialObjectMetadata") => {
                    return Err(wrong_number(
                        resource,
                        "PartialObjectMetadata",
                        "a list",
                        &resource.list_kind,
                    ));
                }
                Some("PartialObjectMetadataList") if purpose == Purpose::One => {
                    return Err(wrong_number(
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
fn wrong_number(resource: &ResourceType, asked: &str, is: &str, kind: &str) -> Status {
    // The Go package of the type.
    let package = match resource.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    let message = format!("you requested {asked}, but the requested object is {is} (*{package}.{kind})");
    Status::failure(406, StatusReason::NotAcceptable, message)
}

/// One of the media types that the client accepts.
#[derive(Debug, PartialEq)]
struct Clause<'a> {
    media: &'a str,
    kind: Option<&'a str>,
    group: Option<&'a str>,
    version: Option<&'a str>,
    stream: Option<&'a str>,
    /// Quality in thousandths.
    quality: u32,
}

/// Returns the clauses of `Accept`, best first.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let mut parsed =
                Clause { media, kind: None, group: None, version: None, stream: None, quality: 1000 };
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name {
                    "as" => parsed.kind = Some(value),
                    "g" => parsed.group = Some(value),
                    "v" => parsed.version = Some(value),
                    "stream" => parsed.stream = Some(value),
                    "q" => parsed.quality = value.parse::<f32>().map_or(0, |q| (q * 1000.0) as u32),
                    _ => {}
                }
            }
            parsed
        })
        .filter(|clause| clause.quality > 0)
        .collect();
    clauses.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    clauses
}

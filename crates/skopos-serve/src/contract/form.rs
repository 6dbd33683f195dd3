//! In which form objects are sent: whole, metadata only, or as a table (W13).

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use skopos_wire::{Status, StatusReason};

use crate::request::{Query, RequestTarget};
use crate::resources::ResourceType;
use crate::storage::Stored;
use crate::table::{IncludeObject, TableWriter};

/// In which form objects are sent.
#[derive(Debug)]
pub(crate) enum Form {
    /// As they are stored, with this apiVersion instead if they are stored with another one.
    Full { api_version: Option<String> },
    /// `PartialObjectMetadata`.
    Partial,
    /// `Table`.
    Table(Box<TableWriter>),
}

/// What a request wants objects for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    One,
    List,
    Watch,
}

// === impl Form ===

impl Form {
    /// The first form of `Accept` that the server has.
    ///
    /// # Errors
    /// 406 if there is none.
    pub(crate) fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        target: &RequestTarget,
        purpose: Purpose,
        now: jiff::Timestamp,
    ) -> Result<Self, Status> {
        let accept: Vec<&str> =
            headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
        let accept = accept.join(",");
        let resource = &target.resource;
        let full = || {
            let converted = resource.version != resource.storage_version;
            Self::Full { api_version: converted.then(|| resource.api_version()) }
        };
        if accept.trim().is_empty() {
            return Ok(full());
        }
        for clause in clauses(&accept) {
            let json = matches!(clause.media, "application/json" | "application/*" | "*/*");
            if !json || clause.stream.is_some_and(|stream| stream != "watch") {
                continue;
            }
            match clause.kind {
                None => return Ok(full()),
                Some(_) if clause.group != Some("meta.k8s.io") => {}
                Some("Table") if matches!(clause.version, Some("v1" | "v1beta1")) => {
                    let include = query.get("includeObject").unwrap_or_default();
                    let include = IncludeObject::parse(include).ok_or_else(|| {
                        Status::bad_request(format!(
                            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', 'Object', 'None', or empty"
                        ))
                    })?;
                    return Ok(Self::Table(Box::new(TableWriter::new(resource, include, now))));
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

    /// One object, whole: as a GET or a watch event has it.
    pub(crate) fn object(&self, object: &Stored) -> Bytes {
        match self {
            Self::Full { api_version: None } => object.json(),
            Self::Full { api_version: Some(version) } => {
                let head = kind_of(object);
                Bytes::from(
                    [
                        b"{\"kind\":",
                        head.kind,
                        b",\"apiVersion\":\"",
                        version.as_bytes(),
                        b"\",",
                        object.rest(),
                    ]
                    .concat(),
                )
            }
            Self::Partial => partial(object),
            Self::Table(writer) => table(writer, object, true),
        }
    }

    /// One object of a watch event; tables define their columns in the first only.
    pub(crate) fn event_object(&self, object: &Stored, first: bool) -> Bytes {
        match self {
            Self::Table(writer) => table(writer, object, first),
            _ => self.object(object),
        }
    }

    /// Whether the stored frames of events can be sent as they are.
    pub(crate) fn is_stored_form(&self) -> bool {
        matches!(self, Self::Full { api_version: None })
    }
}

/// 406: the metadata of one object was asked for where there is a list, or the other way round.
fn wrong_number(resource: &ResourceType, asked: &str, is: &str, kind: &str) -> Status {
    // How Go names the type.
    let package = match resource.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    let message = format!("you requested {asked}, but the requested object is {is} (*{package}.{kind})");
    Status::failure(406, StatusReason::NotAcceptable, message)
}

fn table(writer: &TableWriter, object: &Stored, definitions: bool) -> Bytes {
    let metadata = serde_json::json!({"resourceVersion": object.revision().to_string()});
    let table = writer.table(metadata, vec![writer.row(&object.to_value())], definitions);
    Bytes::from(table.to_string())
}

/// The metadata of the object, as an object of its own.
pub(crate) fn partial(object: &Stored) -> Bytes {
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let metadata =
        serde_json::from_slice::<Metadata<'_>>(object.json_slice()).map_or("{}", |o| o.metadata.get());
    let head = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":";
    Bytes::from([head, metadata, "}"].concat())
}

struct Head<'a> {
    /// With its quotes.
    kind: &'a [u8],
}

/// Stored JSON begins with `{"kind":"...",`.
fn kind_of(object: &Stored) -> Head<'_> {
    let json = object.json_slice();
    let start = "{\"kind\":".len();
    let end = json.iter().position(|b| *b == b',').unwrap_or(json.len());
    Head { kind: &json[start..end.max(start)] }
}

/// One of the media types that the client accepts.
#[derive(Debug, PartialEq)]
struct Clause<'a> {
    media: &'a str,
    kind: Option<&'a str>,
    group: Option<&'a str>,
    version: Option<&'a str>,
    stream: Option<&'a str>,
    /// In thousandths.
    quality: u32,
}

/// The clauses of `Accept`, best first.
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

/// A JSON string literal.
pub(super) fn quoted(text: &str) -> Cow<'static, str> {
    Cow::Owned(serde_json::Value::from(text).to_string())
}

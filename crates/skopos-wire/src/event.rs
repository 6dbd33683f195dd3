//! Watch events.

use bytes::Bytes;

use crate::json::{Cursor, RawStr, SyntaxError};
use crate::object::{Parts, ScanError};
use crate::protobuf;
use crate::{Limits, ObjectKey, RawObject, ResourceVersion, Status};

/// The annotation of the bookmark that ends the initial events of a streamed list (`sendInitialEvents=true`).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One event of a watch.
///
/// ```
/// # use skopos_wire::{Limits, WatchEvent};
/// let frame = br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746",
///     "annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
/// let WatchEvent::Bookmark { resource_version, initial_events_end } =
///     WatchEvent::parse(frame.as_slice().into(), &Limits::default())?
/// else {
///     unreachable!()
/// };
/// assert_eq!(resource_version.as_u64(), Some(12746));
/// assert!(initial_events_end);
/// # Ok::<(), skopos_wire::BrokenFrame>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// A new object, or one that is new to the watch's selectors.
    Added(RawObject),
    /// A changed object.
    Modified(RawObject),
    /// The last state of an object that was deleted or has left the watch's selectors, with the event's resourceVersion.
    Deleted(RawObject),
    /// A bookmark: there are no further changes up to this version.
    Bookmark {
        /// The version up to which all events were sent.
        resource_version: ResourceVersion,
        /// Set on the bookmark that ends the initial events: the content is complete from here on.
        initial_events_end: bool,
    },
    /// A failure that ends the watch.
    Error(Box<Status>),
}

impl WatchEvent {
    /// Parses one frame, with its members in any order. The object is copied into its own buffer.
    ///
    /// # Errors
    /// If the frame is not an event, or its object cannot be scanned. The error names the object if it can be identified.
    pub fn parse(frame: Bytes, limits: &Limits) -> Result<Self, BrokenFrame> {
        Self::parse_slice(&frame, limits)
    }

    /// Parses a frame as [`WatchEvent::parse`] does, from a slice.
    ///
    /// # Errors
    /// As [`WatchEvent::parse`].
    pub fn parse_slice(frame: &[u8], limits: &Limits) -> Result<Self, BrokenFrame> {
        crate::object::check_text(frame, limits.max_frame_bytes)
            .map_err(BrokenReason::from)
            .and_then(|()| {
                let mut cursor = Cursor::new(frame, limits.max_depth);
                let event = read(&mut cursor, limits)?;
                cursor.end()?;
                Ok(event)
            })
            .map_err(|reason| BrokenFrame::new(frame, reason))
    }

    /// Parses a frame of protobuf, without its length. The object is copied into its own buffer.
    ///
    /// # Errors
    /// As [`WatchEvent::parse`].
    pub fn parse_protobuf(frame: &[u8], limits: &Limits) -> Result<Self, BrokenFrame> {
        let [event_type, object] = protobuf::first_two(frame).unwrap_or_default();
        let event_type = event_type.and_then(|text| std::str::from_utf8(text).ok());
        let envelope = object.and_then(|object| protobuf::first_two(object)?[0]);
        read_protobuf(event_type, envelope, limits).map_err(|reason| {
            let identity = RawObject::identify(envelope.unwrap_or_default());
            BrokenFrame {
                key: identity.key,
                resource_version: identity.resource_version,
                event_type: event_type.map(|text| text.chars().take(64).collect()),
                reason,
            }
        })
    }

    /// Parses the frame at the start of `text` and returns it with its length. Returns `None` if the frame does not end
    /// there, spans lines or cannot be parsed: once its end is found some other way, [`WatchEvent::parse`] reports the
    /// reason.
    pub(crate) fn at_start_of(text: &[u8], limits: &Limits) -> Option<(Self, usize)> {
        let mut cursor = Cursor::new(text, limits.max_depth);
        let event = read(&mut cursor, limits).ok()?;
        let frame = crate::object::check_read(&cursor, limits.max_frame_bytes).ok()?;
        memchr::memchr(b'\n', frame).is_none().then_some((event, frame.len()))
    }

    /// Returns the version that the watch has reached with this event; `None` for an error.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => {
                Some(object.resource_version())
            }
            Self::Bookmark { resource_version, .. } => Some(resource_version),
            Self::Error(_) => None,
        }
    }

    /// Returns the object of an added, modified or deleted event.
    pub fn object(&self) -> Option<&RawObject> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark { .. } | Self::Error(_) => None,
        }
    }
}

/// A frame that is not an event. The server, or an intermediary, is at fault.
///
/// A watcher that continues has lost a change, unless it gets the object [`BrokenFrame::key`] again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken watch frame ({event_type} of {object}): {reason}", event_type = .event_type.as_deref().unwrap_or("unknown event"),
    object = .key.as_ref().map_or_else(|| "unknown object".to_owned(), ToString::to_string))]
pub struct BrokenFrame {
    /// The object's key, if known.
    pub key: Option<ObjectKey>,
    /// The object's version, if known.
    pub resource_version: Option<ResourceVersion>,
    /// The event's type, such as `ADDED`, if known.
    pub event_type: Option<String>,
    /// The reason.
    pub reason: BrokenReason,
}

/// The reason why a frame is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenReason {
    /// An invalid object, or an envelope that is not JSON.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// An unknown event type.
    #[error("there is no event type {0:?}")]
    UnknownType(Box<str>),
    /// A member that is missing, of the wrong type or duplicated.
    #[error("the frame's {member} {problem}")]
    Member {
        /// `type` or `object`.
        member: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// An `ERROR` event whose object is not a Status.
    #[error("the frame's error is no Status: {0}")]
    NotAStatus(Box<str>),
}

impl From<SyntaxError> for BrokenReason {
    fn from(error: SyntaxError) -> Self {
        Self::Scan(error.into())
    }
}

impl BrokenFrame {
    /// Collects what is known about a frame that could not be parsed.
    pub(crate) fn new(frame: &[u8], reason: BrokenReason) -> Self {
        let identity = RawObject::identify(frame);
        Self {
            key: identity.key,
            resource_version: identity.resource_version,
            event_type: find_type(frame),
            reason,
        }
    }
}

/// Parses the event at the cursor. The caller checks that the text is UTF-8.
fn read<'a>(cursor: &mut Cursor<'a>, limits: &Limits) -> Result<WatchEvent, BrokenReason> {
    let mut event_type: Option<RawStr<'a>> = None;
    let mut object: Option<(Parts<'a>, &'a [u8], usize)> = None;
    cursor.members(|cursor, key| {
        if key.is("type") {
            if cursor.peek() != Some(b'"') {
                return Err(BrokenReason::Member { member: "type", problem: "is not a string" });
            }
            if event_type.replace(cursor.string()?).is_some() {
                return Err(BrokenReason::Member { member: "type", problem: "is there twice" });
            }
        } else if key.is("object") {
            if cursor.peek() != Some(b'{') {
                return Err(BrokenReason::Member { member: "object", problem: "is not an object" });
            }
            let start = cursor.position();
            let mut parts = Parts::default();
            parts.read(cursor, limits)?;
            let json = cursor.slice(start..cursor.position());
            if object.replace((parts, json, start)).is_some() {
                return Err(BrokenReason::Member { member: "object", problem: "is there twice" });
            }
        } else {
            cursor.skip_value()?;
        }
        Ok(())
    })?;

    let event_type = event_type.ok_or(BrokenReason::Member { member: "type", problem: "is missing" })?;
    let (parts, json, base) =
        object.ok_or(BrokenReason::Member { member: "object", problem: "is missing" })?;
    if json.len() > limits.max_object_bytes {
        return Err(ScanError::TooLarge { bytes: json.len(), limit: limits.max_object_bytes }.into());
    }
    let object = |parts| RawObject::from_parts(json, parts, base);
    match event_type.text().as_deref().unwrap_or_default() {
        "ADDED" => Ok(WatchEvent::Added(object(parts)?)),
        "MODIFIED" => Ok(WatchEvent::Modified(object(parts)?)),
        "DELETED" => Ok(WatchEvent::Deleted(object(parts)?)),
        "BOOKMARK" => {
            let annotations = parts.annotations().map(|range| cursor.slice(range)).unwrap_or_default();
            Ok(WatchEvent::Bookmark {
                resource_version: parts.resource_version()?,
                initial_events_end: crate::object::lookup_text(annotations, &[INITIAL_EVENTS_END]).as_deref()
                    == Some("true"),
            })
        }
        "ERROR" => match serde_json::from_slice::<Status>(json) {
            Ok(status) if status.kind == "Status" => Ok(WatchEvent::Error(Box::new(status))),
            Ok(other) => Err(BrokenReason::NotAStatus(other.kind.chars().take(64).collect())),
            Err(error) => Err(BrokenReason::NotAStatus(error.to_string().into())),
        },
        other => Err(BrokenReason::UnknownType(other.chars().take(64).collect())),
    }
}

fn read_protobuf(
    event_type: Option<&str>,
    envelope: Option<&[u8]>,
    limits: &Limits,
) -> Result<WatchEvent, BrokenReason> {
    let missing = |member| BrokenReason::Member { member, problem: "is missing" };
    let event_type = event_type.ok_or(missing("type"))?;
    let envelope = envelope.ok_or(missing("object"))?;
    let object = || RawObject::copy_from(envelope, limits);
    match event_type {
        "ADDED" => Ok(WatchEvent::Added(object()?)),
        "MODIFIED" => Ok(WatchEvent::Modified(object()?)),
        "DELETED" => Ok(WatchEvent::Deleted(object()?)),
        "BOOKMARK" => {
            let (kind, message) = crate::object::open(envelope)?;
            protobuf::check(kind.message, message).map_err(ScanError::from)?;
            let metadata = crate::object::metadata(message).unwrap_or_default();
            let resource_version = crate::object::resource_version(metadata).filter(|text| !text.is_empty());
            let missing = ScanError::Missing { field: "metadata.resourceVersion" };
            Ok(WatchEvent::Bookmark {
                resource_version: resource_version.ok_or(missing)?.parse().map_err(ScanError::from)?,
                initial_events_end: crate::object::is_annotated(metadata, INITIAL_EVENTS_END),
            })
        }
        "ERROR" => {
            let (kind, message) = crate::object::open(envelope)?;
            if kind.kind != "Status" {
                return Err(BrokenReason::NotAStatus(kind.kind.into()));
            }
            protobuf::decode_message(kind, message).map(WatchEvent::Error).map_err(BrokenReason::NotAStatus)
        }
        other => Err(BrokenReason::UnknownType(other.chars().take(64).collect())),
    }
}

/// Finds the type of an event in a frame that may be broken anywhere.
fn find_type(frame: &[u8]) -> Option<String> {
    let mut event_type = None;
    let _ = Cursor::new(frame, crate::json::DEPTH_CAP).members::<SyntaxError>(|cursor, key| {
        if key.is("type") && cursor.peek() == Some(b'"') {
            event_type = cursor.string()?.text().map(|text| text.chars().take(64).collect());
        } else {
            cursor.skip_value()?;
        }
        Ok(())
    });
    event_type
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"}}"#;

    fn parse(frame: &str) -> Result<WatchEvent, BrokenFrame> {
        WatchEvent::parse_slice(frame.as_bytes(), &Limits::default())
    }

    #[test]
    fn reads_members_in_any_order() {
        for frame in [
            format!(r#"{{"type":"MODIFIED","object":{POD}}}"#),
            format!(r#" {{ "object" : {POD} , "extra":[{{}}], "type" : "MODIFIED" }} "#),
            format!(r#"{{"ob\u006aect":{POD},"t\u0079pe":"MODIF\u0049ED"}}"#),
        ] {
            let WatchEvent::Modified(object) = parse(&frame).unwrap() else { panic!("{frame}") };
            assert_eq!(object.content(), POD);
            assert_eq!((object.kind(), object.uid()), (Some("Pod"), "u"));
            assert_eq!(object.key().to_string(), "n/a");
        }
    }

    #[test]
    fn a_bookmark_needs_only_a_version() {
        let bookmark = |object: &str| parse(&format!(r#"{{"type":"BOOKMARK","object":{object}}}"#));
        let expect =
            |initial_events_end| WatchEvent::Bookmark { resource_version: 7.into(), initial_events_end };
        assert_eq!(
            bookmark(r#"{"metadata":{"resourceVersion":"7","creationTimestamp":null}}"#).unwrap(),
            expect(false)
        );
        let end = r#"{"metadata":{"resourceVersion":"7","annotations":{"a":"b","k8s.io/initial-events-end":"true"}}}"#;
        assert_eq!(bookmark(end).unwrap(), expect(true));
        assert_eq!(bookmark(&end.replace("true", "false")).unwrap(), expect(false));
        assert!(bookmark(r#"{"metadata":{}}"#).is_err());
    }

    #[test]
    fn an_error_is_a_status() {
        let status = Status::too_old_resource_version(1, 5);
        let frame = format!(r#"{{"type":"ERROR","object":{}}}"#, serde_json::to_string(&status).unwrap());
        assert_eq!(parse(&frame).unwrap(), WatchEvent::Error(Box::new(status)));
        let broken = parse(&format!(r#"{{"type":"ERROR","object":{POD}}}"#)).unwrap_err();
        assert!(matches!(broken.reason, BrokenReason::NotAStatus(_)));
    }

    #[test]
    fn a_broken_frame_names_its_object() {
        let frames = [
            // Broken after the metadata, before it, and truncated.
            format!(r#"{{"type":"ADDED","object":{},"spec":{{]}}}}"#, &POD[..POD.len() - 1]),
            format!(r#"{{"type":"ADDED","object":{{"spec":tru,{}}}"#, &POD[1..]),
            format!(r#"{{"type":"ADDED","object":{}"#, &POD[..POD.len() - 1]),
            // A type that does not exist, and a second object.
            format!(r#"{{"type":"ADDED","object":{POD},"object":{POD}}}"#),
            format!(r#"{{"type":"ADDED","object":{POD}}} x"#),
        ];
        for frame in frames {
            let broken = parse(&frame).expect_err(&frame);
            assert_eq!(broken.key, Some(ObjectKey::namespaced("n", "a")), "{frame}");
            assert_eq!(broken.resource_version, Some(5.into()), "{frame}");
            assert_eq!(broken.event_type.as_deref(), Some("ADDED"), "{frame}");
        }
        let broken = parse(&format!(r#"{{"type":"RENAMED","object":{POD}}}"#)).unwrap_err();
        assert_eq!(broken.reason, BrokenReason::UnknownType("RENAMED".into()));
        assert_eq!(
            broken.to_string(),
            r#"broken watch frame (RENAMED of n/a): there is no event type "RENAMED""#
        );
    }

    #[test]
    fn rejects_malformed_watch_events() {
        for frame in [
            "",
            "{}",
            "[]",
            "null",
            "upstream error",
            r#"{"type":"ADDED"}"#,
            r#"{"object":{}}"#,
            r#"{"type":1,"object":{}}"#,
        ] {
            let broken = parse(frame).expect_err(frame);
            assert_eq!(broken.key, None);
        }
        let table = r#"{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}}"#;
        assert_eq!(parse(table).unwrap_err().reason, BrokenReason::Scan(ScanError::Table));
        let limits = Limits { max_object_bytes: 10, ..Limits::default() };
        let frame = format!(r#"{{"type":"ADDED","object":{POD}}}"#);
        let broken = WatchEvent::parse(frame.into(), &limits).unwrap_err();
        assert!(matches!(broken.reason, BrokenReason::Scan(ScanError::TooLarge { .. })));
        assert!(broken.key.is_some());
    }
}

//! Outcomes of writes: the state that later reads have to contain, according to the member's answer.

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use skopos::ObjectKey;
use skopos_wire::protobuf::{self, Envelope, Message};

use crate::authz::Attributes;

/// The outcome of a write, according to its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing was written, and the answer shows nothing of the member's state.
    Nothing,
    /// An object was written and has this version now.
    Written {
        /// The object, if the answer names it.
        key: Option<ObjectKey>,
        /// Its version.
        version: u64,
    },
    /// The object is gone.
    Deleted(Deleted),
    /// The object is being deleted and nothing holds it: it is gone already or will go at any moment. The write that removes
    /// the last finalizer is answered with the object and its previous version.
    Leaving {
        /// The object.
        object: Deleted,
        /// Its last known version.
        version: u64,
    },
    /// The state may have changed, or differs from memory, at an unknown version.
    Unknown,
}

/// An object that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deleted {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
}

impl Outcome {
    /// Returns the outcome if the status alone decides it; `None` if the body says more.
    pub(crate) fn from_status(status: StatusCode, what: &Attributes) -> Option<Self> {
        match status {
            // Writes of many objects, or of objects that are not stored.
            _ if status.is_success() && what.verb == "deletecollection" => Some(Self::Unknown),
            _ if status.is_success() && UNSTORED.contains(&what.subresource.as_str()) => Some(Self::Nothing),
            _ if status.is_success() => None,
            // Such an answer shows that the object is absent, is present, or has another version than the caller has read.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE => Some(Self::Unknown),
            _ if status.is_server_error() => Some(Self::Unknown),
            _ => Some(Self::Nothing),
        }
    }

    /// Reads the answer to a successful write of one object.
    pub(crate) fn from_answer(headers: &HeaderMap, body: &[u8], what: &Attributes) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let answer = match content_type.unwrap_or_default() {
            protobuf if protobuf.starts_with(protobuf::MEDIA_TYPE) => WriteResponse::from_protobuf(body),
            json if json.starts_with("application/json") => serde_json::from_slice(body).ok(),
            _ => None,
        };
        let Some(answer) = answer else { return Self::Unknown };
        // The path of a Namespace names itself as the namespace, but the object is cluster-scoped.
        let inside = !what.namespace.is_empty() && what.resource != "namespaces";
        let namespace = inside.then_some(what.namespace.as_str());
        // The name of a created object is in the answer alone.
        let name = if what.name.is_empty() { answer.metadata.name.as_deref() } else { Some(&*what.name) };
        let key = name.and_then(|name| ObjectKey::checked(namespace, name).ok());
        let version = answer.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        // A table has a version, but may not show that its object is being deleted.
        if let Some(version) = version.filter(|_| answer.kind != "Table") {
            return match (answer.metadata.is_leaving(), answer.metadata.uid, key) {
                (false, _, key) => Self::Written { key, version },
                (true, Some(uid), Some(key)) => Self::Leaving { object: Deleted { key, uid }, version },
                (true, _, _) => Self::Unknown,
            };
        }
        let deletes = what.verb == "delete" && what.subresource.is_empty() && answer.kind == "Status";
        match (answer.details.uid, key) {
            (Some(uid), Some(key)) if deletes && !uid.is_empty() => Self::Deleted(Deleted { key, uid }),
            _ => Self::Unknown,
        }
    }
}

/// Subresources whose objects are returned but not stored.
const UNSTORED: [&str; 1] = ["token"];

/// The fields read of an answer: the version of an object, or the deleted object of a Status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WriteResponse {
    kind: String,
    metadata: Metadata,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    uid: Option<String>,
}

impl Metadata {
    /// Returns whether the object is being deleted, and neither finalizers nor a grace period hold it.
    fn is_leaving(&self) -> bool {
        self.deletion_timestamp.is_some()
            && self.deletion_grace_period_seconds.unwrap_or_default() <= 0
            && self.finalizers.as_ref().is_none_or(Vec::is_empty)
    }

    /// Reads the metadata by field numbers.
    fn from_protobuf(message: &Message<'_>) -> Self {
        const NAME: u64 = 1;
        const UID: u64 = 5;
        const RESOURCE_VERSION: u64 = 6;
        const DELETION_TIMESTAMP: u64 = 9;
        const DELETION_GRACE_PERIOD_SECONDS: u64 = 10;
        const FINALIZERS: u64 = 14;
        Self {
            name: text(message, NAME),
            uid: text(message, UID),
            resource_version: text(message, RESOURCE_VERSION),
            // Only its presence matters.
            deletion_timestamp: message.last(DELETION_TIMESTAMP).map(|_| String::new()),
            deletion_grace_period_seconds: message
                .last(DELETION_GRACE_PERIOD_SECONDS)
                .and_then(protobuf::Field::integer),
            finalizers: message.text(FINALIZERS).map(|last| vec![last.to_owned()]),
        }
    }
}

impl WriteResponse {
    /// Reads an object or a Status by field numbers (`generated.proto` of k8s.io/apimachinery).
    fn from_protobuf(body: &[u8]) -> Option<Self> {
        const METADATA: u64 = 1;
        const STATUS_DETAILS: u64 = 5;
        const DETAILS_UID: u64 = 6;
        let envelope = Envelope::read(body)?;
        let object = Message::read(envelope.object)?;
        let mut answer = Self { kind: envelope.kind.to_owned(), ..Self::default() };
        match envelope.kind {
            "Status" => answer.details.uid = text(&object.message(STATUS_DETAILS)?, DETAILS_UID),
            _ => answer.metadata = Metadata::from_protobuf(&object.message(METADATA)?),
        }
        Some(answer)
    }
}

/// Returns the text of a field that is present and not empty.
fn text(message: &Message<'_>, number: u64) -> Option<String> {
    message.text(number).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn write(verb: &str) -> Attributes {
        let name = if verb == "create" { "".into() } else { "x".into() };
        let namespace = "n".into();
        Attributes { namespace, name, ..Attributes::resource(verb, "", "v1", "configmaps") }
    }

    fn read(content_type: &'static str, body: &[u8], what: &Attributes) -> Outcome {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Outcome::from_answer(&headers, body, what)
    }

    fn written(version: u64) -> Outcome {
        Outcome::Written { key: Some(ObjectKey::namespaced("n", "x")), version }
    }

    /// Encodes a field of a protobuf message.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn envelope(kind: &str, object: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [protobuf::MAGIC.to_vec(), field(1, &type_meta), field(2, object)].concat()
    }

    #[test]
    fn answer_names_written_version() {
        let object = br#"{"kind":"ConfigMap","data":{"metadata":"no"},"metadata":{"name":"x","resourceVersion":"17"}}"#;
        assert_eq!(read("application/json", object, &write("update")), written(17));
        assert_eq!(read("application/json;charset=utf-8", object, &write("delete")), written(17));
        let object = envelope("ConfigMap", &field(1, &[field(1, b"x"), field(6, b"18")].concat()));
        assert_eq!(read("application/vnd.kubernetes.protobuf", &object, &write("create")), written(18));
    }

    #[test]
    fn deletion_names_deleted_object() {
        let gone = Outcome::Deleted(Deleted { key: ObjectKey::namespaced("n", "x"), uid: "u".into() });
        let status =
            br#"{"kind":"Status","metadata":{},"status":"Success","details":{"name":"x","uid":"u"}}"#;
        assert_eq!(read("application/json", status, &write("delete")), gone);
        let details = [field(1, b"x"), field(6, b"u")].concat();
        let status = envelope("Status", &[field(1, b""), field(5, &details)].concat());
        assert_eq!(read("application/vnd.kubernetes.protobuf", &status, &write("delete")), gone);
        let namespace =
            Attributes { namespace: "x".into(), ..Attributes::resource("delete", "", "v1", "namespaces") };
        let namespace = Attributes { name: "x".into(), ..namespace };
        let status = br#"{"kind":"Status","details":{"name":"x","uid":"u"}}"#;
        let gone = Outcome::Deleted(Deleted { key: ObjectKey::cluster("x"), uid: "u".into() });
        assert_eq!(read("application/json", status, &namespace), gone);
    }

    #[test]
    fn object_without_finalizers_may_be_gone() {
        let leaving = Outcome::Leaving {
            object: Deleted { key: ObjectKey::namespaced("n", "x"), uid: "u".into() },
            version: 7,
        };
        let object = |rest: &str| {
            format!(
                r#"{{"kind":"Pod","metadata":{{"name":"x","uid":"u","resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z"{rest}}}}}"#
            )
        };
        for (rest, expected) in [
            ("", leaving.clone()),
            (r#","finalizers":[],"deletionGracePeriodSeconds":0"#, leaving.clone()),
            (r#","finalizers":["a/b"]"#, written(7)),
            (r#","deletionGracePeriodSeconds":30"#, written(7)),
        ] {
            for verb in ["update", "patch", "delete"] {
                assert_eq!(
                    read("application/json", object(rest).as_bytes(), &write(verb)),
                    expected,
                    "{rest}"
                );
            }
        }
        let fields = [field(1, b"x"), field(5, b"u"), field(6, b"7"), field(9, b"")].concat();
        for (rest, expected) in [
            (vec![], leaving.clone()),
            (vec![10 << 3, 0], leaving),
            (vec![10 << 3, 30], written(7)),
            (field(14, b"a/b"), written(7)),
        ] {
            let object = envelope("Pod", &field(1, &[fields.clone(), rest].concat()));
            assert_eq!(read("application/vnd.kubernetes.protobuf", &object, &write("update")), expected);
        }
        let nameless = object("").replace(r#""uid":"u","#, "");
        assert_eq!(read("application/json", nameless.as_bytes(), &write("update")), Outcome::Unknown);
        let table = r#"{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[]}"#;
        assert_eq!(read("application/json", table.as_bytes(), &write("update")), Outcome::Unknown);
    }

    #[test]
    fn unreadable_answer_yields_unknown_outcome() {
        for body in
            [&b""[..], b"{", b"[]", br#"{"metadata":null}"#, br#"{"metadata":{"resourceVersion":"x"}}"#]
        {
            assert_eq!(read("application/json", body, &write("update")), Outcome::Unknown);
        }
        let eviction = Attributes { subresource: "eviction".into(), ..write("create") };
        assert_eq!(
            read("application/json", br#"{"kind":"Status","details":{"uid":"u"}}"#, &eviction),
            Outcome::Unknown
        );
        assert_eq!(read("application/yaml", b"kind: ConfigMap", &write("update")), Outcome::Unknown);
        assert_eq!(
            read("application/vnd.kubernetes.protobuf", b"k8s\0\xff", &write("update")),
            Outcome::Unknown
        );
    }

    #[test]
    fn a_refusal_tells_something_or_nothing() {
        let of =
            |code: u16, verb: &str| Outcome::from_status(StatusCode::from_u16(code).unwrap(), &write(verb));
        for code in [404, 409, 410, 500, 502, 503, 504] {
            assert_eq!(of(code, "update"), Some(Outcome::Unknown), "{code}");
        }
        for code in [400, 401, 403, 405, 413, 415, 422, 429] {
            assert_eq!(of(code, "update"), Some(Outcome::Nothing), "{code}");
        }
        assert_eq!((of(200, "update"), of(201, "create"), of(202, "delete")), (None, None, None));
        assert_eq!(of(200, "deletecollection"), Some(Outcome::Unknown));
    }
}

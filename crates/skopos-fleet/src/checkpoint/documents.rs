//! File with discovery, OpenAPI and version of one cluster.

use std::io::Read;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use skopos::checkpoint::{RestartClock, WallTime};

use super::envelope;
use super::refusal::RefusalReason;
use crate::cluster::{Document, DocumentRequest};

pub(super) type Documents = Vec<(DocumentRequest, Document)>;

const HEAD: &str = "skopos documents 1";
const LEVEL: i32 = 3;

/// Header of the file; the bodies of the documents follow it, one after another.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    identity: String,
    written: WallTime,
    documents: Vec<WireDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireDocument {
    path: String,
    accept: String,
    content_type: String,
    etag: Option<String>,
    /// The time at which the server last confirmed the document.
    proven: Option<WallTime>,
    bytes: usize,
}

/// Encodes documents. Blocks while compressing them.
pub(super) fn encode(
    identity: &str,
    documents: &Documents,
    clock: &RestartClock,
) -> std::io::Result<Vec<u8>> {
    let now = clock.now();
    let wire = |(request, document): &(DocumentRequest, Document)| WireDocument {
        path: request.path().to_owned(),
        accept: request.accept().to_owned(),
        content_type: document.content_type.clone(),
        etag: document.etag.clone(),
        proven: now.before(document.age()),
        bytes: document.body.len(),
    };
    let wire = Wire {
        identity: identity.to_owned(),
        written: now.clone(),
        documents: documents.iter().map(wire).collect(),
    };
    let said = serde_json::to_vec(&wire)?;
    let mut plain = (said.len() as u64).to_le_bytes().to_vec();
    plain.extend_from_slice(&said);
    documents.iter().for_each(|(_, document)| plain.extend_from_slice(&document.body));
    let packed = zstd::bulk::compress(&plain, LEVEL)?;
    Ok(envelope::wrap(HEAD, &[&(plain.len() as u64).to_le_bytes(), &packed[..]].concat()))
}

/// Decodes documents. Omits documents of unknown age. Blocks while reading and decompressing.
pub(super) fn decode(
    identity: &str,
    reader: impl Read,
    most: usize,
    clock: &RestartClock,
) -> Result<Documents, RefusalReason> {
    let damaged = || RefusalReason::Damaged("it is not put together as it should be".into());
    let packed = envelope::unwrap(HEAD, reader, most as u64)?;
    let (size, packed) = length(&packed).ok_or_else(damaged)?;
    if size > most {
        return Err(RefusalReason::Foreign(format!("it has more than {most} bytes of documents")));
    }
    let plain = zstd::bulk::decompress(packed, size).map_err(|_| damaged())?;
    let (size, rest) = length(&plain).ok_or_else(damaged)?;
    let (said, rest) = rest.split_at_checked(size).ok_or_else(damaged)?;
    let wire: Wire = serde_json::from_slice(said).map_err(|_| damaged())?;
    if wire.identity != identity {
        return Err(RefusalReason::Foreign(format!("of the cluster {:?}", wire.identity)));
    }
    let now = clock.now();
    if !wire.documents.is_empty() && now.since(&wire.written).is_none() {
        return Err(RefusalReason::Ageless);
    }
    let mut bodies = Bytes::copy_from_slice(rest);
    let mut documents = Documents::new();
    for document in wire.documents {
        if document.bytes > bodies.len() {
            return Err(damaged());
        }
        // Each body is a copy of its own, so that dropping the others frees their memory.
        let body = Bytes::copy_from_slice(&bodies.split_to(document.bytes));
        let request = DocumentRequest::new(&document.path, &document.accept).ok_or_else(damaged)?;
        if let Some(age) = document.proven.and_then(|proven| now.since(&proven)) {
            documents
                .push((request, Document::from_checkpoint(document.content_type, document.etag, body, age)));
        }
    }
    match bodies.is_empty() {
        true => Ok(documents),
        false => Err(damaged()),
    }
}

/// Returns whether both are the same except for the time of confirmation. Of lists only their presence is compared:
/// their text contains ages, and discovery changes whenever a name in them does.
pub(super) fn are_same(one: &Documents, other: &Documents) -> bool {
    let body = |document: &Document| (document.body.as_ptr(), document.body.len());
    let lists = [DocumentRequest::definitions(), DocumentRequest::api_services()];
    one.len() == other.len()
        && one.iter().zip(other).all(|((request, document), (other_request, other))| {
            let is_equal = || {
                document.etag == other.etag
                    && document.content_type == other.content_type
                    && (body(document) == body(other) || document.body == other.body)
            };
            request == other_request && (lists.contains(request) || is_equal())
        })
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u64::from_le_bytes(*length)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn at(seconds: u64) -> RestartClock {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        RestartClock::from_fn(move || WallTime::new(wall, None))
    }

    #[tokio::test(start_paused = true)]
    async fn documents_round_trip_with_age() {
        let document = |path: &str, body: &'static str, age| {
            let request = DocumentRequest::new(path, "application/json").unwrap();
            let age = Duration::from_secs(age);
            (request, Document::from_checkpoint("a/b", Some("\"e\"".into()), body.into(), age))
        };
        let documents = vec![document("/version", "{}", 3), document("/apis", "some", 100)];
        let bytes = encode("uid 1", &documents, &at(1000)).unwrap();
        let read = decode("uid 1", &bytes[..], 1 << 20, &at(1050)).unwrap();
        assert!(are_same(&documents, &read));
        assert!(read[1].1.age() >= Duration::from_secs(150), "{:?}", read[1].1.age());
        let listed = |body: &'static str| {
            let list = Document::from_checkpoint("a/b", None, body.into(), Duration::ZERO);
            vec![(DocumentRequest::api_services(), list)]
        };
        assert!(are_same(&listed("5 s"), &listed("35 s")) && !are_same(&listed("5 s"), &Vec::new()));
        assert!(matches!(decode("uid 2", &bytes[..], 1 << 20, &at(1050)), Err(RefusalReason::Foreign(_))));
        assert!(matches!(decode("uid 1", &bytes[..], 8, &at(1050)), Err(RefusalReason::Foreign(_))));
        assert!(
            matches!(decode("uid 1", &bytes[..], 1 << 20, &at(900)), Err(RefusalReason::Ageless)),
            "clock set back"
        );
        for cut in 0..bytes.len() {
            assert!(decode("uid 1", &bytes[..cut], 1 << 20, &at(1050)).is_err(), "{cut}");
        }
    }
}

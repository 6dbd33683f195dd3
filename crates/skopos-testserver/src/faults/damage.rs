//! Damage to the objects of responses.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;
use skopos_serve::RequestVerb;
use skopos_wire::protobuf::MAGIC;

use super::Damage;

/// Damages the object of an event, the first item of a list, or the single object, in JSON.
pub(super) fn damaged_json(frame: &Bytes, damage: Damage, verb: RequestVerb) -> Bytes {
    let Ok(mut event) = serde_json::from_slice::<Value>(frame) else { return frame.clone() };
    let object = match verb {
        RequestVerb::Get => Some(&mut event),
        _ if event.get("object").is_some() => event.get_mut("object"),
        _ => event.pointer_mut("/items/0"),
    };
    let Some(Value::Object(object)) = object else { return frame.clone() };
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    match (damage, metadata) {
        (Damage::Spec, _) => {
            object.insert("spec".into(), "not a spec".into());
        }
        (Damage::Kind, _) => {
            object.insert("kind".into(), "Nonsense".into());
        }
        (Damage::NoMetadata, _) => {
            object.remove("metadata");
        }
        (Damage::Labels, Some(metadata)) => {
            metadata.insert("labels".into(), 5.into());
        }
        (Damage::NoName, Some(metadata)) => {
            metadata.remove("name");
        }
        (Damage::NameWithSlash, Some(metadata)) => {
            metadata.insert("name".into(), "a/b".into());
        }
        (Damage::NoResourceVersion, Some(metadata)) => {
            metadata.remove("resourceVersion");
        }
        (_, None) => {}
    }
    Bytes::from(event.to_string() + "\n")
}

/// Damages the same in protobuf, in place: the lengths around the object stay right.
pub(super) fn damaged_protobuf(frame: &Bytes, damage: Damage, verb: RequestVerb) -> Bytes {
    let mut bytes = frame.to_vec();
    if spoil(&mut bytes, damage, verb).is_none() {
        return frame.clone();
    }
    bytes.into()
}

/// The tag of a field with a length that no type has.
const UNKNOWN_TAG: u8 = 15 << 3 | 2;

fn spoil(bytes: &mut [u8], damage: Damage, verb: RequestVerb) -> Option<()> {
    let envelope = match verb {
        // A length, the event, its object, and the bytes in it.
        RequestVerb::Watch => {
            let event = 4..bytes.len();
            let object = find(bytes, event, 2)?.content;
            find(bytes, object, 1)?.content
        }
        _ => 0..bytes.len(),
    };
    if !bytes.get(envelope.clone())?.starts_with(MAGIC) {
        return None;
    }
    let envelope = envelope.start + MAGIC.len()..envelope.end;
    let mut object = find(bytes, envelope.clone(), 2)?.content;
    if verb == RequestVerb::List {
        object = find(bytes, object, 2)?.content;
    }
    let metadata = find(bytes, object.clone(), 1)?;
    match damage {
        Damage::Kind => {
            let types = find(bytes, envelope, 1)?.content;
            let kind = find(bytes, types, 2)?.content;
            bytes.get_mut(kind)?.fill(b'X');
        }
        Damage::NoMetadata => bytes[metadata.tag] = UNKNOWN_TAG,
        Damage::Spec => {
            let spec = find(bytes, object, 2)?.content;
            bytes.get_mut(spec)?.fill(0xff);
        }
        Damage::Labels => match find(bytes, metadata.content.clone(), 11) {
            Some(label) => bytes.get_mut(label.content)?.fill(0xff),
            // Metadata without labels: its uid becomes one.
            None => {
                let uid = find(bytes, metadata.content, 5)?;
                bytes[uid.tag] = 11 << 3 | 2;
                bytes.get_mut(uid.content)?.fill(0xff);
            }
        },
        Damage::NoName => {
            let name = find(bytes, metadata.content, 1)?;
            bytes[name.tag] = UNKNOWN_TAG;
        }
        Damage::NameWithSlash => {
            let name = find(bytes, metadata.content, 1)?.content;
            *bytes.get_mut(name)?.first_mut()? = b'/';
        }
        Damage::NoResourceVersion => {
            let version = find(bytes, metadata.content, 6)?;
            bytes[version.tag] = UNKNOWN_TAG;
        }
    }
    Some(())
}

/// The place of a field.
struct Place {
    tag: usize,
    content: Range<usize>,
}

/// Returns the place of the first field with a number. The message may be cut off behind it.
fn find(bytes: &[u8], message: Range<usize>, number: u64) -> Option<Place> {
    let mut at = message.start;
    while at < message.end {
        let tag = at;
        let head = varint(bytes, &mut at)?;
        let length = match head & 7 {
            0 => varint(bytes, &mut at).map(|_| 0)?,
            1 => 8,
            2 => usize::try_from(varint(bytes, &mut at)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let end = at.checked_add(length)?.min(bytes.len());
        if head >> 3 == number {
            return Some(Place { tag, content: at..end });
        }
        at = end;
    }
    None
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

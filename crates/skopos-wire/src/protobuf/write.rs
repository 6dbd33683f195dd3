//! Writers of fields, envelopes, lists and frames.

use super::MAGIC;
use super::schema::Kind;

/// Wraps a message in its envelope: the body of an object.
pub(crate) fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(message.len() + 64);
    begin_envelope(api_version, kind, message.len(), &mut body);
    body.extend_from_slice(message);
    body.extend_from_slice(ENVELOPE_TAIL);
    body
}

/// Writes a list up to its first item. `lengths` are those of the items' messages.
pub(crate) fn list_head(
    kind: &Kind,
    resource_version: &str,
    continue_token: &str,
    remaining: Option<u64>,
    lengths: impl Iterator<Item = usize>,
) -> Vec<u8> {
    let mut message = Vec::new();
    let _: Result<(), std::convert::Infallible> = nested(1, &mut message, |meta_bytes| {
        bytes(1, b"", meta_bytes);
        bytes(2, resource_version.as_bytes(), meta_bytes);
        bytes(3, continue_token.as_bytes(), meta_bytes);
        if let Some(count) = remaining {
            number(4, count, meta_bytes);
        }
        Ok(())
    });
    let size: usize = lengths.map(|length| 1 + varint_len(length as u64) + length).sum();
    let mut body = Vec::with_capacity(message.len() + 64);
    begin_envelope(kind.api_version, kind.kind, message.len() + size, &mut body);
    body.extend_from_slice(&message);
    body
}

/// Writes an item of a list, from its message.
pub(crate) fn list_item(message: &[u8], body: &mut Vec<u8>) {
    bytes(2, message, body);
}

/// The end of an envelope, behind the message: contentEncoding and contentType, which Go writes even if they are empty.
pub(crate) const ENVELOPE_TAIL: &[u8] = b"\x1a\x00\x22\x00";

/// Writes a frame of a watch: the length, and the event with the object's envelope.
pub(crate) fn watch_frame(event_type: &str, envelope: &[u8]) -> Vec<u8> {
    let object = 1 + varint_len(envelope.len() as u64) + envelope.len();
    let mut frame = vec![0; 4];
    bytes(1, event_type.as_bytes(), &mut frame);
    tag(2, 2, &mut frame);
    varint(object as u64, &mut frame);
    bytes(1, envelope, &mut frame);
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

pub(crate) fn bytes(field: u32, content: &[u8], out: &mut Vec<u8>) {
    tag(field, 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

pub(crate) fn number(field: u32, number: u64, out: &mut Vec<u8>) {
    tag(field, 0, out);
    varint(number, out);
}

pub(crate) fn double(field: u32, number: f64, out: &mut Vec<u8>) {
    tag(field, 1, out);
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

/// Writes a message of a length that is known once it is written.
pub(crate) fn nested<E>(
    field: u32,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    tag(field, 2, out);
    let start = out.len();
    // Most messages are shorter than 128 bytes.
    out.push(0);
    write(out)?;
    let length = (out.len() - start - 1) as u64;
    if let Ok(length @ 0..0x80) = u8::try_from(length) {
        out[start] = length;
    } else {
        let mut prefix = Vec::with_capacity(10);
        varint(length, &mut prefix);
        out.splice(start..=start, prefix);
    }
    Ok(())
}

fn begin_envelope(api_version: &str, kind: &str, length: usize, body: &mut Vec<u8>) {
    body.extend_from_slice(MAGIC);
    let _: Result<(), std::convert::Infallible> = nested(1, body, |body| {
        bytes(1, api_version.as_bytes(), body);
        bytes(2, kind.as_bytes(), body);
        Ok(())
    });
    tag(2, 2, body);
    varint(length as u64, body);
}

fn tag(field: u32, wire_type: u64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | wire_type, out);
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

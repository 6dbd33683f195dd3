//! Changes to objects without decoding the whole: bytes in, bytes out.
//!
//! Retained parts are copied byte for byte. A text that is not a JSON object is returned unchanged, for the following scan
//! to reject.

use bytes::Bytes;

use crate::json::{Cursor, DEPTH_CAP, SyntaxError};

/// Removes `metadata.managedFields`, which is a third of the average object and only matters to servers.
///
/// ```
/// # use skopos_wire::transform::drop_managed_fields;
/// let json = br#"{"metadata":{"managedFields":[{"manager":"x"}],"name":"a"},"spec":{}}"#;
/// assert_eq!(drop_managed_fields(json), r#"{"metadata":{"name":"a"},"spec":{}}"#);
/// ```
pub fn drop_managed_fields(json: &[u8]) -> Bytes {
    if memchr::memmem::find(json, b"managedFields").is_none() && memchr::memmem::find(json, b"\\u").is_none()
    {
        return Bytes::copy_from_slice(json);
    }
    or_unchanged(json, |out| {
        let mut cursor = Cursor::new(json, DEPTH_CAP);
        copy_members(&mut cursor, out, &mut |cursor, key, out| {
            if key != "metadata" || cursor.peek() != Some(b'{') {
                return copy_value(cursor, out);
            }
            copy_members(cursor, out, &mut |cursor, key, out| {
                if key == "managedFields" {
                    cursor.skip_value()?;
                    return Ok(false);
                }
                copy_value(cursor, out)
            })?;
            Ok(true)
        })?;
        cursor.end()
    })
}

/// Converts an object to a `PartialObjectMetadata`, as a server does for metadata-only requests.
///
/// ```
/// # use skopos_wire::transform::metadata_only;
/// let json = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#;
/// assert_eq!(
///     metadata_only(json),
///     r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#
/// );
/// ```
pub fn metadata_only(json: &[u8]) -> Bytes {
    or_unchanged(json, |out| {
        let mut cursor = Cursor::new(json, DEPTH_CAP);
        let mut metadata = None;
        cursor.members::<SyntaxError>(|cursor, key| {
            let range = cursor.skip_value()?;
            if key.is("metadata") {
                metadata = Some(range);
            }
            Ok(())
        })?;
        cursor.end()?;
        out.extend_from_slice(
            br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
        );
        out.extend_from_slice(metadata.map_or(b"{}", |range| cursor.slice(range)));
        out.push(b'}');
        Ok(())
    })
}

fn or_unchanged(json: &[u8], write: impl FnOnce(&mut Vec<u8>) -> Result<(), SyntaxError>) -> Bytes {
    let mut out = Vec::with_capacity(json.len());
    match write(&mut out) {
        // Copied into a buffer of exactly its size, because it may be kept for long.
        Ok(()) => Bytes::copy_from_slice(&out),
        Err(_) => Bytes::copy_from_slice(json),
    }
}

/// A function that consumes the value of a member, may write it, and returns whether it did.
type CopyValue<'f, 'a> = dyn FnMut(&mut Cursor<'a>, &str, &mut Vec<u8>) -> Result<bool, SyntaxError> + 'f;

/// Copies the members of the next object for which `value` reports that it has written their value.
fn copy_members<'a>(
    cursor: &mut Cursor<'a>,
    out: &mut Vec<u8>,
    value: &mut CopyValue<'_, 'a>,
) -> Result<(), SyntaxError> {
    out.push(b'{');
    let start = out.len();
    cursor.members::<SyntaxError>(|cursor, key| {
        let before = out.len();
        if before > start {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(cursor.slice(key.start()..key.start() + key.len()));
        out.extend_from_slice(b"\":");
        if !value(cursor, key.text().as_deref().unwrap_or_default(), out)? {
            out.truncate(before);
        }
        Ok(())
    })?;
    out.push(b'}');
    Ok(())
}

fn copy_value(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<bool, SyntaxError> {
    let range = cursor.skip_value()?;
    out.extend_from_slice(cursor.slice(range));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_managed_fields_of_object_only() {
        let cases = [
            (r#"{"metadata":{"managedFields":[]}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"a":1,"managedFields":[{"x":"}"}],"b":2}}"#, r#"{"metadata":{"a":1,"b":2}}"#),
            (
                r#"{"spec":{"managedFields":1,"metadata":{"managedFields":2}},"metadata":{"name":"a"}}"#,
                r#"{"spec":{"managedFields":1,"metadata":{"managedFields":2}},"metadata":{"name":"a"}}"#,
            ),
            (r#"{"metadata":{"managed\u0046ields":[],"a" : 1}}"#, r#"{"metadata":{"a":1}}"#),
            (r#"{"metadata":null,"managedFields":3}"#, r#"{"metadata":null,"managedFields":3}"#),
        ];
        for (json, expected) in cases {
            assert_eq!(drop_managed_fields(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn leaves_invalid_objects_unchanged() {
        for text in ["", "[]", "{\"metadata\":{\"managedFields\":[}}", "{} x", "nonsense"] {
            assert_eq!(drop_managed_fields(text.as_bytes()), text);
            assert_eq!(metadata_only(text.as_bytes()), text);
        }
    }
}

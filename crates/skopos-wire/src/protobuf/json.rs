//! JSON of a message, as Go's encoder writes it: escapes `<`, `>` and `&`, no white space.

use super::InvalidProtobuf;
use super::schema::TypeMeta;
use super::value::{Object, Value};
use super::view::{Position, View};
use crate::json::Cursor;

/// Writes an object as JSON, with `kind` and `apiVersion` if they are given.
pub(crate) fn write(
    object: &Object<'_>,
    types: Option<TypeMeta<'_>>,
    json: &mut Vec<u8>,
) -> Result<(), InvalidProtobuf> {
    json.push(b'{');
    if let Some(types) = types {
        json.extend_from_slice(b"\"kind\":");
        text(types.kind, json);
        json.extend_from_slice(b",\"apiVersion\":");
        text(types.api_version, json);
    }
    let view = View::read(object)?;
    let mut is_first = types.is_none();
    let (mut position, mut value) = (Position::default(), Value::Null);
    while let Some(name) = view.next_member(&mut position, &mut value)? {
        if !std::mem::take(&mut is_first) {
            json.push(b',');
        }
        json.push(b'"');
        json.extend_from_slice(name.as_bytes());
        json.extend_from_slice(b"\":");
        self::value(&mut value, json)?;
    }
    json.push(b'}');
    Ok(())
}

fn value(value: &mut Value<'_>, json: &mut Vec<u8>) -> Result<(), InvalidProtobuf> {
    match value {
        Value::Null => json.extend_from_slice(b"null"),
        Value::Bool(true) => json.extend_from_slice(b"true"),
        Value::Bool(false) => json.extend_from_slice(b"false"),
        Value::Integer(number) => json.extend_from_slice(itoa(*number, &mut [0; 20])),
        Value::Double(number) => json.extend_from_slice(double(*number).as_bytes()),
        Value::Text(own) => text(own, json),
        Value::BrokenText(bytes) => text_of_bytes(bytes, json),
        Value::Raw(raw) => compact(raw, json),
        Value::Object(object) => write(object, None, json)?,
        Value::List(elements) => {
            json.push(b'[');
            for (at, element) in elements.enumerate() {
                if at > 0 {
                    json.push(b',');
                }
                self::value(&mut element.read()?, json)?;
            }
            json.push(b']');
        }
        Value::Map(entries) => {
            json.push(b'{');
            for (at, (key, element)) in entries.enumerate() {
                if at > 0 {
                    json.push(b',');
                }
                text_of_bytes(key, json);
                json.push(b':');
                self::value(&mut element.read()?, json)?;
            }
            json.push(b'}');
        }
    }
    Ok(())
}

/// Formats an integer without allocation.
fn itoa(number: i64, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = number.unsigned_abs();
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    &digits[at..]
}

/// Formats a number as encoding/json does: the shortest digits, with an exponent below 1e-6 and from 1e21 on.
fn double(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        // Go's encoder fails; there is no such number in JSON.
        return "null".to_owned();
    }
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        // Rust writes `1e21` and `1e-7` as Go does, but Go has a sign at positive exponents.
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    format!("{number}")
}

/// Writes a text in quotes.
pub(crate) fn text(text: &str, json: &mut Vec<u8>) {
    json.push(b'"');
    escaped(text.as_bytes(), true, json);
    json.push(b'"');
}

/// Writes a text in quotes, with an escape in the place of each byte that is not UTF-8.
fn text_of_bytes(text: &[u8], json: &mut Vec<u8>) {
    json.push(b'"');
    for chunk in text.utf8_chunks() {
        escaped(chunk.valid().as_bytes(), true, json);
        json.extend_from_slice(b"\\ufffd".repeat(chunk.invalid().len()).as_slice());
    }
    json.push(b'"');
}

/// By byte: whether it may need an escape.
const MAY_NEED_ESCAPE: [bool; 256] = {
    let mut needs = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        needs[byte] = matches!(byte as u8, 0..0x20 | b'<' | b'>' | b'&' | b'"' | b'\\' | 0xe2);
        byte += 1;
    }
    needs
};

/// Writes the content of a text. Text that is JSON already (`whole` is false) has only those escapes that it lacks.
fn escaped(text: &[u8], whole: bool, json: &mut Vec<u8>) {
    let mut plain = 0;
    for (at, &byte) in text.iter().enumerate() {
        if !MAY_NEED_ESCAPE[usize::from(byte)] {
            continue;
        }
        let escape: &[u8] = match byte {
            b'<' => b"\\u003c",
            b'>' => b"\\u003e",
            b'&' => b"\\u0026",
            // U+2028 and U+2029, which JavaScript takes for ends of lines.
            0xe2 if text[at..].starts_with(b"\xe2\x80\xa8") => b"\\u2028",
            0xe2 if text[at..].starts_with(b"\xe2\x80\xa9") => b"\\u2029",
            _ if !whole => continue,
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0..0x20 => b"\\u00",
            _ => continue,
        };
        json.extend_from_slice(&text[plain..at]);
        json.extend_from_slice(escape);
        plain = at + if byte == 0xe2 { 3 } else { 1 };
        if escape == b"\\u00" {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            json.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    json.extend_from_slice(&text[plain..]);
}

/// Writes JSON without the white space between its tokens.
fn compact(raw: &[u8], json: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(&byte) = rest.first() {
        let length = match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {
                rest = &rest[1..];
                continue;
            }
            b'"' => Cursor::new(rest, 1).skip_value().map_or(rest.len(), |range| range.end),
            _ => rest
                .iter()
                .position(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'"'))
                .unwrap_or(rest.len()),
        };
        let (token, tail) = rest.split_at(length);
        escaped(token, false, json);
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_as_go() {
        let cases = [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (1e20, "100000000000000000000"),
            (1e-6, "0.000001"),
            (2.5e100, "2.5e+100"),
        ];
        for (number, expected) in cases {
            assert_eq!(double(number), expected);
        }
        assert_eq!(itoa(i64::MIN, &mut [0; 20]), b"-9223372036854775808");
    }

    #[test]
    fn escapes_and_compacts_as_go() {
        let mut json = Vec::new();
        text("a<b>&\"\\\n\t\u{8}\u{1}\u{2028}\u{7f}é", &mut json);
        let expected = "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\n\\t\\b\\u0001\\u2028\u{7f}é\"";
        assert_eq!(String::from_utf8(json).unwrap(), expected);
        let mut json = Vec::new();
        compact(b" { \"a <\\n\" : [ 1 , \" x \" ] , \"b\":true }\n", &mut json);
        assert_eq!(String::from_utf8(json).unwrap(), r#"{"a \u003c\n":[1," x "],"b":true}"#);
    }
}

//! Cells of found values, by the type of the column; Go's formatting and quoting of values.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::eval::{PathValue, whole};
use crate::table::age::age_of;

impl PathValue<'_> {
    /// Returns the cell of a column of this type, as `tableconvertor` of apiextensions-apiserver does: a value that does
    /// not fit the type is null.
    pub fn cell(self, column_type: &str, now: Timestamp) -> Value {
        match column_type {
            "string" => match self {
                Self::Value(text @ Value::String(_)) => text.clone(),
                other => other.to_string().into(),
            },
            "integer" => self.to_integer().map_or(Value::Null, Value::from),
            "number" => self.to_number().map_or(Value::Null, Value::Number),
            "boolean" => match self {
                Self::Value(&Value::Bool(yes)) | Self::Bool(yes) => yes.into(),
                _ => Value::Null,
            },
            "date" => match self {
                Self::Value(Value::String(text)) => date(text, now).into(),
                Self::Text(text) => date(text, now).into(),
                _ => Value::Null,
            },
            _ => Value::Null,
        }
    }

    fn to_integer(self) -> Option<i64> {
        match self {
            Self::Value(Value::Number(number)) => whole(number).or_else(|| number.as_f64().map(truncated)),
            Self::Float(number) => Some(truncated(number)),
            _ => None,
        }
    }

    fn to_number(self) -> Option<Number> {
        match self {
            Self::Value(Value::Number(number)) => match whole(number) {
                Some(number) => Some(number.into()),
                None => Number::from_f64(number.as_f64()?),
            },
            Self::Float(number) => Number::from_f64(number),
            _ => None,
        }
    }
}

/// Prints the value as Go's `fmt.Fprint`; maps and lists as `encoding/json` writes them.
impl std::fmt::Display for PathValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(Value::Null) => f.write_str("<no value>"),
            Self::Value(Value::String(text)) => f.write_str(text),
            Self::Value(Value::Number(number)) => match whole(number) {
                Some(number) => write!(f, "{number}"),
                None => f.write_str(&float_text(number.as_f64().unwrap_or_default(), 6)),
            },
            Self::Value(Value::Bool(yes)) => write!(f, "{yes}"),
            Self::Value(value) => {
                let mut json = String::new();
                write_json(value, &mut json);
                f.write_str(&json)
            }
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => f.write_str(&float_text(*number, 6)),
            Self::Bool(yes) => write!(f, "{yes}"),
            Self::Byte(byte) => write!(f, "{byte}"),
        }
    }
}

/// Returns the age of a time, or kube-apiserver's text for an invalid time.
fn date(text: &str, now: Timestamp) -> String {
    match text {
        "" | "null" => "<unknown>".to_owned(),
        text => age_of(text, now).unwrap_or_else(|| "<invalid>".to_owned()),
    }
}

/// Converts to int64 as Go does on amd64: out-of-range values become the smallest number.
fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Writes a float in its shortest form. From an exponent of `large` on it has the exponent, with at least two digits.
fn float_text(number: f64, large: i32) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..large.max(-4)).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Writes JSON as Go does: keys in order, and `<`, `>` and `&` escaped.
fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_text(key, out);
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::String(text) => write_json_text(text, out),
        Value::Number(number) if whole(number).is_none() => {
            out.push_str(&json_float_text(number.as_f64().unwrap_or_default()));
        }
        Value::Number(number) => out.push_str(&whole(number).unwrap_or_default().to_string()),
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn write_json_text(text: &str, out: &mut String) {
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// Writes a float as `encoding/json` does: an exponent of one digit has no zero before it.
fn json_float_text(number: f64) -> String {
    if number != 0.0 && number.abs() >= 1e-6 && number.abs() < 1e21 {
        return format!("{number}");
    }
    float_text(number, 21).replace("e-0", "e-")
}

/// Unquotes a text with Go's escapes; `None` if they are invalid.
pub(super) fn unquote(quoted: &str) -> Option<String> {
    let quote = quoted.chars().next()?;
    let mut rest = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    if !rest.contains(['\\', quote]) {
        return Some(rest.to_owned());
    }
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = unescape(rest, quote, &mut bytes)?,
            c if c == quote => return None,
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Decodes the text after a backslash; returns the rest.
fn unescape<'a>(text: &'a str, quote: char, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let c = text.chars().next()?;
    let rest = &text[c.len_utf8()..];
    let plain = match c {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        c if c == quote => c as u8,
        'x' => {
            bytes.push(u8::try_from(digits(rest, 2, 16)?).ok()?);
            return rest.get(2..);
        }
        'u' | 'U' => {
            let length = if c == 'u' { 4 } else { 8 };
            let c = char::from_u32(digits(rest, length, 16)?)?;
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return rest.get(length..);
        }
        '0'..='7' => {
            bytes.push(u8::try_from(digits(text, 3, 8)?).ok()?);
            return text.get(3..);
        }
        _ => return None,
    };
    bytes.push(plain);
    Some(rest)
}

fn digits(text: &str, length: usize, radix: u32) -> Option<u32> {
    let digits = text.get(..length)?;
    let all = digits.chars().all(|c| c.is_digit(radix));
    all.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

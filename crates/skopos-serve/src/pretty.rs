//! Indented JSON, for requests with `pretty=true`.
//!
//! kube-apiserver also indents for browsers, curl and Wget by their `User-Agent`. Skopos does not: programs get compact JSON.

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;

use crate::request::Query;
use crate::respond::Response;

/// Returns whether the request asks for indented JSON. Values are read as Go's `strconv.ParseBool` reads them.
pub(crate) fn is_wanted(query: &Query) -> bool {
    matches!(query.get("pretty"), Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Indents the JSON of a response while it is sent. It must not be compressed.
pub(crate) fn indent(response: Response) -> Response {
    let mut indenter = Indenter::default();
    let indent = move |frame: Frame<Bytes>| frame.map_data(|data| indenter.indent(&data));
    response.map(|body| body.map_frame(indent).boxed_unsync())
}

/// Indenter of JSON in chunks, as Go's `json.Indent` with two spaces. Other white space is dropped, the final newline too.
#[derive(Default)]
struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// True if an object or array has begun and is empty so far.
    opened: bool,
}

impl Indenter {
    fn indent(&mut self, json: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(json.len() * 2);
        for byte in json {
            self.push(*byte, &mut out);
        }
        out.into()
    }

    fn push(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.in_string {
            out.push(byte);
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return;
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            self.depth = self.depth.saturating_sub(1);
        }
        // An empty object or array has no line breaks.
        if self.opened != closes {
            self.new_line(out);
        }
        self.opened = matches!(byte, b'{' | b'[');
        out.push(byte);
        match byte {
            b'{' | b'[' => self.depth += 1,
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', 2 * self.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPACT: &str = r#"{"a":{"b":[1,{"c":"x\"{y\\"},[]],"d":{}},"e":null, "f" : [ ] ,"g":["h","i"]}"#;
    const INDENTED: &str = r#"{
  "a": {
    "b": [
      1,
      {
        "c": "x\"{y\\"
      },
      []
    ],
    "d": {}
  },
  "e": null,
  "f": [],
  "g": [
    "h",
    "i"
  ]
}"#;

    #[test]
    fn indents_like_go_at_any_chunk_boundary() {
        for at in 0..=COMPACT.len() {
            let mut indenter = Indenter::default();
            let (one, two) = COMPACT.split_at(at);
            let text =
                [indenter.indent(one.as_bytes()), indenter.indent(two.as_bytes()), indenter.indent(b"\n")];
            assert_eq!(String::from_utf8_lossy(&text.concat()), INDENTED, "{at}");
        }
    }
}

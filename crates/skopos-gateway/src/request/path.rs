//! The path of a request, parsed once. Routing and authorization use the same value.

use std::fmt;

use skopos_wire::Status;

/// A path of decoded segments with only one possible reading.
///
/// Everything that two readers could read differently is refused: an encoded slash or backslash, a dot segment in any
/// spelling, a percent sign that is itself encoded, control characters, an empty segment. A slash at the end is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    segments: Vec<String>,
}

/// The reason why a path is refused, which is always the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("the path must begin with \"/\"")]
    NotAbsolute,
    /// Two slashes in a row.
    #[error("the path has an empty segment")]
    EmptySegment,
    /// `.` or `..`, in any spelling.
    #[error("the path has a dot segment")]
    DotSegment,
    /// `%2F`, `%5C` or a backslash.
    #[error("the path has an encoded slash or a backslash")]
    EncodedSlash,
    /// `%25`: its meaning depends on how often it is decoded.
    #[error("the path has an encoded percent sign")]
    DoubleEncoding,
    /// A percent sign without two hexadecimal digits after it, or bytes that are not UTF-8.
    #[error("the path has an invalid escape")]
    InvalidEscape,
    /// A control character, encoded or not.
    #[error("the path has a control character")]
    ControlCharacter,
    /// More segments than any path of the API has.
    #[error("the path has more than {} segments", Path::MAX_SEGMENTS)]
    TooManySegments,
}

impl Path {
    /// The maximum number of segments. No path of the API has more: `/clusters/C/apis/G/V/namespaces/N/R/NAME/proxy/...` has
    /// eleven and a tail.
    pub const MAX_SEGMENTS: usize = 64;

    /// Parses the path of a URL.
    ///
    /// # Errors
    /// If the path could be read in two ways.
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let path = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() {
            return Ok(Self { segments: Vec::new() });
        }
        if path.split('/').count() > Self::MAX_SEGMENTS {
            return Err(PathError::TooManySegments);
        }
        let segments = path.split('/').map(decode).collect::<Result<_, _>>()?;
        Ok(Self { segments })
    }

    /// Makes a path from segments of a parsed path.
    pub(crate) fn from_segments<'a>(segments: impl IntoIterator<Item = &'a str>) -> Self {
        Self { segments: segments.into_iter().map(str::to_owned).collect() }
    }

    /// Returns the decoded segments.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().map(String::as_str)
    }

    /// Returns the first segment and the rest.
    pub fn split_first(mut self) -> Option<(String, Path)> {
        if self.segments.is_empty() {
            return None;
        }
        let first = self.segments.remove(0);
        Some((first, self))
    }

    /// Returns whether the path is `/`.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty()
    }
}

/// The canonical spelling of the path. All characters that are not plainly harmless are encoded.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str("/");
        }
        for segment in &self.segments {
            f.write_str("/")?;
            for byte in segment.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => write!(f, "{}", byte as char)?,
                    b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'$' | b'=' | b',' => {
                        write!(f, "{}", byte as char)?
                    }
                    other => write!(f, "%{other:02X}")?,
                }
            }
        }
        Ok(())
    }
}

impl From<PathError> for Status {
    fn from(error: PathError) -> Self {
        Status::bad_request(error.to_string())
    }
}

fn decode(segment: &str) -> Result<String, PathError> {
    if segment.is_empty() {
        return Err(PathError::EmptySegment);
    }
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'%' {
            decoded.push(byte);
            at += 1;
            continue;
        }
        let digit = |at: usize| bytes.get(at).and_then(|b| (*b as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
            return Err(PathError::InvalidEscape);
        };
        match (high * 16 + low) as u8 {
            b'/' | b'\\' => return Err(PathError::EncodedSlash),
            b'%' => return Err(PathError::DoubleEncoding),
            byte => decoded.push(byte),
        }
        at += 3;
    }
    let decoded = String::from_utf8(decoded).map_err(|_| PathError::InvalidEscape)?;
    if decoded.contains('\\') {
        return Err(PathError::EncodedSlash);
    }
    if decoded.chars().any(char::is_control) {
        return Err(PathError::ControlCharacter);
    }
    // Some servers take the text after a semicolon for parameters, and `..;` for `..`.
    match decoded.split(';').next() {
        Some("." | "..") => Err(PathError::DotSegment),
        _ => Ok(decoded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_segments() {
        let path = Path::parse("/clusters/a/api/v1/namespaces/x/pods/").unwrap();
        assert_eq!(
            path.segments().collect::<Vec<_>>(),
            ["clusters", "a", "api", "v1", "namespaces", "x", "pods"]
        );
        assert!(Path::parse("/").unwrap().is_root());
        let (first, rest) = path.split_first().unwrap();
        assert_eq!((first.as_str(), rest.to_string().as_str()), ("clusters", "/a/api/v1/namespaces/x/pods"));
    }

    #[test]
    fn names_that_need_an_escape_have_one_spelling() {
        for spelling in ["/system:node", "/system%3Anode", "/system%3anode"] {
            assert_eq!(Path::parse(spelling).unwrap().to_string(), "/system:node", "{spelling}");
        }
        assert_eq!(Path::parse("/a%20b%3F").unwrap().to_string(), "/a%20b%3F");
        assert_eq!(Path::parse("/%C3%A9").unwrap().to_string(), "/%C3%A9");
    }

    #[test]
    fn rejects_ambiguous_paths() {
        let cases = [
            ("clusters/a", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("", PathError::NotAbsolute),
            ("//a", PathError::EmptySegment),
            ("/a//b", PathError::EmptySegment),
            ("/a//", PathError::EmptySegment),
            ("/a/./b", PathError::DotSegment),
            ("/a/../b", PathError::DotSegment),
            ("/a/..", PathError::DotSegment),
            ("/a/%2e%2e/b", PathError::DotSegment),
            ("/a/.%2E/b", PathError::DotSegment),
            ("/a/..;/b", PathError::DotSegment),
            ("/a/..;x=y/b", PathError::DotSegment),
            ("/a/b%2fc", PathError::EncodedSlash),
            ("/a/b%2Fc", PathError::EncodedSlash),
            ("/a/b%5cc", PathError::EncodedSlash),
            ("/a/b\\c", PathError::EncodedSlash),
            ("/a/%252e%252e", PathError::DoubleEncoding),
            ("/a/%25", PathError::DoubleEncoding),
            ("/a/%zz", PathError::InvalidEscape),
            ("/a/%2", PathError::InvalidEscape),
            ("/a/%", PathError::InvalidEscape),
            ("/a/%ff", PathError::InvalidEscape),
            ("/a/%c0%ae%c0%ae", PathError::InvalidEscape),
            ("/a/b%00", PathError::ControlCharacter),
            ("/a/b%0d%0ac", PathError::ControlCharacter),
        ];
        for (path, error) in cases {
            assert_eq!(Path::parse(path), Err(error), "{path}");
        }
        assert_eq!(Path::parse(&"/a".repeat(65)), Err(PathError::TooManySegments));
        assert_eq!(Status::from(PathError::DotSegment).code, 400);
    }

    #[test]
    fn parsing_is_stable() {
        let mut random = fastrand::Rng::with_seed(4);
        let alphabet =
            ["a", "%2e", "%2F", "/", ".", "%25", "%", ";", "\\", "%c3%a9", "é", "%00", "?", "~", "%3b"];
        for _ in 0..20_000 {
            let path: String =
                (0..random.usize(1..8)).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
            let Ok(parsed) = Path::parse(&format!("/{path}")) else { continue };
            let printed = parsed.to_string();
            assert_eq!(Path::parse(&printed), Ok(parsed), "{path} {printed}");
        }
    }
}

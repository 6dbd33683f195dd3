//! Names of items: paths, with their queries, of one origin.

use http::Uri;
use http::uri::Authority;
use percent_encoding::percent_decode_str;

/// The scheme, host and port that every URL of an inventory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

/// Maximum length of a name. Servers and proxies may cut or refuse longer URLs.
const MAX_NAME: usize = 2_000;

impl Origin {
    /// Reads the origin of an inventory.
    pub(super) fn from_uri(base: &Uri) -> Result<Self, String> {
        let problem = || format!("{base} is no origin, such as https://host or https://host:8443");
        let (Some(scheme), Some(authority)) = (base.scheme_str(), base.authority()) else {
            return Err(problem());
        };
        match base.path_and_query().is_none_or(|path| path.as_str() == "/") {
            true => Self::new(scheme, authority.as_str()).ok_or_else(problem),
            false => Err(problem()),
        }
    }

    fn new(scheme: &str, authority: &str) -> Option<Self> {
        let scheme = scheme.to_ascii_lowercase();
        let usual_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority: Authority = authority.parse().ok().filter(|_| !authority.contains('@'))?;
        // `port_u16` returns none for a port that is not a number, which would pass for the default port.
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => usual_port,
            None => return None,
        };
        Some(Self { scheme, host: authority.host().to_ascii_lowercase(), port })
    }

    /// Returns the path and query of a URL of this origin; an absolute path is returned unchanged.
    pub(super) fn path_of<'a>(&self, text: &'a str) -> Result<&'a str, String> {
        if text.starts_with('/') {
            return Ok(text);
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| format!("{text:?} is neither a URL nor a path that begins with '/'"))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
        match Self::new(scheme, authority) {
            Some(origin) if origin == *self => Ok(path),
            _ => Err(format!(
                "{text:?} is not of {}://{}:{}: one sink writes to one origin",
                self.scheme, self.host, self.port
            )),
        }
    }

    /// Parses the URL of an item, or its path, into its name: the same URL always has the same name.
    pub(super) fn item(&self, text: &str) -> Result<String, String> {
        let name = normalise(self.path_of(text)?).map_err(|problem| format!("{text:?}: {problem}"))?;
        let path = name.split('?').next().unwrap_or_default();
        if path.is_empty() || path == "/" {
            return Err(format!("{text:?} has no path: an item has one"));
        }
        match name.len() <= MAX_NAME {
            true => Ok(name),
            false => Err(format!("a URL of {} bytes is too long: at most {MAX_NAME}", name.len())),
        }
    }
}

/// Parses a path with its query, and normalizes it by RFC 3986 (6.2.2): `%7e` and `~` are one.
pub(super) fn normalise(text: &str) -> Result<String, String> {
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let mut segments: Vec<_> = path.split('/').skip(1).collect();
    // Many URLs end with a slash.
    if segments.last() == Some(&"") {
        segments.pop();
    }
    segments.iter().try_for_each(|segment| check_segment(segment))?;
    let mut normal = normalise_part(path, "/")?;
    if let Some(query) = query {
        normal.push('?');
        normal.push_str(&normalise_part(query, "/?")?);
    }
    Ok(normal)
}

/// Refuses a segment that leads to another one, also for a server that decodes `%2F` first.
pub(super) fn check_segment(segment: &str) -> Result<(), String> {
    if segment.is_empty() {
        return Err("an empty segment".to_owned());
    }
    let decoded: Vec<u8> = percent_decode_str(segment).collect();
    match decoded.split(|byte| b"/\\".contains(byte)).any(|part| part == b"." || part == b"..") {
        true => Err(format!("{segment:?} leads to another path")),
        false => Ok(()),
    }
}

/// Refuses characters that are not allowed in a URL, and decodes those that need no encoding.
fn normalise_part(part: &str, also: &str) -> Result<String, String> {
    let mut normal = String::with_capacity(part.len());
    let mut rest = part.chars();
    while let Some(character) = rest.next() {
        match character {
            '%' => {
                let byte = rest.as_str().get(..2).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
                let byte = byte.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                let byte = byte.ok_or("a '%' without two hexadecimal digits behind it")?;
                rest.nth(1);
                if byte.is_ascii_control() {
                    return Err(format!("a control character: %{byte:02X}"));
                }
                match is_unreserved(char::from(byte)) {
                    true => normal.push(char::from(byte)),
                    false => normal.push_str(&format!("%{byte:02X}")),
                }
            }
            '#' => return Err("a fragment is never sent: write '#' as %23".to_owned()),
            other if is_unreserved(other) || "!$&'()*+,;=:@".contains(other) || also.contains(other) => {
                normal.push(other);
            }
            other if other.is_control() => return Err(format!("a control character: {other:?}")),
            other => return Err(format!("{other:?} has to be percent-encoded")),
        }
    }
    Ok(normal)
}

fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Result<String, String> {
        Origin::from_uri(&Uri::from_static("https://cmdb.test")).unwrap().item(text)
    }

    #[test]
    fn one_url_has_one_name() {
        for text in [
            "/nodes/a~b/hosts/10.0.0.1?x=%2F",
            "https://cmdb.test/nodes/a~b/hosts/10.0.0.1?x=%2f",
            "HTTPS://CMDB.test:443/nodes/%61%7eb/hosts/10%2e0.0.1?x=%2F",
        ] {
            assert_eq!(item(text).unwrap(), "/nodes/a~b/hosts/10.0.0.1?x=%2F", "{text}");
        }
        assert_eq!(item("/a/%c3%bc/").unwrap(), "/a/%C3%BC/");
        assert_eq!(item("/a/fe80::1").unwrap(), "/a/fe80::1");
    }

    #[test]
    fn rejects_item_outside_origin() {
        let cases = [
            ("http://cmdb.test/a", "one origin"),
            ("https://cmdb.test:8443/a", "one origin"),
            ("https://cmdb.test:443x/a", "one origin"),
            ("https://cmdb.test.evil/a", "one origin"),
            ("https://user@cmdb.test/a", "one origin"),
            ("https://user@cmdb.test:443/a", "one origin"),
            ("https://cmdb.test\\@evil/a", "has to be percent-encoded"),
            ("ftp://cmdb.test/a", "one origin"),
            ("//evil.test/a", "empty segment"),
            ("a/b", "neither a URL nor a path"),
            ("", "neither a URL nor a path"),
            ("https://cmdb.test", "has no path"),
            ("https://cmdb.test/?a=b", "has no path"),
            ("https://cmdb.test?a=b", "has no path"),
            ("/", "has no path"),
            ("/a//b", "empty segment"),
            ("/a//", "empty segment"),
            ("/a/../b", "another path"),
            ("/a/.", "another path"),
            ("/a/%2e%2E", "another path"),
            ("/a/%2e./b", "another path"),
            ("/a/x%2F..%2fb", "another path"),
            ("/a/x%5c..%5Cb", "another path"),
            ("/a#b", "fragment"),
            ("/a b", "percent-encoded"),
            ("/a\r\nHost: b", "control character"),
            ("/a%0d%0A", "control character"),
            ("/a%00", "control character"),
            ("/ü", "percent-encoded"),
            ("/a%", "hexadecimal"),
            ("/a%+1", "hexadecimal"),
            ("/a%ü", "hexadecimal"),
            ("/a\\b", "percent-encoded"),
            ("/{a}", "percent-encoded"),
        ];
        for (text, part) in cases {
            let problem = item(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        assert!(item(&format!("/{}", "a".repeat(2_000))).unwrap_err().contains("too long"));
    }

    #[test]
    fn an_origin_has_no_path() {
        let of = |text: &str| Origin::from_uri(&text.parse().unwrap());
        assert_eq!(of("http://[::1]:8080").unwrap().path_of("http://[::1]:8080/a").unwrap(), "/a");
        assert_eq!(of("https://Cmdb.test/").unwrap(), of("https://cmdb.test:443").unwrap());
        for text in ["https://cmdb.test/api", "https://user@cmdb.test", "ftp://cmdb.test", "/a"] {
            assert!(of(text).unwrap_err().contains("is no origin"), "{text}");
        }
    }
}

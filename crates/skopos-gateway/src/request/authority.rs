//! The host that a request names, as one value wherever the request names it.

use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use skopos_wire::Status;

/// The host and port that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    host: String,
    port: Option<u16>,
}

/// Sets the `Host` header to the host that the request names. HTTP/2 names it in `:authority`, HTTP/1.1 also in the request line,
/// and readers differ in which one they use.
///
/// # Errors
/// 400 if two of them differ, if there are several `Host` headers, or if one is not a host name.
pub(crate) fn normalize(parts: &mut Parts) -> Result<(), Status> {
    let wrong = || {
        Status::bad_request(
            "the request names its host twice with different values, or its host name is invalid",
        )
    };
    let line = parts.uri.authority().map(|authority| Authority::parse(authority.as_str()).ok_or_else(wrong));
    let mut all = parts.headers.get_all(header::HOST).iter();
    let (header, None) = (all.next(), all.next()) else { return Err(wrong()) };
    let header = header.map(|host| Authority::from_header(host).ok_or_else(wrong));
    let (line, header) = (line.transpose()?, header.transpose()?);
    let (Some(line), header) = (line, header) else { return Ok(()) };
    if header.as_ref().is_some_and(|header| *header != line) {
        return Err(wrong());
    }
    if header.is_none() {
        let host = HeaderValue::from_str(&line.to_string()).map_err(|_| wrong())?;
        parts.headers.insert(header::HOST, host);
    }
    Ok(())
}

impl Authority {
    /// Returns the host of a request after [`normalize`].
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get(header::HOST).and_then(Self::from_header)
    }

    fn from_header(value: &HeaderValue) -> Option<Self> {
        Self::parse(value.to_str().ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let parsed: http::uri::Authority = text.parse().ok()?;
        let is_plain = !text.contains('@') && !parsed.host().is_empty();
        // An invalid port makes the whole authority invalid.
        let port = parsed.port_u16();
        let is_whole = port.is_some() || text.len() == parsed.host().len();
        (is_plain && is_whole).then(|| Self { host: parsed.host().to_ascii_lowercase(), port })
    }

    /// Returns whether this names the machine itself, by name or address.
    pub(crate) fn is_loopback(&self) -> bool {
        let name = self.host.trim_start_matches('[').trim_end_matches(']');
        name == "localhost"
            || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// Returns whether an `Origin` is the origin of this host: the same host and port, and the same scheme where it is known.
    /// Without TLS a proxy in front may have terminated it.
    pub(crate) fn is_origin(&self, origin: &HeaderValue, is_tls: bool) -> bool {
        let Some((scheme, rest)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
            return false;
        };
        let port = match scheme {
            "https" => 443,
            "http" if !is_tls => 80,
            _ => return false,
        };
        let with_port = |authority: &Self| (authority.host.clone(), authority.port.unwrap_or(port));
        Self::parse(rest).is_some_and(|origin| with_port(&origin) == with_port(self))
    }
}

impl std::fmt::Display for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(uri: &str, hosts: &[&str]) -> Result<Option<String>, u16> {
        let mut builder = http::Request::get(uri);
        for host in hosts {
            builder = builder.header("host", *host);
        }
        let mut parts = builder.body(()).unwrap().into_parts().0;
        normalize(&mut parts).map_err(|status| status.code)?;
        Ok(parts.headers.get("host").map(|host| host.to_str().unwrap().to_owned()))
    }

    #[test]
    fn host_and_authority_must_agree() {
        assert_eq!(settled("/", &["Localhost:1"]), Ok(Some("Localhost:1".into())));
        assert_eq!(settled("http://evil.example/", &[]), Ok(Some("evil.example".into())), "HTTP/2");
        assert_eq!(settled("http://LOCALHOST:1/", &["localhost:1"]), Ok(Some("localhost:1".into())));
        assert_eq!(settled("/", &[]), Ok(None));
        for (uri, hosts) in [
            ("http://evil.example/", &["localhost"][..]),
            ("http://localhost/", &["localhost:1"]),
            ("/", &["localhost", "localhost"]),
            ("/", &["localhost", "evil.example"]),
            ("/", &["user@localhost"]),
            ("http://user@localhost/", &[]),
            ("/", &[""]),
            ("/", &["localhost:x"]),
            ("/", &["localhost:99999"]),
            ("/", &["local host"]),
        ] {
            assert_eq!(settled(uri, hosts), Err(400), "{uri} {hosts:?}");
        }
    }

    #[test]
    fn loopback_names_are_recognized() {
        let is_loopback =
            |text: &str| Authority::parse(text).is_some_and(|authority| authority.is_loopback());
        for own in
            ["localhost", "LOCALHOST:8001", "127.0.0.1", "127.9.9.9:1", "[::1]:8001", "[::ffff:127.0.0.1]"]
        {
            assert!(is_loopback(own), "{own}");
        }
        for other in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example", "[::2]"]
        {
            assert!(!is_loopback(other), "{other}");
        }
    }
}

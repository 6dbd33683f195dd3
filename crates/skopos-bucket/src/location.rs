//! Parsing of the bucket URLs in the configuration.

use http::Uri;
use http::uri::Scheme;

/// A bucket and a prefix: `s3://BUCKET/PREFIX`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BucketLocation<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) prefix: &'a str,
}

/// The address of the service.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(Uri);

impl<'a> BucketLocation<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self, String> {
        let rest = url.strip_prefix("s3://").ok_or("must be written as s3://BUCKET/PREFIX")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let of_bucket = |byte: u8| plain(byte) || matches!(byte, b'-' | b'.' | b'_');
        if !(3..=63).contains(&bucket.len())
            || !bucket.bytes().all(of_bucket)
            || !bucket.starts_with(is_plain)
        {
            return Err(format!("{bucket:?} is no name of a bucket"));
        }
        let good = |part: &str| {
            let of_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
            !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(of_part)
        };
        match prefix.is_empty() || prefix.split('/').all(good) {
            true => Ok(Self { bucket, prefix }),
            false => {
                Err(format!("{prefix:?} is no prefix: names of letters, digits and -_.= with a / between"))
            }
        }
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

impl Endpoint {
    /// Parses an endpoint. With `clear`, plain HTTP is allowed beyond this machine too.
    pub(crate) fn parse(url: &str, clear: bool) -> Result<Self, String> {
        // The error does not repeat the URL, which may contain a password.
        let uri: Uri = url.parse().map_err(|_| "is no URL such as https://s3.example.com")?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err("is no URL such as https://s3.example.com".into());
        };
        if authority.as_str().contains('@') {
            return Err("must not have a user or a password: there is credentials".into());
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("must end behind host and port: the bucket is in url".into());
        }
        if *scheme == Scheme::HTTP && !clear && !is_loopback(authority.host()) {
            return Err(
                "is without TLS, so that anything on the way reads what the clusters hold: use https, or \
                        allowHttp: true"
                    .into(),
            );
        }
        match *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS {
            true => Ok(Self(uri)),
            false => Err("must begin with https://".into()),
        }
    }

    pub(crate) fn is_clear(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTP)
    }

    /// Returns the URL without a path.
    pub(crate) fn url(&self) -> String {
        origin(&self.0)
    }
}

/// Returns scheme, host and port.
pub(crate) fn origin(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", uri.scheme_str().unwrap_or("https"))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_people_write_them() {
        let location = |bucket, prefix| Ok(BucketLocation { bucket, prefix });
        assert_eq!(BucketLocation::parse("s3://my-bucket"), location("my-bucket", ""));
        assert_eq!(BucketLocation::parse("s3://my-bucket/"), location("my-bucket", ""));
        assert_eq!(BucketLocation::parse("s3://a.b.c/fleet/west_1/"), location("a.b.c", "fleet/west_1"));
        for wrong in [
            "my-bucket",
            "https://my-bucket",
            "s3://",
            "s3:///x",
            "s3://My-Bucket/x",
            "s3://user:secret@bucket/x",
            "s3://-bucket",
            "s3://bucket/a/../b",
            "s3://bucket/a//b",
            "s3://bucket/a?b",
            "s3://bucket/a%2fb",
        ] {
            assert!(BucketLocation::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_endpoint_has_tls_or_is_on_this_machine() {
        for good in ["https://s3.example.com", "https://a:9000/", "http://127.0.0.1:9000", "http://[::1]:9"] {
            assert!(Endpoint::parse(good, false).is_ok(), "{good}");
        }
        assert!(Endpoint::parse("http://minio:9000", true).unwrap().is_clear());
        for wrong in ["http://minio:9000", "minio:9000", "ftp://a", "https://a/bucket", "https://a/?b", "a b"]
        {
            assert!(Endpoint::parse(wrong, false).is_err(), "{wrong}");
        }
        let told = Endpoint::parse("https://user:hunter2@a", true).unwrap_err();
        assert!(!told.contains("hunter2"), "{told}");
    }
}

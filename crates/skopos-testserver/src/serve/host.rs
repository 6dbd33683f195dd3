//! Check of the request's host (DNS rebinding). A page of any site whose name resolves to a loopback address can reach a server
//! on that address, but the page's browser names the site in the request.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, Uri, header};
use skopos_wire::{GroupResource, Status};

/// Checks that every host named by a request is this machine.
///
/// # Errors
/// 403 for another host, or for none.
pub(super) fn check_local(parts: &Parts) -> Result<(), Status> {
    let named: Vec<&str> = hosts(&parts.uri, &parts.headers).collect();
    match named.iter().find(|host| !is_local(host)) {
        None if !named.is_empty() => Ok(()),
        host => Err(Status::forbidden(
            GroupResource::new("", ""),
            "",
            format!(
                "the request is for host {:?}, and this server answers for localhost and loopback addresses only",
                host.copied().unwrap_or_default()
            ),
        )),
    }
}

/// Returns the hosts of a request: HTTP/2 names the host in the URI, HTTP/1.1 in a header, and a proxy's client in both.
fn hosts<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    let headers = headers.get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or_default());
    uri.authority().map(|authority| authority.as_str()).into_iter().chain(headers)
}

fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host.contains('@') {
        return false;
    }
    name.parse::<IpAddr>().map_or_else(
        |_| name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost"),
        |address| address.is_loopback(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(uri: &str, hosts: &[&str]) -> bool {
        let mut request = http::Request::builder().uri(uri);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        check_local(&request.body(()).unwrap().into_parts().0).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_pass() {
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:6443", "127.1.2.3", "[::1]:6443", "a.localhost:1"]
        {
            assert!(checked("/api", &[host]), "{host}");
            assert!(checked(&format!("https://{host}/api"), &[]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "10.0.0.1",
            "localhost.evil.example",
            "[::2]",
            "x@localhost",
            "",
        ] {
            assert!(!checked("/api", &[host]), "{host}");
        }
        assert!(!checked("/api", &[]), "a host has to be named");
        assert!(!checked("http://evil.example/api", &["localhost"]));
        assert!(!checked("http://localhost/api", &["evil.example"]));
        assert!(!checked("/api", &["localhost", "evil.example"]));
    }
}

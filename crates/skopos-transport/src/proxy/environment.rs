//! The proxy of the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, by the rules of Go's net/http, which kubectl
//! follows.

use std::net::IpAddr;

use http::Uri;
use http::uri::InvalidUri;
use ipnet::IpNet;

use super::without_brackets;

/// Returns the proxy that this process's environment sets for a URL: `HTTPS_PROXY` for `https://`, `HTTP_PROXY` for
/// `http://`, in upper case or else in lower case.
///
/// Returns `None` for `localhost`, for loopback addresses and for the hosts that `NO_PROXY` lists, separated by commas. An
/// entry is `*`; an address; a network (`10.0.0.0/8`); or a domain with its subdomains (`.example.com` and `*.example.com`:
/// only the subdomains). A domain or address may have a port (`example.com:6443`), and then applies to that port alone.
///
/// # Errors
/// If the variable is not a URL.
pub fn proxy_from_environment(url: &Uri) -> Result<Option<Uri>, InvalidUri> {
    proxy_of(url, |name| std::env::var(name).ok())
}

pub(super) fn proxy_of(
    url: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, InvalidUri> {
    let read = |names: [&str; 2]| {
        names.iter().filter_map(|name| variable(name)).find(|value| !value.trim().is_empty())
    };
    let proxy = match url.scheme_str() {
        Some("https") => read(["HTTPS_PROXY", "https_proxy"]),
        // In a CGI program it holds the request's header `Proxy`, which the client chooses.
        Some("http") if variable("REQUEST_METHOD").is_none() => read(["HTTP_PROXY", "http_proxy"]),
        _ => None,
    };
    let exempt = read(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    match proxy {
        Some(proxy) if !is_exempt(url, &exempt) => proxy.trim().parse().map(Some),
        _ => Ok(None),
    }
}

fn is_exempt(url: &Uri, exempt: &str) -> bool {
    let host = url.host().unwrap_or_default();
    let host = without_brackets(host).trim_end_matches('.').to_ascii_lowercase();
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback()) {
        return true;
    }
    exempt.split(',').map(|entry| entry.trim().to_ascii_lowercase()).filter(|entry| !entry.is_empty()).any(
        |entry| match address {
            _ if entry == "*" => true,
            Some(address) => matches_address(&entry, address, port),
            None => matches_host(&entry, &host, port),
        },
    )
}

fn matches_address(entry: &str, address: IpAddr, port: u16) -> bool {
    if let Ok(network) = entry.parse::<IpNet>() {
        return network.contains(&address);
    }
    if let Ok(exactly) = without_brackets(entry).parse::<IpAddr>() {
        return exactly == address;
    }
    let (host_part, its_port) = with_port(entry);
    its_port == Some(port) && without_brackets(host_part).parse() == Ok(address)
}

fn matches_host(entry: &str, host: &str, port: u16) -> bool {
    let (domain, its_port) = with_port(entry);
    if its_port.is_some_and(|its_port| its_port != port) {
        return false;
    }
    let below = |domain: &str| host.strip_suffix(domain).is_some_and(|before| before.ends_with('.'));
    match domain.strip_prefix("*.").or(domain.strip_prefix('.')) {
        Some(domain) => below(domain),
        None => host == domain || below(domain),
    }
}

fn with_port(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':').map(|(host_part, port)| (host_part, port.parse())) {
        Some((host_part, Ok(port))) => (host_part, Some(port)),
        _ => (entry, None),
    }
}

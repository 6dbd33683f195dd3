//! The server's URL.

use http::Uri;

use super::error::KubeconfigError;
use super::file::ClusterEntry;
use super::policy::KubeconfigPolicy;
use super::some;

/// The URL of a cluster: `https://host[:port][/path]`, and nothing else.
pub(super) fn address(cluster: &ClusterEntry, policy: &KubeconfigPolicy) -> Result<Uri, KubeconfigError> {
    let bad = |reason| KubeconfigError::Server { reason };
    let server = some(&cluster.server).ok_or(bad("is missing"))?;
    if server.contains('#') {
        return Err(bad("has a fragment"));
    }
    let uri: Uri = server.trim().parse().map_err(|_| bad("is not a URL"))?;
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if policy.allow_http => {}
        Some("http") => {
            let reason = "whoever is on the way could read and answer everything";
            return Err(KubeconfigError::Refused {
                field: "server: http://",
                reason,
                switch: Some("allow_http"),
            });
        }
        _ => return Err(bad("has to begin with https://")),
    }
    let authority = uri.authority().ok_or(bad("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(bad("has a user or password before the host; use the user's fields"));
    }
    if authority.host().is_empty() {
        return Err(bad("has no host"));
    }
    let after_host = authority.as_str().len() > authority.host().len();
    if after_host && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(bad("has a port that is none"));
    }
    if uri.query().is_some() {
        return Err(bad("has a query"));
    }
    if uri.path().split('/').any(|segment| segment == "." || segment == "..") || uri.path().contains('%') {
        return Err(bad("has a path with dots or escapes"));
    }
    Ok(uri)
}

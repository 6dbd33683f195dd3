//! The server's URL.

use http::Uri;

use super::error::KubeconfigError;
use super::file::ClusterEntry;
use super::{KubeconfigFeature, some};

/// Returns the URL of a cluster: `https://host[:port][/path]`. A server without a scheme is `http://`, as in kubectl.
pub(super) fn address(
    cluster: &ClusterEntry,
    admit: &dyn Fn(KubeconfigFeature) -> Result<(), KubeconfigError>,
) -> Result<Uri, KubeconfigError> {
    let server = some(&cluster.server).ok_or(bad("is missing"))?.trim();
    if server.contains('#') {
        return Err(bad("has a fragment"));
    }
    let uri = match server.contains("://") {
        true => server.parse::<Uri>().map_err(|_| bad("is not a URL"))?,
        false => without_scheme(server, admit)?,
    };
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") => admit(KubeconfigFeature::Http)?,
        _ => return Err(bad("has to begin with https://")),
    }
    check(&uri)?;
    Ok(uri)
}

fn bad(reason: &'static str) -> KubeconfigError {
    KubeconfigError::Server { reason }
}

fn without_scheme(
    server: &str,
    admit: &dyn Fn(KubeconfigFeature) -> Result<(), KubeconfigError>,
) -> Result<Uri, KubeconfigError> {
    let not_admitted = |_| bad("has no scheme, which means http://: write https:// before it");
    admit(KubeconfigFeature::Http).map_err(not_admitted)?;
    let uri: Uri = format!("http://{server}").parse().map_err(|_| bad("is not a URL"))?;
    match uri.path() {
        "" | "/" => Ok(uri),
        _ => Err(bad("has a path, and no scheme before the host: write https:// or http:// before it")),
    }
}

/// Checks the parts of a URL that has a scheme.
fn check(uri: &Uri) -> Result<(), KubeconfigError> {
    let authority = uri.authority().ok_or(bad("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(bad("has a user or password before the host; use the user's fields"));
    }
    if authority.host().is_empty() {
        return Err(bad("has no host"));
    }
    let after_host = authority.as_str().len() > authority.host().len();
    if after_host && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(bad("has an invalid port"));
    }
    if uri.query().is_some() {
        return Err(bad("has a query"));
    }
    if uri.path().split('/').any(|segment| segment == "." || segment == "..") || uri.path().contains('%') {
        return Err(bad("has a path with dots or escapes"));
    }
    Ok(())
}

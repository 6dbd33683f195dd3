//! Download of a provider's documents: over TLS, small, with a deadline, without redirects.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Limited};
use skopos::transport::{RequestOptions, Transport, TransportOptions, read_certificates};

use super::OidcError;

/// Source of documents.
pub(super) trait Fetch: Send + Sync + 'static {
    /// Returns the complete document at a URL; the error is for the log.
    fn fetch(&self, url: &str, within: Duration) -> BoxFuture<'static, Result<Bytes, String>>;
}

/// The maximum size of a document.
const MAX_BYTES: usize = 1024 * 1024;

/// Source of documents over HTTPS that follows no redirects.
pub(super) struct HttpsFetch {
    /// The only trusted CAs; the system's if absent.
    ca: Option<Vec<Vec<u8>>>,
}

impl HttpsFetch {
    pub(super) fn new(ca: Option<&Path>) -> Result<Self, OidcError> {
        Ok(Self { ca: ca.map(read_certificates).transpose().map_err(OidcError::Ca)? })
    }

    async fn get(ca: Option<Vec<Vec<u8>>>, url: String, within: Duration) -> Result<Bytes, String> {
        let uri: http::Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        if uri.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(format!("{url} is not https"));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let origin = http::Uri::builder()
            .scheme("https")
            .authority(uri.authority().map_or("", |authority| authority.as_str()))
            .path_and_query("/")
            .build()
            .map_err(|error| format!("{url}: {error}"))?;
        let mut config = kube::Config::new(origin);
        config.root_cert = ca;
        // A connection of its own: keys are fetched every few minutes at most.
        let transport =
            Transport::from_config(config, TransportOptions::default()).map_err(|e| e.to_string())?;
        let options = RequestOptions {
            deadline: Some(within),
            wait_for_connection: Some(true),
            ..RequestOptions::default()
        };
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, "application/json")
            .extension(options)
            .body(kube::client::Body::empty())
            .map_err(|error| error.to_string())?;
        let answer = transport.send(request).await.map_err(|error| format!("{url}: {error}"))?;
        if answer.status() != http::StatusCode::OK {
            return Err(format!("{url} answered {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
        Ok(body.map_err(|error| format!("{url}: {error}"))?.to_bytes())
    }
}

impl Fetch for HttpsFetch {
    fn fetch(&self, url: &str, within: Duration) -> BoxFuture<'static, Result<Bytes, String>> {
        let (ca, url) = (self.ca.clone(), url.to_owned());
        Box::pin(async move {
            let getting = tokio::time::timeout(within, Self::get(ca, url, within));
            getting.await.unwrap_or_else(|_| Err(format!("no answer within {within:?}")))
        })
    }
}

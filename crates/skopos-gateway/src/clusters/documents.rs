//! Discovery, OpenAPI and version: from memory, so that kubectl works while the cluster is down.

use http::{HeaderValue, StatusCode, header};
use skopos_fleet::{Document, DocumentRequest, FleetError};
use skopos_wire::Status;

use super::{Allowed, Clusters, is_bodiless, status_of};
use crate::gateway::route::Audited;
use crate::request::headers::{Stamp, stamp};
use crate::response::{self, Response, media_type};

impl Clusters {
    /// Returns the requested document; `None` if it is not of those in memory.
    pub(super) async fn document(&self, allowed: &Allowed) -> Option<Result<Response, Status>> {
        let Allowed { cluster, call } = allowed;
        if !is_bodiless(&call.method) {
            return None;
        }
        let accept =
            call.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
        let query = call.query.to_string();
        let path = match query.as_str() {
            "" => call.path.to_string(),
            query => format!("{}?{query}", call.path),
        };
        let request = DocumentRequest::new(&path, accept)?;
        let limit = self.services.config.cache.member_deadline.0;
        Some(match cluster.current_document(&request, limit).await {
            Ok(document) => answer(&document, call.headers.get(header::IF_NONE_MATCH)),
            // 404 is a valid answer of the server.
            Err(FleetError::Refused { code: 404, .. }) => Ok(crate::gateway::not_found()),
            Err(error) => Err(status_of(&error)),
        })
    }
}

/// Returns a document with its age, without its body if the caller already has it.
///
/// # Errors
/// Returns 502 if the member sent a type that no document of the API has, such as a page.
pub(crate) fn answer(document: &Document, known: Option<&HeaderValue>) -> Result<Response, Status> {
    if !document.content_type.is_empty() && !media_type::is_document(&document.content_type) {
        let why =
            "the cluster answered with something else than a document of the API, which is not passed on";
        return Err(Status::failure(502, "BadGateway".to_owned(), why));
    }
    let etag = document.etag.as_deref().and_then(|etag| HeaderValue::from_str(etag).ok());
    let unchanged = etag.is_some() && etag.as_ref() == known;
    let mut answer = http::Response::new(match unchanged {
        true => response::whole(bytes::Bytes::new()),
        false => response::whole(document.body.clone()),
    });
    *answer.status_mut() = if unchanged { StatusCode::NOT_MODIFIED } else { document.status };
    let headers = answer.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(&document.content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    if let Some(etag) = etag {
        headers.insert(header::ETAG, etag);
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    }
    let age = document.age();
    stamp(headers, &Stamp { source: "memory", age: Some(age), warning: None });
    answer.extensions_mut().insert(Audited { age: Some(age), ..Audited::default() });
    Ok(answer)
}

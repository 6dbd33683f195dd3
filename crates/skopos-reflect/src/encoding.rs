//! Encodings of responses: protobuf where the server has it, otherwise JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use kube::client::Body;
use skopos_transport::{Transport, TransportBody, TransportError};
use skopos_wire::protobuf::{Kind, MEDIA_TYPE};

use crate::{Form, Target};

/// The encoding that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// Protobuf for built-in kinds, which costs server and client a fraction of JSON, and JSON for all others.
    #[default]
    Protobuf,
    /// JSON only.
    Json,
}

/// The known encodings of one resource on one server. Clones share it, so that a server that refuses protobuf
/// is asked once.
#[derive(Clone, Debug)]
pub struct Negotiation {
    preferred: Encoding,
    refused: Arc<AtomicBool>,
}

impl Negotiation {
    /// Creates the state of a server that was not asked yet.
    pub fn new(preferred: Encoding) -> Self {
        Self { preferred, refused: Arc::default() }
    }

    /// Adds protobuf to what the request accepts, if the server may have it for this target. Returns whether it did.
    pub fn ask(&self, target: &Target, request: &mut Request<Body>) -> bool {
        if !self.may_have_protobuf(target) {
            return false;
        }
        let accept = accept(request.headers());
        let (json, _) = accept.split_once(',').unwrap_or((accept, ""));
        let form = json.strip_prefix("application/json").unwrap_or_default();
        // JSON stays acceptable in the same form, then as whole objects: an aggregated API may have nothing else.
        let wanted = format!("{}{form},{}", MEDIA_TYPE, accept);
        let wanted = if form.is_empty() { format!("{wanted};q=0.9") } else { wanted };
        match HeaderValue::from_str(&wanted) {
            Ok(wanted) => {
                request.headers_mut().insert(header::ACCEPT, wanted);
                true
            }
            Err(_) => false,
        }
    }

    /// Sends a request without a body. If the server refuses protobuf, sends it again for JSON: that costs one request, and
    /// no failure.
    ///
    /// # Errors
    /// Those of the transport.
    pub async fn send(
        &self,
        transport: &Transport,
        request: Request<Body>,
    ) -> Result<Response<TransportBody>, TransportError> {
        let (mut parts, _) = request.into_parts();
        let response = transport.send(Request::from_parts(parts.clone(), Body::empty())).await?;
        if !is_refusal(response.status()) || !accepts_protobuf(&parts.headers) {
            return Ok(response);
        }
        self.refuse();
        accept_json(&mut parts.headers);
        transport.send(Request::from_parts(parts, Body::empty())).await
    }

    /// Records that the server has no protobuf of the resource, or protobuf that cannot be read: from here on JSON is asked
    /// for.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    fn may_have_protobuf(&self, target: &Target) -> bool {
        if self.preferred == Encoding::Json || self.refused.load(Ordering::Relaxed) {
            return false;
        }
        let api_version = target.api_version();
        match (target.form, &target.kind) {
            // Metadata has the same type for every kind, custom ones too.
            (Form::MetadataOnly, _) => true,
            (Form::Full, Some(kind)) => Kind::find(&api_version, kind).is_some(),
            (Form::Full, None) => Kind::has_api_version(&api_version),
        }
    }
}

/// Returns whether a response means that the server has no protobuf of the resource.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn accepts_protobuf(headers: &HeaderMap) -> bool {
    accept(headers).starts_with(MEDIA_TYPE)
}

/// Takes protobuf out of what a request accepts.
fn accept_json(headers: &mut HeaderMap) {
    let json: Vec<_> =
        accept(headers).split(',').filter(|media_type| !media_type.starts_with(MEDIA_TYPE)).collect();
    if let Ok(json) = HeaderValue::from_str(&json.join(",")) {
        headers.insert(header::ACCEPT, json);
    }
}

impl Default for Negotiation {
    fn default() -> Self {
        Self::new(Encoding::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(negotiation: &Negotiation, target: &Target) -> String {
        let mut request = target.page(None, None);
        negotiation.ask(target, &mut request);
        request.headers()[header::ACCEPT].to_str().unwrap().to_owned()
    }

    #[test]
    fn asks_for_protobuf_of_built_in_kinds_until_refused() {
        let negotiation = Negotiation::default();
        let pods = Target::new("", "v1", "pods").with_kind("Pod");
        let expected = "application/vnd.kubernetes.protobuf,application/json;q=0.9";
        assert_eq!(asked(&negotiation, &pods), expected);
        assert_eq!(asked(&negotiation, &Target::new("apps", "v1", "deployments")), expected);
        assert_eq!(asked(&negotiation, &Target::new("example.com", "v1", "widgets")), "application/json");
        assert_eq!(asked(&Negotiation::new(Encoding::Json), &pods), "application/json");
        negotiation.clone().refuse();
        assert_eq!(asked(&negotiation, &pods), "application/json");
    }

    #[test]
    fn asks_for_metadata_in_protobuf_of_every_kind() {
        let widgets = Target::new("example.com", "v1", "widgets").metadata_only();
        assert_eq!(
            asked(&Negotiation::default(), &widgets),
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;q=0.5"
        );
    }
}

//! Conversion of protobuf request bodies to JSON: `kubectl create deployment` and typed Go clients send them.

use bytes::Bytes;
use http::{HeaderMap, header};
use skopos_wire::Status;
use skopos_wire::protobuf::{self, MEDIA_TYPE};

/// Returns the body as JSON if the headers say that it is protobuf; otherwise returns it unchanged.
///
/// # Errors
/// 400 if it cannot be decoded.
pub(crate) fn to_json(headers: &HeaderMap, body: Bytes) -> Result<Bytes, Status> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if body.is_empty() || !content_type.starts_with(MEDIA_TYPE) {
        return Ok(body);
    }
    let json = protobuf::to_json(&body)
        .map_err(|error| Status::bad_request(format!("error decoding body: {error}")))?;
    Ok(json.into())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};

    use super::*;

    fn decoded(body: Vec<u8>) -> Result<Value, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        to_json(&headers, body.into()).map(|json| serde_json::from_slice(&json).unwrap())
    }

    #[test]
    fn decodes_body_in_protobuf() {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"ports": [{"protocol": "TCP", "port": 80, "targetPort": "x"}]}, "status": {"loadBalancer": {}},
        });
        let body = protobuf::from_json(service.to_string().as_bytes()).unwrap();
        assert_eq!(decoded(body), Ok(service));
    }

    #[test]
    fn refuses_malformed_body() {
        for body in [b"rubbish".to_vec(), protobuf::MAGIC.to_vec(), [protobuf::MAGIC, &[0xff; 12]].concat()] {
            assert_eq!(decoded(body).unwrap_err().code, 400);
        }
    }
}

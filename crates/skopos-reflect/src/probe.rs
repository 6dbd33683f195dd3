use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use skopos_transport::{RequestClass, RequestOptions, Transport, TransportError};
use skopos_wire::{Limits, ListBody, ListError, ListSplitter, ResourceVersion, Status};

use crate::{Form, Target, WrongKind};

/// The reason why a probe failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No response: the network or the server is at fault.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server refused the probe.
    #[error("the server answered HTTP {code}{}", .status.as_ref().map(|status| format!(": {}", status.message)).unwrap_or_default())]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The Status in the body, if there was one.
        status: Option<Box<Status>>,
    },
    /// The response is not a list: the server is at fault, or a proxy in front of it.
    #[error("the answer is no list: {0}")]
    Malformed(#[from] ListError),
    /// The response is a list of something else: the server is at fault, or a proxy in front of it.
    #[error(transparent)]
    WrongKind(#[from] WrongKind),
    /// The response is longer than any list of one object's metadata.
    #[error("the answer to a probe is too long")]
    TooLong,
}

/// The maximum size of a response: more than the metadata of any object.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Reads the collection's current RV: the smallest consistent LIST (`limit=1`, no `resourceVersion`, metadata only).
///
/// The result is true of some moment after the call began; remember that moment for
/// [`DriverHandle::probed`](crate::DriverHandle::probed). Selectors do not matter, and the namespace and a name matter
/// only for permissions: the RV of a list is that of the whole storage behind it.
///
/// # Errors
/// When there is no response within `deadline`, or one that is no list.
pub async fn probe(
    transport: &Transport,
    target: &Target,
    deadline: Duration,
) -> Result<ResourceVersion, ProbeError> {
    let mut request = target.probe();
    request.extensions_mut().insert(RequestOptions {
        class: Some(RequestClass::Probe),
        deadline: Some(deadline),
        ..RequestOptions::default()
    });
    let (parts, body) = transport.send(request).await?.into_parts();
    let body = match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => match error.downcast::<TransportError>() {
            Ok(error) => return Err((*error).into()),
            Err(_) => return Err(ProbeError::TooLong),
        },
    };
    if !parts.status.is_success() {
        let status = Status::from_slice(&body).map(Box::new);
        return Err(ProbeError::Refused { code: parts.status.as_u16(), status });
    }
    let mut splitter = ListSplitter::new(Limits::default());
    splitter.push(&body, &mut |_| {})?;
    match splitter.finish()? {
        ListBody::List(meta) => {
            Target { form: Form::MetadataOnly, ..target.clone() }.check_list(&meta)?;
            Ok(meta.resource_version)
        }
        ListBody::Status(status) => Err(ProbeError::Refused { code: status.code, status: Some(status) }),
        _ => Err(ProbeError::Refused { code: parts.status.as_u16(), status: None }),
    }
}

//! Request bodies with a size limit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use skopos_wire::Status;
use tokio::time::timeout;

use crate::response::BodyError;

/// The body of a request. Reading fails once it is larger than allowed.
#[derive(Debug)]
pub struct LimitedBody {
    inner: Inner,
    most: usize,
    /// The size that the request declares.
    declared: u64,
}

#[derive(Debug)]
enum Inner {
    Incoming(Limited<Incoming>),
    Whole(Option<Bytes>),
}

impl LimitedBody {
    /// Makes a body that reads at most `most` bytes of `incoming`.
    pub fn new(incoming: Incoming, most: usize) -> Self {
        let declared = incoming.size_hint().lower();
        Self { inner: Inner::Incoming(Limited::new(incoming, most)), most, declared }
    }

    /// Refuses a body that declares a size above the limit.
    ///
    /// # Errors
    /// 413 if the declared size is too large.
    pub fn admit(&self) -> Result<(), Status> {
        match self.declared > self.most as u64 {
            true => Err(Status::request_entity_too_large(self.most)),
            false => Ok(()),
        }
    }

    /// Makes a body from bytes in memory.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let (most, declared) = (bytes.len(), bytes.len() as u64);
        Self { inner: Inner::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())), most, declared }
    }

    /// Reads the whole body, within `limit`.
    ///
    /// # Errors
    /// 413 when it is larger than allowed; 504 when it takes longer than `limit`; 400 when it breaks off.
    pub async fn collect_all(self, limit: Duration) -> Result<Bytes, Status> {
        let most = self.most;
        let Ok(collected) = timeout(limit, self.collect()).await else {
            return Err(Status::timeout("the request's body did not come in time", 1));
        };
        match collected {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Status::request_entity_too_large(most))
            }
            Err(_) => Err(Status::bad_request("the body broke off")),
        }
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.inner {
            Inner::Incoming(body) => Pin::new(body).poll_frame(cx),
            Inner::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Incoming(body) => body.is_end_stream(),
            Inner::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Incoming(body) => body.size_hint(),
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

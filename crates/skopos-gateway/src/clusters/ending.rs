//! Bodies that end when something says so: the lifetime of a watch, a right that is gone, a gateway that stops.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::response::{BodyError, ResponseBody};

/// `body`, until `end`: then it ends as if it were complete, as watches do. `held` is dropped with it.
pub(crate) fn ending<H: Send + Unpin + 'static>(
    body: ResponseBody,
    end: impl Future<Output = ()> + Send + 'static,
    held: H,
) -> ResponseBody {
    Ending { body, end: Some(Box::pin(end)), _held: held }.boxed_unsync()
}

struct Ending<H> {
    body: ResponseBody,
    /// `None` once it has come.
    end: Option<BoxFuture<'static, ()>>,
    _held: H,
}

impl<H: Unpin> Body for Ending<H> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if end.as_mut().poll(cx).is_ready() {
            self.end = None;
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // It may end before what the body says.
        SizeHint::default()
    }
}

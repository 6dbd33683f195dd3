//! Answers that end early: their lifetime is over, a right is revoked, the next event cannot be sent, or the gateway stops.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use serde_json::json;
use skopos_wire::Status;

use super::{BodyError, ResponseBody};

/// Returns `body` until `end`. Then it ends with an ERROR event if there is a status, or in order, as watches do; in the
/// latter case after the frames that are ready. `held` is dropped with it.
pub(crate) fn end_when<H: Send + Unpin + 'static>(
    body: ResponseBody,
    end: impl Future<Output = Option<Status>> + Send + 'static,
    held: H,
) -> ResponseBody {
    let end = async { end.await.map_or(End::Complete, |status| End::Event(error_event(&status))) };
    TerminatingBody { body, end: Some(Box::pin(end)), last: 0, _held: held }.boxed_unsync()
}

/// Returns `body` until `end` gives the reason to cut it. Then it fails, so that no client takes it for complete. `held` is
/// dropped with it.
pub(crate) fn abort_when<H: Send + Unpin + 'static>(
    body: ResponseBody,
    end: impl Future<Output = &'static str> + Send + 'static,
    held: H,
) -> ResponseBody {
    let end = async { End::Abort(end.await) };
    TerminatingBody { body, end: Some(Box::pin(end)), last: 0, _held: held }.boxed_unsync()
}

/// The maximum number of frames sent after the end. More may come as fast as they are sent.
const MAX_LAST_FRAMES: usize = 1024;

enum End {
    /// Ends with this frame.
    Event(Bytes),
    /// Ends as if the body were complete.
    Complete,
    /// Ends with an error, for this reason.
    Abort(&'static str),
}

struct TerminatingBody<H> {
    body: ResponseBody,
    /// The end; `None` once it has come.
    end: Option<BoxFuture<'static, End>>,
    /// The number of frames that may still follow.
    last: usize,
    _held: H,
}

impl<H: Unpin> Body for TerminatingBody<H> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(end) = &mut self.end {
            match end.as_mut().poll(cx) {
                Poll::Pending => return Pin::new(&mut self.body).poll_frame(cx),
                Poll::Ready(End::Event(frame)) => {
                    self.end = None;
                    return Poll::Ready(Some(Ok(Frame::data(frame))));
                }
                Poll::Ready(End::Abort(why)) => {
                    self.end = None;
                    return Poll::Ready(Some(Err(why.into())));
                }
                Poll::Ready(End::Complete) => (self.end, self.last) = (None, MAX_LAST_FRAMES),
            }
        }
        if self.last == 0 {
            return Poll::Ready(None);
        }
        self.last -= 1;
        match Pin::new(&mut self.body).poll_frame(cx) {
            // All frames that were ready at the end have been sent.
            Poll::Pending => {
                self.last = 0;
                Poll::Ready(None)
            }
            ready => ready,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() && self.last == 0 || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The body may end before its own size hint.
        SizeHint::default()
    }
}

/// Returns a frame that ends a watch.
pub(crate) fn error_event(status: &Status) -> Bytes {
    (json!({"type": "ERROR", "object": status}).to_string() + "\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response;

    #[tokio::test]
    async fn a_watch_that_is_ended_says_why() {
        let status = Status::expired("list again");
        let told = status.clone();
        let body = end_when(response::whole("never".into()), async move { Some(told) }, ());
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes, error_event(&status));
        let body = end_when(response::whole("what is there".into()), async { None }, ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "what is there");
        let body = end_when(response::whole("all".into()), std::future::pending(), ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "all");
    }

    #[tokio::test]
    async fn aborted_body_ends_with_error() {
        let body = abort_when(response::whole("half of it".into()), async { "enough" }, ());
        assert_eq!(body.collect().await.unwrap_err().to_string(), "enough");
        let body = abort_when(response::whole("all".into()), std::future::pending(), ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "all");
    }
}

//! Answers that end before their time: their lifetime is over, a right is gone, what follows cannot be told, the gateway stops.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use serde_json::json;
use skopos_wire::Status;

use crate::response::{BodyError, ResponseBody};

/// `body`, until `end`: then with an ERROR event, if there is something to tell, or as if it were complete, as watches do; in
/// the latter case behind what there is to be told already. `held` is dropped with it.
pub(crate) fn ending<H: Send + Unpin + 'static>(
    body: ResponseBody,
    end: impl Future<Output = Option<Status>> + Send + 'static,
    held: H,
) -> ResponseBody {
    let end = async { end.await.map_or(End::InOrder, |status| End::Told(error_event(&status))) };
    Ending { body, end: Some(Box::pin(end)), last: 0, _held: held }.boxed_unsync()
}

/// `body`, until `end` says why it is cut: then it fails, so that nobody takes what came for all of it. `held` is dropped with it.
pub(crate) fn cut<H: Send + Unpin + 'static>(
    body: ResponseBody,
    end: impl Future<Output = &'static str> + Send + 'static,
    held: H,
) -> ResponseBody {
    let end = async { End::Cut(end.await) };
    Ending { body, end: Some(Box::pin(end)), last: 0, _held: held }.boxed_unsync()
}

/// What is there to be told at the end is bounded, for more may come as fast as it is told.
const LAST_FRAMES: usize = 1024;

enum End {
    /// With this frame.
    Told(Bytes),
    /// As if it were complete.
    InOrder,
    /// By an error: why.
    Cut(&'static str),
}

struct Ending<H> {
    body: ResponseBody,
    /// `None` once it has come.
    end: Option<BoxFuture<'static, End>>,
    /// So many frames may still follow.
    last: usize,
    _held: H,
}

impl<H: Unpin> Body for Ending<H> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(end) = &mut self.end {
            match end.as_mut().poll(cx) {
                Poll::Pending => return Pin::new(&mut self.body).poll_frame(cx),
                Poll::Ready(End::Told(frame)) => {
                    self.end = None;
                    return Poll::Ready(Some(Ok(Frame::data(frame))));
                }
                Poll::Ready(End::Cut(why)) => {
                    self.end = None;
                    return Poll::Ready(Some(Err(why.into())));
                }
                Poll::Ready(End::InOrder) => (self.end, self.last) = (None, LAST_FRAMES),
            }
        }
        if self.last == 0 {
            return Poll::Ready(None);
        }
        self.last -= 1;
        match Pin::new(&mut self.body).poll_frame(cx) {
            // Nothing more that was there when the end came.
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
        // It may end before what the body says.
        SizeHint::default()
    }
}

/// A frame that ends a watch.
pub(crate) fn error_event(status: &Status) -> Bytes {
    (json!({"type": "ERROR", "object": status}).to_string() + "\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response;

    #[tokio::test]
    async fn a_watch_that_is_ended_says_why() {
        let status = Status::expired("list anew");
        let told = status.clone();
        let body = ending(response::whole("never".into()), async move { Some(told) }, ());
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes, error_event(&status));
        let body = ending(response::whole("what is there".into()), async { None }, ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "what is there");
        let body = ending(response::whole("all".into()), std::future::pending(), ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "all");
    }

    #[tokio::test]
    async fn what_is_cut_is_not_taken_for_whole() {
        let body = cut(response::whole("half of it".into()), async { "enough" }, ());
        assert_eq!(body.collect().await.unwrap_err().to_string(), "enough");
        let body = cut(response::whole("all".into()), std::future::pending(), ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "all");
    }
}

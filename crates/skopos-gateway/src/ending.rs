//! Watches that end before their time: their lifetime is over, a right is gone, what follows cannot be told, the gateway stops.

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

/// `body`, until `end`: then with an ERROR event, if there is something to tell, or as if it were complete, as watches do.
/// `held` is dropped with it.
pub(crate) fn ending<H: Send + Unpin + 'static>(
    body: ResponseBody,
    end: impl Future<Output = Option<Status>> + Send + 'static,
    held: H,
) -> ResponseBody {
    Ending { body, end: Some(Box::pin(end)), _held: held }.boxed_unsync()
}

struct Ending<H> {
    body: ResponseBody,
    /// `None` once it has come.
    end: Option<BoxFuture<'static, Option<Status>>>,
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
        if let Poll::Ready(told) = end.as_mut().poll(cx) {
            self.end = None;
            return Poll::Ready(told.map(|status| Ok(Frame::data(error_event(&status)))));
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
        let body = ending(response::whole("never".into()), async { None }, ());
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
        let body = ending(response::whole("all".into()), std::future::pending(), ());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "all");
    }
}

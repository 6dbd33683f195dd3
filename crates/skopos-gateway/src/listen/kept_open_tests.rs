//! Healthy connections are never closed under their clients, whatever the answers are; floods are.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Handler, InMemory, Peer};
use crate::config::{Limits, Span};
use crate::response::{self, BodyError, Response, ResponseBody};

/// A request and its answer.
#[derive(Clone, Debug)]
struct Exchange {
    method: Method,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// One piece of this length, as answers from memory.
    Whole(u16, usize),
    /// Pieces with a declared length, as forwarded answers: the body does not mark its end.
    Declared(usize, usize),
    /// Pieces without a declared length.
    Chunked(usize, usize),
    /// Pieces followed by trailers.
    Trailers(usize),
    /// A status without content, over a body with content.
    NoContent(u16),
    /// A stream that the gateway ends after this many events.
    Stream(usize),
    /// A watch: the client reads one event and ends it. Over HTTP/1.1 that ends the connection, so there it is a stream.
    Watch,
    /// A stream that the gateway cuts. Over HTTP/1.1 that ends the connection, so there it is a normal stream.
    Cut,
    /// A stream without pauses. The client reads nothing of it and ends it.
    Unread,
    /// No answer.
    Silence,
}

const PIECE: &[u8] = b"{\"kind\":\"Status\"}";

impl Answer {
    fn parse(text: &str) -> Self {
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
        let number = |at: usize| parts[at].parse::<usize>().unwrap();
        match parts[0] {
            "whole" => Self::Whole(u16::try_from(number(1)).unwrap(), number(2)),
            "declared" => Self::Declared(number(1), number(2)),
            "chunked" => Self::Chunked(number(1), number(2)),
            "trailers" => Self::Trailers(number(1)),
            "nocontent" => Self::NoContent(u16::try_from(number(1)).unwrap()),
            "stream" => Self::Stream(number(1)),
            "watch" => Self::Watch,
            "cut" => Self::Cut,
            "unread" => Self::Unread,
            _ => Self::Silence,
        }
    }

    fn path(self) -> String {
        match self {
            Self::Whole(code, length) => format!("/whole/{code}/{length}"),
            Self::Declared(pieces, length) => format!("/declared/{pieces}/{length}"),
            Self::Chunked(pieces, length) => format!("/chunked/{pieces}/{length}"),
            Self::Trailers(pieces) => format!("/trailers/{pieces}"),
            Self::NoContent(code) => format!("/nocontent/{code}"),
            Self::Stream(pieces) => format!("/stream/{pieces}"),
            Self::Watch => "/watch".into(),
            Self::Cut => "/cut".into(),
            Self::Unread => "/unread".into(),
            Self::Silence => "/silence".into(),
        }
    }

    fn response(self) -> Response {
        let mut response = http::Response::new(self.body());
        match self {
            Self::Whole(code, _) | Self::NoContent(code) => {
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
            }
            Self::Declared(pieces, length) => {
                let length = HeaderValue::from(pieces * length);
                response.headers_mut().insert(header::CONTENT_LENGTH, length);
            }
            _ => {}
        }
        response
    }

    fn body(self) -> ResponseBody {
        match self {
            Self::Whole(_, length) => response::whole(vec![b'x'; length].into()),
            Self::NoContent(_) => response::whole(Bytes::from_static(PIECE)),
            Self::Declared(pieces, length) | Self::Chunked(pieces, length) => {
                streamed(stream::iter((0..pieces).map(move |_| data(vec![b'x'; length]))))
            }
            Self::Trailers(pieces) => {
                let trailers = stream::iter([Ok(Frame::trailers(HeaderMap::new()))]);
                streamed(stream::iter((0..pieces).map(|_| data(PIECE))).chain(trailers))
            }
            Self::Stream(pieces) => {
                let events = stream::iter(0..pieces).then(|_| async {
                    sleep(Duration::from_millis(1)).await;
                    data(PIECE)
                });
                streamed(events)
            }
            Self::Watch => streamed(stream::iter([data(PIECE)]).chain(stream::pending())),
            Self::Cut => {
                let cut = stream::once(async {
                    sleep(Duration::from_millis(1)).await;
                    Err("cut".into())
                });
                streamed(stream::iter([data(PIECE)]).chain(cut))
            }
            Self::Unread | Self::Silence => streamed(stream::repeat_with(|| data(vec![b'x'; 64 * 1024]))),
        }
    }
}

type Piece = Result<Frame<Bytes>, BodyError>;

fn data(bytes: impl Into<Vec<u8>>) -> Piece {
    Ok(Frame::data(bytes.into().into()))
}

fn streamed(pieces: impl futures::Stream<Item = Piece> + Send + 'static) -> ResponseBody {
    StreamBody::new(pieces).boxed_unsync()
}

/// A handler that answers as the path says.
#[derive(Clone)]
struct AsAsked;

impl Handler for AsAsked {
    fn handle(
        &self,
        _: std::sync::Arc<Peer>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response> + Send + 'static {
        let answer = Answer::parse(request.uri().path());
        async move {
            if answer == Answer::Silence {
                std::future::pending::<()>().await;
            }
            answer.response()
        }
    }
}

/// A connection of a client.
enum Client {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Client {
    async fn connect(server: &InMemory<AsAsked>, is_http2: bool, tasks: &mut JoinSet<()>) -> Self {
        let io = TokioIo::new(server.connect());
        if is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tasks.spawn(async move { _ = connection.await });
            return Self::Http2(sender);
        }
        let (sender, connection) = http1::handshake(io).await.unwrap();
        tasks.spawn(async move { _ = connection.await });
        Self::Http1(sender)
    }

    async fn send(&mut self, exchange: &Exchange) -> hyper::Result<http::Response<Incoming>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = exchange.method.clone();
        *request.uri_mut() = format!("http://localhost{}", exchange.answer.path()).parse().unwrap();
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }

    async fn exchange(&mut self, exchange: &Exchange) -> Result<(), String> {
        let told = |error: hyper::Error| format!("{exchange:?}: {error:?}");
        let answer = self.send(exchange).await.map_err(told)?;
        let mut body = answer.into_body();
        match exchange.answer {
            Answer::Watch if exchange.method == Method::GET => {
                body.frame().await.ok_or("no event")?.map_err(told)?;
            }
            Answer::Cut if exchange.method == Method::GET => assert!(body.collect().await.is_err()),
            _ => {
                let length = body.collect().await.map_err(told)?.to_bytes().len();
                let wanted = match exchange.answer {
                    _ if exchange.method == Method::HEAD => 0,
                    Answer::Whole(_, length) => length,
                    Answer::Declared(pieces, length) | Answer::Chunked(pieces, length) => pieces * length,
                    Answer::NoContent(_) => 0,
                    _ => return Ok(()),
                };
                assert_eq!(length, wanted, "{exchange:?}");
            }
        }
        Ok(())
    }
}

fn answers() -> impl Strategy<Value = Answer> {
    let codes = || prop::sample::select(vec![200_u16, 201, 400, 403, 404, 410, 429, 500, 503]);
    prop_oneof![
        (codes(), 0_usize..3).prop_map(|(code, length)| Answer::Whole(code, length * 100)),
        (0_usize..4, 0_usize..3).prop_map(|(pieces, length)| Answer::Declared(pieces, length * 5000)),
        (0_usize..4, 0_usize..3).prop_map(|(pieces, length)| Answer::Chunked(pieces, length * 5000)),
        (0_usize..3).prop_map(Answer::Trailers),
        prop::sample::select(vec![204_u16, 304]).prop_map(Answer::NoContent),
        (0_usize..3).prop_map(Answer::Stream),
        Just(Answer::Watch),
        Just(Answer::Cut),
    ]
}

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let method = prop_oneof![
        4 => Just(Method::GET), 1 => Just(Method::HEAD), 1 => Just(Method::PATCH), 1 => Just(Method::DELETE)
    ];
    let exchange = (method, answers()).prop_map(|(method, answer)| {
        let ends_early = matches!(answer, Answer::Watch | Answer::Cut);
        let method = if ends_early && method != Method::HEAD { Method::GET } else { method };
        Exchange { method, answer }
    });
    prop::collection::vec(exchange, 1..8)
}

/// Returns limits that a few misjudged answers would reach.
fn limits() -> Limits {
    Limits { resets: 3, ..Limits::default() }
}

/// Sends all exchanges many times, some hundred requests a second, and expects the connection to stay open.
async fn stays_open(exchanges: Vec<Exchange>, is_http2: bool) -> Result<(), String> {
    let server = InMemory::new(AsAsked, limits());
    let mut tasks = JoinSet::new();
    let mut client = Client::connect(&server, is_http2, &mut tasks).await;
    for round in 0..10 {
        for exchange in &exchanges {
            let mut exchange = exchange.clone();
            if !is_http2 && matches!(exchange.answer, Answer::Watch | Answer::Cut) {
                exchange.answer = Answer::Stream(1);
            }
            client.exchange(&exchange).await.map_err(|error| format!("round {round}: {error}"))?;
        }
        // The reaper checks the connections once a second.
        sleep(Duration::from_millis(if round % 5 == 4 { 1001 } else { 20 })).await;
    }
    assert_eq!(server.closed(), 0);
    assert_eq!(server.connections(), 1);
    Ok(())
}

fn run(test: impl Future<Output = Result<(), String>>) -> Result<(), TestCaseError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test).map_err(TestCaseError::fail)
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn healthy_connections_stay_open(exchanges in exchanges(), is_http2 in any::<bool>()) {
        run(stays_open(exchanges, is_http2))?;
    }
}

/// Sends requests that the client drops as soon as their answers begin, or before.
async fn flood(answer: Answer) -> (usize, u64) {
    let server = InMemory::new(AsAsked, limits());
    let mut tasks = JoinSet::new();
    let mut client = Client::connect(&server, true, &mut tasks).await;
    let exchange = Exchange { method: Method::GET, answer };
    let mut sent = 0;
    for _ in 0..200 {
        let asked = tokio::time::timeout(Duration::from_millis(5), client.send(&exchange)).await;
        if matches!(asked, Ok(Err(_))) {
            break;
        }
        sent += 1;
        sleep(Duration::from_millis(20)).await;
    }
    (sent, server.closed())
}

#[tokio::test(start_paused = true)]
async fn floods_of_abandoned_requests_are_closed() {
    for answer in [Answer::Silence, Answer::Unread] {
        let (sent, closed) = flood(answer).await;
        assert!(sent < 100 && closed == 1, "{answer:?}: {sent} {closed}");
    }
    // A client may end its watches as often as it likes.
    assert_eq!(flood(Answer::Watch).await, (200, 0));
}

/// HTTP/2 states which requests were not processed, so that a client can retry them elsewhere.
#[tokio::test(start_paused = true)]
async fn idle_connections_get_a_goaway() {
    let server = InMemory::new(AsAsked, Limits { idle: Span::seconds(5), ..limits() });
    let io = server.connect();
    let (mut client, connection) = h2::client::handshake(io).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let request = || Request::get("http://localhost/whole/200/3").body(()).unwrap();
    let (answer, _) = client.send_request(request(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    sleep(Duration::from_secs(8)).await;
    assert_eq!((server.connections(), server.closed()), (0, 1));
    let error = match client.send_request(request(), true) {
        Ok((answer, _)) => answer.await.unwrap_err(),
        Err(error) => error,
    };
    assert!(error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR), "{error:?}");
}

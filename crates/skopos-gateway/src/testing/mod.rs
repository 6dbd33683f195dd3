//! Clusters for tests: scripted ones that answer reviews, test servers in memory behind a whole gateway, and one that records
//! its requests.

mod certificate;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos::Transport;
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos_fleet::source::{ClusterSink, DiscoveredCluster};
use skopos_fleet::{ClusterId, ClusterSpec, Connector, Fleet, FleetOptions, Source};
use skopos_testserver::{TestServer, User};
use tokio::io::{AsyncRead, AsyncReadExt as _, DuplexStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::certificate::Certificate;
use crate::auth::Authenticator;
use crate::authz::ask::{Ask, AskError};
use crate::clusters::Clusters;
use crate::config::{Authentication, Config, LoopbackTrust, TokenReview};
use crate::gateway::Gateway;
use crate::gateway::services::{FleetAsk, Services};
use crate::listen::Peer;
use crate::merged::{KindsOptions, Merged};
use crate::request::body::LimitedBody;
use crate::response::ResponseBody;
use crate::state::State;

/// Members with scripted answers.
#[derive(Clone)]
pub(crate) struct Script {
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<Vec<(String, Value)>>,
    takes: Mutex<Duration>,
    answer: Mutex<Box<Reply>>,
}

type Reply = dyn Fn(&str, &Value) -> Result<(u16, Value), AskError> + Send;

impl Script {
    /// Makes a script that answers each request, by cluster, with a status code and a body.
    pub(crate) fn new(
        answer: impl Fn(&str, &Value) -> Result<(u16, Value), AskError> + Send + 'static,
    ) -> Self {
        let shared = Shared {
            asked: Mutex::default(),
            takes: Mutex::new(Duration::from_millis(10)),
            answer: Mutex::new(Box::new(answer)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes a script that answers reviews by their spec.
    pub(crate) fn reviewing(status: impl Fn(&str, &Value) -> Value + Send + 'static) -> Self {
        Self::new(move |cluster, question| Ok((201, json!({"status": status(cluster, &question["spec"])}))))
    }

    pub(crate) fn answers(
        &self,
        answer: impl Fn(&str, &Value) -> Result<(u16, Value), AskError> + Send + 'static,
    ) {
        *self.shared.answer.lock() = Box::new(answer);
    }

    /// Sets the duration of every answer.
    pub(crate) fn takes(&self, time: Duration) {
        *self.shared.takes.lock() = time;
    }

    /// Returns the requests so far, with their clusters.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        self.shared.asked.lock().clone()
    }

    pub(crate) fn arc(&self) -> Arc<dyn Ask> {
        Arc::new(self.clone())
    }
}

impl Ask for Script {
    fn ask(
        &self,
        cluster: &str,
        request: Request<Bytes>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, AskError>> {
        let question: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        self.shared.asked.lock().push((cluster.to_owned(), question.clone()));
        let answer = (self.shared.answer.lock())(cluster, &question);
        let takes = *self.shared.takes.lock();
        Box::pin(async move {
            if tokio::time::timeout(within, tokio::time::sleep(takes)).await.is_err() {
                return Err(AskError::Down("too slow".into()));
            }
            let (code, body) = answer?;
            let body = Bytes::from(body.to_string());
            Ok(Response::builder().status(code).body(body).unwrap())
        })
    }

    fn generation(&self, _: &str) -> Option<u64> {
        Some(0)
    }
}

/// Makes the `extra` of an identity.
pub(crate) fn extra(key: &str, values: &[&str]) -> BTreeMap<String, Vec<String>> {
    [(key.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())].into()
}

/// A gateway over test servers in memory, on virtual time.
pub(crate) struct Lab {
    pub(crate) gateway: Gateway,
    pub(crate) services: Services,
    pub(crate) state: State,
    members: Vec<(&'static str, TestServer)>,
    reached: Members,
    scripted: ByHand,
    pub(crate) draining: CancellationToken,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Lab {
    /// Makes a gateway whose callers count as the gateway itself.
    pub(crate) fn trusting(names: &[&'static str]) -> Self {
        Self::with(names, |config| config.authorization.loopback = LoopbackTrust::Trusted)
    }

    /// Makes a gateway whose callers have tokens of the first member: [`Lab::admit`].
    pub(crate) fn guarded(names: &[&'static str], change: impl FnOnce(&mut Config)) -> Self {
        let cluster = names[0].to_owned();
        Self::with(names, |config| {
            let token_review =
                Some(TokenReview { cluster, audiences: Vec::new(), shared_accounts: false, only_jwt: false });
            config.authentication = Authentication { token_review, ..Authentication::default() };
            change(config);
        })
    }

    pub(crate) fn with(names: &[&'static str], change: impl FnOnce(&mut Config)) -> Self {
        // Random delays are the same in every run.
        fastrand::seed(1);
        let mut config = Config::default();
        change(&mut config);
        let (reached, scripted) = (Members::default(), ByHand::default());
        let connector = in_memory(reached.clone(), scripted.clone());
        let fleet = Fleet::new(FleetOptions { connector, ..crate::config::fleet::options(&config) });
        let members = names.iter().map(|name| (*name, TestServer::builder().start_in_memory().unwrap()));
        let members: Vec<_> = members.collect();
        for (name, server) in &members {
            reached.lock().insert((*name).to_owned(), Member::Server(server.clone()));
            fleet.join(ClusterId::new(name).unwrap(), spec()).unwrap();
        }
        Self::over(fleet, config, members, reached, scripted)
    }

    fn over(
        fleet: Fleet,
        config: Config,
        members: Vec<(&'static str, TestServer)>,
        reached: Members,
        scripted: ByHand,
    ) -> Self {
        let authenticator =
            Authenticator::new(&config, Arc::new(FleetAsk::trusted_only(fleet.clone()))).unwrap();
        let most = usize::try_from(config.listen.limits.body_bytes.0).unwrap();
        let services = Services::new(fleet, Arc::new(config));
        let clusters = Clusters::new(services.clone());
        let state = State::new(services.clone(), None);
        let merged = Merged::new(services.clone(), KindsOptions::default());
        state.serving(clusters.clone(), merged.clone());
        let builder = Gateway::builder(authenticator, most)
            .route("clusters", Arc::new(clusters))
            .route("fleet", Arc::new(merged));
        let gateway = state.plug_into(builder).build();
        Self { gateway, services, state, members, reached, scripted, draining: CancellationToken::new() }
    }

    pub(crate) fn member(&self, name: &str) -> &TestServer {
        &self.members.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Replaces the labels of a member.
    pub(crate) fn relabel(&self, name: &str, labels: &[(&str, &str)]) {
        let spec = spec().with_labels(labels.iter().copied());
        self.services.fleet.join(ClusterId::new(name).unwrap(), spec).unwrap();
    }

    /// Leads new connections of this name to another server.
    pub(crate) fn replace_member(&self, name: &str, server: &TestServer) {
        self.reached.lock().insert(name.to_owned(), Member::Server(server.clone()));
    }

    /// Adds a member that records its requests.
    pub(crate) fn add_echo(&self, name: &str) -> Echo {
        let echo = Echo::default();
        self.reached.lock().insert(name.to_owned(), Member::Echo(echo.clone()));
        self.services.fleet.join(ClusterId::new(name).unwrap(), spec()).unwrap();
        echo
    }

    /// Returns the upgraded connections to members, which the test answers itself.
    pub(crate) fn by_hand(&self) -> ByHand {
        self.scripted.clone()
    }

    /// Makes `token` a token of this user.
    pub(crate) fn admit(&self, token: &str, user: &str) {
        self.members[0].1.auth().add_reviewed_token(token, User::new(user));
    }

    /// Sends a request, and returns its answer with an unread body.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<ResponseBody> {
        let mut request = Request::new(LimitedBody::whole(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        }
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let address = "127.0.0.1:999".parse().unwrap();
        let peer = Peer::new(address, true, self.draining.clone());
        self.gateway.answer(Arc::new(peer), request).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Told {
        told(self.send(Method::GET, path, headers, "").await).await
    }

    /// Sends a GET as the user with this token.
    pub(crate) async fn get_as(&self, token: &str, path: &str) -> Told {
        self.get(path, &[("authorization", &format!("Bearer {token}"))]).await
    }
}

/// A source of clusters that lists nothing until the test says so.
#[derive(Clone, Default)]
pub(crate) struct QuietSource(Arc<Mutex<Option<ClusterSink>>>);

impl QuietSource {
    /// Makes a source that lists a member in place of this process, so that it can list another cluster with the same name
    /// later.
    pub(crate) async fn for_member(fleet: &Fleet, name: &str) -> Self {
        let source = Self::default();
        fleet.follow(source.clone());
        tokio::task::yield_now().await;
        let cluster = fleet.cluster(name).unwrap();
        let spec = cluster.spec().unwrap();
        assert!(fleet.leave(cluster.id(), "it is listed by a source"));
        let listed = DiscoveredCluster { origin: Some("here".into()), ..DiscoveredCluster::up(spec) };
        source.lists([(cluster.id().clone(), listed)].into());
        source
    }

    /// Reports another cluster with this name, which cannot be reached yet.
    pub(crate) fn lists_another(&self, name: &str) {
        let elsewhere = ClusterSpec::from_config(kube::Config::new("http://elsewhere".parse().unwrap()));
        let listed =
            DiscoveredCluster { origin: Some("elsewhere".into()), ..DiscoveredCluster::up(elsewhere) };
        self.lists([(ClusterId::new(name).unwrap(), listed)].into());
    }

    pub(crate) fn speaks(&self) {
        self.lists(BTreeMap::new());
    }

    pub(crate) fn lists(&self, clusters: BTreeMap<ClusterId, DiscoveredCluster>) {
        self.0.lock().as_ref().expect("it is followed").publish(clusters);
    }
}

impl Source for QuietSource {
    fn name(&self) -> String {
        "quiet".to_owned()
    }

    fn run(self: Box<Self>, sink: ClusterSink, stop: CancellationToken) -> BoxFuture<'static, ()> {
        *self.0.lock() = Some(sink);
        Box::pin(async move { stop.cancelled().await })
    }
}

/// Reads an answer to its end.
pub(crate) async fn told(answer: http::Response<ResponseBody>) -> Told {
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Told { code: parts.status.as_u16(), headers: parts.headers, body }
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// The far end of connections to a member.
#[derive(Clone)]
enum Member {
    Server(TestServer),
    Echo(Echo),
}

type Members = Arc<Mutex<BTreeMap<String, Member>>>;

fn spec() -> ClusterSpec {
    ClusterSpec::from_config(kube::Config::new("http://member".parse().unwrap()))
}

fn in_memory(members: Members, by_hand: ByHand) -> Connector {
    Connector::new(move |id, spec, options| {
        let member = members.lock().get(id.as_str()).cloned();
        let by_hand = by_hand.clone();
        let dialer = dialer_fn(move |attempt| {
            let dialed = match &member {
                _ if attempt.http1_only() => Ok(Dialed::new(by_hand.dialed(), Protocol::Http1)),
                Some(Member::Server(server)) => server.connect().map(|io| Dialed::new(io, Protocol::Http2)),
                Some(Member::Echo(echo)) => Ok(Dialed::new(echo.connect(), Protocol::Http1)),
                None => Err(std::io::Error::other("no such member")),
            };
            let to = attempt.uri().to_string().into();
            let refused = move |error: std::io::Error| TransportErrorKind::Refused {
                to,
                reason: error.to_string().into(),
            };
            std::future::ready(dialed.map_err(refused))
        });
        Transport::with_dialer(spec.config(), options, dialer)
    })
}

/// Upgraded connections to members, with the test at their far end.
#[derive(Clone, Default)]
pub(crate) struct ByHand {
    connections: Arc<Mutex<VecDeque<DuplexStream>>>,
    came: Arc<Notify>,
}

impl ByHand {
    /// Returns the next connection, and the head of the request on it.
    pub(crate) async fn accept(&self) -> (String, DuplexStream) {
        loop {
            let came = self.came.notified();
            let next = self.connections.lock().pop_front();
            match next {
                Some(mut stream) => return (head(&mut stream).await, stream),
                None => came.await,
            }
        }
    }

    /// Returns the number of connections not yet accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.connections.lock().len()
    }

    fn dialed(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(4 * 1024);
        self.connections.lock().push_back(far);
        self.came.notify_one();
        near
    }
}

/// Reads the head of a request or an answer, and not a byte more.
pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// A request that reached a member, and its body.
pub(crate) type Seen = (Request<()>, Bytes);

/// A member that records its requests and gives preset answers.
#[derive(Clone, Default)]
pub(crate) struct Echo {
    seen: Arc<Mutex<Vec<Seen>>>,
    answers: Arc<Mutex<Option<Response<Bytes>>>>,
    script: Arc<Mutex<Option<Box<Scripted>>>>,
    tasks: TaskTracker,
}

/// A function that answers the requests that it knows.
type Scripted = dyn Fn(&Request<()>) -> Option<Value> + Send;

impl Echo {
    /// Returns the requests so far, without those for the documents that every cluster serves.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let mut seen = std::mem::take(&mut *self.seen.lock());
        // Requests of the fleet itself.
        seen.retain(|(request, _)| {
            !["/version", "/api", "/apis", "/openapi/v3"].contains(&request.uri().path())
        });
        seen
    }

    /// Sets the answer to all further requests.
    pub(crate) fn answers(&self, code: u16, headers: &[(&'static str, &str)], body: &'static str) {
        let mut answer = Response::new(Bytes::from_static(body.as_bytes()));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        for (name, value) in headers {
            answer.headers_mut().append(HeaderName::from_static(name), value.parse().unwrap());
        }
        *self.answers.lock() = Some(answer);
    }

    /// Sets a script whose answers are sent as JSON; a Status with its code.
    pub(crate) fn scripted(&self, script: impl Fn(&Request<()>) -> Option<Value> + Send + 'static) {
        *self.script.lock() = Some(Box::new(script));
    }

    fn answer(&self, request: &Request<()>) -> Response<Bytes> {
        let scripted = self.script.lock().as_ref().and_then(|script| script(request));
        if let Some(scripted) = scripted {
            let mut answer = Response::new(Bytes::from(scripted.to_string()));
            if let Some(code) = scripted["code"].as_u64().filter(|_| scripted["kind"] == "Status") {
                *answer.status_mut() = StatusCode::from_u16(u16::try_from(code).unwrap()).unwrap();
            }
            answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return answer;
        }
        self.answers.lock().clone().unwrap_or_else(|| Response::new(Bytes::from_static(b"{}")))
    }

    fn connect(&self) -> tokio::io::DuplexStream {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let echo = self.clone();
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let echo = echo.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let request = Request::from_parts(parts, ());
                let answer = echo.answer(&request);
                echo.seen.lock().push((request, body));
                Ok::<_, hyper::Error>(answer.map(Full::new))
            }
        });
        self.tasks.spawn(async move {
            let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new());
            let _ = builder.serve_connection(TokioIo::new(far), service).await;
        });
        near
    }
}

//! The driver: runs a [`Machine`] over a [`Transport`], writing to a [`Sink`].

mod exchange;
mod failure;
mod handle;
mod request_connections;

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use skopos_transport::{ConnectionId, RequestClass, RequestOptions, Transport};
use skopos_wire::Limits;
use tokio_util::sync::CancellationToken;

use self::exchange::Arrival;
pub use self::handle::DriverHandle;
use self::handle::DriverShared;
use self::request_connections::RequestConnections;
use crate::{Action, Clock, Input, Machine, MachineOptions, Negotiation, RequestId, Sink, Target};

/// Options of a [`Driver`].
#[derive(Clone, Debug, Default)]
pub struct DriverOptions {
    /// Options of the protocol.
    pub machine: MachineOptions,
    /// Limits on what is accepted from the server.
    pub limits: Limits,
    /// The clock of all times passed to the sink. Components that exchange times must share one clock.
    pub clock: Clock,
    /// The seed of every random choice, for repeatable tests. Default: random.
    pub seed: Option<u64>,
    /// The known encodings of the target's resource, and the preferred one. Default: protobuf, where the
    /// server has it.
    pub negotiation: Negotiation,
}

/// A driver that keeps one [`Sink`] equal to one [`Target`] on the server that a [`Transport`] leads to.
///
/// ```no_run
/// # use skopos_reflect::{Driver, DriverOptions, Sink, Target};
/// # async fn f(transport: skopos_transport::Transport, store: impl Sink) {
/// let driver = Driver::new(transport, Target::new("", "v1", "pods"), DriverOptions::default());
/// let handle = driver.handle();
/// let stop = tokio_util::sync::CancellationToken::new();
/// driver.run(store, stop).await; // until `stop` is cancelled
/// # let _ = handle;
/// # }
/// ```
#[derive(Debug)]
pub struct Driver {
    machine: Machine,
    requests: InFlightRequests,
    clock: Clock,
    shared: Arc<DriverShared>,
}

impl Driver {
    /// Creates a driver. It sends no request before [`run`](Driver::run).
    pub fn new(transport: Transport, target: Target, options: DriverOptions) -> Self {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        let machine = Machine::new(options.machine, seed, options.clock.now());
        Driver {
            shared: Arc::new(DriverShared::new(&machine)),
            machine,
            requests: InFlightRequests::new(
                transport,
                target,
                options.limits,
                options.clock,
                options.negotiation,
            ),
            clock: options.clock,
        }
    }

    /// Returns a handle that observes and controls the driver while it runs.
    pub fn handle(&self) -> DriverHandle {
        DriverHandle::new(self.shared.clone())
    }

    /// Runs until `stop` is cancelled, or until the transport is shut down. Then it drops all requests, reports
    /// [`Condition::Stopped`](crate::Condition::Stopped) to the sink, and returns the sink. It ends without delay.
    pub async fn run<S: Sink>(mut self, mut sink: S, stop: CancellationToken) -> S {
        while !self.machine.is_stopped() {
            let input = tokio::select! {
                // In this order: stopping comes first, and a flood of events must not starve the timers.
                biased;
                () = stop.cancelled() => Input::Stop,
                () = sleep_until(&self.clock, self.machine.poll_timeout()) => Input::Timeout,
                input = self.shared.commands() => input,
                input = self.requests.next() => input,
            };
            self.machine.handle(self.clock.now(), input, &mut sink);
            while let Some(action) = self.machine.poll_action() {
                self.requests.execute(action);
            }
            self.shared.publish(&self.machine);
        }
        sink
    }
}

/// The requests in flight.
pub(crate) struct InFlightRequests {
    transport: Transport,
    target: Arc<Target>,
    limits: Arc<Limits>,
    clock: Clock,
    negotiation: Negotiation,
    /// At most three: the main one, a verification watch, and a read of an object that could not be decoded.
    in_flight: Vec<(RequestId, BoxStream<'static, Arrival>)>,
    connections: RequestConnections<ConnectionId>,
}

impl InFlightRequests {
    pub(crate) fn new(
        transport: Transport,
        target: Target,
        limits: Limits,
        clock: Clock,
        negotiation: Negotiation,
    ) -> Self {
        InFlightRequests {
            transport,
            negotiation,
            target: Arc::new(target),
            limits: Arc::new(limits),
            clock,
            in_flight: Vec::new(),
            connections: RequestConnections::new(),
        }
    }

    /// Waits for the next input from any request. Cancel safe.
    pub(crate) async fn next(&mut self) -> Input {
        std::future::poll_fn(|cx| {
            for index in 0..self.in_flight.len() {
                let (id, stream) = &mut self.in_flight[index];
                let id = *id;
                match stream.poll_next_unpin(cx) {
                    std::task::Poll::Pending => {}
                    std::task::Poll::Ready(None) => {
                        // Its last input was delivered before.
                        drop(self.in_flight.swap_remove(index));
                        cx.waker().wake_by_ref();
                        break;
                    }
                    std::task::Poll::Ready(Some(arrival)) => {
                        if let Some(connection) = arrival.connection {
                            let in_flight = &self.in_flight;
                            let is_in_flight = |id| in_flight.iter().any(|(in_flight, _)| *in_flight == id);
                            self.connections.insert(id, connection, is_in_flight);
                        }
                        return std::task::Poll::Ready(arrival.input);
                    }
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    pub(crate) fn execute(&mut self, action: Action) {
        let id = action.id();
        let stream = match action {
            Action::Cancel { .. } => {
                self.in_flight.retain(|(in_flight, _)| *in_flight != id);
                return;
            }
            Action::List(request) => {
                let options = self.options(RequestClass::List, request.avoid, request.wait_for_connection);
                self.exchange(self.target.list(&request), options).list(id)
            }
            Action::Watch(request) => {
                if let Some(avoid) = request.avoid.filter(|_| request.retire_avoided) {
                    self.retire(avoid);
                }
                let options = self.options(RequestClass::Watch, request.avoid, request.wait_for_connection);
                self.exchange(self.target.watch(&request), options).watch(id)
            }
            Action::Get(request) => {
                let options = self.options(RequestClass::Read, request.avoid, request.wait_for_connection);
                self.exchange(self.target.object(&request.key), options).get(id)
            }
        };
        self.in_flight.push((id, stream));
    }

    fn exchange(
        &self,
        mut request: http::Request<kube::client::Body>,
        options: RequestOptions,
    ) -> exchange::Exchange {
        request.extensions_mut().insert(options);
        exchange::Exchange {
            transport: self.transport.clone(),
            target: self.target.clone(),
            request,
            limits: self.limits.clone(),
            clock: self.clock,
            negotiation: self.negotiation.clone(),
        }
    }

    fn options(
        &self,
        class: RequestClass,
        avoid: Option<RequestId>,
        wait_for_connection: bool,
    ) -> RequestOptions {
        RequestOptions {
            class: Some(class),
            avoid_connection: avoid.and_then(|id| self.connections.get(id)),
            deadline: None,
            wait_for_connection: Some(wait_for_connection),
        }
    }

    fn retire(&self, id: RequestId) {
        if let Some(connection) = self.connections.get(id) {
            self.transport.retire(connection, "a watch on it is stalled");
        }
    }
}

impl std::fmt::Debug for InFlightRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<_> = self.in_flight.iter().map(|(id, _)| *id).collect();
        f.debug_struct("InFlightRequests")
            .field("target", &self.target)
            .field("in_flight", &ids)
            .finish_non_exhaustive()
    }
}

pub(crate) async fn sleep_until(clock: &Clock, at: Option<crate::Time>) {
    match at {
        Some(at) => tokio::time::sleep_until(clock.instant(at)).await,
        None => std::future::pending().await,
    }
}

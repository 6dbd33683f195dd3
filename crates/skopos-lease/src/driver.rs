//! The driver of the machine: its requests, the watch of the Lease, the clock, and its published state.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use jiff::Timestamp;
use skopos_reflect::{RawWatch, RawWatchItem};
use skopos_transport::WallClock;
use skopos_wire::{RawObject, WatchEvent};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::candidate::Published;
use crate::clock::BootClock;
use crate::lease_client::LeaseClient;
use crate::machine::{Input, Machine, Outcome};
use crate::record::Record;
use crate::status::Status;
use crate::term::{TermShared, TermState};

/// A running candidate.
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    pub(crate) clock: BootClock,
    pub(crate) wall_clock: WallClock,
    pub(crate) client: LeaseClient,
    pub(crate) published: watch::Sender<Published>,
    pub(crate) fit: watch::Receiver<bool>,
    pub(crate) shared: Arc<TermShared>,
}

/// The interval at which the clock is read: the machine may have slept.
const TICK: Duration = Duration::from_secs(1);

impl Driver {
    /// Competes for the Lease until `stop`, and then runs until it is released, or its time is over.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut watch = RawWatch::builder(self.client.transport.clone(), self.client.target()).from_now();
        let mut pending: Option<BoxFuture<'static, (u64, Outcome)>> = None;
        let (mut stopping, mut watching, mut first) = (false, true, true);
        self.handle(Input::Timeout);
        while !self.machine.is_stopped() {
            if let Some(action) = self.machine.poll_action() {
                pending = Some(self.client.clone().execute(action).boxed());
            }
            let timer = self.machine.poll_timeout().map_or(TICK, |at| at.since(self.clock.now()).min(TICK));
            let (shared, ending) = (self.shared.clone(), self.is_ending() && pending.is_none());
            let input = tokio::select! {
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    Input::Stop
                }
                Some((id, outcome)) = OptionFuture::from(pending.as_mut()) => {
                    pending = None;
                    Input::Answered { id, outcome }
                }
                item = watch.next(), if watching => {
                    watching = item.is_some();
                    // Changes before the start of the watch are read.
                    let input = if std::mem::take(&mut first) { None } else { item.map(input_from_item) };
                    input.unwrap_or(Input::Stale)
                }
                Ok(()) = self.fit.changed() => Input::Fit(*self.fit.borrow_and_update()),
                () = shared.idle(), if ending => Input::Idle,
                () = sleep(timer) => Input::Timeout,
            };
            self.handle(input);
        }
    }

    fn is_ending(&self) -> bool {
        matches!(self.machine.status(), Status::Ending { .. })
    }

    fn handle(&mut self, input: Input) {
        let wall = Timestamp::try_from(self.wall_clock.now()).unwrap_or_default();
        self.machine.handle(self.clock.now(), wall, input);
        let status = self.machine.status();
        if let Some((number, until)) = self.machine.term() {
            let ending = match &status {
                Status::Ending { reason, .. } => Some(reason.clone()),
                _ => None,
            };
            self.shared.publish(TermState { number, until, ending });
        }
        let term = match &status {
            Status::Leader { number } => Some(*number),
            _ => None,
        };
        let lease = self.machine.lease_uid().cloned();
        let new = Published { status, term, lease, problem: self.machine.last_error().map(str::to_owned) };
        self.published.send_if_modified(|known| {
            if *known == new {
                return false;
            }
            if known.status != new.status {
                tracing::info!(name = self.client.name, status = ?new.status, "leader election");
            }
            *known = new;
            true
        });
    }
}

/// Returns the input for an item of the watch.
fn input_from_item(item: RawWatchItem) -> Input {
    match item {
        RawWatchItem::Event(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
            input_from_object(&object)
        }
        RawWatchItem::Event(WatchEvent::Deleted(object)) => Input::Deleted(object.resource_version().clone()),
        RawWatchItem::Gone { resource_version, .. } => Input::Deleted(resource_version),
        RawWatchItem::Event(_) => Input::Timeout,
        _ => Input::Stale,
    }
}

fn input_from_object(object: &RawObject) -> Input {
    let object = serde_json::from_slice(&object.json()).map_err(|error| error.to_string());
    object.and_then(Record::read).map_or(Input::Stale, Input::Observed)
}

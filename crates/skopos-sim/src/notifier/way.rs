//! Connection of one process to the outside, as the sink and the receiver of its notifier.

use std::time::Duration;

use async_trait::async_trait;
use skopos_notify::event::{ChangeKind, DeliveryOutcome, EventMessage, EventReceiver, LedgerMemory};
use skopos_notify::sink::{
    EntryMark, Fence, Observed, Sink, SinkError, SinkStep, SinkTraits, StepAction, StepOutcome,
};
use skopos_notify::{EntryName, EntryValue};
use skopos_wire::ObjectKey;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::zone::{Message, Zone, address_of};
use crate::history::{
    Address, AtOutside, Fact, KeyId, MessageId, ObjectState, ProcessId, Record, Recorder, STAMP_LABEL, Step,
    Written,
};

/// Connection to the zone, in one term.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) zone: Zone,
    pub(super) recorder: Recorder,
    pub(super) process: ProcessId,
    pub(super) term: u64,
    /// Delay of a message, each way.
    pub(super) latency: Duration,
    /// Messages in flight.
    pub(super) under_way: TaskTracker,
    /// The ledger that all processes share.
    pub(super) ledgers: LedgerMemory,
}

/// Time after which the sender gives up.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Returns the key of the Service that determines a name.
fn key_of(name: &EntryName) -> ObjectKey {
    let (service, namespace) = name.as_str().split_once('.').unwrap_or((name.as_str(), ""));
    ObjectKey::namespaced(namespace, service)
}

/// Returns the name that a Service determines.
pub(super) fn name_of(key: &ObjectKey) -> EntryName {
    format!("{}.{}", key.name(), key.namespace().unwrap_or_default()).into()
}

impl Way {
    /// Sends a message, which arrives even if its sender ends, and waits for the answer.
    async fn send<T: Send + 'static>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Message + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let (zone, latency) = (self.zone.clone(), self.latency);
        self.under_way.spawn(async move {
            sleep(latency).await;
            zone.arrive(message(answer));
        });
        let answer = timeout(TIME_LIMIT, answered).await.ok()?.ok()?;
        sleep(latency).await;
        Some(answer)
    }

    /// Sends a write or a message about an object, and records its answer.
    async fn ask(
        &self,
        message: MessageId,
        send: impl FnOnce(oneshot::Sender<Written>) -> Message + Send + 'static,
    ) -> Written {
        let outcome = if self.zone.can_connect(self.process.0) {
            self.send(send).await.unwrap_or(Written::Unknown)
        } else {
            sleep(self.latency).await;
            Written::Unreachable
        };
        self.record(AtOutside::Answered { message, outcome });
        outcome
    }

    async fn read_all(&self) -> Result<Observed, SinkError> {
        let process = self.process.0;
        if !self.zone.can_connect(process) {
            sleep(self.latency).await;
            return Err(SinkError::Unreachable("connection refused".into()));
        }
        match self.send(|answer| Message::Read { answer }).await {
            None => Err(SinkError::Unreachable("no answer".into())),
            Some(None) => Err(SinkError::Incomplete("the transfer has ended in the middle".into())),
            Some(Some(observed)) => Ok(observed),
        }
    }

    fn sent(&self, name: KeyId, step: &SinkStep) -> MessageId {
        let message = self.recorder.next_message();
        let owner = |uid: &str| Some(self.recorder.uid(uid));
        let before = step.before.as_ref().map(|entry| Record {
            owner: match &entry.mark {
                EntryMark::Ours(Some(mark)) => owner(&mark.uid),
                EntryMark::Ours(None) | EntryMark::Foreign => None,
            },
            values: values(entry.members.keys()),
        });
        let after = match &step.action {
            StepAction::Put { owner: new, members } if !members.is_empty() => {
                Some(Record { owner: owner(&new.uid), values: values(members.keys()) })
            }
            StepAction::Put { .. } | StepAction::Delete => None,
        };
        let (process, term, step) = (self.process, self.term, Box::new(Step { before, after }));
        self.record(AtOutside::Sent { message, process, term, name, step });
        message
    }

    fn record(&self, fact: AtOutside) {
        self.recorder.record(Fact::Outside(fact));
    }
}

fn values<'a>(values: impl Iterator<Item = &'a EntryValue>) -> Box<[Address]> {
    values.filter_map(|value| address_of(value)).collect()
}

#[async_trait]
impl Sink for Way {
    fn traits(&self) -> SinkTraits {
        SinkTraits::default()
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        Ok(text.into())
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        address_of(text).map(|_| text.into()).ok_or_else(|| format!("{text} is no address"))
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let read = self.read_all().await;
        self.record(AtOutside::Read { process: self.process, whole: read.is_ok() });
        read
    }

    // The process reports its term itself. The oracle judges whether a term that has ended still writes.
    async fn apply(&self, step: &SinkStep, _fence: Option<&Fence>) -> StepOutcome {
        let name = self.recorder.key(&key_of(&step.name));
        let message = self.sent(name, step);
        let step = step.clone();
        match self.ask(message, move |answer| Message::Write { message, name, step, answer }).await {
            Written::Done => StepOutcome::Done,
            Written::Conflict => StepOutcome::Conflict("the mark is another one".into()),
            Written::Refused => StepOutcome::Refused("not allowed".into()),
            Written::Unreachable | Written::Unavailable => {
                StepOutcome::Unreachable("connection refused".into())
            }
            Written::Unknown => StepOutcome::Unknown("no answer".into()),
        }
    }
}

#[async_trait]
impl EventReceiver for Way {
    async fn deliver(&self, EventMessage { delivery, .. }: EventMessage<'_>) -> DeliveryOutcome {
        let (message, term) = (self.recorder.next_message(), self.term);
        let stamp = delivery.object.as_ref().and_then(|object| object.label(STAMP_LABEL)?.parse().ok());
        let state = ObjectState {
            key: self.recorder.key(&delivery.key.object),
            uid: self.recorder.uid(&delivery.uid),
            rv: delivery.version.as_u64().unwrap_or(0),
            stamp: stamp.unwrap_or(0),
            epoch: delivery.epoch,
            gone: delivery.kind == ChangeKind::Deleted,
        };
        self.record(AtOutside::Notified { message, process: self.process, term, state });
        match self.ask(message, move |answer| Message::Notify { message, state, answer }).await {
            Written::Done => DeliveryOutcome::Delivered,
            Written::Refused | Written::Conflict => {
                DeliveryOutcome::Failed { problem: "not allowed".into(), retry_after: None }
            }
            Written::Unavailable => {
                DeliveryOutcome::Throttled { problem: "unavailable".into(), retry_after: None }
            }
            Written::Unreachable => DeliveryOutcome::Unreachable("connection refused".into()),
            Written::Unknown => DeliveryOutcome::Unknown("no answer".into()),
        }
    }
}

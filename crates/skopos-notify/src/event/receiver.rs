use async_trait::async_trait;

use super::content::FieldPath;
use super::delivery::{Delivery, DeliveryOutcome};

/// A receiver of messages about objects.
///
/// The receiver itself bounds the time of a call, and the message of a call that is dropped may have arrived or not.
#[async_trait]
pub trait EventReceiver: Send + Sync {
    /// Sends one message, and waits for the answer.
    async fn deliver(&self, message: EventMessage<'_>) -> DeliveryOutcome;
}

/// One message, with its context.
#[derive(Clone, Copy, Debug)]
pub struct EventMessage<'a> {
    /// The change.
    pub delivery: &'a Delivery,
    /// The fields that are reported. Empty: the whole object.
    pub fields: &'a [FieldPath],
    /// The uid of the cluster's `kube-system`.
    pub cluster: &'a str,
    /// The number of the leader's term, with an election.
    pub term: Option<u64>,
}

//! The bodies of messages.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::delivery::{ChangeKind, Delivery};

/// The form of a message's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MessageFormat {
    /// A CloudEvent 1.0 in JSON, in structured mode.
    #[default]
    CloudEvents,
    /// `type`, `data` and the order, as Standard Webhooks has it.
    Plain,
}

/// Content of a message beside the change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MessageContext<'a> {
    /// The uid of the cluster's `kube-system`; empty if it is not known.
    pub(super) cluster: &'a str,
    /// The number of the leader's term.
    pub(super) term: Option<u64>,
    /// The whole object, or its selected fields; null for a deletion.
    pub(super) content: Value,
    /// True if `content` has the selected fields.
    pub(super) has_fields: bool,
}

impl MessageFormat {
    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=utf-8",
            Self::Plain => "application/json; charset=utf-8",
        }
    }

    /// Writes the body of a message.
    pub(super) fn body(self, delivery: &Delivery, context: MessageContext<'_>) -> Vec<u8> {
        let key = &delivery.key.object;
        let kind = delivery.kind.as_str();
        let mut data = json!({
            "change": kind,
            "resource": delivery.key.resource,
            "namespace": key.namespace(),
            "name": key.name(),
            "uid": delivery.uid,
            "resourceVersion": delivery.version.to_string(),
        });
        if delivery.kind == ChangeKind::Deleted {
            data["reason"] = if delivery.deselected { "deselected".into() } else { "deleted".into() };
        } else {
            data[if context.has_fields { "fields" } else { "object" }] = context.content;
        }
        // Leading zeros make the order of the texts that of the numbers, as CloudEvents' extension `sequence` requires.
        let sequence = format!("{:0>20}", delivery.version.to_string());
        let mut body = match self {
            Self::CloudEvents => json!({
                "specversion": "1.0",
                "id": delivery.id,
                "source": format!("/clusters/{}", context.cluster),
                "type": format!("dev.skopos.object.{kind}"),
                "subject": format!("{}/{}", delivery.key.resource, key),
                "datacontenttype": "application/json",
                "sequence": sequence,
                "epoch": delivery.epoch.to_string(),
                "data": data,
            }),
            Self::Plain => json!({
                "type": format!("object.{kind}"),
                "cluster": context.cluster,
                "sequence": sequence,
                "epoch": delivery.epoch.to_string(),
                "data": data,
            }),
        };
        if let Some(term) = context.term {
            body["term"] = term.to_string().into();
        }
        body.to_string().into_bytes()
    }
}

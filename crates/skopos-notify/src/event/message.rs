//! The bodies of messages.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::content::ObjectContent;
use super::delivery::ChangeKind;
use super::receiver::EventMessage;

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

impl MessageFormat {
    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=utf-8",
            Self::Plain => "application/json; charset=utf-8",
        }
    }

    /// Writes the body of a message.
    pub(super) fn body(self, message: EventMessage<'_>) -> Vec<u8> {
        let EventMessage { delivery, fields, cluster, term } = message;
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
            let content = delivery.object.as_ref().map(|object| ObjectContent::new(object, fields).value);
            data[if fields.is_empty() { "object" } else { "fields" }] = content.unwrap_or_default();
        }
        // Leading zeros make the order of the texts that of the numbers, as CloudEvents' extension `sequence` requires.
        let sequence = format!("{:0>20}", delivery.version.to_string());
        let mut body = match self {
            Self::CloudEvents => json!({
                "specversion": "1.0",
                "id": delivery.id,
                "source": format!("/clusters/{cluster}"),
                "type": format!("dev.skopos.object.{kind}"),
                "subject": format!("{}/{}", delivery.key.resource, key),
                "datacontenttype": "application/json",
                "sequence": sequence,
                "epoch": delivery.epoch.to_string(),
                "data": data,
            }),
            Self::Plain => json!({
                "type": format!("object.{kind}"),
                "cluster": cluster,
                "sequence": sequence,
                "epoch": delivery.epoch.to_string(),
                "data": data,
            }),
        };
        if let Some(term) = term {
            body["term"] = term.to_string().into();
        }
        body.to_string().into_bytes()
    }
}

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{has_labels, owner_of};
use crate::desired::claims::{Attachment, Claims};
use crate::entry::Readiness;
use crate::sink::Sink;
use crate::sink::rest::{UrlTemplate, UrlTemplateError};
use crate::template::{Template, TemplateError};

/// Pods, with one inventory item for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSource {
    /// Namespaces. Empty: all.
    pub namespaces: Vec<String>,
    /// Labels that the pods must have.
    pub labels: BTreeMap<String, String>,
    /// True if only pods that are ready have an item.
    pub ready: bool,
    /// The item of a pod.
    pub item: PodTemplates,
    /// The readiness gate for a pod's item. A pod with this gate counts as ready when all its other conditions are met.
    pub gate: Option<String>,
}

/// The item of a pod: its URL, and the fields of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTemplates {
    url: UrlTemplate,
    fields: BTreeMap<String, Template>,
}

/// An error of a template for pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodSourceError {
    /// The URL is invalid.
    #[error("url: {0}")]
    Url(#[from] UrlTemplateError),
    /// A field of the body is invalid.
    #[error("body.{0}: {1}")]
    Field(String, TemplateError),
    /// A placeholder is unknown.
    #[error(
        "there is no {{{0}}}: use {{pod.name}}, {{pod.namespace}}, {{pod.uid}}, {{pod.ip}}, {{pod.node}}, {{pod.label:KEY}} or {{pod.annotation:KEY}}"
    )]
    Place(String),
}

impl PodTemplates {
    /// Parses the template of a URL and those of the body's fields.
    ///
    /// # Errors
    /// When one of them is invalid, or has a placeholder that pods do not have.
    pub fn parse(url: &str, fields: &BTreeMap<String, String>) -> Result<Self, PodSourceError> {
        let url = UrlTemplate::parse(url)?;
        let field = |(name, text): (&String, &String)| match Template::parse_any(text) {
            Ok(template) => Ok((name.clone(), template)),
            Err(error) => Err(PodSourceError::Field(name.clone(), error)),
        };
        let fields = fields.iter().map(field).collect::<Result<_, _>>()?;
        let templates = Self { url, fields };
        let unknown = templates.place_names().find(|place| PodPlace::parse(place).is_none());
        match unknown.map(str::to_owned) {
            Some(unknown) => Err(PodSourceError::Place(unknown)),
            None => Ok(templates),
        }
    }

    /// Returns the names of the body's fields.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    fn place_names(&self) -> impl Iterator<Item = &str> {
        self.url.places().chain(self.fields.values().flat_map(Template::places))
    }

    /// Fills the URL and the body.
    fn fill(&self, pod: &Pod) -> Result<(String, String), String> {
        let value = |place: &str| PodPlace::parse(place).and_then(|place| place.value_in(pod));
        let url =
            self.url.fill(|place| value(place).map(str::to_owned)).map_err(|error| error.to_string())?;
        let mut body = serde_json::Map::new();
        for (name, template) in &self.fields {
            let mut values = BTreeMap::new();
            for place in template.places() {
                let value =
                    value(place).ok_or_else(|| UrlTemplateError::Missing(place.to_owned()).to_string())?;
                values.insert(place, value);
            }
            body.insert(name.clone(), template.fill(&values).into());
        }
        Ok((url, Value::Object(body).to_string()))
    }
}

/// A part of a pod that a template can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodPlace<'a> {
    Name,
    Namespace,
    Uid,
    Ip,
    Node,
    Label(&'a str),
    Annotation(&'a str),
}

impl<'a> PodPlace<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        Some(match text.strip_prefix("pod.")? {
            "name" => Self::Name,
            "namespace" => Self::Namespace,
            "uid" => Self::Uid,
            "ip" => Self::Ip,
            "node" => Self::Node,
            other => match other.split_once(':')? {
                ("label", key) if !key.is_empty() => Self::Label(key),
                ("annotation", key) if !key.is_empty() => Self::Annotation(key),
                _ => return None,
            },
        })
    }

    fn value_in(self, pod: &Pod) -> Option<&str> {
        let meta = &pod.metadata;
        let value = match self {
            Self::Name => meta.name.as_ref(),
            Self::Namespace => meta.namespace.as_ref(),
            Self::Uid => meta.uid.as_ref(),
            Self::Ip => pod.status.as_ref()?.pod_ip.as_ref(),
            Self::Node => pod.spec.as_ref()?.node_name.as_ref(),
            Self::Label(key) => meta.labels.as_ref()?.get(key),
            Self::Annotation(key) => meta.annotations.as_ref()?.get(key),
        };
        value.map(String::as_str)
    }

    /// Returns whether every pod gets this part, though not at once.
    fn comes_later(self) -> bool {
        matches!(self, Self::Ip | Self::Node)
    }
}

impl PodSource {
    /// Returns the claims of a pod; `None` if it is not selected.
    pub(super) fn claims(&self, pod: &Pod, sink: &dyn Sink) -> Option<Claims> {
        let owner = owner_of("pod", &pod.metadata);
        let is_of_namespace =
            self.namespaces.is_empty() || self.namespaces.iter().any(|name| **name == *owner.namespace);
        if !is_of_namespace || !has_labels(pod.metadata.labels.as_ref(), &self.labels) {
            return None;
        }
        let mut claims = Claims::default();
        let mut places = self.item.place_names().filter_map(PodPlace::parse);
        if places.any(|place| place.comes_later() && place.value_in(pod).is_none()) {
            return Some(claims);
        }
        let readiness = self.readiness(pod);
        match self.item.fill(pod) {
            Ok((url, body)) => {
                let name = claims.claim(sink, &owner, &url, [(body.clone(), readiness)]);
                if let Some(gate) = self.waits(pod, readiness)
                    && let (Some(name), Ok(value)) = (name, sink.value(&body))
                {
                    claims.await_attachment(Attachment { name, value, pod: owner, gate: gate.to_owned() });
                }
            }
            Err(reason) => claims.reject(&owner, reason),
        }
        Some(claims)
    }

    /// Returns the gate that a pod waits for.
    fn waits(&self, pod: &Pod, readiness: Readiness) -> Option<&str> {
        let gate = self.gate.as_deref().filter(|gate| has_gate(pod, gate))?;
        (readiness == Readiness::Ready && condition(pod, gate) != Some(true)).then_some(gate)
    }

    fn readiness(&self, pod: &Pod) -> Readiness {
        if pod.metadata.deletion_timestamp.is_some() {
            return Readiness::Terminating;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) || (self.ready && !self.is_ready(pod)) {
            return Readiness::NotReady;
        }
        Readiness::Ready
    }

    /// Returns whether a pod is ready, apart from the gate that waits for this sink.
    fn is_ready(&self, pod: &Pod) -> bool {
        let is = |condition_type: &str| condition(pod, condition_type) == Some(true);
        let Some(ours) = self.gate.as_ref().filter(|gate| has_gate(pod, gate)) else { return is("Ready") };
        is("ContainersReady") && gates(pod).filter(|gate| gate != ours).all(is)
    }
}

fn gates(pod: &Pod) -> impl Iterator<Item = &str> {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.map(|gate| gate.condition_type.as_str())
}

fn has_gate(pod: &Pod, gate: &str) -> bool {
    gates(pod).any(|known| known == gate)
}

/// Returns whether a condition of a pod is true; `None` if it has none of this type.
fn condition(pod: &Pod, condition_type: &str) -> Option<bool> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == condition_type).map(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sink::memory::MemorySink;

    fn source(gate: Option<&str>) -> PodSource {
        let fields = BTreeMap::from([("ip".to_owned(), "{pod.ip}".to_owned())]);
        let url = "https://cmdb.test/nodes/{pod.label:tree}/hosts/{pod.name}";
        PodSource {
            namespaces: vec!["shop".to_owned()],
            labels: BTreeMap::from([("tree".to_owned(), "*".to_owned())]),
            ready: true,
            item: PodTemplates::parse(url, &fields).expect("templates"),
            gate: gate.map(str::to_owned),
        }
    }

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "shop", "name": "web-1", "uid": "u1", "labels": {"tree": "a/b"}},
            "status": {"podIP": "10.0.0.1", "phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]},
        });
        change(&mut pod);
        serde_json::from_value(pod).expect("a pod")
    }

    fn asked(source: &PodSource, pod: &Pod) -> Option<(Vec<String>, Vec<String>)> {
        let claims = source.claims(pod, &MemorySink::zone())?;
        let attachments = claims.attachments.iter().map(|waiting| waiting.gate.clone()).collect();
        let (entries, rejected) = claims.into_entries(&MemorySink::zone());
        let lines = entries.iter().flat_map(|(name, entries)| {
            let members = entries.iter().flat_map(|entry| &entry.members);
            members.map(move |(value, readiness)| format!("{name} {value} {readiness:?}"))
        });
        let rejected = rejected.into_iter().map(|rejected| rejected.reason);
        Some((lines.chain(rejected).collect(), attachments))
    }

    #[test]
    fn a_pod_is_an_item_with_a_body() {
        let line = r#"https://cmdb.test/nodes/a%2Fb/hosts/web-1 {"ip":"10.0.0.1"}"#;
        let of = |change: fn(&mut Value)| asked(&source(None), &pod(change)).map(|(lines, _)| lines);
        assert_eq!(of(|_| {}), Some(vec![format!("{line} Ready")]));
        assert_eq!(
            of(|pod| pod["status"]["phase"] = "Failed".into()),
            Some(vec![format!("{line} NotReady")])
        );
        let terminating =
            |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(of(terminating), Some(vec![format!("{line} Terminating")]));
        assert_eq!(of(|pod| pod["status"]["podIP"] = Value::Null), Some(Vec::new()));
        assert_eq!(of(|pod| pod["metadata"]["labels"] = json!({})), None);
        assert_eq!(of(|pod| pod["metadata"]["namespace"] = "other".into()), None);
    }

    #[test]
    fn hostile_labels_stay_within_their_segment() {
        let of = |tree: &str| {
            let tree = tree.to_owned();
            asked(&source(None), &pod(|pod| pod["metadata"]["labels"]["tree"] = tree.into())).unwrap().0
        };
        assert!(of("..")[0].contains("pod.label:tree"), "{:?}", of(".."));
        assert!(of("x?y#z")[0].starts_with("https://cmdb.test/nodes/x%3Fy%23z/hosts/web-1 "));
    }

    #[test]
    fn a_gate_of_ours_does_not_hold_up_itself() {
        let gated = |conditions: Value| {
            pod(|pod| {
                pod["spec"] = json!({"containers": [], "readinessGates": [
                    {"conditionType": "skopos.dev/attached"}, {"conditionType": "other"}]});
                pod["status"]["conditions"] = conditions;
            })
        };
        let of = |conditions: Value| {
            let (lines, waiting) = asked(&source(Some("skopos.dev/attached")), &gated(conditions)).unwrap();
            (lines[0].rsplit_once(' ').unwrap().1.to_owned(), waiting)
        };
        let containers = json!({"type": "ContainersReady", "status": "True"});
        let other = json!({"type": "other", "status": "True"});
        let attached = json!({"type": "skopos.dev/attached", "status": "True"});
        assert_eq!(of(json!([containers])), ("NotReady".to_owned(), vec![]));
        assert_eq!(
            of(json!([containers, other])),
            ("Ready".to_owned(), vec!["skopos.dev/attached".to_owned()])
        );
        assert_eq!(of(json!([containers, other, attached])), ("Ready".to_owned(), vec![]));
    }

    #[test]
    fn template_rejects_unknown_pod_fields() {
        let problem = |url: &str, field: &str| {
            let fields = BTreeMap::from([("ip".to_owned(), field.to_owned())]);
            PodTemplates::parse(url, &fields).unwrap_err().to_string()
        };
        assert!(problem("https://h/{pod.ipp}", "x").contains("there is no {pod.ipp}: use {pod.name}"));
        assert!(problem("https://h/{pod.label:}", "x").contains("there is no {pod.label:}"));
        assert!(problem("https://h/x", "{pod.ip").contains("body.ip: a `{`"));
        assert!(problem("h/{pod.ip}", "x").starts_with("url: "));
    }
}

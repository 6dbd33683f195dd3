//! A Lease as the server has it, with the fields that candidates use. All other fields stay as they are.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use skopos_wire::ResourceVersion;

/// A Lease in one version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    object: Map<String, Value>,
    pub(crate) resource_version: ResourceVersion,
    /// The UID: a Lease that was deleted and created again is another one.
    pub(crate) uid: Arc<str>,
    pub(crate) spec: Spec,
}

/// The fields of a `coordination.k8s.io/v1` LeaseSpec that candidates use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// The holder; `None` if the Lease is free.
    pub(crate) holder: Option<String>,
    pub(crate) duration: Option<Duration>,
    pub(crate) acquired: Option<String>,
    pub(crate) renewed: Option<String>,
    pub(crate) transitions: u64,
    /// The preferred holder, for which others make room.
    pub(crate) preferred: Option<String>,
}

impl Record {
    /// Reads a Lease; an error names what is missing.
    pub(crate) fn read(object: Value) -> Result<Self, String> {
        let Value::Object(object) = object else { return Err("the Lease is no JSON object".to_owned()) };
        let version = object.get("metadata").and_then(|metadata| metadata["resourceVersion"].as_str());
        let version = version.ok_or("the Lease has no resourceVersion")?;
        let resource_version =
            version.parse().map_err(|_| format!("the Lease's resourceVersion is {version:?}"))?;
        let uid =
            object.get("metadata").and_then(|metadata| metadata["uid"].as_str()).unwrap_or_default().into();
        let spec = Spec::read(object.get("spec").unwrap_or(&Value::Null));
        Ok(Self { object, resource_version, uid, spec })
    }

    /// Returns the object with another spec; fields that candidates do not use stay.
    pub(crate) fn with(&self, spec: &Spec) -> Value {
        let mut object = self.object.clone();
        let fields = object.entry("spec").or_insert_with(|| json!({}));
        if !fields.is_object() {
            *fields = json!({});
        }
        spec.write(fields);
        Value::Object(object)
    }
}

/// Returns a new Lease.
pub(crate) fn new_lease(namespace: &str, name: &str, spec: &Spec) -> Value {
    let mut fields = json!({});
    spec.write(&mut fields);
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": fields,
    })
}

impl Spec {
    fn read(fields: &Value) -> Self {
        let text = |name: &str| fields[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let number = |name: &str| fields[name].as_u64();
        Self {
            holder: text("holderIdentity"),
            duration: number("leaseDurationSeconds").filter(|seconds| *seconds > 0).map(Duration::from_secs),
            acquired: text("acquireTime"),
            renewed: text("renewTime"),
            transitions: number("leaseTransitions").unwrap_or_default(),
            preferred: text("preferredHolder"),
        }
    }

    fn write(&self, fields: &mut Value) {
        // client-go writes an empty holder where it releases a Lease.
        fields["holderIdentity"] = self.holder.as_deref().unwrap_or_default().into();
        fields["leaseTransitions"] = self.transitions.into();
        let seconds = self.duration.map(|duration| duration.as_secs());
        let optional = [
            ("leaseDurationSeconds", seconds.map(Value::from)),
            ("acquireTime", self.acquired.clone().map(Value::from)),
            ("renewTime", self.renewed.clone().map(Value::from)),
            ("preferredHolder", self.preferred.clone().map(Value::from)),
        ];
        for (name, value) in optional {
            match (value, fields.as_object_mut()) {
                (Some(value), _) => fields[name] = value,
                (None, Some(fields)) => drop(fields.remove(name)),
                (None, None) => {}
            }
        }
    }

    /// Returns whether a candidate has written to it in between: annotations and the like are no renewal.
    pub(crate) fn is_renewal_of(&self, before: &Self) -> bool {
        (&self.holder, &self.renewed, &self.acquired, self.transitions)
            != (&before.holder, &before.renewed, &before.acquired, before.transitions)
    }
}

/// Formats a time as Kubernetes' MicroTime.
pub(crate) fn micro_time(moment: Timestamp) -> String {
    format!("{moment:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preserves_fields_unused_by_candidates() {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "a", "resourceVersion": "7", "labels": {"x": "y"}},
            "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15, "strategy": "OldestEmulationVersion", "preferredHolder": "c"},
        });
        let record = Record::read(object).unwrap();
        assert_eq!(record.spec.holder.as_deref(), Some("b"));
        let spec = Spec { holder: None, preferred: None, transitions: 3, ..record.spec.clone() };
        let written = record.with(&spec);
        assert_eq!(written["metadata"]["labels"]["x"], "y");
        assert_eq!(written["metadata"]["resourceVersion"], "7");
        let expected = json!({"holderIdentity": "", "leaseDurationSeconds": 15, "strategy": "OldestEmulationVersion", "leaseTransitions": 3});
        assert_eq!(written["spec"], expected);
    }

    #[test]
    fn invalid_lease_error_states_reason() {
        for (object, told) in [
            (json!([]), "no JSON object"),
            (json!({"metadata": {}}), "no resourceVersion"),
            (json!({"metadata": {"resourceVersion": "x"}}), "\"x\""),
        ] {
            let error = Record::read(object).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
        // A spec that another client has filled with nonsense has no holder.
        let odd = json!({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": 5, "leaseDurationSeconds": -1}});
        assert_eq!(Record::read(odd).unwrap().spec, Spec::default());
    }

    #[test]
    fn times_have_six_digits() {
        assert_eq!(micro_time(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}

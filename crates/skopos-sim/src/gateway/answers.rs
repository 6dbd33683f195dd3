//! Content of the gateway's answers, in numbers.

use http::header;
use serde_json::Value;
use skopos_wire::{Limits, RawObject};

use super::Named;
use crate::history::{Answer, Asked, MemberId, Recorder, Seen, Shown};

/// The annotation with the member that an object was written to.
pub(super) const HOME: &str = "skopos.test/home";

/// The annotations in which `/fleet` names an object's cluster, and its version there.
const CLUSTER: &str = "skopos.dev/cluster";
const VERSION: &str = "skopos.dev/resource-version";

/// Context for reading an answer.
pub(super) struct Reading<'a> {
    pub(super) recorder: &'a Recorder,
    pub(super) members: &'a [Named],
    pub(super) what: Asked,
}

impl Reading<'_> {
    /// Reads an answer about one member, or about all.
    pub(super) fn read(
        &self,
        member: Option<MemberId>,
        parts: &http::response::Parts,
        body: &[u8],
    ) -> Answer {
        let code = match self.what {
            Asked::Watch { .. } => error_of(body).unwrap_or(parts.status.as_u16()),
            _ => parts.status.as_u16(),
        };
        let warnings = parts.headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok());
        let mut said: Vec<&str> = warnings.collect();
        let whole: Value = serde_json::from_slice(body).unwrap_or_default();
        if code == 404 {
            said.extend(whole["message"].as_str());
        }
        let away = self.members.iter().filter(|known| match member {
            Some(member) => member == known.id && said.iter().any(|text| is_away(text)),
            None => said.iter().any(|text| names(text, &known.name)),
        });
        let away = away.map(|member| member.id).collect();
        let missing = code == 404 && whole["reason"] == "NotFound" && whole["details"]["name"].is_string();
        let shown = match (code, self.what) {
            (_, Asked::Watch { .. }) => self.events(member, body),
            (200, Asked::List { .. }) => {
                let items = whole["items"].as_array().into_iter().flatten();
                items.filter_map(|object| self.shown(member, object, false)).collect()
            }
            (200 | 201, _) => self.shown(member, &whole, false).into_iter().collect(),
            _ => Vec::new(),
        };
        Answer { code, missing, away, shown: shown.into() }
    }

    fn events(&self, member: Option<MemberId>, body: &[u8]) -> Vec<Shown> {
        events(body)
            .filter_map(|event| self.shown(member, &event["object"], event["type"] == "DELETED"))
            .collect()
    }

    /// Returns an object of the visitors; `None` for a Status, a bookmark and the like.
    fn shown(&self, member: Option<MemberId>, object: &Value, gone: bool) -> Option<Shown> {
        let metadata = &object["metadata"];
        metadata["uid"].as_str()?;
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        let id = |name: &str| self.members.iter().find(|known| known.name == name).map(|known| known.id);
        let of = member.or_else(|| annotation(CLUSTER).and_then(id));
        let raw = RawObject::from_value(object, &Limits::default()).ok()?;
        let seen = self.recorder.seen(&raw);
        let rv = match member {
            Some(_) => Some(seen.rv),
            None => annotation(VERSION).and_then(|version| version.parse().ok()),
        };
        let object = Seen { rv: rv.unwrap_or_default(), ..seen };
        Some(Shown { member: of, home: annotation(HOME).and_then(id), gone, object })
    }
}

fn events(body: &[u8]) -> impl Iterator<Item = Value> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

/// Returns the status that a watch ends with: its stream has begun, so its response code is 200.
fn error_of(body: &[u8]) -> Option<u16> {
    let error = events(body).find(|event| event["type"] == "ERROR")?;
    error["object"]["code"].as_u64().and_then(|code| code.try_into().ok())
}

/// Returns whether a warning says that a cluster's content is from memory because the cluster does not answer.
fn is_away(text: &str) -> bool {
    let away = ["unreachable", "paused", "removed"];
    text.contains("from memory") && away.iter().any(|word| text.contains(&format!("the cluster is {word}")))
}

/// Returns whether a warning about several members says that this one is old, or not there.
fn names(text: &str, name: &str) -> bool {
    let old = text.contains("skopos: data may be old: ") || text.contains("skopos: nothing is shown of ");
    let named = [": ", ", ", " of "].iter().any(|before| text.contains(&format!("{before}{name} (")));
    old && named || text.ends_with(&format!("nothing is known of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_names_affected_clusters() {
        let text = "299 - \"skopos: data may be old: prod-2 (it may lack what was written), x (unreachable: a, prod (no)\"";
        assert!(names(text, "prod-2") && names(text, "x") && !names(text, "rod-2"));
        let text = "299 - \"skopos: nothing is shown of prod (not listed yet)\"";
        assert!(names(text, "prod") && !names(text, "prod-2"));
        assert!(names(
            "serviceaccounts \"a\" not found in the clusters that are known; nothing is known of x",
            "x"
        ));
        assert!(!names("something else: x (y)", "x"));
    }

    #[test]
    fn only_unreachable_cluster_counts_as_away() {
        let old = "skopos: serviceaccounts of cluster x from memory, up to 3s old: the cluster is ";
        assert!(is_away(&format!("{old}unreachable: connection refused")));
        assert!(!is_away(&format!("{old}degraded: slow")));
        assert!(!is_away("skopos: the cluster is unreachable"));
    }
}

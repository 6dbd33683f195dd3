//! Answers for `/fleet`, with the state of their clusters: missing, stale and denied ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use skopos::ResourceId;
use skopos_fleet::{Cluster, ClusterId, Condition};
use skopos_wire::Status;

use super::feed::{Absence, Absences};
use super::followed_stores::Ages;
use super::merger::Roster;
use super::scope::Scope;
use crate::gateway::route::Audited;
use crate::request::headers::{self, Stamp, stamp};
use crate::response::terminating_body::error_event;
use crate::response::{self, Response, reasons};

/// The result of a request.
pub(super) enum Answer {
    /// Objects or their events, with the state of the clusters.
    Objects(Response, AnswerStatus),
    /// A document of all clusters, its content type, and the state of the clusters.
    Document(&'static str, Bytes, AnswerStatus),
    /// A document of one cluster.
    OfMember(Response),
    /// The end of a watch before its first event.
    WatchEnd(Status),
}

/// The state of the requested clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerStatus {
    /// Clusters without content, with the reason.
    pub(crate) missing: Vec<(ClusterId, String)>,
    /// Clusters whose content is too old, with its age and the reason.
    pub(crate) stale: Vec<(ClusterId, String)>,
    /// The number of sources that have not been read: their clusters are absent, and even the names are unknown.
    pub(crate) unread: usize,
    /// Names of clusters that the caller may not read, or that do not exist.
    pub(crate) denied: Vec<String>,
    /// The age of the oldest content shown; `None` if the age of any is not proven.
    pub(crate) age: Option<Duration>,
}

/// Builder of the clusters' state for one request.
pub(crate) struct StatusBuilder {
    /// The state before anything is read.
    pub(crate) start: AnswerStatus,
    /// The clusters that the caller sees.
    pub(crate) seen: Vec<Cluster>,
    pub(crate) resource: ResourceId,
    pub(crate) absences: Absences,
    pub(crate) max_age: Duration,
    /// The clusters that are too old for the request, with the reason.
    pub(crate) behind: BTreeMap<ClusterId, String>,
}

/// Maximum number of clusters in a warning; the list's annotations name all.
const MAX_NAMED: usize = 10;

/// The maximum size of one annotation.
const MAX_ANNOTATION_BYTES: usize = 64 * 1024;

impl Answer {
    /// Renders the answer.
    pub(super) fn into_response(self) -> Response {
        let (mut response, answer_status) = match self {
            Self::Objects(mut response, answer_status) => {
                let stamped = Stamp { source: "merged", age: answer_status.age, warning: None };
                stamp(response.headers_mut(), &stamped);
                let age = answer_status.age;
                response.extensions_mut().insert(Audited { age, has_objects: true, ..Audited::default() });
                (response, answer_status)
            }
            Self::Document(content_type, body, answer_status) => {
                (response::bytes(StatusCode::OK, content_type, body), answer_status)
            }
            Self::OfMember(response) => return response,
            Self::WatchEnd(status) => {
                return response::bytes(StatusCode::OK, "application/json", error_event(&status));
            }
        };
        answer_status.warn(response.headers_mut());
        response
    }
}

impl StatusBuilder {
    /// Returns the state of the clusters that the caller sees. `roster` and `ages` may be slightly out of date.
    pub(crate) fn build(&self, roster: &Roster, ages: &Ages) -> AnswerStatus {
        let mut found = AnswerStatus { age: Some(Duration::ZERO), ..self.start.clone() };
        for cluster in &self.seen {
            let id = cluster.id();
            let has_content = roster.get(id).is_some_and(|member| member.position.is_some());
            if !has_content {
                match self.absences.get(id) {
                    Some(Absence::NotServed) => {}
                    Some(Absence::Because(reason)) => found.missing.push((id.clone(), reason.to_string())),
                    None => {
                        let reason = reasons::describe_cluster(cluster, &self.resource);
                        let reason = reason.unwrap_or_else(|| "not listed yet".to_owned());
                        found.missing.push((id.clone(), reason));
                    }
                }
                continue;
            }
            // The server no longer has the kind, and all objects were deleted before that.
            let refused = cluster.cached(&self.resource).and_then(|cached| cached.refusal());
            let empty = roster.get(id).is_some_and(|member| member.contents.is_empty());
            if empty && refused.is_some_and(|(code, _)| code == 404) {
                continue;
            }
            // The age of the content that is shown; another copy may be newer.
            let age = ages.get(id);
            let bound = age.and_then(|age| age.bound);
            found.age = found.age.zip(bound).map(|(oldest, age)| oldest.max(age));
            let condition = cluster.state().condition;
            let is_off = matches!(condition, Condition::Paused | Condition::Unreachable | Condition::Removed);
            if let Some(why) = self.behind.get(id) {
                found.stale.push((id.clone(), why.clone()));
            } else if is_off || !age.is_some_and(|age| age.is_within(self.max_age)) {
                let age = bound.map_or("of unknown age".to_owned(), |age| format!("up to {age:.0?} old"));
                let reason = reasons::describe_cluster(cluster, &self.resource);
                let reason = reason.map(|reason| format!(", {reason}")).unwrap_or_default();
                found.stale.push((id.clone(), age + &reason));
            }
        }
        found
    }
}

impl AnswerStatus {
    /// Makes the state before anything is read. The clusters that did not decide on the caller's permission are missing.
    pub(crate) fn new(scope: &Scope) -> Self {
        let undecided = |id: &ClusterId| (id.clone(), "it does not say whether you may read it".to_owned());
        let missing = scope.undecided.iter().map(undecided).collect();
        Self { missing, unread: scope.unread, denied: scope.denied.clone(), ..Self::default() }
    }

    /// Adds the state to the headers as warnings, which kubectl prints.
    fn warn(&self, headers: &mut HeaderMap) {
        let named = |all: &[(ClusterId, String)]| {
            shortened(all.iter().map(|(id, why)| format!("{id} ({why})")), all.len())
        };
        let mut warn = |text: String| {
            if let Some(value) = headers::warning(&text) {
                headers.append(header::WARNING, value);
            }
        };
        if self.unread > 0 {
            warn(format!("skopos: clusters may be missing: {} of their sources not read yet", self.unread));
        }
        if !self.missing.is_empty() {
            warn(format!("skopos: nothing is shown of {}", named(&self.missing)));
        }
        if !self.stale.is_empty() {
            warn(format!("skopos: data may be old: {}", named(&self.stale)));
        }
        if !self.denied.is_empty() {
            let denied = shortened(self.denied.iter().cloned(), self.denied.len());
            warn(format!("skopos: you may not read these clusters, or there are none: {denied}"));
        }
    }

    /// Returns the state as annotations of a list, with all clusters.
    pub(crate) fn annotations(&self) -> Vec<(String, String)> {
        let joined = |all: &[(ClusterId, String)]| {
            all.iter().map(|(id, why)| format!("{id} ({why})")).collect::<Vec<_>>().join("; ")
        };
        let all = [
            ("skopos.dev/missing", joined(&self.missing)),
            ("skopos.dev/stale", joined(&self.stale)),
            ("skopos.dev/denied", self.denied.join("; ")),
            (
                "skopos.dev/unread-sources",
                if self.unread > 0 { self.unread.to_string() } else { String::new() },
            ),
        ];
        let said = all.into_iter().filter(|(_, text)| !text.is_empty());
        said.map(|(name, text)| (name.to_owned(), text.chars().take(MAX_ANNOTATION_BYTES).collect()))
            .collect()
    }
}

fn shortened(texts: impl Iterator<Item = String>, count: usize) -> String {
    let mut text = texts.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if count > MAX_NAMED {
        let _ = write!(text, ", and {} more", count - MAX_NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_some_and_annotations_name_all() {
        let missing = (0..12).map(|n| (ClusterId::new(format!("c{n:02}")).unwrap(), "paused".to_owned()));
        let clusters =
            AnswerStatus { missing: missing.collect(), denied: vec!["x".into()], ..AnswerStatus::default() };
        let mut headers = HeaderMap::new();
        clusters.warn(&mut headers);
        let said: Vec<_> = headers.get_all(header::WARNING).iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(said.len(), 2);
        assert!(
            said[0].contains("c00 (paused)") && said[0].ends_with("c09 (paused), and 2 more\""),
            "{said:?}"
        );
        assert!(said[1].contains("x"));
        let annotations = clusters.annotations();
        assert_eq!(annotations[0].0, "skopos.dev/missing");
        assert!(annotations[0].1.contains("c11 (paused)"));
        assert_eq!(annotations[1], ("skopos.dev/denied".to_owned(), "x".to_owned()));
    }
}

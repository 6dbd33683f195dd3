//! State of the clusters of an answer: missing, stale and denied ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, header};
use skopos::ResourceId;
use skopos_fleet::{Cluster, ClusterId, Condition};

use super::feed::{Absence, Absences};
use super::followed_stores::{Age, Ages};
use super::merger::Roster;
use crate::request::headers;
use crate::response::reasons;

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
    /// The clusters that the caller sees.
    pub(crate) seen: Vec<Cluster>,
    pub(crate) resource: ResourceId,
    pub(crate) absences: Absences,
    pub(crate) max_age: Duration,
    pub(crate) unread: usize,
    pub(crate) denied: Vec<String>,
    /// The clusters that are too old for the request, with the reason.
    pub(crate) behind: BTreeMap<ClusterId, String>,
    /// The clusters that did not decide whether the caller may read them.
    pub(crate) undecided: Vec<ClusterId>,
}

/// Maximum number of clusters in a warning; the list's annotations name all.
const MAX_NAMED: usize = 10;

/// The maximum size of one annotation.
const MAX_ANNOTATION_BYTES: usize = 64 * 1024;

impl StatusBuilder {
    /// Returns the state of the clusters that the caller sees. `roster` and `ages` may be slightly out of date.
    pub(crate) fn build(&self, roster: &Roster, ages: &Ages) -> AnswerStatus {
        let mut found = AnswerStatus { age: Some(Duration::ZERO), ..AnswerStatus::default() };
        (found.unread, found.denied) = (self.unread, self.denied.clone());
        found.missing = undecided(&self.undecided);
        for cluster in &self.seen {
            let id = cluster.id();
            let has_content = roster.get(id).is_some_and(|member| member.position.is_some());
            if !has_content {
                match self.absences.get(id) {
                    Some(Absence::NotServed) => {}
                    Some(Absence::Because(reason)) => found.missing.push((id.clone(), reason.to_string())),
                    None => {
                        let reason = reasons::describe_cluster(cluster, &self.resource);
                        found
                            .missing
                            .push((id.clone(), reason.unwrap_or_else(|| "not listed yet".to_owned())));
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
            found.check_age(cluster, &self.resource, ages.get(id), self.max_age, self.behind.get(id));
        }
        found
    }
}

impl AnswerStatus {
    fn check_age(
        &mut self,
        cluster: &Cluster,
        resource: &ResourceId,
        age: Option<Age>,
        max_age: Duration,
        behind: Option<&String>,
    ) {
        let bound = age.and_then(|age| age.bound);
        self.age = self.age.zip(bound).map(|(oldest, age)| oldest.max(age));
        let state = cluster.state();
        let is_off =
            matches!(state.condition, Condition::Paused | Condition::Unreachable | Condition::Removed);
        if let Some(why) = behind {
            self.stale.push((cluster.id().clone(), why.clone()));
        } else if is_off || !age.is_some_and(|age| age.is_within(max_age)) {
            let age = bound.map_or("of unknown age".to_owned(), |age| format!("up to {age:.0?} old"));
            let reason = reasons::describe_cluster(cluster, resource).map(|reason| format!(", {reason}"));
            self.stale.push((cluster.id().clone(), age + &reason.unwrap_or_default()));
        }
    }

    /// Adds the state to the headers as warnings, which kubectl prints.
    pub(crate) fn warn(&self, headers: &mut HeaderMap) {
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

/// Returns the clusters that did not decide on the caller's permission, as missing ones with the reason.
pub(crate) fn undecided(clusters: &[ClusterId]) -> Vec<(ClusterId, String)> {
    clusters.iter().map(|id| (id.clone(), "it does not say whether you may read it".to_owned())).collect()
}

fn shortened(texts: impl Iterator<Item = String>, count: usize) -> String {
    let mut text = texts.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if count > MAX_NAMED {
        let _ = write!(text, ", and {} more", count - MAX_NAMED);
    }
    text
}

/// The clusters that a request selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterSelection {
    /// The names of `?clusters=a,b`; `None` for all clusters.
    pub(crate) names: Option<BTreeSet<String>>,
    /// The label selector of `?clusterSelector=`.
    pub(crate) labels: skopos_wire::LabelSelector,
}

impl ClusterSelection {
    /// Returns whether the cluster is named: by its own name, or by a context that cannot be a cluster's name, such as
    /// `team/prod`. Its labels do not matter.
    pub(crate) fn names(&self, cluster: &Cluster) -> bool {
        let Some(names) = &self.names else { return true };
        names.contains(cluster.id().as_str())
            || cluster
                .original_name()
                .is_some_and(|name| names.contains(&*name) && ClusterId::new(&*name).is_err())
    }

    /// Returns whether the cluster is named and has the labels. Only for clusters that the caller may read: for others,
    /// the answer would reveal their labels.
    pub(crate) fn matches(&self, cluster: &Cluster) -> bool {
        self.names(cluster) && cluster.matches(&self.labels)
    }
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
